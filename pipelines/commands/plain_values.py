"""
Values of Spark as values of JSON, for reports.

Decimals, dates, times and intervals are strings as Spark formats them in the time zone of the session; binary values
are hexadecimal strings; variants are JSON values. NaN, infinities and keys of maps are strings. If a struct has two
fields of one name, its fields are named col1, col2, ...
"""

import json
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import types as T

NUMBERS = (T.IntegralType, T.FloatType, T.DoubleType)
PLAIN = (T.NullType, T.BooleanType, *NUMBERS, T.StringType, T.BinaryType, T.VariantType)
"""Types whose values are collected as they are; Spark casts values of all other types to strings."""


def plain_values(frame: DataFrame) -> DataFrame:
    """Cast values without a JSON equivalent to strings, also inside arrays, maps and structs."""
    types = [_plain_type(field.dataType) for field in frame.schema]
    named = frame.toDF(*(f"c{n}" for n in range(len(types))))  # names may occur twice
    return named.select(*(named[f"c{n}"].cast(data_type) for n, data_type in enumerate(types)))


def _plain_type(data_type: T.DataType) -> T.DataType:
    if isinstance(data_type, T.ArrayType):
        return T.ArrayType(_plain_type(data_type.elementType), data_type.containsNull)
    if isinstance(data_type, T.MapType):
        return T.MapType(T.StringType(), _plain_type(data_type.valueType), data_type.valueContainsNull)
    if isinstance(data_type, T.StructType):
        names = data_type.fieldNames()
        if len(set(names)) < len(names):  # a mapping would lose one
            names = [f"col{n}" for n in range(1, len(names) + 1)]
        fields = zip(names, data_type, strict=True)
        return T.StructType(
            [T.StructField(name, _plain_type(field.dataType), field.nullable) for name, field in fields]
        )
    return data_type if isinstance(data_type, PLAIN) else T.StringType()


def plain_value(value: Any) -> Any:
    """Convert a collected value of such a frame to one of JSON."""
    if isinstance(value, Row):
        return {name: plain_value(part) for name, part in zip(value.__fields__, value, strict=True)}
    if isinstance(value, dict):
        return {name: plain_value(part) for name, part in value.items()}
    if isinstance(value, list):
        return [plain_value(part) for part in value]
    if isinstance(value, T.VariantVal):
        return plain_value(json.loads(str(value)))
    if isinstance(value, bytes | bytearray):
        return value.hex().upper()
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}[str(value)]
    return value
