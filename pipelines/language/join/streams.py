"""Streams: how their rows are read, and the options that joins with them do not support."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakehouse.errors.errors import Fault, PipelineFileError
from pipelines.language.file.model import Join, Source
from pipelines.language.file.option_rules import Misfit
from pipelines.language.join.condition import Condition, bind_condition
from pipelines.language.join.produced import is_ordered_by_column, timed_inputs
from pipelines.language.names import nearest
from pipelines.language.statement.statement import Side, Statement


@dataclass(frozen=True, kw_only=True)
class Stream:
    """
    How to read the rows of a stream, with the real names of its columns.

    Args:
        null_value: The condition for rows without a value, which are counted and ignored (KIP-77).
        order: The column that orders its rows; None if commits order them.
        event_time: Its first watermarked column, which orders the rows of an initial load without `order`; or None.
        ignore_changes: Whether to skip updated and deleted rows, instead of failing.
    """

    source: str
    null_value: Condition
    order: str | None
    event_time: str | None
    ignore_changes: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are always needed, in addition to those that the statement uses."""
        named = (name for name in (self.order, self.event_time) if name is not None)
        return tuple(dict.fromkeys((*self.null_value.columns, *named)))


def bind_stream(name: str, source: Source, columns: Sequence[str]) -> Stream:
    """Resolve the column names in the options of a stream; raise `PipelineFileError` with every unknown column."""
    path, real = f"sources.{name}", {column.lower(): column for column in columns}
    named = [(f"{path}.watermarks", column) for column in source.watermarks]
    named += [(f"{path}.order_by", source.order_by)] if source.order_by is not None else []
    faults = [
        Fault(where, f"{name} has no column `{column}`", nearest(column, columns))
        for where, column in named
        if column.lower() not in real
    ]
    null_value, found = bind_condition(name, "null_value", source.null_value, columns)
    if faults or found:
        raise PipelineFileError(name, [*faults, *found])
    event_time = next((real[column.lower()] for column in source.watermarks), None)
    order = None if source.order_by is None else real[source.order_by.lower()]
    return Stream(
        source=name,
        null_value=null_value,
        order=order,
        event_time=event_time,
        ignore_changes=source.ignore_changes,
    )


def bind_result(side: Side, columns: Sequence[str]) -> Stream:
    """Return how to read the result of another join that is a stream: its rows always have a value and never change."""
    real = {column.lower(): column for column in columns}
    event_time = next((real[column.lower()] for column, _ in side.times if column.lower() in real), None)
    null_value = Condition("FALSE", ())
    return Stream(source=side.source, null_value=null_value, order=None, event_time=event_time, ignore_changes=False)


def split_misfits(join: Join) -> Iterator[tuple[str, Misfit]]:
    """Yield the options that a statement of several streams does not support: the limits of epochs."""
    for option in ("max_versions", "max_bytes"):
        if getattr(join, option) is not None:
            yield option, Misfit(f"`{option}` with a statement of several streams is not yet supported", "leave it out")


def stream_misfits(
    statement: Statement, join: Join, sources: Mapping[str, Source | None]
) -> Iterator[tuple[str, Misfit]]:
    """
    Find the options of a join that its statement does not support, each with its problem.

    A join with a stream does not support `changelog`, `refresh: full`, and `order_by` of some inputs only. A join
    without a stream does not support limits of epochs.
    """
    timed = timed_inputs(statement, sources)
    if join.max_buffered_rows is not None and not statement.is_windowed:
        problem = "`max_buffered_rows` limits the buffered rows of a join of two streams"
        yield "max_buffered_rows", Misfit(problem, "leave it out: this join buffers no rows")
    if not statement.reads_stream:
        for option in ("max_versions", "max_bytes"):
            if getattr(join, option) is not None:
                problem = f"`{option}` limits the epochs of a join with a stream, but this is a join of tables"
                yield option, Misfit(problem, "leave it out: an epoch of tables takes all new changes")
        ordered = [name for name, source in timed.items() if source and source.kind == "table" and source.order_by]
        if join.changelog and ordered:
            problem = f"`order_by` of {', '.join(ordered)} orders joins with a stream, but commits order a changelog"
            yield "changelog", Misfit(problem, "leave out `order_by` or the changelog")
        return
    bounded = next((option for option in ("max_versions", "max_bytes") if getattr(join, option) is not None), None)
    if bounded is not None:
        uncut = [name for name, source in timed.items() if source is None or source.kind == "changelog"]
        if uncut:
            problem = (
                f"`{bounded}` with {', '.join(uncut)}, which cannot be cut at a commit of its own sources, is not yet "
                "supported"
            )
            yield bounded, Misfit(problem, "leave it out, or join with plain tables")
        elif is_ordered_by_column(statement, sources):
            problem = f"`{bounded}` cuts epochs by commit times, but `order_by` orders the rows by a column"
            yield bounded, Misfit(problem, "leave one of them out")
    if join.changelog:
        problem = "the result of a join with a stream is a stream, which has no changelog"
        yield "changelog", Misfit(problem, "leave it out: the result itself has each row once, in order")
    if join.refresh == "full":
        problem = "a join with a stream is never computed in full: its rows depend on when the input rows arrived"
        yield "refresh", Misfit(problem, "use `auto` or `incremental`")
    if statement.is_windowed and join.semantics != "strict" and not is_ordered_by_column(statement, sources):
        problem = f"semantics `{join.semantics}` process the rows of both streams one by one, but no column orders them"
        yield "semantics", Misfit(problem, "set `order_by` for both streams, or use `semantics: strict`")
    without = [name for name, source in timed.items() if source is None or source.order_by is None]
    # A changelog source always has the option, to order its own rows; that alone does not make it the join's time.
    with_it = [name for name, source in timed.items() if name not in without and source and source.kind != "changelog"]
    if without and with_it:
        problem = (
            f"`order_by` is set for {', '.join(with_it)} but not for {', '.join(without)}: no common "
            "time orders their rows"
        )
        hint = "set it for all inputs of the join, or for none: commit times then order them"
        yield "sql", Misfit(problem, hint)
