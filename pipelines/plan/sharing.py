"""
The reads and stores that joins share by the rules of the optimizer, derived from the pipeline file alone.

    read departures as a -> store a                read departures as a, b -> store a, b
    read departures as b -> store b           =>   join consecutive (stream-stream, inner) -> consecutive
    join consecutive (stream-stream, inner) -> consecutive

A rule changes only reads and stores, never a result or its column names. KTable sources always serve as their own
state: a join of tables looks up their rows and stores no copy. This is the counterpart of Kafka's reuse of source
topics.
"""

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from sqlglot import exp

from pipelines.language import PipelineFile, Statement, statement_of
from pipelines.language.statement.outputs import is_star
from pipelines.language.statement.statement import Side

Form = Literal["changes", "whole table", "KTable", "result"]
"""The form of a read: the changes of a source, its whole current content, or a table that lakejoin maintains."""


class _Read(NamedTuple):
    source: str
    form: Form
    aliases: tuple[str, ...]


class Reads(NamedTuple):
    """
    What one join reads and stores: a line for each read, with the stores that it fills, and a line for the join.

    The lines are those without the optimizer and those by the rules that the file allows. A rule that changes something
    for the join is a line `name: description`.
    """

    plain: tuple[str, ...]
    optimized: tuple[str, ...]
    rules: tuple[str, ...]


def is_single_store(file: PipelineFile, name: str) -> bool:
    """Return whether a join reads a stream that it joins with itself once, and buffers its rows once (KIP-862)."""
    statement = statement_of(file, name)
    is_inner = all(step.how == "inner" for step in statement.steps)
    return statement.is_self_join and is_inner and file.uses("single_store_self_join")


def is_read_once(file: PipelineFile, name: str) -> bool:
    """Return whether a join reads a stream that it joins with itself once for both inputs."""
    is_shared = statement_of(file, name).is_self_join and file.uses("share_change_reads")
    return is_shared or is_single_store(file, name)


def shared_reads(file: PipelineFile, names: Sequence[str]) -> dict[str, frozenset[str] | None]:
    """
    Find the sources whose changes are read once for several joins, and the columns that these may use, in lower case.

    The columns are None if the joins may use all of them.
    """
    return {source: _named_by(file, source, joins) for source, joins in _sharing(file, names).items()}


def explained_reads(file: PipelineFile, names: Sequence[str], name: str) -> Reads:
    """Describe what one of several joins that run together reads and stores, with and without the optimizer."""
    statement, is_single = statement_of(file, name), is_single_store(file, name)
    aliases, once = tuple(side.alias for side in statement.sides), is_read_once(file, name)
    separate = [(alias,) for alias in aliases] if statement.is_windowed else []
    shared = {source: joins for source, joins in _sharing(file, names).items() if name in joins}
    earlier = [source for source, joins in shared.items() if joins[0] != name]
    plain, reads = _reads(file, statement, once=False), _reads(file, statement, once=once)
    # What an earlier join reads too is read first, in the order in which the joins read it.
    reads.sort(key=lambda read: earlier.index(read.source) if read.source in earlier else len(earlier))
    rules = []
    if is_single:
        rules.append(
            f"single_store_self_join: {' and '.join(aliases)} are the same table, which is read and buffered once"
        )
    elif once:
        rules.append(f"share_change_reads: the changes of {reads[0].source} are read once for {' and '.join(aliases)}")
    for source, joins in shared.items():
        text = f"the changes of {source} are read once for {' and '.join(joins)}, if they read the same versions"
        rules.append(f"share_change_reads: {text}")
    others = {source: [other for other in joins if other != name] for source, joins in shared.items()}
    stores = [aliases] if is_single else separate
    types = " and ".join(dict.fromkeys(statement.hows))
    end = f"join {name} ({', '.join(filter(None, (statement.kind, types)))}) -> {name}"
    return Reads(
        (*(_line(read, separate) for read in plain), end),
        (*(_line(read, stores, others.get(read.source, ())) for read in reads), end),
        tuple(rules),
    )


def _sharing(file: PipelineFile, names: Sequence[str]) -> dict[str, list[str]]:
    """Return the sources of which one read serves several joins, except whole tables, each with these joins."""
    joins: dict[str, list[str]] = {}
    for name in names if file.uses("share_change_reads") else ():
        for read in _reads(file, statement_of(file, name), once=is_read_once(file, name)):
            if read.form != "whole table":
                joins.setdefault(read.source, []).append(name)
    return {source: found for source, found in joins.items() if len(found) > 1}


def _reads(file: PipelineFile, statement: Statement, *, once: bool) -> list[_Read]:
    """
    Return the reads of a join: a table under several names is one read, and each of two streams another one.

    With `once`, two streams that are one table are one read, under the name of the first.
    """
    groups: dict[str, list[Side]] = {}
    for side in statement.sides:
        own = side.alias if statement.is_windowed else side.source
        groups.setdefault("" if once else own, []).append(side)
    return [
        _Read(sides[0].source, _form(file, statement, sides[0]), tuple(side.alias for side in sides))
        for sides in groups.values()
    ]


def _form(file: PipelineFile, statement: Statement, side: Side) -> Form:
    if side.kind == "join":
        return "result"
    if side.kind == "changelog":
        return "KTable"
    if side.kind == "global_table" or file.joins[statement.name].refresh == "full":
        return "whole table"
    return "changes"


def _named_by(file: PipelineFile, source: str, joins: Sequence[str]) -> frozenset[str] | None:
    """Return the names in statements and in the options of a source, in lower case; None if a SELECT has a star."""
    known = file.sources.get(source)
    names = {*known.key, *known.watermarks, known.order_by or ""} if known is not None else set()
    for statement in (statement_of(file, name) for name in joins):
        queries = [query for side in statement.sides for query in side.queries]
        items = [*statement.select, *(item for query in queries for item in query.select)]
        wheres = filter(None, [statement.where, *(query.where for query in queries)])
        parts = [*items, *(step.on for step in statement.steps), *wheres]
        if any(map(is_star, items)):
            return None
        names |= {part.name for item in parts for column in item.find_all(exp.Column) for part in column.parts}
        names |= {*statement.using}
    return frozenset(name.lower() for name in names)


def _line(read: _Read, stores: Iterable[Sequence[str]], others: Sequence[str] = ()) -> str:
    line = f"read {'' if read.form == 'changes' else f'{read.form} '}{read.source}"
    if read.aliases != (read.source,):
        line += f" as {', '.join(read.aliases)}"
    line += f" (for {', '.join(others)} too)" if others else ""
    filled = [f"store {', '.join(store)}" for store in stores if set(store) & set(read.aliases)]
    return f"{line} -> {', '.join(filled)}" if filled else line
