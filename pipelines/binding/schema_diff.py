"""The columns of a result, compared with the columns that its join makes from the current sources."""

from collections.abc import Callable, Iterator, Sequence

from pyspark.sql.types import StructField, StructType

from lakehouse.errors.address import Address
from lakehouse.ledger.entries import JoinHistory
from lakehouse.tables.table import Table
from lakehouse.values.compare import char_type
from lakehouse.values.sqltext import quote
from pipelines.language import Statement
from pipelines.language.statement.outputs import is_star

Found = Callable[[], tuple[Table | None, JoinHistory]]
"""Returns the result of a join, None if it does not exist, and its history in the ledger."""


def result_columns(statement: Statement, definition: str, found: Found) -> tuple[str, ...] | None:
    """
    Return the columns of the existing result, which fix the columns that the stars of a statement stand for.

    They are None if they do not: the statement has no star, for which nothing is read, or the result does not exist,
    was not written by the last epoch, or was made by another definition, by fingerprint.
    """
    if not any(map(is_star, statement.select)):
        return None
    table, history = found()
    last = history.committed
    if table is None or last is None or (last.result.id, last.definition) != (table.id, definition):
        return None
    return tuple(table.schema.fieldNames())


def differences(expected: StructType, found: StructType) -> tuple[str, ...]:
    """Describe each column of a table that is missing, unexpected, or of another type, regardless of their order."""
    return tuple(_differences(expected, found))


def _differences(expected: StructType, found: StructType) -> Iterator[str]:
    here, there = _by_name(expected), _by_name(found)
    for name, field in there.items():
        if name not in here:
            yield f"unexpected column {_shown(field)}"
        elif _type(field) != _type(here[name]):
            yield f"column {_shown(field)} should be {_type(here[name])}"
    for name, field in here.items():
        if name not in there:
            yield f"missing column {_shown(field)}"


def listed(schema: StructType) -> str:
    """Format columns with their types."""
    return ", ".join(map(_shown, schema))


def new_column_notes(left_out: Sequence[tuple[str, str]], way: str) -> tuple[str, ...]:
    """
    Describe, in a line for each source, the new columns that stars leave out, and the way to include them, a clause.
    """
    columns: dict[str, list[str]] = {}
    for source, name in left_out:
        columns.setdefault(source, []).append(quote(name))
    return tuple(
        f"{source} gained {', '.join(names)}: `*` still stands for the columns of the result; "
        f"to include new columns, {way}"
        for source, names in columns.items()
    )


def rebuild_hint(join: str, tables: Sequence[Address]) -> str:
    """Describe how to give a join other columns: drop the tables that it keeps and load them again."""
    dropped = " and ".join(table.path or table.table for table in tables)
    return f"drop {dropped} and run `lakejoin backfill --select {join}`, which loads the join again"


def _by_name(schema: StructType) -> dict[str, StructField]:
    return {field.name.lower(): field for field in schema}


def _type(field: StructField) -> str:
    return char_type(field) or field.dataType.simpleString()


def _shown(field: StructField) -> str:
    return f"{quote(field.name)} {_type(field)}"
