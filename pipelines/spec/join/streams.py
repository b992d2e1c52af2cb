"""Streams: what the file says of one, what orders a join with it, and what such a join cannot be asked for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from lakehouse.errors import Fault, PipelineFileError
from pipelines.spec.file.model import Join, Source
from pipelines.spec.file.option_rules import Misfit
from pipelines.spec.join.condition import Condition, bind_condition
from pipelines.spec.join.order import is_ordered_by_column, timed_inputs
from pipelines.spec.names import nearest
from pipelines.spec.statement.statement import Side, Statement


@dataclass(frozen=True)
class Stream:
    """
    How the rows of a stream are read, under the real names of its columns.

    Args:
        source: Its name in the file.
        null_value: Tells which rows have no value: they are counted and take no part (KIP-77).
        order: The column that orders its rows, None where their commits do.
        event_time: Its first watermarked column, which orders the rows of a first load without `order`; or None.
        ignore_changes: Whether updated and deleted rows are skipped, instead of refused.
    """

    source: str
    null_value: Condition
    order: str | None
    event_time: str | None
    ignore_changes: bool

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns that are needed whatever the statement uses."""
        named = (name for name in (self.order, self.event_time) if name is not None)
        return tuple(dict.fromkeys((*self.null_value.columns, *named)))


def bind_stream(name: str, source: Source, columns: Sequence[str]) -> Stream:
    """
    Resolve the names that a stream gives.

    Args:
        name: Its name in the file.
        source: What the file says of it.
        columns: The columns of its table, in their order.

    Raises:
        PipelineFileError: With every column that is not there.
    """
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
    return Stream(name, null_value, order, event_time, source.ignore_changes)


def bind_result(side: Side, columns: Sequence[str]) -> Stream:
    """
    Say how the rows of another join's result are read, which is a stream: each has a value, and none ever changes.

    Args:
        side: The input.
        columns: The columns of its table.
    """
    real = {column.lower(): column for column in columns}
    event_time = next((real[column.lower()] for column, _ in side.times if column.lower() in real), None)
    return Stream(side.source, Condition("FALSE", ()), None, event_time, ignore_changes=False)


def split_misfits(join: Join) -> Iterator[tuple[str, Misfit]]:
    """Say which options of a join do not go with a statement of several streams: the bounds of epochs."""
    for option in ("max_versions", "max_bytes"):
        if getattr(join, option) is not None:
            yield option, Misfit(f"`{option}` with a statement of several streams is not yet supported", "leave it out")


def stream_misfits(
    statement: Statement, join: Join, sources: Mapping[str, Source | None]
) -> Iterator[tuple[str, Misfit]]:
    """
    Say which options of a join do not go with its statement.

    Args:
        statement: Its statement.
        join: What the file says of it.
        sources: The sources of the file, by name.

    Yields:
        The option, and what is wrong: with a stream `changelog`, `refresh: full`, and `order_by` of some inputs and not
        of others; without one the bounds of epochs.
    """
    timed = timed_inputs(statement, sources)
    if join.max_buffered_rows is not None and not statement.is_windowed:
        problem = "`max_buffered_rows` bounds the rows that wait in a join of two streams"
        yield "max_buffered_rows", Misfit(problem, "leave it out: nothing waits in this join")
    if not statement.reads_stream:
        for option in ("max_versions", "max_bytes"):
            if getattr(join, option) is not None:
                problem = f"`{option}` bounds the epochs of a join with a stream, and this is one of tables"
                yield option, Misfit(problem, "leave it out: an epoch of tables nets all that came")
        ordered = [name for name, source in timed.items() if source and source.kind == "table" and source.order_by]
        if join.changelog and ordered:
            problem = (
                f"`order_by` of {', '.join(ordered)} orders joins with a stream; a changelog has the order of commits"
            )
            yield "changelog", Misfit(problem, "leave `order_by` out, or the changelog")
        return
    bounded = next((option for option in ("max_versions", "max_bytes") if getattr(join, option) is not None), None)
    if bounded is not None:
        uncut = [name for name, source in timed.items() if source is None or source.kind == "changelog"]
        if uncut:
            problem = f"`{bounded}`: {', '.join(uncut)} cannot be cut at a commit of its own sources: not yet supported"
            yield bounded, Misfit(problem, "leave it out, or join with plain tables")
        elif is_ordered_by_column(statement, sources):
            problem = f"`{bounded}` cuts by the times of commits, and `order_by` orders the rows otherwise"
            yield bounded, Misfit(problem, "leave one of them out")
    if join.changelog:
        problem = "the result of a join with a stream is a stream, which has no changelog"
        yield "changelog", Misfit(problem, "leave it out: the result itself has each row once, in its order")
    if join.refresh == "full":
        problem = "a join with a stream is never computed in full: its rows depend on what had arrived when"
        yield "refresh", Misfit(problem, "auto or incremental")
    if statement.is_windowed and join.semantics != "strict" and not is_ordered_by_column(statement, sources):
        problem = f"semantics `{join.semantics}` take the rows of both streams one by one, and nothing orders them"
        yield "semantics", Misfit(problem, "give both streams `order_by`, or use `semantics: strict`")
    without = [name for name, source in timed.items() if source is None or source.order_by is None]
    # A changelog source orders its own rows by the option: that alone is no time of the join.
    with_it = [name for name, source in timed.items() if name not in without and source and source.kind != "changelog"]
    if without and with_it:
        problem = (
            f"`order_by` is given for {', '.join(with_it)} and not for {', '.join(without)}: nothing "
            "orders the rows of both"
        )
        hint = "give it for all inputs of the join, or for none: then the times of the commits order them"
        yield "sql", Misfit(problem, hint)
