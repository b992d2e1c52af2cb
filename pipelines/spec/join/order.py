"""The order of the rows that a join with a stream reads."""

from collections.abc import Mapping

from pipelines.spec.file.model import Source
from pipelines.spec.statement.statement import Statement


def timed_inputs(statement: Statement, sources: Mapping[str, Source | None]) -> dict[str, Source | None]:
    """Return the inputs whose rows have a time: all except global tables; None stands for another join."""
    inputs = (side for side in statement.sides if side.kind != "global_table")
    return {side.source: sources.get(side.source) for side in inputs}


def is_ordered_by_column(statement: Statement, sources: Mapping[str, Source | None]) -> bool:
    """
    Return whether `order_by`, instead of commit times, orders the rows of a join with a stream.

    It does if every input except global tables sets the option.
    """
    inputs = timed_inputs(statement, sources).values()
    return all(source is not None and source.order_by is not None for source in inputs)
