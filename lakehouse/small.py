"""
Few rows: brought to the driver as Arrow and given back to Spark as a literal of later plans.

A query over such rows reads no file and starts no job for them; each file written and read again costs a small epoch
half a second. More than 100,000 rows, or 64 MiB of them, never go this way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DoubleType,
    FloatType,
    MapType,
    StringType,
    StructType,
)

from lakehouse import limits
from lakehouse.sqltext import quote
from lakehouse.values import PRUNABLE, plain_schema, type_sql

if TYPE_CHECKING:
    import pyarrow


CARRIED: tuple[type[DataType], ...] = (*PRUNABLE, FloatType, DoubleType, BooleanType, BinaryType)
"""Plain types whose values Arrow carries to and fro unchanged."""


@dataclass(frozen=True)
class DriverRows:
    """
    Rows on the driver.

    Args:
        rows: The rows.
        frame: The rows as a frame.
        read: The frame that was read for them.
    """

    rows: "pyarrow.Table"
    frame: DataFrame
    read: DataFrame

    @property
    def files(self) -> list[str]:
        """Name the files that were read; the plan that has run knows them, another would look for them again."""
        return self.read.inputFiles()

    def distinct(self, columns: Sequence[str]) -> int | None:
        """Count how many different values some columns have; None where Arrow and Spark tell values apart otherwise."""
        if not all(isinstance(self.frame.schema[name].dataType, PRUNABLE) for name in columns):
            return None
        return int(self.rows.select(list(columns)).group_by(list(columns)).aggregate([]).num_rows)


class TooMuch(Exception):
    """Rows are too many or too large for the driver, or of types that Arrow does not carry."""


def to_driver(frame: DataFrame) -> DriverRows:
    """
    Bring a frame's rows to the driver.

    Raises:
        TooMuch: They stay where they are.
    """
    if not carried(frame.schema):
        raise TooMuch
    # A null struct comes with nulls in its fields, which Arrow refuses where these may not be null.
    plain = plain_schema(frame.schema.fields)
    values = (f"CAST({quote(field.name)} AS {type_sql(field.dataType)}) AS {quote(field.name)}" for field in plain)
    limited = frame.selectExpr(*values).limit(limits.ROWS_ON_DRIVER + 1)
    try:
        rows = limited.toArrow()
    except Exception as error:
        if "maxResultSize" in str(error):
            raise TooMuch from error
        raise
    # `nbytes` would look into each array, and crashes the process at arrays of maps that are null.
    if rows.num_rows > limits.ROWS_ON_DRIVER or rows.get_total_buffer_size() > limits.BYTES_ON_DRIVER:
        raise TooMuch
    return DriverRows(rows, frame.sparkSession.createDataFrame(rows, schema=plain), limited)


def literal(spark: SparkSession, rows: Sequence[Sequence[int]], schema: StructType) -> DataFrame:
    """Make a frame of a few rows of whole numbers that the driver knows, a literal of later plans."""
    import pyarrow

    columns = [pyarrow.array([row[place] for row in rows], pyarrow.int64()) for place in range(len(schema))]
    return spark.createDataFrame(pyarrow.table(columns, schema.names), schema=schema)


def carried(kind: DataType) -> bool:
    """Tell whether values of a type come back from Arrow as they were."""
    if isinstance(kind, StructType):
        names = [name.lower() for name in kind.fieldNames()]
        return len(set(names)) == len(names) and all(carried(field.dataType) for field in kind)
    if isinstance(kind, ArrayType):
        return carried(kind.elementType)
    if isinstance(kind, MapType):
        return carried(kind.keyType) and carried(kind.valueType)
    if isinstance(kind, StringType):
        return kind == StringType()  # of the collations only the binary one
    return isinstance(kind, CARRIED)
