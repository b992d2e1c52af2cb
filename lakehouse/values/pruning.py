"""
Keys as literals: in predicates that let Delta skip files, and as bounds of ranges and slices.

Delta skips files only by the smallest and the largest member of an IN list, so a predicate has two parts. The IN list,
which is omitted if it is too long, drops rows before a shuffle. ORed ranges, split at the widest gaps between the
wanted values, skip files. The keys always imply the predicate that is built from them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from functools import partial
from itertools import pairwise
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse import limits
from lakehouse.values.compare import INTEGRAL, PRUNABLE, is_collated, skips_files
from lakehouse.values.net_changes import fields_of
from lakehouse.values.recorded import Slice
from lakehouse.values.sqltext import numbered, quote, text

_SUFFIXES: dict[type[T.DataType], str] = {T.ByteType: "Y", T.ShortType: "S", T.LongType: "L"}
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_DAMAGED = "\ufffd"
"""The driver reads invalid UTF-8 as this character. A literal with it finds other rows than the key does."""
_LATEST_MICROS = 253_402_300_799_999_999
_EARLIEST_MICROS = -62_135_596_800_000_000

_BUCKETS = 2_000
"""Keys are grouped into this many buckets to find the widest gaps between them."""

_SAMPLED = 200
"""Keys of the sample for each range. A range then seldom has more than 1.3 times its share of the rows."""


@dataclass(frozen=True)
class Wanted:
    """
    The wanted values of the key part at a position: closed ranges that contain all of them, ascending, and the values
    themselves; None if they are too many to list.
    """

    part: int
    data_type: T.DataType
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
        present = self.covering.predicate([columns[part] for part in self.present], prefix)
        absent = [f"{prefix}{quote(columns[part])} IS NULL" for part in self.absent]
        return " AND ".join([*([present] if present else []), *absent]) or None


@dataclass(frozen=True)
class Pruning:
    """
    The values and ranges that cover a set of keys.

    Args:
        wanted: The wanted values of each key part that file statistics can prune by; empty beside branches.
        keys: The number of keys; None if they are too many to list.
        exact: Whether the predicate holds for these keys only.
        branches: If some keys have nulls, which are values: the keys of each pattern of nulls.
    """

    wanted: tuple[Wanted, ...]
    keys: int | None
    exact: bool = False
    branches: tuple[Branch, ...] = ()

    def predicate(self, columns: Sequence[str], prefix: str = "") -> str | None:
        """
        Build the Spark SQL that holds for every row with one of the keys, by the key columns in the order of the parts;
        None if no predicate is possible. The prefix is the struct that contains the columns, with the dot.
        """
        if self.branches:
            patterns = [branch.predicate(columns, prefix) for branch in self.branches]
            return None if None in patterns else f"({' OR '.join(f'({pattern})' for pattern in patterns)})"
        conjuncts = []
        for part in self.wanted:
            column = prefix + quote(columns[part.part])
            written = partial(literal, data_type=part.data_type)
            ranges = (
                f"{column} = {written(low)}" if low == high else f"{column} BETWEEN {written(low)} AND {written(high)}"
                for low, high in part.ranges
            )
            # The list comes first: one look-up in a set decides a row. The ranges, which skip files, follow in turn.
            if part.values is not None and len(part.values) > len(part.ranges):
                conjuncts.append(f"{column} IN ({', '.join(map(written, part.values))})")
            conjuncts.append("(" + " OR ".join(ranges) + ")")
        return " AND ".join(conjuncts) or None


def pruning(keys: DataFrame, ranges: int | None = None) -> Pruning:
    """
    Compute the ranges and, for up to 10,000 keys, the values that cover a set of keys; for more keys the driver also
    collects 2,000 buckets of each part.

    Args:
        keys: One column `key` (struct<k0, k1, …>), each key once, no part null. Materialize it if it is expensive to
            compute: it may be read three times.
        ranges: The most ranges; `limits.KEY_RANGES` if None.
    """
    struct = fields_of(keys, "key")
    types = {index: field.dataType for index, field in enumerate(struct) if skips_files(field.dataType)}
    if not types:
        return Pruning((), 0 if keys.isEmpty() else None)
    flat = keys.selectExpr(*(f"{_transferred(f'key.k{index}', types[index])} AS k{index}" for index in types))
    budget = max((ranges or limits.KEY_RANGES) // len(types), 1)
    parts = (f"{_readable(f'k{index}', data_type)} AS k{index}" for index, data_type in types.items())
    listed = flat.limit(limits.LISTED_KEYS + 1).selectExpr(*parts).collect()
    number = len(listed) if len(listed) <= limits.LISTED_KEYS else None
    wanted = []
    for index, data_type in types.items():
        values = [] if number is None else sorted({row[f"k{index}"] for row in listed})
        pairs = [(v, v) for v in values] if number is not None else _buckets(flat, f"k{index}", data_type)
        if pairs and all(_representable(value, data_type) for pair in pairs for value in pair):
            wanted.append(Wanted(index, data_type, tuple(_ranges(pairs, budget)), tuple(values) or None))
    return Pruning(tuple(wanted), number, exact=number is not None and len(struct) == len(wanted) == 1)


def null_safe_predicate(
    keys: DataFrame, columns: Sequence[str], prefix: str = "", ranges: int | None = None
) -> str | None:
    """
    Build the predicate of `Pruning` for keys as `null_safe_pruning` takes them; it is empty without keys, and None if
    no predicate is possible.
    """
    covering = null_safe_pruning(keys, ranges)
    return "" if covering.keys == 0 else covering.predicate(columns, prefix)


def null_safe_pruning(keys: DataFrame, ranges: int | None = None) -> Pruning:
    """
    Compute what `pruning` does for keys that may have nulls, which are values: a branch for each pattern of nulls, if
    any. The keys may be read three times for each pattern, and once more.
    """
    most = ranges or limits.KEY_RANGES
    struct = fields_of(keys, "key")
    parts = range(len(struct))
    flags = keys.select(*(F.expr(f"key.k{part} IS NULL").alias(f"k{part}") for part in parts)).distinct().collect()
    if not any(any(flag) for flag in flags):
        return pruning(keys, most)
    branches = []
    for flag in flags:
        present, absent = (tuple(part for part in parts if flag[part] is is_null) for is_null in (False, True))
        of_pattern = keys.where(
            " AND ".join(f"key.k{part} IS {'NULL' if flag[part] else 'NOT NULL'}" for part in parts)
        )
        own = F.expr(numbered(f"key.k{part}" for part in present)).alias("key")
        covering = pruning(of_pattern.select(own), max(most // len(flags), 1))
        branches.append(Branch(present, absent, covering))
    numbers = [branch.covering.keys for branch in branches]
    number = None if None in numbers else sum(number or 0 for number in numbers)
    return Pruning((), number, branches=tuple(branches))


def _transferred(column: str, data_type: T.DataType) -> str:
    """Return the SQL that transfers a value to the driver exactly, in any time zone of the Python process."""
    if isinstance(data_type, T.DateType):
        return f"unix_date({column})"
    if isinstance(data_type, T.TimestampType):
        return f"unix_micros({column})"
    if isinstance(data_type, T.TimestampNTZType):
        return f"CAST({column} AS STRING)"  # differences of these times depend on the session's time zone
    return column


def _readable(column: str, data_type: T.DataType) -> str:
    """Return the SQL of a value that any client can read: invalid UTF-8 becomes replacement characters."""
    return f"make_valid_utf8({column})" if isinstance(data_type, T.StringType) else column


def _buckets(flat: DataFrame, column: str, data_type: T.DataType) -> list[tuple[Any, Any]]:
    ends = (_readable(f"{end}({column})", data_type) for end in ("min", "max"))
    low, high = flat.agg(*map(F.expr, ends)).collect()[0]
    # Large numbers that lie close together are equal as doubles.
    if isinstance(data_type, (T.StringType, T.TimestampNTZType)) or float(low) == float(high):
        return [(low, high)]
    bucket = F.floor((F.col(column).cast("double") - float(low)) / (float(high) - float(low)) * _BUCKETS)
    rows = flat.groupBy(bucket.alias("bucket")).agg(F.min(column), F.max(column)).collect()
    return sorted((row[1], row[2]) for row in rows)


def _ranges(pairs: Sequence[tuple[Any, Any]], budget: int) -> list[tuple[Any, Any]]:
    """Merge ascending ranges into at most `budget` ranges, split at the widest gaps."""
    number = _number_line([value for pair in pairs for value in pair])
    gaps = sorted(range(1, len(pairs)), key=lambda at: number(pairs[at][0]) - number(pairs[at - 1][1]), reverse=True)
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


def _representable(value: Any, data_type: T.DataType) -> bool:
    """Return whether a value that `_transferred` transferred can be written as a literal."""
    if isinstance(data_type, T.DateType):
        return bool(-719_162 <= value <= 2_932_896)
    if isinstance(data_type, T.TimestampType):
        return bool(_EARLIEST_MICROS <= value <= _LATEST_MICROS)
    if isinstance(data_type, T.TimestampNTZType):  # as text, these times sort in order from the year 0 to 9999
        return bool(value[:4].isdigit() and value[4] == "-")
    if isinstance(data_type, T.StringType):
        return _DAMAGED not in value
    return not (isinstance(value, Decimal) and not value.is_finite())


def literal(value: Any, data_type: T.DataType) -> str:
    """Write a value that `_transferred` transferred as a Spark SQL literal."""
    if isinstance(data_type, INTEGRAL):
        return f"{value}{_SUFFIXES.get(type(data_type), '')}"
    if isinstance(data_type, T.DateType):
        return f"DATE'{date(1970, 1, 1) + timedelta(days=value)}'"
    if isinstance(data_type, T.TimestampType):
        return f"TIMESTAMP'{(_EPOCH + timedelta(microseconds=value)).isoformat(' ', 'microseconds')}'"
    if isinstance(data_type, T.TimestampNTZType):
        return f"TIMESTAMP_NTZ'{value}'"
    if isinstance(data_type, T.DecimalType):
        return f"CAST('{value}' AS {data_type.simpleString()})"
    return text(value)


def bounds_of(keys: DataFrame, rows: int, number: int) -> list[str] | None:
    """
    Find where to cut about `rows` keys (`key`, no part null) into a number of ranges with as many rows, by a sample.

    The bounds are Spark SQL in ascending order, each the first key of a range in the form of `compared`: fewer than
    wanted if a key occurs often, none without keys. They are None if a part has a type without literals in order.
    """
    types = [field.dataType for field in fields_of(keys, "key")]
    if not all(isinstance(data_type, PRUNABLE) and not is_collated(data_type) for data_type in types):
        return None
    share = min(1.0, _SAMPLED * number / max(rows, 1))
    sent = (_readable(_transferred(f"key.k{index}", of), of) + f" AS k{index}" for index, of in enumerate(types))
    # One task sorts it, because a global order would read the tables twice.
    sample = keys.sample(share, seed=0).repartition(1).sortWithinPartitions("key").selectExpr(*sent).collect()
    cuts = dict.fromkeys(tuple(sample[len(sample) * cut // number]) for cut in range(1, number) if sample)
    return [compared(list(map(literal, key, types))) for key in cuts if all(map(_representable, key, types))]


def compared(parts: Sequence[str]) -> str:
    """Write a key, given by its parts, in the form in which keys are compared with bounds."""
    return parts[0] if len(parts) == 1 else numbered(parts)


def range_of(key: str, bounds: Sequence[str], first: int = 0) -> str:
    """Write the SQL of the number of the range, counted from `first`, that contains a key in the form of `compared`."""
    if not bounds:
        return str(first)
    middle = len(bounds) // 2
    below = range_of(key, bounds[:middle], first)
    return f"IF({key} < {bounds[middle]}, {below}, {range_of(key, bounds[middle + 1 :], first + middle + 1)})"


def slices_of(rows: DataFrame, key: Sequence[str], number: int) -> tuple[Slice, ...]:
    """
    Split the key space of a table by its first key column with ordered literals into at most 1,000 slices: fewer than
    wanted if many rows have the same value, and one if no key column has ordered literals.
    """
    column = next((name for name in key if isinstance(rows.schema[name].dataType, PRUNABLE)), None)
    if column is None or number == 1:
        return (Slice("true", rows.count()),)
    data_type = rows.schema[column].dataType
    values = rows.select(F.col(quote(column)).alias("value"))
    ranged = values.repartitionByRange(min(number, limits.MOST_SLICES), "value")
    parts = ranged.groupBy(F.spark_partition_id()).agg(F.min("value").alias("low"), F.count(F.lit(1)).alias("rows"))
    bounds: list[str] = []
    sizes: list[int] = []
    for low, size in parts.orderBy("low").selectExpr(_transferred("low", data_type), "rows").collect():
        if not sizes:
            sizes.append(size)
        elif _representable(low, data_type):
            bounds.append(literal(low, data_type))
            sizes.append(size)
        else:
            sizes[-1] += size
    # Of a function of the column no statistics tell which files it needs.
    name = quote(column) if skips_files(data_type) else f"greatest({quote(column)}, {quote(column)})"
    if not bounds:
        return (Slice("true", sum(sizes)),)
    conditions = [
        f"({name} < {bounds[0]} OR {name} IS NULL)",
        *(f"{name} >= {low} AND {name} < {high}" for low, high in pairwise(bounds)),
        f"{name} >= {bounds[-1]}",
    ]
    return tuple(Slice(condition, size) for condition, size in zip(conditions, sizes, strict=True))
