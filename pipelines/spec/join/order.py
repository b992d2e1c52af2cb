"""What orders the rows that a join with a stream reads."""

from collections.abc import Mapping

from pipelines.spec.file.model import Source
from pipelines.spec.statement.statement import Statement


def timed_inputs(statement: Statement, sources: Mapping[str, Source | None]) -> dict[str, Source | None]:
    """Give the inputs that have a place in time: all but global tables; None stands for another join."""
    inputs = (side for side in statement.sides if side.kind != "global_table")
    return {side.source: sources.get(side.source) for side in inputs}


def is_ordered_by_column(statement: Statement, sources: Mapping[str, Source | None]) -> bool:
    """
    Tell whether the time of a join with a stream is `order_by`, not that of the commits.

    It is where every input but global tables has the option.
    """
    inputs = timed_inputs(statement, sources).values()
    return all(source is not None and source.order_by is not None for source in inputs)
