"""
How values compare, and which of them file statistics know.

Values compare as Spark's `<=>` does: null equals null, NaN equals NaN, 0.0 equals -0.0. Maps are the exception that
Spark has no comparison for; here two maps are equal if their sorted entries are.
"""

from collections.abc import Sequence

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

from lakehouse.sqltext import quote, text

INTEGRAL: tuple[type[DataType], ...] = (ByteType, ShortType, IntegerType, LongType)
PRUNABLE: tuple[type[DataType], ...] = (*INTEGRAL, StringType, DateType, DecimalType, TimestampType, TimestampNTZType)
CLUSTERABLE: tuple[type[DataType], ...] = (*PRUNABLE, FloatType, DoubleType)

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


def contains(kind: DataType, sought: type[DataType] | tuple[type[DataType], ...]) -> bool:
    """Tell whether the type is, or has somewhere inside, one of the sought types."""
    if isinstance(kind, sought):
        return True
    if isinstance(kind, ArrayType):
        return contains(kind.elementType, sought)
    if isinstance(kind, MapType):
        return contains(kind.keyType, sought) or contains(kind.valueType, sought)
    return isinstance(kind, StructType) and any(contains(field.dataType, sought) for field in kind)


def comparable(expression: str, kind: DataType) -> str:
    """
    Bring an SQL expression into a form that `<=>`, grouping and sorting accept: maps become sorted entries.

    Args:
        expression: Spark SQL of the value.
        kind: The value's type.

    Returns:
        The expression itself where its type has no map inside.
    """
    return _comparable(expression, kind, 0)


def _comparable(expression: str, kind: DataType, depth: int) -> str:
    if not contains(kind, MapType):
        return expression
    item = f"x{depth}"
    if isinstance(kind, ArrayType):
        return f"transform({expression}, {item} -> {_comparable(item, kind.elementType, depth + 1)})"
    if isinstance(kind, StructType):
        fields = ", ".join(
            f"{text(field.name)}, {_comparable(f'{expression}.{quote(field.name)}', field.dataType, depth)}"
            for field in kind
        )
        return f"if({expression} IS NULL, NULL, named_struct({fields}))"
    assert isinstance(kind, MapType)
    entry = (
        f"named_struct('key', {_comparable(f'{item}.key', kind.keyType, depth + 1)},"
        f" 'value', {_comparable(f'{item}.value', kind.valueType, depth + 1)})"
    )
    return f"array_sort(transform(map_entries({expression}), {item} -> {entry}))"


def same(left: str, right: str, kind: DataType) -> str:
    """Compare two SQL expressions of one type null-safely; the result is never null."""
    return f"({comparable(left, kind)} <=> {comparable(right, kind)})"


def incomparable(schema: StructType) -> list[str]:
    """Name the columns whose type nothing compares (variant, void)."""
    return [field.name for field in schema if contains(field.dataType, INCOMPARABLE)]


def common_type(left: DataType, right: DataType) -> DataType | None:
    """
    Give the type in which two key columns are compared, or None where a comparison would not be one-to-one.

    Equal types compare as they are and integers of different width as the wider; everything else (a string with a
    number, say) would make different keys equal.
    """
    if isinstance(left, INTEGRAL) and isinstance(right, INTEGRAL):
        return left if INTEGRAL.index(type(left)) >= INTEGRAL.index(type(right)) else right
    return left if left == right and not contains(left, (MapType, *INCOMPARABLE)) else None


def plain_schema(fields: Sequence[StructField]) -> StructType:
    """Make every column nullable and free of metadata, so that a source's constraints do not become the result's."""
    return StructType([StructField(field.name, _plain(field.dataType), True) for field in fields])


def _plain(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return plain_schema(kind.fields)
    if isinstance(kind, ArrayType):
        return ArrayType(_plain(kind.elementType), True)
    if isinstance(kind, MapType):
        return MapType(_plain(kind.keyType), _plain(kind.valueType), True)
    return kind
