"""
Small frames: collected to the driver as Arrow, and returned to Spark as a literal of later plans.

A query over these rows reads no file and starts no job for them; each file that is written and read back costs a small
epoch half a second.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as T

from lakehouse import limits
from lakehouse.values.compare import PRUNABLE, inner_types, plain_schema, type_sql
from lakehouse.values.sqltext import quote

if TYPE_CHECKING:
    import pyarrow


_PLAIN_IN_ARROW: tuple[type[T.DataType], ...] = (*PRUNABLE, T.FloatType, T.DoubleType, T.BooleanType, T.BinaryType)
"""Plain types whose values pass through Arrow and back unchanged."""


@dataclass(frozen=True)
class DriverRows:
    """Rows that are collected to the driver, also as a frame, and `read`, the frame from which they were collected."""

    rows: "pyarrow.Table"
    frame: DataFrame
    read: DataFrame

    @property
    def files(self) -> Sequence[str]:
        """The files that were read. The executed plan knows them; a new plan would have to list them again."""
        return self.read.inputFiles()

    def distinct(self, columns: Sequence[str]) -> int | None:
        """Count the distinct values of some columns; None if Arrow and Spark distinguish their values differently."""
        if not all(isinstance(self.frame.schema[name].dataType, PRUNABLE) for name in columns):
            return None
        return int(self.rows.select(list(columns)).group_by(list(columns)).aggregate([]).num_rows)


class TooLarge(Exception):
    """The rows are too many or too large for the driver, or have types that Arrow does not preserve."""


def to_driver(frame: DataFrame) -> DriverRows:
    """Collect the rows of a frame to the driver; raise TooLarge if they cannot be collected."""
    rows, read = collected(frame)
    schema = plain_schema(frame.schema.fields)
    return DriverRows(rows, frame.sparkSession.createDataFrame(rows, schema=schema), read)


def collected(frame: DataFrame) -> tuple["pyarrow.Table", DataFrame]:
    """Collect a frame as Arrow in the types of `plain_schema`; return it with what was read, or raise TooLarge."""
    if not fits_arrow(frame.schema):
        raise TooLarge
    # A null struct has nulls in its fields, which Arrow refuses for fields that are not nullable.
    plain = plain_schema(frame.schema.fields)
    values = (f"CAST({quote(field.name)} AS {type_sql(field.dataType)}) AS {quote(field.name)}" for field in plain)
    limited = frame.selectExpr(*values).limit(limits.ROWS_ON_DRIVER + 1)
    try:
        rows = limited.toArrow()
    except Exception as error:
        if "maxResultSize" in str(error):
            raise TooLarge from error
        raise
    # `nbytes` inspects each array, and crashes the process on arrays of maps that are null.
    if rows.num_rows > limits.ROWS_ON_DRIVER or rows.get_total_buffer_size() > limits.BYTES_ON_DRIVER:
        raise TooLarge
    return rows, limited


def literal_frame(spark: SparkSession, rows: Sequence[Sequence[int]], schema: T.StructType) -> DataFrame:
    """Build a frame from a few rows of whole numbers on the driver, as a literal of later plans."""
    import pyarrow

    columns = [pyarrow.array([row[index] for row in rows], pyarrow.int64()) for index in range(len(schema))]
    return spark.createDataFrame(pyarrow.table(columns, schema.names), schema=schema)


def fits_arrow(data_type: T.DataType) -> bool:
    """Return whether values of a type pass through Arrow and back unchanged."""
    names = [name.lower() for name in data_type.fieldNames()] if isinstance(data_type, T.StructType) else []
    if isinstance(data_type, (T.ArrayType, T.MapType, T.StructType)):
        return len(set(names)) == len(names) and all(map(fits_arrow, inner_types(data_type)))
    if isinstance(data_type, T.StringType):
        return data_type == T.StringType()  # only the binary collation
    return isinstance(data_type, _PLAIN_IN_ARROW)
