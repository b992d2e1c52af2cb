"""The tables of the demo, written as any job would write them; nothing here knows lakejoin."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from delta.tables import DeltaMergeBuilder, DeltaTable
from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class Lake:
    """
    A folder of Delta tables.

    Args:
        spark: The session to write with.
        folder: The folder.
    """

    spark: SparkSession
    folder: Path

    def create(self, name: str, rows: DataFrame) -> int:
        """Make a table with the change data feed on; give its rows."""
        writer = rows.write.format("delta").option("delta.enableChangeDataFeed", True)
        writer.option("delta.enableDeletionVectors", True).save(self._path(name))
        return self.table(name).count()

    def append(self, name: str, rows: DataFrame) -> int:
        """Add rows to a table; give their number."""
        rows.write.format("delta").mode("append").save(self._path(name))
        metrics = DeltaTable.forPath(self.spark, self._path(name)).history(1).select("operationMetrics").collect()
        return int(metrics[0][0]["numOutputRows"])

    def table(self, name: str) -> DataFrame:
        """Read a table as it is now."""
        return self.spark.read.format("delta").load(self._path(name))

    def merge(self, name: str, rows: DataFrame, key: Sequence[str]) -> DeltaMergeBuilder:
        """Begin a MERGE of rows, called `new`, into a table."""
        held = DeltaTable.forPath(self.spark, self._path(name)).alias("held")
        return held.merge(rows.alias("new"), " AND ".join(f"held.{part} = new.{part}" for part in key))

    def _path(self, name: str) -> str:
        return str(self.folder / name)


def done(merge: DeltaMergeBuilder) -> int:
    """Carry out a change and give the number of its rows; each one of the demo ends here."""
    return int(merge.execute().collect()[0]["num_affected_rows"])
