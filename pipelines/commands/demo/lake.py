"""The tables of the demo, written as any job would write them. This module does not use lakejoin."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from delta.tables import DeltaMergeBuilder, DeltaTable
from pyspark.sql import DataFrame, SparkSession

StartSpark = Callable[[Mapping[str, str]], SparkSession]
"""A function that starts Spark with additional settings."""


@dataclass(frozen=True)
class Lake:
    """A folder of Delta tables, and the session that writes them."""

    spark: SparkSession
    folder: Path

    def create(self, name: str, rows: DataFrame) -> int:
        """Create a table with the change data feed enabled, and return its number of rows."""
        writer = rows.write.format("delta").option("delta.enableChangeDataFeed", True)
        writer.option("delta.enableDeletionVectors", True).save(self._path(name))
        return self.table(name).count()

    def append(self, name: str, rows: DataFrame) -> int:
        """Append rows to a table, and return their number."""
        rows.write.format("delta").mode("append").save(self._path(name))
        metrics = DeltaTable.forPath(self.spark, self._path(name)).history(1).select("operationMetrics").collect()
        return int(metrics[0][0]["numOutputRows"])

    def table(self, name: str) -> DataFrame:
        """Read the newest version of a table."""
        return self.spark.read.format("delta").load(self._path(name))

    def merge(self, name: str, rows: DataFrame, key: Sequence[str]) -> DeltaMergeBuilder:
        """Return a MERGE of rows, under the alias `new`, into a table."""
        old = DeltaTable.forPath(self.spark, self._path(name)).alias("old")
        return old.merge(rows.alias("new"), " AND ".join(f"old.{part} = new.{part}" for part in key))

    def _path(self, name: str) -> str:
        return str(self.folder / name)


def done(merge: DeltaMergeBuilder) -> int:
    """Execute a MERGE, and return the number of rows that it changed."""
    return int(merge.execute().collect()[0]["num_affected_rows"])
