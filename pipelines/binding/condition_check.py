"""Conditions that the file says of one source, tried by Spark."""

from collections.abc import Iterator

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from lakehouse.errors import Fault
from lakehouse.tables import Table, read_rows
from lakehouse.values import char_type
from pipelines.binding.workspace import Workspace
from pipelines.spec.join.condition import condition_path
from pipelines.spec.sql.padding import padded_comparisons

TRUE_FOR = {"tombstone": "a row that deletes", "null_value": "a row without a value"}


def condition_faults(workspace: Workspace, source: str, option: str, sql: str, table: Table) -> Iterator[Fault]:
    """
    Say why Spark cannot take a condition over a source.

    Args:
        workspace: Where to work.
        source: The name of the source.
        option: The option of the file that it is.
        sql: The condition, with the real names of columns.
        table: The source's table.
    """
    path = condition_path(source, option)
    chars: dict[tuple[str, ...], str] = {
        (field.name,): declared for field in table.schema if (declared := char_type(field)) is not None
    }
    if chars:
        yield from (Fault(path, found.problem, found.hint) for found in padded_comparisons(sql, chars))
    try:
        kind = read_rows(workspace.spark, table, table.version).select(F.expr(sql)).schema[0].dataType
    except AnalysisException as error:
        yield Fault(path, f"Spark refuses it: {str(error).strip().splitlines()[0]}")
        return
    if not isinstance(kind, BooleanType):
        yield Fault(path, f"it is {kind.simpleString()}", f"write a condition, which is true for {TRUE_FOR[option]}")
