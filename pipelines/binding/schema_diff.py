"""The columns that a result has, beside those that its join makes of its sources as they are now."""

from collections.abc import Callable, Iterator, Sequence

from pyspark.sql.types import StructField, StructType

from lakehouse.address import Address
from lakehouse.entries import JoinHistory
from lakehouse.sqltext import quote
from lakehouse.tables import Table
from lakehouse.values import char_type
from pipelines.spec import Statement
from pipelines.spec.statement.outputs import is_star

Found = Callable[[], tuple[Table | None, JoinHistory]]
"""Gives the result of a join, None where there is none, and what the ledger knows of it."""


def result_columns(statement: Statement, definition: str, found: Found) -> tuple[str, ...] | None:
    """
    Name the columns that fix what the stars of a statement stand for: those of the result that it has made.

    Args:
        statement: The statement of the join.
        definition: Fingerprint of the join's definition in the pipeline file.
        found: Looks at the result and the ledger; not called for a statement without a star.

    Returns:
        The columns; None where nothing is fixed: there is no star, or no result, or another definition or somebody
        else made it.
    """
    if not any(map(is_star, statement.select)):
        return None
    table, history = found()
    last = history.committed
    if table is None or last is None or (last.result.id, last.definition) != (table.id, definition):
        return None
    return tuple(table.schema.fieldNames())


def differences(expected: StructType, found: StructType) -> tuple[str, ...]:
    """
    Say how the columns of a table differ from those that belong there; their order does not count.

    Args:
        expected: The columns that belong there.
        found: Those of the table.

    Returns:
        A clause for each column that is missing, too many, or of another type.
    """
    return tuple(_differences(expected, found))


def _differences(expected: StructType, found: StructType) -> Iterator[str]:
    here, there = _by_name(expected), _by_name(found)
    for name, field in there.items():
        if name not in here:
            yield f"nothing makes its column {_shown(field)}"
        elif _type(field) != _type(here[name]):
            yield f"its column {_shown(field)} would be {_type(here[name])}"
    for name, field in here.items():
        if name not in there:
            yield f"it lacks the column {_shown(field)}"


def listed(schema: StructType) -> str:
    """List columns with their types."""
    return ", ".join(map(_shown, schema))


def gained(left_out: Sequence[tuple[str, str]], way: str) -> tuple[str, ...]:
    """
    Say which columns of sources the stars of a statement pass over.

    Args:
        left_out: The columns, each after its source.
        way: What takes them over.

    Returns:
        A line for each source.
    """
    columns: dict[str, list[str]] = {}
    for source, name in left_out:
        columns.setdefault(source, []).append(quote(name))
    return tuple(
        f"{source} has come to have {', '.join(names)}: `*` goes on without, as the result does; to take over, {way}"
        for source, names in columns.items()
    )


def begun_anew(join: str, tables: Sequence[Address]) -> str:
    """Say what gives a join other columns: the tables that it keeps are dropped, and loaded anew."""
    dropped = " and ".join(table.path or table.table for table in tables)
    return f"drop {dropped} and run `lakejoin backfill --select {join}`, which loads all of it anew"


def _by_name(schema: StructType) -> dict[str, StructField]:
    return {field.name.lower(): field for field in schema}


def _type(field: StructField) -> str:
    return char_type(field) or field.dataType.simpleString()


def _shown(field: StructField) -> str:
    return f"{quote(field.name)} {_type(field)}"
