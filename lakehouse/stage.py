"""
The stage: one folder for each attempt at an epoch, with everything that the epoch will write.

A stage's path is never used twice, for a frame that something cached under it would be stale. After the ledger's
*publishing* row only this folder is read: retention of the sources or a new definition cannot stop an epoch half-way.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from lakehouse.sqltext import quote
from lakehouse.writing import write


@dataclass(frozen=True)
class Stage:
    """A stage's folder, on a file system that this process sees too (local, or mounted as Databricks' volumes are)."""

    path: str

    @staticmethod
    def of(root: str, join: str, epoch: int, run_id: str) -> "Stage":
        """Name the stage of one attempt: `<root>/<join>/<epoch>-<run id>`."""
        return Stage(f"{root}/{join}/{epoch}-{run_id}")

    def put(self, part: str, frame: DataFrame) -> None:
        """Write a frame as one part of the stage, as Parquet."""
        target = f"{self.path}/{part}"
        write(f"stage {part}", lambda: frame.write.mode("errorifexists").parquet(target))

    def get(self, spark: SparkSession, part: str) -> DataFrame:
        """Read a part back."""
        return spark.read.parquet(f"{self.path}/{part}")

    def sql(self, part: str) -> str:
        """Name a part in an SQL statement."""
        return f"parquet.{quote(f'{self.path}/{part}')}"

    def delete(self) -> None:
        """Remove the folder; one that is not there is removed already."""
        write("delete stage", lambda: shutil.rmtree(Path(self.path), ignore_errors=True))


def fields_of(frame: DataFrame, column: str) -> StructType:
    """Give the fields of a struct column: those of `key` or of `after` of a staged change set."""
    struct = frame.schema[column].dataType
    assert isinstance(struct, StructType)
    return struct
