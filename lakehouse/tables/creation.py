"""The tables that lakejoin maintains: their creation, removal, upkeep, and return to an earlier version."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import accumulate

from pyspark.sql import SparkSession
from pyspark.sql.types import DataType, StructType

from lakehouse.errors.conditions import is_conflict
from lakehouse.errors.errors import AnotherRun
from lakehouse.session.engine import Engine
from lakehouse.session.settings import TABLE_PROPERTIES
from lakehouse.session.writing import write
from lakehouse.tables.table import CHANGE_FEED, CLUSTER_BY, UNSETTLED, Table, cluster_properties, history
from lakehouse.values.compare import CLUSTERABLE, names_in, type_sql
from lakehouse.values.recorded import CLUSTERING_COLUMNS
from lakehouse.values.sqltext import Address, quote, text

_SPECIAL_IN_COLUMN_NAMES = re.compile(r"[ ,;{}()\n\t=]")


def create(
    spark: SparkSession,
    address: Address,
    schema: StructType,
    key: Sequence[str],
    *,
    feed: bool = True,
    properties: Mapping[str, str] | None = None,
    cluster_by: Sequence[str] = (),
) -> None:
    """
    Create an empty table that lakejoin maintains, with deletion vectors, unless it exists. It is clustered by the given
    columns, else by up to four columns of the key, which comes first in the schema, if Delta keeps statistics for them.

    Column mapping is on only if a column name requires it, because other readers of the feed may not support it.
    """
    merged = {CHANGE_FEED: str(feed).lower(), "delta.enableDeletionVectors": "true", **TABLE_PROPERTIES}
    merged |= {**(cluster_properties(cluster_by) if cluster_by else {}), **(properties or {})}
    merged |= column_mapping(names_in(schema))
    columns = ", ".join(f"{quote(field.name)} {type_sql(field.dataType)}" for field in schema)
    statement = f"CREATE TABLE IF NOT EXISTS {address.sql} ({columns}) USING delta"
    statement += _clustering(cluster_by or _clustering_columns(schema, key))
    statement += f" TBLPROPERTIES {_properties(merged)}"
    write(f"create table {address.label}", lambda: spark.sql(statement).collect(), address.path)


def column_mapping(names: Iterable[str]) -> dict[str, str]:
    """Return the property that a table needs if the name of a column has characters that Parquet does not take."""
    special = any(_SPECIAL_IN_COLUMN_NAMES.search(name) for name in names)
    return {"delta.columnMapping.mode": "name"} if special else {}


def recluster(engine: Engine, table: Table, cluster_by: Sequence[str]) -> dict[str, int]:
    """
    Lay out a result by other columns, or by its key if none are given, and count its files as `optimize` does. If this
    is interrupted, `Table.clustered_by` is None, and it has to be done again.
    """
    spark, address = engine.spark, table.address
    clustering = _clustering(cluster_by or _clustering_columns(table.schema, table.key))
    with _refusing_conflicts(address):
        set_properties(spark, address, {CLUSTER_BY: UNSETTLED})
        write(
            f"cluster {address.label}",
            lambda: spark.sql(f"ALTER TABLE {address.sql}{clustering or ' CLUSTER BY NONE'}").collect(),
            table.location,
        )
        files = optimize(engine, table, whole=bool(clustering))
        set_properties(spark, address, cluster_properties(cluster_by))
    return files


def cluster_again(spark: SparkSession, table: Table) -> None:
    """Cluster a table as its properties say, in a commit of its own, if an overwrite has made Delta forget it."""
    columns = table.clustered_by or _clustering_columns(table.schema, table.key)
    detail = spark.sql(f"DESCRIBE DETAIL {table.address.sql}").select("clusteringColumns").collect()[0]
    if columns and not detail[0]:
        statement = f"ALTER TABLE {table.address.sql}{_clustering(columns)}"
        write(f"cluster {table.address.label}", lambda: spark.sql(statement).collect(), table.location)


def _clustering_columns(schema: StructType, key: Sequence[str]) -> Sequence[str]:
    """Return the first columns of a key by which Delta clusters; none if it keeps no statistics for them."""
    columns = [name for name in key if isinstance(schema[name].dataType, CLUSTERABLE)][:CLUSTERING_COLUMNS]
    return columns if with_statistics(schema).issuperset(columns) else ()


def _clustering(columns: Sequence[str]) -> str:
    return f" CLUSTER BY ({', '.join(map(quote, columns))})" if columns else ""


def set_properties(spark: SparkSession, address: Address, properties: Mapping[str, str]) -> None:
    """Set properties of a table that lakejoin maintains, in a commit that changes no data."""
    statement = f"ALTER TABLE {address.sql} SET TBLPROPERTIES {_properties(properties)}"
    write(f"set properties of {address.label}", lambda: spark.sql(statement).collect(), address.path)


def _properties(properties: Mapping[str, str]) -> str:
    return f"({', '.join(f'{text(name)} = {text(value)}' for name, value in properties.items())})"


def with_statistics(schema: StructType) -> set[str]:
    """Return the columns for which Delta keeps statistics; a field inside a struct counts as a column."""
    leaves = list(accumulate(_leaves(field.dataType) for field in schema))
    most = int(TABLE_PROPERTIES["delta.dataSkippingNumIndexedCols"])
    return {field.name for field, number in zip(schema, leaves, strict=True) if number <= most}


def _leaves(data_type: DataType) -> int:
    return sum(_leaves(field.dataType) for field in data_type) if isinstance(data_type, StructType) else 1


def drop(engine: Engine, address: Address) -> None:
    """Remove a table that lakejoin maintains, if it exists; raise StorageFailed if something of it is left behind."""
    if address.path:
        write(f"drop {address.label}", lambda: engine.files.delete(address.path), address.path)
    else:
        write(f"drop {address.label}", lambda: engine.spark.sql(f"DROP TABLE IF EXISTS {address.sql}").collect())


def restore(spark: SparkSession, table: Table, version: int) -> None:
    """Restore a table that lakejoin maintains to an earlier version, in a separate commit."""
    statement = f"RESTORE TABLE {table.address.sql} TO VERSION AS OF {version}"
    write(f"restore {table.address.label}", lambda: spark.sql(statement).collect(), table.location)


def optimize(engine: Engine, table: Table, *, whole: bool = False) -> dict[str, int]:
    """
    Rewrite small files, or all files of a `whole` table, as fewer large ones, clustered if the table is; count them as
    `files_removed`, `files_added`. Raise AnotherRun, with nothing done, if another writer changed the same files.
    """
    address = table.address
    statement = f"OPTIMIZE {address.sql}{' FULL' if whole else ''}"
    with _refusing_conflicts(address):
        metrics = write(
            f"optimize {address.label}",
            lambda: engine.spark.sql(statement).select("metrics.*").collect()[0],
            table.location,
        )
    return {"files_removed": int(metrics["numFilesRemoved"]), "files_added": int(metrics["numFilesAdded"])}


@contextmanager
def _refusing_conflicts(address: Address) -> Iterator[None]:
    """Raise AnotherRun where another writer changes the table meanwhile."""
    try:
        yield
    except Exception as error:
        if not is_conflict(error):
            raise
        raise AnotherRun(
            address.label, "another writer changed the table during its upkeep", hint="run `lakejoin maintain` again"
        ) from error


def vacuum(engine: Engine, table: Table) -> int:
    """Delete the files that no version within the table's own retention needs, and return their number."""
    address = table.address
    write(f"vacuum {address.label}", lambda: engine.spark.sql(f"VACUUM {address.sql}").collect(), table.location)
    ends = (commit for commit in history(engine, address, 2) if commit.operation == "VACUUM END")
    return next((int(commit.metrics.get("numDeletedFiles", 0)) for commit in ends), 0)
