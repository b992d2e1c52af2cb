"""
Literal predicates that let Delta skip files.

Delta skips files only by the smallest and the largest member of an IN list, so a predicate has two parts. The IN list,
which is omitted if it is too long, drops rows before a shuffle. ORed ranges, split at the widest gaps between the
wanted values, skip files. The keys always imply the predicate that is built from them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ByteType,
    DataType,
    DateType,
    DecimalType,
    LongType,
    ShortType,
    StringType,
    TimestampNTZType,
    TimestampType,
)

from lakehouse import limits
from lakehouse.values.compare import INTEGRAL, skips_files
from lakehouse.values.net_changes import fields_of
from lakehouse.values.sqltext import numbered, quote, text

INTEGRAL_SUFFIX: dict[type[DataType], str] = {ByteType: "Y", ShortType: "S", LongType: "L"}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
DAMAGED = "\ufffd"
"""The driver reads invalid UTF-8 as this character. A literal with it finds other rows than the key does."""
LATEST_MICROS = 253_402_300_799_999_999
EARLIEST_MICROS = -62_135_596_800_000_000


@dataclass(frozen=True)
class Wanted:
    """
    The wanted values of one key part.

    Args:
        part: The position of the part in the key.
        ranges: Closed ranges that contain every wanted value, ascending.
        values: All wanted values; None if they are too many to list.
    """

    part: int
    kind: DataType
    ranges: tuple[tuple[Any, Any], ...]
    values: tuple[Any, ...] | None


@dataclass(frozen=True)
class Branch:
    """The keys that have nulls in the parts at some positions; `covering` covers the other parts, as a key of these."""

    present: tuple[int, ...]
    absent: tuple[int, ...]
    covering: "Pruning"

    def predicate(self, columns: Sequence[str], prefix: str) -> str | None:
        """Build the predicate of `Pruning` for these keys."""
        found = self.covering.predicate([columns[part] for part in self.present], prefix)
        absent = [f"{prefix}{quote(columns[part])} IS NULL" for part in self.absent]
        return " AND ".join([*([found] if found else []), *absent]) or None


@dataclass(frozen=True)
class Pruning:
    """
    The values and ranges that cover a set of keys.

    Args:
        wanted: The wanted values of each key part that file statistics can prune by; empty beside branches.
        keys: The number of keys; None if they are too many to list.
        exact: Whether the predicate holds for these keys only: the key has one part, and all its values are listed.
        branches: If some keys have nulls, which are values: the keys of each pattern of nulls.
    """

    wanted: tuple[Wanted, ...]
    keys: int | None
    exact: bool = False
    branches: tuple[Branch, ...] = ()

    def predicate(self, columns: Sequence[str], prefix: str = "") -> str | None:
        """
        Build the Spark SQL that holds for every row with one of the keys; None if no predicate is possible.

        Args:
            columns: The table's key columns, in the order of the key parts.
            prefix: The struct that contains the columns, with the dot.
        """
        if self.branches:
            found = [branch.predicate(columns, prefix) for branch in self.branches]
            return None if None in found else f"({' OR '.join(f'({one})' for one in found)})"
        conjuncts = []
        for item in self.wanted:
            column = prefix + quote(columns[item.part])
            parts = [
                f"{column} = {literal(low, item.kind)}"
                if low == high
                else f"{column} BETWEEN {literal(low, item.kind)} AND {literal(high, item.kind)}"
                for low, high in item.ranges
            ]
            # The list comes first: one look-up in a set decides a row. The ranges, which skip files, follow in turn.
            if item.values is not None and len(item.values) > len(item.ranges):
                conjuncts.append(f"{column} IN ({', '.join(literal(value, item.kind) for value in item.values)})")
            conjuncts.append("(" + " OR ".join(parts) + ")")
        return " AND ".join(conjuncts) or None


def pruning(keys: DataFrame, ranges: int | None = None) -> Pruning:
    """
    Compute the ranges and, for up to 10,000 keys, the values that cover a set of keys.

    The driver collects up to 10,000 keys; for more keys it also collects 2,000 buckets of each part.

    Args:
        keys: One column `key` (struct<k0, k1, …>), each key once, no part null. Materialize it if it is expensive to
            compute: it may be read three times.
        ranges: The most ranges; `limits.KEY_RANGES` if None.
    """
    struct = fields_of(keys, "key")
    kinds = [(place, field.dataType) for place, field in enumerate(struct) if skips_files(field.dataType)]
    if not kinds:
        return Pruning((), 0 if keys.isEmpty() else None)
    flat = keys.select(*(F.expr(carried(f"key.k{place}", kind)).alias(f"k{place}") for place, kind in kinds))
    budget = max((ranges or limits.KEY_RANGES) // len(kinds), 1)
    parts = (f"{readable(f'k{place}', kind)} AS k{place}" for place, kind in kinds)
    listed = flat.limit(limits.LISTED_KEYS + 1).selectExpr(*parts).collect()
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


def null_safe_predicate(keys: DataFrame, columns: Sequence[str], prefix: str = "") -> str | None:
    """
    Build the predicate of `Pruning` for keys that have nulls, which are values: one branch for each pattern of nulls.
    It is empty without keys, and None if no predicate is possible.

    Args:
        keys: One column `key` (struct<k0, k1, …>), each key once.
    """
    known = null_safe_pruning(keys)
    return "" if known.keys == 0 else known.predicate(columns, prefix)


def null_safe_pruning(keys: DataFrame) -> Pruning:
    """
    Compute what `pruning` does for keys that may have nulls, which are values: a branch for each pattern of nulls, if
    any.

    Args:
        keys: One column `key` (struct<k0, k1, …>), each key once. Materialize it if it is expensive to compute: it may
            be read three times for each pattern of nulls, and once more.
    """
    struct = fields_of(keys, "key")
    parts = range(len(struct))
    flags = keys.select(*(F.expr(f"key.k{part} IS NULL").alias(f"k{part}") for part in parts)).distinct().collect()
    if not any(any(flag) for flag in flags):
        return pruning(keys)
    branches = []
    for flag in flags:
        present, absent = (tuple(part for part in parts if flag[part] is is_null) for is_null in (False, True))
        of_pattern = keys.where(
            " AND ".join(f"key.k{part} IS {'NULL' if flag[part] else 'NOT NULL'}" for part in parts)
        )
        own = F.expr(numbered(f"key.k{part}" for part in present)).alias("key")
        covering = pruning(of_pattern.select(own), max(limits.KEY_RANGES // len(flags), 1))
        branches.append(Branch(present, absent, covering))
    numbers = [branch.covering.keys for branch in branches]
    number = None if None in numbers else sum(number or 0 for number in numbers)
    return Pruning((), number, branches=tuple(branches))


def carried(column: str, kind: DataType) -> str:
    """Return the SQL that transfers a value to the driver exactly, in any time zone of the Python process."""
    if isinstance(kind, DateType):
        return f"unix_date({column})"
    if isinstance(kind, TimestampType):
        return f"unix_micros({column})"
    if isinstance(kind, TimestampNTZType):
        return f"CAST({column} AS STRING)"  # differences of these times depend on the session's time zone
    return column


def readable(column: str, kind: DataType) -> str:
    """Return the SQL of a value that any client can read: invalid UTF-8 becomes replacement characters."""
    return f"make_valid_utf8({column})" if isinstance(kind, StringType) else column


def _buckets(flat: DataFrame, column: str, kind: DataType) -> list[tuple[Any, Any]]:
    ends = (readable(f"{end}({column})", kind) for end in ("min", "max"))
    low, high = flat.agg(*map(F.expr, ends)).collect()[0]
    # Large numbers that lie close together are equal as doubles.
    if isinstance(kind, (StringType, TimestampNTZType)) or float(low) == float(high):
        return [(low, high)]
    bucket = F.floor((F.col(column).cast("double") - float(low)) / (float(high) - float(low)) * limits.KEY_BUCKETS)
    rows = flat.groupBy(bucket.alias("bucket")).agg(F.min(column), F.max(column)).collect()
    return sorted((row[1], row[2]) for row in rows)


def _ranges(pairs: Sequence[tuple[Any, Any]], budget: int) -> list[tuple[Any, Any]]:
    """Merge ascending ranges into at most `budget` ranges, split at the widest gaps."""
    place = _number_line([value for pair in pairs for value in pair])
    gaps = sorted(range(1, len(pairs)), key=lambda at: place(pairs[at][0]) - place(pairs[at - 1][1]), reverse=True)
    cuts = [0, *sorted(gaps[: budget - 1]), len(pairs)]
    return [(pairs[start][0], max(pair[1] for pair in pairs[start:end])) for start, end in pairwise(cuts)]


def _number_line(values: Sequence[Any]) -> Callable[[Any], Any]:
    """Return a function that maps values to numbers, so that the gaps between them have a width."""
    if not isinstance(values[0], str):
        return lambda value: value
    coded = [value.encode() for value in values]
    shared = 0
    first, last = min(coded), max(coded)
    while shared < min(len(first), len(last)) and first[shared] == last[shared]:
        shared += 1
    return lambda value: int.from_bytes(value.encode()[shared : shared + 8].ljust(8, b"\0"), "big")


def representable(value: Any, kind: DataType) -> bool:
    """Return whether a value that `carried` transferred can be written as a literal."""
    if isinstance(kind, DateType):
        return bool(-719_162 <= value <= 2_932_896)
    if isinstance(kind, TimestampType):
        return bool(EARLIEST_MICROS <= value <= LATEST_MICROS)
    if isinstance(kind, TimestampNTZType):  # as text, these times sort in order from the year 0 to 9999
        return bool(value[:4].isdigit() and value[4] == "-")
    if isinstance(kind, StringType):
        return DAMAGED not in value
    return not (isinstance(value, Decimal) and not value.is_finite())


def literal(value: Any, kind: DataType) -> str:
    """Write a value that `carried` transferred as a Spark SQL literal."""
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
