"""Schemas in few words."""

from pyspark.sql.types import (
    BooleanType,
    DataType,
    DoubleType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)  # fmt: skip

STRING, INT, LONG, DOUBLE = StringType(), IntegerType(), LongType(), DoubleType()
BOOLEAN, TIMESTAMP = BooleanType(), TimestampType()


def columns(**types: DataType) -> StructType:
    return StructType([StructField(name, data_type) for name, data_type in types.items()])
