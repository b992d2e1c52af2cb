"""
Rows of few keys, read by delta-rs: it finds them in tens of milliseconds, while a Spark query takes half a second.

delta-rs reads a table only if its features and the types of the columns have been shown to give the values that Spark
reads. If a value is outside the range in which that is known, Spark reads the rows after all.
"""

import logging
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakehouse import limits
from lakehouse.address import local_path
from lakehouse.pruning import EPOCH, Pruning, Wanted
from lakehouse.small import DriverRows, TooLarge, carried
from lakehouse.tables import DELTA_RS, Table
from lakehouse.values import INTEGRAL, char_type, plain_schema

if TYPE_CHECKING:
    import pyarrow
    from deltalake import DeltaTable

log = logging.getLogger(__name__)

FEATURES = frozenset({"deletionVectors", "timestampNtz", "v2Checkpoint", "vacuumProtocolCheck"})
"""
The features of a table under which delta-rs reads the same values as Spark.

The list is a precaution: delta-rs 1.6 itself refuses to read a table with a feature that it does not know.
"""

COLUMN_MAPPING = "delta.columnMapping.mode"
"""delta-rs reads rows under column mapping as Spark does; a feed read from files would be of other columns."""

SETTINGS = {
    # Without it delta-rs reads INT96, in which Spark writes timestamps by default, as nanoseconds, which overflow.
    "datafusion.execution.parquet.coerce_int96": "us",
    # Columns are decoded only for the rows that the predicate selects.
    "datafusion.execution.parquet.pushdown_filters": "true",
}

FIRST_DATE = date(1582, 10, 15)
FIRST_TIME = datetime(1900, 1, 1)
"""
Spark may shift earlier dates and times, by the writer of the file, because it once used another calendar. It does not
shift times without a time zone; they are left to Spark as a precaution.
"""


def why_spark(table: Table, columns: Sequence[str]) -> str:
    """Return why Spark reads the rows of a table, in a few words; empty if delta-rs may read these columns."""
    if table.reader != DELTA_RS:
        return table.reader or "its log is not read"
    unknown = sorted(table.features - FEATURES)
    if unknown:
        return f"feature {', '.join(unknown)}"
    if table.properties.get(COLUMN_MAPPING, "none").lower() != "none":
        return "column mapping"
    if table.where:
        return "only some of its rows exist for a reader"
    for name in columns:
        if not _is_readable(table.schema[name]):
            kind = char_type(table.schema[name]) or table.schema[name].dataType.simpleString()
            return f"column {name} is of type {kind}"
    return ""


def _is_readable(field: StructField) -> bool:
    """
    Return whether delta-rs reads the values of a column as Spark does: those of plain types, but not of CHAR.

    Values within nested ones are not checked for early dates. VARIANT and collated text are left to Spark as a
    precaution: their values read alike.
    """
    is_nested = isinstance(field.dataType, (ArrayType, MapType, StructType))
    return carried(field.dataType) and not is_nested and char_type(field) is None


Selection = tuple[Pruning | None, Sequence[str]]
"""Keys by their pruning, None for all keys, with the columns of a table that hold the parts of the key."""


def read_directly(
    spark: SparkSession, table: Table, version: int, columns: Sequence[str], selections: Sequence[Selection]
) -> DriverRows | None:
    """
    Read rows of a table at a version.

    Args:
        spark: Our session.
        table: The table.
        version: The version.
        columns: The columns to read.
        selections: What to read: each row that one of these covers.

    Returns:
        The rows that exist for a reader; they may include rows without one of the keys. None if Spark has to read them,
        also because they are too many or too large for this process, or because more than `limits.LISTED_KEYS` values
        of a column are wanted: delta-rs crashed the process on a list of more than 20,000 values.
    """
    import pyarrow
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    literals = Counter[str]()
    for keys, compared in selections:
        for item in keys.wanted if keys else ():
            literals[compared[item.part]] += len(item.values or ())
    if why_spark(table, [*columns, *literals]) or any(number > limits.LISTED_KEYS for number in literals.values()):
        return None
    predicates = [_predicate(table, *selection) for selection in selections]
    if not all(predicates):
        return None
    try:
        source = DeltaTable(local_path(table.address.path) or "", version=version)
        files = _covering(source, selections)
        if sum(files.values()) > limits.DIRECT_BYTES:
            return None
        rows = _query(source, columns, " OR ".join(predicates))
    except TooLarge:
        return None  # keys of several parts may select more rows than have one of the keys, which Spark then finds
    except (DeltaError, OSError, ValueError, pyarrow.ArrowException) as error:
        # Spark, which reads the rows then, reports what is wrong.
        log.info("%s: delta-rs cannot read the rows: %s", table.address.label, str(error).partition("\n")[0])
        return None
    if has_early(rows):
        return None
    schema = plain_schema([table.schema[name] for name in columns])
    found = [f"file://{local_path(table.address.path)}/{path}" for path in files]
    return DriverRows(rows, spark.createDataFrame(rows, schema=schema), None, found)


def _covering(source: "DeltaTable", selections: Sequence[Selection]) -> dict[str, int]:
    """Return the files that may hold a selected row, by their statistics in the log, with their bytes."""
    import pyarrow

    actions = pyarrow.table(source.get_add_actions(flatten=True))
    known = set(actions.column_names)
    covered = [False] * actions.num_rows
    for keys, columns in selections:
        chosen = [True] * actions.num_rows
        for item in keys.wanted if keys else ():
            ends = [f"{end}.{columns[item.part]}" for end in ("min", "max")]
            if known.issuperset(ends) and isinstance(item.kind, (*INTEGRAL, StringType)):
                pairs = zip(*(actions[end].to_pylist() for end in ends), strict=True)
                chosen = [was and _overlaps(item, *pair) for was, pair in zip(chosen, pairs, strict=True)]
        covered = [one or other for one, other in zip(covered, chosen, strict=True)]
    files = zip(actions["path"].to_pylist(), actions["size_bytes"].to_pylist(), covered, strict=True)
    return {path: size for path, size, is_covered in files if is_covered}


def _overlaps(item: Wanted, least: Any, most: Any) -> bool:
    """Return whether a file with values between two ends, null if unknown, may hold a wanted value."""
    return least is None or most is None or any(low <= most and high >= least for low, high in item.ranges)


def _query(source: "DeltaTable", columns: Sequence[str], predicate: str) -> "pyarrow.Table":
    """Read the rows for which a predicate holds."""
    import pyarrow
    from deltalake import QueryBuilder

    sql = f"SELECT {', '.join(map(_quoted, columns))} FROM t WHERE {predicate}"
    reader = pyarrow.RecordBatchReader.from_stream(QueryBuilder(SETTINGS).register("t", source).execute(sql))
    batches, rows, size = [], 0, 0
    for batch in reader:
        rows, size = rows + batch.num_rows, size + batch.get_total_buffer_size()
        if rows > limits.ROWS_ON_DRIVER or size > limits.BYTES_ON_DRIVER:
            raise TooLarge
        batches.append(batch)
    return pyarrow.Table.from_batches(batches, reader.schema)


def has_early(rows: "pyarrow.Table") -> bool:
    """Return whether rows contain a date or a time that Spark may shift."""
    import pyarrow.compute
    import pyarrow.types

    for column in rows.columns:
        first = FIRST_DATE if pyarrow.types.is_date(column.type) else FIRST_TIME
        if pyarrow.types.is_temporal(column.type):
            early = pyarrow.compute.less(column, pyarrow.scalar(first).cast(column.type))
            if pyarrow.compute.any(early).as_py():
                return True
    return False


def _predicate(table: Table, keys: Pruning | None, columns: Sequence[str]) -> str:
    """Write the predicate of keys in the SQL of delta-rs; empty if their parts are not in columns of the same types."""
    if keys is None:
        return f"({' AND '.join(f'{_quoted(name)} IS NOT NULL' for name in columns)})"
    conjuncts = []
    for item in keys.wanted:
        name = columns[item.part]
        kind = table.schema[name].dataType
        if kind != item.kind and not (isinstance(kind, INTEGRAL) and isinstance(item.kind, INTEGRAL)):
            return ""
        if _is_early(item.ranges[0][0], kind):  # the ranges ascend and cover all values
            return ""
        conjuncts += _conjuncts(_quoted(name), item)
    return f"({' AND '.join(conjuncts)})" if conjuncts else ""


def _conjuncts(column: str, item: Wanted) -> list[str]:
    """Write the conditions on a column: the list of values, unless it is too long, and the ranges, which skip files."""
    ranges = [
        f"{column} BETWEEN {_literal(low, item.kind)} AND {_literal(high, item.kind)}" for low, high in item.ranges
    ]
    listed = [f"{column} IN ({', '.join(_literal(value, item.kind) for value in item.values)})"] if item.values else []
    return [*listed, f"({' OR '.join(ranges)})"]


def _literal(value: Any, kind: DataType) -> str:
    """Write a value that `pruning.carried` transferred as a literal of delta-rs."""
    if isinstance(kind, INTEGRAL):
        return str(value)
    if isinstance(kind, DateType):
        return f"DATE '{date(1970, 1, 1) + timedelta(days=value)}'"
    if isinstance(kind, TimestampType):  # TIMESTAMP literals of delta-rs count nanoseconds, which overflow
        at = (EPOCH + timedelta(microseconds=value)).isoformat()
        return f"""arrow_cast('{at}', 'Timestamp(Microsecond, Some("UTC"))')"""
    if isinstance(kind, TimestampNTZType):
        return f"arrow_cast('{value}', 'Timestamp(Microsecond, None)')"
    if isinstance(kind, DecimalType):
        return f"CAST('{value:f}' AS DECIMAL({kind.precision}, {kind.scale}))"
    return "'" + str(value).replace("'", "''") + "'"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _is_early(value: Any, kind: DataType) -> bool:
    if isinstance(kind, DateType):
        return bool(value < (FIRST_DATE - date(1970, 1, 1)).days)
    if isinstance(kind, TimestampType):
        return bool(value < (FIRST_TIME.replace(tzinfo=UTC) - EPOCH) // timedelta(microseconds=1))
    return isinstance(kind, TimestampNTZType) and str(value) < FIRST_TIME.isoformat(" ")
