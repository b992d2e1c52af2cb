"""
How values compare, and which types file statistics cover.

Values compare as in Spark's `<=>`: null equals null, NaN equals NaN, 0.0 equals -0.0. Spark cannot compare maps; in
lakejoin two maps are equal if their sorted entries are equal.
"""

import re
from collections.abc import Mapping, Sequence

from pyspark.sql.types import (
    ArrayType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
    VariantType,
)

from lakehouse.values.sqltext import quote, text

INTEGRAL: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
PRUNABLE: tuple[type[DataType], ...] = (*INTEGRAL, StringType, DateType, DecimalType, TimestampType, TimestampNTZType)
DOUBLE_DIGITS = 15
"""The digits of a number that a double always keeps; other writers hold the statistics of longer ones as doubles."""
CLUSTERABLE: tuple[type[DataType], ...] = (*PRUNABLE, FloatType, DoubleType)

DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key for the declared type of a CHAR or VARCHAR column, which Spark otherwise treats as a string."""

INCOMPARABLE: tuple[type[DataType], ...] = (NullType, VariantType)


def type_sql(kind: DataType) -> str:
    """Write a type as Spark SQL, with the names of struct fields quoted."""
    if isinstance(kind, StructType):
        return f"STRUCT<{', '.join(f'{quote(field.name)}: {type_sql(field.dataType)}' for field in kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{type_sql(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{type_sql(kind.keyType)}, {type_sql(kind.valueType)}>"
    return kind.simpleString()


def names_in(kind: DataType) -> list[str]:
    """Return the names of all fields, including the fields of nested structs."""
    if isinstance(kind, ArrayType):
        return names_in(kind.elementType)
    if isinstance(kind, MapType):
        return names_in(kind.keyType) + names_in(kind.valueType)
    if isinstance(kind, StructType):
        return [name for field in kind for name in (field.name, *names_in(field.dataType))]
    return []


def contains(kind: DataType, sought: type[DataType] | tuple[type[DataType], ...]) -> bool:
    """Return whether a type is, or contains at any depth, one of the sought types."""
    if isinstance(kind, sought):
        return True
    if isinstance(kind, ArrayType):
        return contains(kind.elementType, sought)
    if isinstance(kind, MapType):
        return contains(kind.keyType, sought) or contains(kind.valueType, sought)
    return isinstance(kind, StructType) and any(contains(field.dataType, sought) for field in kind)


def is_collated(kind: DataType) -> bool:
    """Return whether a type is or contains text under a collation: its equal values may differ in bytes."""
    return "string collate " in kind.simpleString()


def comparable(expression: str, kind: DataType) -> str:
    """Convert SQL of a value to a form that `<=>`, grouping and sorting accept: maps become sorted entries."""
    return _rewritten(expression, kind, {}, sorts=True)


def identical(expression: str, kind: DataType) -> str:
    """
    Convert SQL of a value to a form that is equal only if no expression can distinguish the values.

    Under `<=>` 0.0 equals -0.0, and under `same` maps are equal in any order of their entries; a cast to string or
    `map_keys` distinguishes them. Floating-point numbers become their text (one for each value), maps their entries.
    SQL of a type that contains neither is returned as it is.
    """
    text = "CAST({} AS STRING)"
    return _rewritten(expression, kind, {FloatType: text, DoubleType: text}, sorts=False)


def skips_files(kind: DataType) -> bool:
    """Return whether literals of a type may skip files by statistics, of which delta-rs rounds long DECIMALs."""
    return isinstance(kind, PRUNABLE) and not (isinstance(kind, DecimalType) and kind.precision > DOUBLE_DIGITS)


def is_exact(kind: DataType) -> bool:
    """Return whether equal values of a type are identical; numbers with -0.0, maps and collated text are not."""
    return identical("value", kind) == "value" and not is_collated(kind)


def as_valid_text(expression: str, kind: DataType) -> str:
    """
    Convert a value's SQL to its form after Java: replacement characters for invalid UTF-8, sorted entries of maps.
    """
    return _rewritten(expression, kind, {StringType: "make_valid_utf8({})"}, sorts=True)


def _rewritten(
    expression: str, kind: DataType, leaves: Mapping[type[DataType], str], *, sorts: bool, depth: int = 0
) -> str:
    """Rewrite the values of some types by SQL templates, where `{}` stands for the value, and maps as entries."""
    if not contains(kind, (MapType, *leaves)):
        return expression
    item = f"x{depth}"

    def inner(part: str, of: DataType, deeper: int) -> str:
        return _rewritten(part, of, leaves, sorts=sorts, depth=depth + deeper)

    if isinstance(kind, ArrayType):
        return f"transform({expression}, {item} -> {inner(item, kind.elementType, 1)})"
    if isinstance(kind, StructType):
        fields = (
            f"{text(field.name)}, {inner(f'{expression}.{quote(field.name)}', field.dataType, 0)}" for field in kind
        )
        return f"if({expression} IS NULL, NULL, named_struct({', '.join(fields)}))"
    if isinstance(kind, MapType):
        key, value = inner(f"{item}.key", kind.keyType, 1), inner(f"{item}.value", kind.valueType, 1)
        entries = f"transform(map_entries({expression}), {item} -> named_struct('key', {key}, 'value', {value}))"
        return f"array_sort({entries})" if sorts else entries
    return leaves[type(kind)].replace("{}", expression)


def hash_of(expression: str, kind: DataType) -> str:
    """
    Write the SQL of a value's hash (bigint, never null), the same for values that are equal as `same` compares them.
    `xxhash64` alone skips nulls and ignores where an array ends: (5, null) and (null, 5) would have the same hash.
    """
    return f"xxhash64({', '.join(_hashed_parts(expression, kind))})"


def _hashed_parts(expression: str, kind: DataType, depth: int = 0) -> list[str]:
    """List the inputs of a value's hash: each nested value, whether it is null, and the length of each array."""
    if isinstance(kind, StructType):
        fields = ((f"{expression}.{quote(field.name)}", field.dataType) for field in kind)
        return [f"{expression} IS NULL", *(part for field in fields for part in _hashed_parts(*field, depth))]
    if isinstance(kind, MapType):
        return _hashed_parts(_rewritten(expression, kind, {}, sorts=True, depth=depth), _with_entries(kind), depth)
    if isinstance(kind, ArrayType):
        item = f"x{depth}"
        parts = ", ".join(_hashed_parts(item, kind.elementType, depth + 1))
        return [f"coalesce(size({expression}), -1)", f"transform({expression}, {item} -> struct({parts}))"]
    return [f"{expression} IS NULL", expression]


def _with_entries(kind: DataType) -> DataType:
    """Return the type of a value in which `_rewritten` has written maps as entries, also maps within maps."""
    if isinstance(kind, ArrayType):
        return ArrayType(_with_entries(kind.elementType))
    if isinstance(kind, StructType):
        return StructType([StructField(field.name, _with_entries(field.dataType)) for field in kind])
    if isinstance(kind, MapType):
        parts = (("key", kind.keyType), ("value", kind.valueType))
        return ArrayType(StructType([StructField(name, _with_entries(part)) for name, part in parts]))
    return kind


def same(left: str, right: str, kind: DataType) -> str:
    """Write the null-safe comparison of two SQL expressions of one type; it is never null."""
    return f"({comparable(left, kind)} <=> {comparable(right, kind)})"


def incomparable(schema: StructType) -> list[str]:
    """List the columns whose types cannot be compared (variant, void)."""
    return [field.name for field in schema if contains(field.dataType, INCOMPARABLE)]


def common_type(left: DataType, right: DataType) -> DataType | None:
    """
    Return the type in which two key columns are compared, or None if a comparison would not be one-to-one: integers
    compare as the wider type; a string and a number, for example, would make different keys equal.
    """
    if isinstance(left, INTEGRAL) and isinstance(right, INTEGRAL):
        return left if INTEGRAL.index(type(left)) >= INTEGRAL.index(type(right)) else right
    return left if left == right and not contains(left, (MapType, *INCOMPARABLE)) else None


def plain_schema(fields: Sequence[StructField]) -> StructType:
    """Return the columns as nullable and without metadata, so that the result does not inherit constraints."""
    return StructType([StructField(field.name, _plain(field.dataType), True) for field in fields])


def char_type(field: StructField) -> str | None:
    """
    Return the type of a column as Spark SQL, such as `char(5)`, if it is or contains CHAR; else None. VARCHAR appears
    as a string, because its length changes no value.
    """
    declared = re.sub(r"\bvarchar\(\d+\)", "string", str(field.metadata.get(DECLARED, "")))
    return declared if re.search(r"\bchar\(", declared) else None


def _plain(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return plain_schema(kind.fields)
    if isinstance(kind, ArrayType):
        return ArrayType(_plain(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_plain(kind.keyType), _plain(kind.valueType), True)
    return kind
