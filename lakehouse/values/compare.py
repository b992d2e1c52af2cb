"""
How values compare, and which types file statistics cover.

Values compare as in Spark's `<=>`: null equals null, NaN equals NaN, 0.0 equals -0.0. Spark cannot compare maps; in
lakejoin two maps are equal if their sorted entries are equal.
"""

import re
from collections.abc import Mapping, Sequence

from pyspark.sql import types as T

from lakehouse.values.sqltext import quote, text

_Types = tuple[type[T.DataType], ...]

INTEGRAL: _Types = (T.ByteType, T.ShortType, T.IntegerType, T.LongType)  # ascending by what they hold
PRUNABLE: _Types = (*INTEGRAL, T.StringType, T.DateType, T.DecimalType, T.TimestampType, T.TimestampNTZType)
CLUSTERABLE: _Types = (*PRUNABLE, T.FloatType, T.DoubleType)
INCOMPARABLE: _Types = (T.NullType, T.VariantType)

_DOUBLE_DIGITS = 15
"""The digits of a number that a double always keeps; other writers hold the statistics of longer ones as doubles."""

DECLARED = "__CHAR_VARCHAR_TYPE_STRING"
"""The metadata key for the declared type of a CHAR or VARCHAR column, which Spark otherwise treats as a string."""


def type_sql(data_type: T.DataType) -> str:
    """Write a type as Spark SQL, with the names of struct fields quoted."""
    if isinstance(data_type, T.StructType):
        return f"STRUCT<{', '.join(f'{quote(field.name)}: {type_sql(field.dataType)}' for field in data_type)}>"
    if isinstance(data_type, T.ArrayType):
        return f"ARRAY<{type_sql(data_type.elementType)}>"
    if isinstance(data_type, T.MapType):
        return f"MAP<{type_sql(data_type.keyType)}, {type_sql(data_type.valueType)}>"
    return data_type.simpleString()


def inner_types(data_type: T.DataType) -> list[T.DataType]:
    """Return the types of the fields, the elements, or the keys and values of a type; empty for plain types."""
    if isinstance(data_type, T.ArrayType):
        return [data_type.elementType]
    if isinstance(data_type, T.MapType):
        return [data_type.keyType, data_type.valueType]
    return [field.dataType for field in data_type] if isinstance(data_type, T.StructType) else []


def names_in(data_type: T.DataType) -> list[str]:
    """Return the names of all fields, including the fields of nested structs."""
    own = data_type.fieldNames() if isinstance(data_type, T.StructType) else []
    return [*own, *(name for inner in inner_types(data_type) for name in names_in(inner))]


def contains(data_type: T.DataType, sought: type[T.DataType] | _Types) -> bool:
    """Return whether a type is, or contains at any depth, one of the sought types."""
    return isinstance(data_type, sought) or any(contains(inner, sought) for inner in inner_types(data_type))


def is_collated(data_type: T.DataType) -> bool:
    """Return whether a type is or contains text under a collation: its equal values may differ in bytes."""
    return "string collate " in data_type.simpleString()


def comparable(expression: str, data_type: T.DataType) -> str:
    """Convert SQL of a value to a form that `<=>`, grouping and sorting accept: maps become sorted entries."""
    return _rewritten(expression, data_type, {}, sorts=True)


def identical(expression: str, data_type: T.DataType) -> str:
    """
    Convert SQL of a value to a form that is equal only if no expression can distinguish the values.

    Under `<=>` 0.0 equals -0.0, and under `same` maps are equal in any order of their entries; a cast to string or
    `map_keys` distinguishes them. Floating-point numbers become their text (one for each value), maps their entries.
    """
    text = "CAST({} AS STRING)"
    return _rewritten(expression, data_type, {T.FloatType: text, T.DoubleType: text}, sorts=False)


def skips_files(data_type: T.DataType) -> bool:
    """Return whether literals of a type may skip files by statistics, of which delta-rs rounds long DECIMALs."""
    is_rounded = isinstance(data_type, T.DecimalType) and data_type.precision > _DOUBLE_DIGITS
    return isinstance(data_type, PRUNABLE) and not is_rounded


def is_exact(data_type: T.DataType) -> bool:
    """Return whether equal values of a type are identical; numbers with -0.0, maps and collated text are not."""
    return identical("value", data_type) == "value" and not is_collated(data_type)


def as_valid_text(expression: str, data_type: T.DataType) -> str:
    """Write a value as Java returns it: replacement characters for invalid UTF-8, and sorted entries of maps."""
    return _rewritten(expression, data_type, {T.StringType: "make_valid_utf8({})"}, sorts=True)


def _rewritten(
    expression: str, data_type: T.DataType, leaves: Mapping[type[T.DataType], str], *, sorts: bool, depth: int = 0
) -> str:
    """Rewrite the values of some types by SQL templates, where `{}` stands for the value, and maps as entries."""
    if not contains(data_type, (T.MapType, *leaves)):
        return expression
    element = f"x{depth}"

    def inner(part: str, of: T.DataType, deeper: int) -> str:
        return _rewritten(part, of, leaves, sorts=sorts, depth=depth + deeper)

    if isinstance(data_type, T.ArrayType):
        return f"transform({expression}, {element} -> {inner(element, data_type.elementType, 1)})"
    if isinstance(data_type, T.StructType):
        fields = (
            f"{text(field.name)}, {inner(f'{expression}.{quote(field.name)}', field.dataType, 0)}"
            for field in data_type
        )
        return f"if({expression} IS NULL, NULL, named_struct({', '.join(fields)}))"
    if isinstance(data_type, T.MapType):
        key, value = inner(f"{element}.key", data_type.keyType, 1), inner(f"{element}.value", data_type.valueType, 1)
        entries = f"transform(map_entries({expression}), {element} -> named_struct('key', {key}, 'value', {value}))"
        return f"array_sort({entries})" if sorts else entries
    return leaves[type(data_type)].replace("{}", expression)


def hash_of(expression: str, data_type: T.DataType) -> str:
    """
    Write the SQL of a value's hash (bigint, never null), the same for values that are equal as `same` compares them.
    `xxhash64` alone skips nulls and ignores where an array ends: (5, null) and (null, 5) would have the same hash.
    """
    return f"xxhash64({', '.join(_hashed_parts(expression, data_type))})"


def _hashed_parts(expression: str, data_type: T.DataType, depth: int = 0) -> list[str]:
    """List the inputs of a value's hash: each nested value, whether it is null, and the length of each array."""
    if isinstance(data_type, T.StructType):
        fields = ((f"{expression}.{quote(field.name)}", field.dataType) for field in data_type)
        return [f"{expression} IS NULL", *(part for field in fields for part in _hashed_parts(*field, depth))]
    if isinstance(data_type, T.MapType):
        return _hashed_parts(
            _rewritten(expression, data_type, {}, sorts=True, depth=depth), _with_entries(data_type), depth
        )
    if isinstance(data_type, T.ArrayType):
        parts = ", ".join(_hashed_parts(f"x{depth}", data_type.elementType, depth + 1))
        return [f"coalesce(size({expression}), -1)", f"transform({expression}, x{depth} -> struct({parts}))"]
    return [f"{expression} IS NULL", expression]


def _with_entries(data_type: T.DataType) -> T.DataType:
    """Return the type of a value in which `_rewritten` has written maps as entries, also maps within maps."""
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(_with_entries(data_type.elementType))
    if isinstance(data_type, T.StructType):
        return T.StructType([T.StructField(field.name, _with_entries(field.dataType)) for field in data_type])
    if isinstance(data_type, T.MapType):
        parts = (("key", data_type.keyType), ("value", data_type.valueType))
        return T.ArrayType(T.StructType([T.StructField(name, _with_entries(part)) for name, part in parts]))
    return data_type


def same(left: str, right: str, data_type: T.DataType) -> str:
    """Write the null-safe comparison of two SQL expressions of one type; it is never null."""
    return f"({comparable(left, data_type)} <=> {comparable(right, data_type)})"


def incomparable(schema: T.StructType) -> list[str]:
    """List the columns whose types cannot be compared (variant, void)."""
    return [field.name for field in schema if contains(field.dataType, INCOMPARABLE)]


def common_type(left: T.DataType, right: T.DataType) -> T.DataType | None:
    """
    Return the type in which two key columns are compared, integers as the wider type; None if a comparison would not
    be one-to-one: a string and a number, for example, would make different keys equal.
    """
    if isinstance(left, INTEGRAL) and isinstance(right, INTEGRAL):
        return left if INTEGRAL.index(type(left)) >= INTEGRAL.index(type(right)) else right
    return left if left == right and not contains(left, (T.MapType, *INCOMPARABLE)) else None


def plain_schema(fields: Sequence[T.StructField]) -> T.StructType:
    """Return the columns as nullable and without metadata, so that the result does not inherit constraints."""
    return T.StructType([T.StructField(field.name, _plain(field.dataType)) for field in fields])


def _plain(data_type: T.DataType) -> T.DataType:
    if isinstance(data_type, T.StructType):
        return plain_schema(data_type.fields)
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(_plain(data_type.elementType))
    if isinstance(data_type, T.MapType):
        return T.MapType(_plain(data_type.keyType), _plain(data_type.valueType))
    return data_type


def char_type(field: T.StructField) -> str | None:
    """
    Return the type of a column as Spark SQL, such as `char(5)`, if it is or contains CHAR; else None. VARCHAR appears
    as a string, because its length changes no value.
    """
    declared = re.sub(r"\bvarchar\(\d+\)", "string", str(field.metadata.get(DECLARED, "")))
    return declared if re.search(r"\bchar\(", declared) else None
