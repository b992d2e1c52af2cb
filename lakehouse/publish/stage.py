"""
The stage: one folder for each attempt at an epoch, with everything that the epoch will write.

The path of a stage is never used twice, because a frame cached under this path would be stale. After the ledger's
*publishing* row, an epoch reads only this folder: retention of the sources or a new definition cannot stop it.
"""

import json
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse import limits
from lakehouse.errors.errors import StorageFailed
from lakehouse.session.files import Files, Listed
from lakehouse.session.writing import write
from lakehouse.values.compare import plain_schema
from lakehouse.values.driver_rows import TooLarge, collected, fits_arrow
from lakehouse.values.sqltext import quote

log = logging.getLogger(__name__)

_SCHEMA_IN_FOOTER = b"org.apache.spark.sql.parquet.row.metadata"
"""The key under which Spark writes the schema of a frame into the footers of its Parquet files."""

_VERSION_IN_FOOTER = b"org.apache.spark.version"
"""The key under which Spark writes its version: files of a recent version need no conversion of early dates."""


@dataclass(frozen=True)
class Deferred:
    """
    Rows that are computed again where they are appended, because to write many rows twice takes longer. `facts` are
    aggregates of them, as SQL by name, and `found` their values, taken beforehand.
    """

    rows: DataFrame
    facts: Mapping[str, str]
    found: Mapping[str, Any]

    def observed(self) -> tuple[DataFrame, Observation]:
        """Return the rows with an observation that takes the same aggregates while the rows are written."""
        seen = Observation()
        return self.rows.observe(seen, *(F.expr(sql).alias(name) for name, sql in self.facts.items())), seen


@dataclass(frozen=True)
class Stage:
    """
    The folder of a stage, where both Spark and this process reach it (local, a mounted Databricks volume, or an object
    store), and the parts that are not written, which only this process can publish.
    """

    path: str
    files: Files = field(compare=False)
    deferred: dict[str, Deferred] = field(default_factory=dict, compare=False)

    @staticmethod
    def of(root: str, files: Files, join: str, epoch: int, run_id: str) -> "Stage":
        """Return the stage of one attempt, below a folder: `<folder>/<join>/<epoch>-<run id>`."""
        return Stage(f"{root}/{join}/{epoch}-{run_id}", files)

    def put(
        self,
        part: str,
        frame: DataFrame,
        facts: Mapping[str, str] | None = None,
        *,
        add: bool = False,
        via_driver: bool = False,
        hidden: Sequence[str] = (),
    ) -> dict[str, Any]:
        """
        Write a frame as one part of the stage, as Parquet, and return the values of the aggregates.

        Args:
            facts: Aggregates of the rows, as SQL by name, computed during the write.
            add: Whether the part exists already and the rows are appended to it.
            via_driver: Whether the rows are few, so that the driver writes them as one file, without a job that writes.
            hidden: Columns of the frame that only the aggregates need; they are not written.
        """
        if via_driver:
            with suppress(TooLarge):
                return _observed(frame, facts or {}, partial(self._put_by_driver, part), hidden)
        mode, path = "append" if add else "error", f"{self.path}/{part}"

        def put(rows: DataFrame) -> None:
            write(f"stage {part}", lambda: rows.write.mode(mode).parquet(path))

        return _observed(frame, facts or {}, put, hidden)

    def _put_by_driver(self, part: str, rows: DataFrame) -> None:
        """Write rows as one file, which is durable then."""
        import pyarrow.parquet

        table, _ = collected(rows)
        schema = plain_schema(rows.schema.fields).json()
        footer = {_SCHEMA_IN_FOOTER: schema, _VERSION_IN_FOOTER: rows.sparkSession.version}
        written = pyarrow.BufferOutputStream()
        pyarrow.parquet.write_table(table.replace_schema_metadata(footer), written)
        write(f"stage {part}", lambda: self.files.create(f"{self.path}/{part}", "few.parquet", written.getvalue()))

    def get(self, spark: SparkSession, part: str, schema: StructType | None = None) -> DataFrame:
        """Read a part back; without a schema, Spark has to read it from a file. A deferred part is computed again."""
        if part in self.deferred:
            return self.deferred[part].rows
        reader = spark.read if schema is None else spark.read.schema(schema)
        return reader.parquet(f"{self.path}/{part}")

    def schema(self, part: str) -> StructType:
        """Return the schema of a part that is written, from the footer of a file."""
        return StructType.fromJson(json.loads(self._footer(self._parquet(part)[0]).metadata[_SCHEMA_IN_FOOTER]))

    def rows(self, spark: SparkSession, part: str) -> tuple[DataFrame, bool]:
        """
        Read a part back without a query for its schema, which `put` left in its files, and return whether the driver
        holds the rows: those of a small part become a literal of later plans.
        """
        import pyarrow.parquet

        files = self._parquet(part)
        if not files:
            return self.get(spark, part), False
        schema = self.schema(part)
        is_small = sum(file.size for file in files) <= limits.INTERPRETED_BYTES and fits_arrow(schema)
        # A million rows of few different values may be a file of 1 MiB.
        if not is_small or sum(self._footer(file).num_rows for file in files) > limits.ROWS_ON_DRIVER:
            return self.get(spark, part, schema), False
        rows = pyarrow.concat_tables(map(self._read, files))
        return spark.createDataFrame(rows, schema=schema), True

    def facts(
        self, spark: SparkSession, part: str, facts: Mapping[str, str], schema: StructType | None = None
    ) -> dict[str, Any]:
        """Return aggregates of a part, given as SQL by name: those that were taken when it was deferred, or of now."""
        deferred = self.deferred.get(part)
        if deferred is not None and deferred.facts == facts:
            return dict(deferred.found)
        aggregates = (F.expr(sql).alias(name) for name, sql in facts.items())
        return self.get(spark, part, schema).agg(*aggregates).collect()[0].asDict()

    def has_null_keys(self, part: str) -> bool:
        """Return whether a part of a key is null in some row of a change set, by the statistics of its files."""
        for metadata in map(self._footer, self._parquet(part)):
            groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
            columns = (group.column(number) for group in groups for number in range(group.num_columns))
            for of_key in (column.statistics for column in columns if column.path_in_schema.startswith("key.")):
                if of_key is None or not of_key.has_null_count or of_key.null_count:
                    return True
        return False

    def _parquet(self, part: str) -> list[Listed]:
        """List the Parquet files of a part."""
        return [file for file in self.files.listed(f"{self.path}/{part}") if file.name.endswith(".parquet")]

    def _footer(self, file: Listed) -> Any:
        import pyarrow.parquet

        with self.files.open(file.path) as opened:
            return pyarrow.parquet.read_metadata(opened)

    def _read(self, file: Listed) -> Any:
        import pyarrow.parquet

        with self.files.open(file.path) as opened:
            return pyarrow.parquet.read_table(opened)

    def exists(self) -> bool:
        """Return whether something is staged."""
        return self.files.exists(self.path)

    def sql(self, part: str) -> str:
        """Return the reference to a part in an SQL statement."""
        return f"parquet.{quote(f'{self.path}/{part}')}"

    def delete(self) -> bool:
        """Remove the folder, if it exists; return whether nothing of it is left, else `maintain` removes it."""
        try:
            write("delete stage", lambda: self.files.delete(self.path))
        except (StorageFailed, OSError) as error:
            found = error.found if isinstance(error, StorageFailed) else error
            log.warning("the stage %s is left, for `lakejoin maintain` to delete: %s", self.path, found)
            return False
        return True


def _observed(
    frame: DataFrame, facts: Mapping[str, str], put: Callable[[DataFrame], None], hidden: Sequence[str]
) -> dict[str, Any]:
    seen = Observation()
    aggregates = [F.expr(sql).alias(name) for name, sql in facts.items()]
    put((frame.observe(seen, *aggregates) if aggregates else frame).drop(*hidden))
    return dict(seen.get) if aggregates else {}
