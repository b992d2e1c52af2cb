"""
The reads and stores of the joins of a file, derived from the file alone, and the optimizer rules that reduce them.

    read departures as a -> store a                read departures as a, b -> store a, b
    read departures as b -> store b           =>   join consecutive (stream-stream, inner) -> consecutive
    join consecutive (stream-stream, inner) -> consecutive

A rule changes only reads and stores, never a result or its column names. KTable sources always serve as their own
state: a join of tables looks up their rows and stores no copy. This is the counterpart of Kafka's reuse of source
topics.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from sqlglot import exp

from pipelines.spec import How, JoinType, PipelineFile, Statement, added_columns, statement_of
from pipelines.spec.file.rules import RULES, Rule
from pipelines.spec.sql.dialect import as_written
from pipelines.spec.statement.outputs import is_star
from pipelines.spec.statement.statement import Side

Form = Literal["changes", "whole table", "KTable", "result"]
"""The form of a read: the changes of a source, its whole current content, or a table that lakejoin maintains."""


class Reader(NamedTuple):
    """An input of a join."""

    join: str
    alias: str


@dataclass(frozen=True)
class Read:
    """
    One read of a source or of another join's result.

    Args:
        source: The name of the source in the file; the first name if two sources are the same table.
        form: The form of the read.
        readers: The inputs that it feeds.
    """

    source: str
    form: Form
    readers: tuple[Reader, ...]


@dataclass(frozen=True)
class Store:
    """The buffered rows of a join of two streams, of one input or of both."""

    join: str
    aliases: tuple[str, ...]


@dataclass(frozen=True)
class JoinNode:
    """
    A join.

    Args:
        name: Its name in the file.
        kind: Its kind.
        how: The type of each JOIN.
        is_self_join: Whether both of its inputs are the same stream.
    """

    name: str
    kind: JoinType
    how: tuple[How, ...]
    is_self_join: bool


@dataclass(frozen=True)
class Result:
    """The table that a join writes. Its columns are the names in SELECT; a star stays as written, as `a.*`."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Topology:
    """The reads, stores and results of joins that run together, in the order in which the joins run."""

    reads: tuple[Read, ...]
    stores: tuple[Store, ...]
    joins: tuple[JoinNode, ...]
    results: tuple[Result, ...]

    def lines(self, name: str) -> tuple[str, ...]:
        """
        Describe the reads and stores of one of the joins.

        Args:
            name: The name of the join.

        Returns:
            A line for each read, with the stores that it fills, and a line for the join.
        """
        (join,) = (join for join in self.joins if join.name == name)
        stores = [store for store in self.stores if store.join == name]
        reads = [read for read in self.reads if any(reader.join == name for reader in read.readers)]
        types = " and ".join(dict.fromkeys(join.how))
        return (*(_line(read, name, stores) for read in reads), f"join {name} ({join.kind}, {types}) -> {name}")


class Applied(NamedTuple):
    """
    The application of a rule to a join.

    Args:
        rule: The name of the rule.
        join: The name of the join.
        text: A description of the change.
    """

    rule: Rule
    join: str
    text: str


Rewritten = tuple[Topology, tuple[Applied, ...]]


def topology(file: PipelineFile, names: Sequence[str]) -> Topology:
    """
    Build the topology of joins without the optimizer: each input of a stream is read and buffered separately.

    A table that a join uses twice is always one read, for both inputs.

    Args:
        file: The pipeline file.
        names: The joins that run together, in the order in which they run.

    Raises:
        PipelineFileError: A statement is not supported.
    """
    statements = [statement_of(file, name) for name in names]
    inputs = [(one, side) for one in statements for side in one.sides]
    return Topology(
        reads=tuple(read for one in statements for read in _reads(file, one)),
        stores=tuple(Store(one.name, (side.alias,)) for one, side in inputs if one.is_windowed),
        joins=tuple(
            JoinNode(one.name, one.kind, tuple(step.how for step in one.steps), one.is_self_join) for one in statements
        ),
        results=tuple(Result(one.name, _columns(one)) for one in statements),
    )


def optimized(topology: Topology, file: PipelineFile) -> Rewritten:
    """
    Apply the optimizer rules that the file allows, in the order of `RULES`.

    Args:
        topology: The topology without the rules.
        file: The pipeline file.

    Returns:
        The topology after the rules, and each application of a rule.
    """
    done: tuple[Applied, ...] = ()
    for rule in RULES:
        if file.uses(rule):
            topology, further = REWRITES[rule](topology)
            done += further
    return topology, done


def is_single_store(file: PipelineFile, name: str) -> bool:
    """
    Return whether a join buffers the rows of both inputs in one store.

    Args:
        file: The pipeline file.
        name: The join.
    """
    found, _ = optimized(topology(file, [name]), file)
    return len(found.stores) == 1


def is_read_once(file: PipelineFile, name: str) -> bool:
    """
    Return whether a join of two streams reads its source once for both inputs.

    Args:
        file: The pipeline file.
        name: The join.
    """
    found, _ = optimized(topology(file, [name]), file)
    return len(found.reads) == 1


def single_store_self_join(topology: Topology) -> Rewritten:
    """Read a stream that an inner join joins with itself only once, and buffer its rows only once (KIP-862)."""
    done = []
    for join in topology.joins:
        if not join.is_self_join or join.how != ("inner",):
            continue
        stores = [store for store in topology.stores if store.join == join.name]
        reads = [read for read in topology.reads if any(reader.join == join.name for reader in read.readers)]
        aliases = tuple(alias for store in stores for alias in store.aliases)
        one = Store(join.name, aliases)
        topology = replace(
            topology,
            reads=_read_once(topology.reads, reads),
            stores=tuple(one if store == stores[0] else store for store in topology.stores if store not in stores[1:]),
        )
        text = f"{' and '.join(aliases)} are the same table, which is read and buffered once"
        done.append(Applied("single_store_self_join", join.name, text))
    return topology, tuple(done)


def shared_reads(file: PipelineFile, names: Sequence[str]) -> dict[str, frozenset[str] | None]:
    """
    Find the sources whose changes are read by several joins that run together.

    Args:
        file: The pipeline file.
        names: The joins, in the order in which they run.

    Returns:
        For each of these sources the columns that the joins may use, in lower case; None if they may use all columns.
    """
    found, _ = optimized(topology(file, names), file)
    shared = {read.source: _joins_of(read) for read in found.reads if read.form != "whole table"}
    return {source: _named_by(file, source, joins) for source, joins in shared.items() if len(joins) > 1}


def share_change_reads(topology: Topology) -> Rewritten:
    """Read the changes of a source once for all inputs that need them, in a join and across joins that run together."""
    done = []
    for join in topology.joins:
        by_source: dict[str, list[Read]] = {}
        for read in topology.reads:
            if read.form == "changes" and any(reader.join == join.name for reader in read.readers):
                # In a self-join, two names may be the same table.
                by_source.setdefault("" if join.is_self_join else read.source, []).append(read)
        for reads in by_source.values():
            if len(reads) > 1:
                topology = replace(topology, reads=_read_once(topology.reads, reads))
                aliases = " and ".join(reader.alias for read in reads for reader in read.readers)
                text = f"the changes of {reads[0].source} are read once for {aliases}"
                done.append(Applied("share_change_reads", join.name, text))
    for source, form in dict.fromkeys((read.source, read.form) for read in topology.reads):
        reads = [read for read in topology.reads if (read.source, read.form) == (source, form)]
        joins = list(dict.fromkeys(name for read in reads for name in _joins_of(read)))
        if len(joins) > 1 and form != "whole table":
            topology = replace(topology, reads=_read_once(topology.reads, reads))
            text = f"the changes of {source} are read once for {' and '.join(joins)}, if they read the same versions"
            done += [Applied("share_change_reads", name, text) for name in joins]
    return topology, tuple(done)


REWRITES: Mapping[Rule, Callable[[Topology], Rewritten]] = {
    "single_store_self_join": single_store_self_join,
    "share_change_reads": share_change_reads,
}


def _read_once(reads: Sequence[Read], together: Sequence[Read]) -> tuple[Read, ...]:
    """Replace several reads with one read for all their readers, at the index of the first."""
    first, *others = together
    one = replace(first, readers=tuple(reader for read in together for reader in read.readers))
    return tuple(one if read == first else read for read in reads if read not in others)


def _reads(file: PipelineFile, statement: Statement) -> tuple[Read, ...]:
    reads: dict[tuple[str, str], Read] = {}
    for side in statement.sides:
        read = Read(side.source, _form(file, statement, side), (Reader(statement.name, side.alias),))
        # Each input of a join of two streams is a separate read.
        known = reads.setdefault((side.source, side.alias if statement.is_windowed else ""), read)
        if known is not read:
            reads[side.source, ""] = replace(known, readers=(*known.readers, *read.readers))
    return tuple(reads.values())


def _form(file: PipelineFile, statement: Statement, side: Side) -> Form:
    if side.kind == "join":
        return "result"
    if side.kind == "changelog":
        return "KTable"
    if side.kind == "global_table" or file.joins[statement.name].refresh == "full":
        return "whole table"
    return "changes"


def _columns(statement: Statement) -> tuple[str, ...]:
    named = (as_written(item) if is_star(item) else item.alias_or_name for item in statement.select)
    return (*named, *added_columns(statement.sides))


def _joins_of(read: Read) -> tuple[str, ...]:
    """List the joins that a read feeds, each once."""
    return tuple(dict.fromkeys(reader.join for reader in read.readers))


def _named_by(file: PipelineFile, source: str, joins: Sequence[str]) -> frozenset[str] | None:
    """
    Return the columns of a source that statements may use, in lower case.

    Returns:
        All column names in the statements, and the columns in the options of the source; None if a SELECT has a star.
    """
    known = file.sources.get(source)
    names = {*known.key, *known.watermarks, known.order_by or ""} if known is not None else set()
    for statement in (statement_of(file, name) for name in joins):
        parts = [*statement.select, *(step.on for step in statement.steps), *filter(None, [statement.where])]
        if any(is_star(item) for item in statement.select):
            return None
        names |= {part.name for item in parts for column in item.find_all(exp.Column) for part in column.parts}
        names |= {*statement.using}
    return frozenset(name.lower() for name in names)


def _line(read: Read, name: str, stores: Sequence[Store]) -> str:
    aliases = [reader.alias for reader in read.readers if reader.join == name]
    line = f"read {'' if read.form == 'changes' else f'{read.form} '}{read.source}"
    if aliases != [read.source]:
        line += f" as {', '.join(aliases)}"
    others = [other for other in _joins_of(read) if other != name]
    line += f" (for {', '.join(others)} too)" if others else ""
    filled = [f"store {', '.join(store.aliases)}" for store in stores if set(store.aliases) & set(aliases)]
    return f"{line} -> {', '.join(filled)}" if filled else line
