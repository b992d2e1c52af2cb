"""A run killed before or after any of its writes, and started again, ends in the same tables as one that was not."""

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lakehouse import writing
from pipelines import Pipeline
from tests.lake import Lake, only


def before_the_load(standard: Lake, loaded: Lake) -> Lake:
    return standard


def before_an_epoch(standard: Lake, loaded: Lake) -> Lake:
    loaded.sql(
        "MERGE INTO {left} t USING (SELECT * FROM VALUES (1, 'n'), (2, NULL), (4, 'd') AS s(k, v)) s ON t.k = s.k "
        "WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
    )
    loaded.sql("UPDATE {right} SET w = 'n' WHERE k = 3")
    return loaded


def pipeline_of(lake: Lake) -> Pipeline:
    """Load the pipeline file as the lake has it."""
    return Pipeline.load(lake.file)


def outcome(lake: Lake) -> dict[str, Any]:
    """Say what two equal lakes have in common: all but run ids, times and stages that a kill left behind."""
    return {
        "rows": lake.rows(),
        "feed": lake.feed(0),
        "versions": lake.versions(),
        "changelog": logged(lake),
        "state": lake.rows("result__state") if Path(lake.path("result__state")).exists() else [],
        "ledger": [
            (row["epoch"], row["step"], row["strategy"], row["sources"], row["counts"]) for row in lake.ledger()
        ],
    }


def logged(lake: Lake) -> list[tuple[Any, ...]]:
    """Give the rows of the changelog without their times, if there is one."""
    if not Path(lake.path("result__changelog")).exists():
        return []
    rows = lake.spark.read.format("delta").load(lake.path("result__changelog")).drop("_at")
    return sorted((tuple(row) for row in rows.collect()), key=repr)


def die_at(lake: Lake, number: int, moment: str) -> None:
    gateway = lake.spark.sparkContext._gateway
    assert gateway is not None
    environment = {
        **os.environ,
        "PYSPARK_GATEWAY_PORT": str(gateway.gateway_parameters.port),
        "PYSPARK_GATEWAY_SECRET": str(gateway.gateway_parameters.auth_token),
    }
    child = [sys.executable, "-m", "tests.crash_child", str(lake.file), str(number), moment]
    done = subprocess.run(child, env=environment, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == -9, f"the process was to die at write {number}: {done.stderr[-2000:]}"


def before_an_epoch_with_a_changelog(standard: Lake, loaded: Lake) -> Lake:
    standard.pipeline(changelog=True).run(standard.spark)
    return before_an_epoch(loaded, standard)


def before_an_epoch_of_a_stream(standard: Lake, loaded: Lake) -> Lake:
    """Rows come to the left table, which is a stream here, and the right one changes."""
    standard.pipeline(sources={"left": {"key": "k", "kind": "stream"}, "right": "k"}).run(standard.spark)
    standard.sql("INSERT INTO {left} VALUES (2, 'n'), (3, 'o')")
    standard.sql("UPDATE {right} SET w = 'n' WHERE k = 3")
    standard.sql("INSERT INTO {left} VALUES (3, 'p')")
    return standard


def before_the_load_of_a_stream(standard: Lake, loaded: Lake) -> Lake:
    standard.pipeline(sources={"left": {"key": "k", "kind": "stream"}, "right": "k"})
    return standard


TWO_STREAMS = {name: {"key": "k", "kind": "stream", "watermarks": {"k": 1}} for name in ("left", "right")}
WITHIN = "SELECT l.k, l.v, r.w FROM left l FULL JOIN right r ON l.k BETWEEN r.k - 1 AND r.k + 1"


def before_an_epoch_of_two_streams(standard: Lake, loaded: Lake) -> Lake:
    """Rows come that meet some that wait, others leave alone, and one is late."""
    standard.pipeline(WITHIN, TWO_STREAMS).run(standard.spark)
    standard.sql("INSERT INTO {left} VALUES (5, 'n'), (9, 'o'), (1, 'late')")
    standard.sql("INSERT INTO {right} VALUES (6, 'n'), (12, NULL)")
    return standard


def before_the_load_of_two_streams(standard: Lake, loaded: Lake) -> Lake:
    standard.pipeline(WITHIN, TWO_STREAMS)
    return standard


@pytest.mark.parametrize(
    "prepare",
    [
        pytest.param(before_the_load, marks=pytest.mark.slow),
        pytest.param(before_an_epoch, marks=pytest.mark.slow),
        pytest.param(before_an_epoch_with_a_changelog, marks=pytest.mark.slow),
        pytest.param(before_the_load_of_a_stream, marks=pytest.mark.slow),
        pytest.param(before_an_epoch_of_a_stream, marks=pytest.mark.slow),
        pytest.param(before_the_load_of_two_streams, marks=pytest.mark.slow),
        before_an_epoch_of_two_streams,
    ],
)
def test_killed_at_every_write(
    standard: Lake, loaded: Lake, tmp_path: Path, prepare: Callable[[Lake, Lake], Lake]
) -> None:
    """SIGKILL before and after each write that there is: the test finds the writes itself."""
    start = prepare(standard, loaded)
    straight = start.copy(tmp_path / "straight")
    writes: list[str] = []
    writing.observers.append(lambda when, what: writes.append(what) if when == "before" else None)
    pipeline_of(straight).run(straight.spark)
    writing.observers.clear()
    expected = outcome(straight)
    assert len(writes) >= 5
    points = [("before", number) for number in range(1, len(writes) + 1)] + [("after", len(writes))]
    for moment, number in points:  # between two writes nothing happens: after one is before the next
        lake = start.copy(tmp_path / f"{number}-{moment}")
        die_at(lake, number, moment)
        resumed = only(pipeline_of(lake).run(lake.spark))
        where = f"killed {moment} write {number} ({writes[number - 1]}), then {resumed.text()}"
        assert outcome(lake) == expected, where
        shutil.rmtree(lake.folder)
    print(f"{len(points)} points: {', '.join(writes)}")
