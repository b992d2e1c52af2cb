"""Lakes with a past that several tests begin with: each is made once for all workers of a run, and copied."""

import fcntl
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from pyspark.sql import SparkSession

from pipelines import Pipeline
from tests.lake import Lake

L = TypeVar("L", bound=Lake)


class Recorded:
    """Gives a test copies of lakes, in a folder of its own; `root` is a folder of all workers."""

    def __init__(self, spark: SparkSession, root: Path, folder: Path) -> None:
        self._spark, self._root, self._folder = spark, root, folder

    def __call__(self, *steps: Callable[[L], object], like: type[L] = Lake) -> L:
        """Copy the lake that some functions fill one after the other; lakes that begin alike share their beginning."""
        return self.whole(*steps, like=like).copy(self._folder / steps[-1].__name__)

    def whole(self, *steps: Callable[[L], object], like: type[L] = Lake) -> L:
        """Give the recorded lake itself, which nobody may change."""
        name = "+".join(f"{step.__module__}.{step.__name__}" for step in steps)
        made, part = self._root / name, self._root / f"{name}.part"
        with (self._root / f"{name}.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not made.exists():
                shutil.rmtree(part, ignore_errors=True)  # of a function that failed
                if steps[1:]:
                    lake = self.whole(*steps[:-1], like=like).copy(part)
                else:
                    part.mkdir()
                    lake = like(self._spark, part)
                steps[-1](lake)
                part.rename(made)
        return like(self._spark, made)


def first_run(lake: Lake) -> None:
    """Run the joins of the lake's pipeline file."""
    Pipeline.load(lake.file).run(lake.spark)


def create_standard(lake: Lake) -> None:
    """Create `left` and `right` with three rows each, and the pipeline file that joins them."""
    lake.create("left", "k INT, v STRING", "(1, 'a'), (2, 'b'), (3, 'c')")
    lake.create("right", "k INT, w STRING", "(2, 'x'), (3, 'y'), (4, 'z')")
    lake.pipeline()
