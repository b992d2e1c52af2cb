"""
Literal predicates that let Delta skip files.

Delta skips files by the smallest and largest member of an IN list and by nothing else of it, so a predicate carries
both: while it is short enough the IN list, which drops rows before a shuffle, and ORed ranges cut at the widest gaps
between the wanted values, which skip files. A predicate is always implied by the keys it was made from.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    ShortType,
    StringType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from lakehouse import limits
from lakehouse.sqltext import quote, text
from lakehouse.values import INTEGRAL, PRUNABLE

INTEGRAL_SUFFIX: dict[type[DataType], str] = {ByteType: "Y", ShortType: "S", LongType: "L"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAMAGED = "\ufffd"
"""The driver reads invalid UTF-8 as this character. A literal made from it finds other rows than the key does."""
LATEST_MICROS = 253_402_300_799_999_999
EARLIEST_MICROS = -62_135_596_800_000_000


@dataclass(frozen=True)
class Wanted:
    """
    The values wanted of one key part.

    Args:
        part: Place of the part in the key.
        kind: Its type.
        ranges: Closed ranges that hold every wanted value, ascending.
        values: All wanted values, or None where they are too many to list.
    """

    part: int
    kind: DataType
    ranges: tuple[tuple[Any, Any], ...]
    values: tuple[Any, ...] | None


@dataclass(frozen=True)
class Pruning:
    """
    What is known about a set of keys.

    Args:
        wanted: For each key part that file statistics can prune by, the wanted values.
        keys: How many keys there are, None where there are more than are listed.
        exact: Whether the predicate holds for these keys and for no other: a key of one part, all values listed.
    """

    wanted: tuple[Wanted, ...]
    keys: int | None
    exact: bool = False

    def predicate(self, columns: Sequence[str], prefix: str = "") -> str | None:
        """
        Write the predicate for a table's columns.

        Args:
            columns: The table's key columns, in the order of the key parts.
            prefix: What the columns are fields of, with the dot.

        Returns:
            Spark SQL that holds for every row with one of the keys, or None if nothing can be said.
        """
        conjuncts = []
        for item in self.wanted:
            column = prefix + quote(columns[item.part])
            parts = [
                f"{column} = {literal(low, item.kind)}"
                if low == high
                else f"{column} BETWEEN {literal(low, item.kind)} AND {literal(high, item.kind)}"
                for low, high in item.ranges
            ]
            # Looked up first: a set tells of a row at once what the ranges, which are there for files, tell one by one.
            if item.values is not None and len(item.values) > len(item.ranges):
                conjuncts.append(f"{column} IN ({', '.join(literal(value, item.kind) for value in item.values)})")
            conjuncts.append("(" + " OR ".join(parts) + ")")
        return " AND ".join(conjuncts) or None


def pruning(keys: DataFrame) -> Pruning:
    """
    Learn what a set of keys prunes to.

    Args:
        keys: One column `key` (struct<k0, k1, …>), each key once, no part null. It should be cheap to read, for
            that may happen three times.

    Returns:
        Ranges and, up to 10,000 keys, the values. At most that many keys, else 2,000 buckets, come to the driver.
    """
    struct = keys.schema["key"].dataType
    assert isinstance(struct, StructType)
    kinds = [(place, field.dataType) for place, field in enumerate(struct) if isinstance(field.dataType, PRUNABLE)]
    if not kinds:
        return Pruning((), 0 if keys.isEmpty() else None)
    flat = keys.select(*(F.expr(carried(f"key.k{place}", kind)).alias(f"k{place}") for place, kind in kinds))
    budget = max(limits.KEY_RANGES // len(kinds), 1)
    parts = (_readable(f"k{place}", kind).alias(f"k{place}") for place, kind in kinds)
    listed = flat.limit(limits.LISTED_KEYS + 1).select(*parts).collect()
    wanted = []
    for place, kind in kinds:
        if len(listed) <= limits.LISTED_KEYS:
            values = sorted({row[f"k{place}"] for row in listed})
            pairs = [(value, value) for value in values]
        else:
            values = []
            pairs = _buckets(flat, f"k{place}", kind)
        if not pairs or not all(representable(value, kind) for pair in pairs for value in pair):
            continue
        wanted.append(Wanted(place, kind, tuple(_ranges(pairs, budget)), tuple(values) or None))
    number = len(listed) if len(listed) <= limits.LISTED_KEYS else None
    return Pruning(tuple(wanted), number, exact=number is not None and len(struct) == len(wanted) == 1)


def carried(column: str, kind: DataType) -> str:
    """Give the SQL that brings a value to the driver exactly, whatever the time zone of the Python process."""
    if isinstance(kind, DateType):
        return f"unix_date({column})"
    if isinstance(kind, TimestampType):
        return f"unix_micros({column})"
    if isinstance(kind, TimestampNTZType):
        return f"CAST({column} AS STRING)"  # differences of such times go through the session's time zone
    return column


def _readable(column: str, kind: DataType) -> Column:
    """Return a value as any client can read it: invalid UTF-8 with replacement characters."""
    return F.expr(f"make_valid_utf8({column})" if isinstance(kind, StringType) else column)


def _buckets(flat: DataFrame, column: str, kind: DataType) -> list[tuple[Any, Any]]:
    ends = (_readable(f"{end}({column})", kind) for end in ("min", "max"))
    low, high = flat.agg(*ends).collect()[0]
    # Large numbers that lie close together are one number as doubles.
    if isinstance(kind, (StringType, TimestampNTZType)) or float(low) == float(high):
        return [(low, high)]
    bucket = F.floor((F.col(column).cast("double") - float(low)) / (float(high) - float(low)) * limits.KEY_BUCKETS)
    rows = flat.groupBy(bucket.alias("bucket")).agg(F.min(column), F.max(column)).collect()
    return sorted((row[1], row[2]) for row in rows)


def _ranges(pairs: Sequence[tuple[Any, Any]], budget: int) -> list[tuple[Any, Any]]:
    """Merge ascending ranges to at most `budget` of them, cutting at the widest gaps."""
    place = _placing([value for pair in pairs for value in pair])
    gaps = sorted(range(1, len(pairs)), key=lambda at: place(pairs[at][0]) - place(pairs[at - 1][1]), reverse=True)
    cuts = [0, *sorted(gaps[: budget - 1]), len(pairs)]
    return [(pairs[start][0], max(pair[1] for pair in pairs[start:end])) for start, end in pairwise(cuts)]


def _placing(values: Sequence[Any]) -> Callable[[Any], Any]:
    """Give a function that puts values on a number line, so that gaps between them have a width."""
    if not isinstance(values[0], str):
        return lambda value: value
    coded = [value.encode() for value in values]
    shared = 0
    first, last = min(coded), max(coded)
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    return lambda value: int.from_bytes(value.encode()[shared : shared + 8].ljust(8, b"\0"), "big")


def representable(value: Any, kind: DataType) -> bool:
    """Tell whether a value that was brought by `carried` can be written as a literal."""
    if isinstance(kind, DateType):
        return bool(-719_162 <= value <= 2_932_896)
    if isinstance(kind, TimestampType):
        return bool(EARLIEST_MICROS <= value <= LATEST_MICROS)
    if isinstance(kind, TimestampNTZType):  # as text these sort by time from the year 0 to 9999
        return bool(value[:4].isdigit() and value[4] == "-")
    if isinstance(kind, StringType):
        return DAMAGED not in value
    return not (isinstance(value, Decimal) and not value.is_finite())


def literal(value: Any, kind: DataType) -> str:
    """Write a value that was brought by `carried` as Spark SQL."""
    if isinstance(kind, INTEGRAL):
        return f"{value}{INTEGRAL_SUFFIX.get(type(kind), '')}"
    if isinstance(kind, DateType):
        return f"DATE'{date(1970, 1, 1) + timedelta(days=value)}'"
    if isinstance(kind, TimestampType):
        return f"TIMESTAMP'{(EPOCH + timedelta(microseconds=value)).isoformat(' ', 'microseconds')}'"
    if isinstance(kind, TimestampNTZType):
        return f"TIMESTAMP_NTZ'{value}'"
    if isinstance(kind, DecimalType):
        return f"CAST('{value}' AS {kind.simpleString()})"
    return text(value)
