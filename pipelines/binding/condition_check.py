"""Checks, by Spark, of the conditions that the pipeline file sets for a source."""

from collections.abc import Iterator

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import BooleanType

from lakehouse.errors.errors import Fault
from lakehouse.tables.table import Table, read_rows
from lakehouse.values.compare import char_type
from pipelines.binding.workspace import Workspace
from pipelines.language.join.condition import condition_path
from pipelines.language.sql.padding import padded_comparisons

TRUE_FOR = {"tombstone": "rows that delete their key", "null_value": "rows without a value"}


def condition_faults(workspace: Workspace, source: str, option: str, sql: str, table: Table) -> Iterator[Fault]:
    """
    Yield the faults of a condition over real columns: Spark rejects it, pads CHAR columns in it, or it is not boolean.
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
        yield Fault(path, f"Spark rejects the condition: {str(error).strip().splitlines()[0]}")
        return
    if not isinstance(kind, BooleanType):
        yield Fault(
            path, f"it is {kind.simpleString()}, not boolean", f"write a condition that is true for {TRUE_FOR[option]}"
        )
