"""
The stage: one folder for each attempt at an epoch, with everything that the epoch will write.

A stage's path is never used twice, for a frame that something cached under it would be stale. After the ledger's
*publishing* row only this folder is read: retention of the sources or a new definition cannot stop an epoch half-way.
"""

import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.sqltext import quote
from lakehouse.writing import write


@dataclass(frozen=True)
class Stage:
    """A stage's folder, on a file system that this process sees too (local, or mounted as Databricks' volumes are)."""

    path: str

    @staticmethod
    def of(root: str, join: str, epoch: int, run_id: str) -> "Stage":
        """Name the stage of one attempt below a folder: `<folder>/<join>/<epoch>-<run id>`."""
        return Stage(f"{root}/{join}/{epoch}-{run_id}")

    def put(
        self, part: str, frame: DataFrame, facts: Mapping[str, str] | None = None, *, add: bool = False
    ) -> dict[str, Any]:
        """
        Write a frame as one part of the stage, as Parquet.

        Args:
            part: The part's name.
            frame: The rows.
            facts: Aggregates of the rows, as SQL by name, taken while they are written.
            add: Whether the part is there already, and these are more of its rows.

        Returns:
            The facts.
        """
        seen = Observation()
        aggregates = [F.expr(sql).alias(name) for name, sql in (facts or {}).items()]
        rows = frame.observe(seen, *aggregates) if aggregates else frame
        write(
            f"stage {part}",
            lambda: rows.write.mode("append" if add else "error").parquet(f"{self.path}/{part}"),
        )
        return dict(seen.get) if aggregates else {}

    def get(self, spark: SparkSession, part: str, schema: StructType | None = None) -> DataFrame:
        """Read a part back; where its schema is not given, Spark has to look for it in a file."""
        reader = spark.read if schema is None else spark.read.schema(schema)
        return reader.parquet(f"{self.path}/{part}")

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
