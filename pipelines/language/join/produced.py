"""The order of a join's rows, and the properties of its result for the joins that read it, without a schema."""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from sqlglot import exp

from pipelines.language.file.model import Source
from pipelines.language.statement.added_columns import added_columns
from pipelines.language.statement.definition import Time
from pipelines.language.statement.inputs import Produced
from pipelines.language.statement.outputs import is_star
from pipelines.language.statement.statement import Statement
from pipelines.language.statement.windows import bounds_of, time_of


class Carried(NamedTuple):
    """A result column, and the watermarked input column that it copies."""

    output: str
    time: Time


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


def produced(statement: Statement, sources: Mapping[str, Source | None]) -> Produced:
    """Return the properties of a join's result for the joins that read it; an invalid source is None."""
    if not statement.reads_stream:
        return Produced(statement.key, may_be_absent=statement.may_be_absent)
    is_ordered = is_ordered_by_column(statement, sources)
    times = tuple(column.output for column in carried(statement))
    return Produced((), is_stream=True, times=times, added=added_columns(statement.sides), is_ordered=is_ordered)


def carried(statement: Statement) -> tuple[Carried, ...]:
    """
    Find the columns of a result that keep a watermark: plain watermarked columns of a stream, limited by a bound.

    A stream that looks up tables passes all its watermarks on. In a join of two streams, a time that no bound limits
    has no watermark in the result (the Hazelcast design), because buffered rows may be emitted with any value of it.
    """
    limited = {bound.greater for bound in bounds_of(statement)} if statement.is_windowed else None
    found = (column for item in statement.select for column in _times_of(item, statement))
    return tuple(column for column in found if limited is None or column.time in limited)


def _times_of(item: exp.Expr, statement: Statement) -> Iterator[Carried]:
    using = {name.lower() for name in statement.using}
    if not is_star(item):
        column = item.this if isinstance(item, exp.Alias) else item
        if isinstance(column, exp.Column) and (column.table or column.name.lower() not in using):
            time = time_of(column, statement.sides)
            yield from [Carried(item.alias_or_name, time)] if time else []
        return
    star, alias = (item.this, item.table.lower()) if isinstance(item, exp.Column) else (item, "")
    left_out = {column.name.lower() for column in star.args.get("except_") or ()}
    merged = set() if alias else using
    for place, side in enumerate(statement.sides):
        for name, _ in side.times if alias in ("", side.alias.lower()) else ():
            if name.lower() not in left_out | merged:
                yield Carried(name, Time(place, name))
