"""The options of a join that its statement does not support."""

from collections.abc import Iterator

from pipelines.language.file.model import Join
from pipelines.language.file.options import Misfit
from pipelines.language.names import unknown_output
from pipelines.language.statement.outputs import is_ordered_by_column, is_star, timed_inputs
from pipelines.language.statement.statement import Sources, Statement

BOUNDS = ("max_versions", "max_bytes")
"""The options that bound what an epoch takes of each source."""


def option_misfits(statement: Statement, join: Join, sources: Sources) -> Iterator[tuple[str, Misfit]]:
    """Find the options of a join that its statement does not support, each with its problem."""
    timed = timed_inputs(statement, sources)
    if join.max_buffered_rows is not None and not statement.is_windowed:
        problem = "`max_buffered_rows` limits the buffered rows of a join of two streams"
        yield "max_buffered_rows", Misfit(problem, "leave it out: this join buffers no rows")
    if join.feed == "any":
        yield from _unlike_any_feed(statement, join)
    yield from _unlike_schema_change(statement, join)
    if join.key_columns == "append" and statement.reads_stream:
        yield "key_columns", Misfit("the result of a join with a stream is a stream, which has no key", "leave it out")
    if join.cluster_by and statement.reads_stream:
        problem = "`cluster_by` lays out a result whose rows change, but a join with a stream only appends"
        yield "cluster_by", Misfit(problem, "leave it out")
    elif not any(map(is_star, statement.select)):  # the columns of a star are known to `plan`
        columns = [item.alias_or_name for item in statement.select]
        unknown = (name for name in join.cluster_by if name not in columns)
        yield from (("cluster_by", Misfit(*unknown_output(name, columns))) for name in unknown)
    if not statement.reads_stream:
        ordered = [name for name, source in timed.items() if source and source.kind == "table" and source.order_by]
        if join.changelog and ordered:
            problem = f"`order_by` of {', '.join(ordered)} orders joins with a stream, but commits order a changelog"
            yield "changelog", Misfit(problem, "leave out `order_by` or the changelog")
        return
    bounded = next((option for option in BOUNDS if getattr(join, option) is not None), None)
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


def split_misfits(join: Join) -> Iterator[tuple[str, Misfit]]:
    """Yield the options that a statement of several streams does not support: the limits of epochs."""
    for option in BOUNDS:
        if getattr(join, option) is not None:
            yield option, Misfit(f"`{option}` with a statement of several streams is not yet supported", "leave it out")


def _unlike_any_feed(statement: Statement, join: Join) -> Iterator[tuple[str, Misfit]]:
    """Yield the objections to a feed that also holds rows that do not differ."""
    if statement.reads_stream:
        problem = "`feed: any` allows a join of tables to overwrite its result, but a join with a stream only appends"
        yield "feed", Misfit(problem, "leave it out")
    elif join.changelog:
        yield "feed", Misfit("`feed: any` with a changelog, which needs each change", "leave one of them out")
    elif join.refresh == "incremental":
        problem = "`feed: any` allows an epoch in full to overwrite the result, but `refresh: incremental` forbids it"
        yield "feed", Misfit(problem, "leave one of them out")


def _unlike_schema_change(statement: Statement, join: Join) -> Iterator[tuple[str, Misfit]]:
    """Yield the objections to what a run does with new columns of its sources."""
    option = f"`on_schema_change: {join.on_schema_change}`"
    if join.on_schema_change == "ignore":
        return
    if statement.reads_stream:
        problem = f"{option} is for joins of tables: the rows that a join with a stream has appended stay as they are"
        yield "on_schema_change", Misfit(problem, "leave it out")
    elif not any(map(is_star, statement.select)):
        yield "on_schema_change", Misfit(f"{option}, but the SELECT list has no `*`", "leave it out, or write `*`")
    elif join.on_schema_change == "append" and join.refresh == "incremental":
        problem = f"{option} computes the join in full where a column is new, but `refresh: incremental` forbids it"
        yield "on_schema_change", Misfit(problem, "leave one of them out")
