"""
What the joins of a file read and keep, drawn from the file alone, and the rules that make it less.

    read departures as a -> store a                read departures as a, b -> store a, b
    read departures as b -> store b           =>   join consecutive (stream-stream, inner) -> consecutive
    join consecutive (stream-stream, inner) -> consecutive

Only what is read and kept is up to a rule, never a result or the names of its columns. KTable sources are always their
own state: a join of tables looks their rows up and keeps no copy, the counterpart of Kafka's reuse of source topics.
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
"""What is read: the changes of a source, all of it as it is now, or a table that lakejoin keeps itself."""


class Reader(NamedTuple):
    """An input of a join."""

    join: str
    alias: str


@dataclass(frozen=True)
class Read:
    """
    One read of a source or of another join's result.

    Args:
        source: Its name in the file; of two that are one table the first.
        form: What is read.
        readers: The inputs that it feeds.
    """

    source: str
    form: Form
    readers: tuple[Reader, ...]


@dataclass(frozen=True)
class Store:
    """What a join of two streams keeps waiting, for one of its inputs or for both."""

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
        is_self_join: Whether both of its inputs are one stream.
    """

    name: str
    kind: JoinType
    how: tuple[How, ...]
    is_self_join: bool


@dataclass(frozen=True)
class Result:
    """The table that a join writes; its columns are named as far as a statement names them, else `a.*`."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Topology:
    """What joins that run together read and keep, and what they write; all in the order in which they run."""

    reads: tuple[Read, ...]
    stores: tuple[Store, ...]
    joins: tuple[JoinNode, ...]
    results: tuple[Result, ...]

    def lines(self, name: str) -> tuple[str, ...]:
        """
        Draw what one of the joins reads and keeps.

        Args:
            name: The join.

        Returns:
            A line for each read, with the stores that it fills, and one for the join.
        """
        (join,) = (join for join in self.joins if join.name == name)
        stores = [store for store in self.stores if store.join == name]
        reads = [read for read in self.reads if any(reader.join == name for reader in read.readers)]
        types = " and ".join(dict.fromkeys(join.how))
        return (*(_line(read, name, stores) for read in reads), f"join {name} ({join.kind}, {types}) -> {name}")


class Applied(NamedTuple):
    """
    What a rule did.

    Args:
        rule: Its name.
        join: The join for which it did it.
        text: What that was.
    """

    rule: Rule
    join: str
    text: str


Rewritten = tuple[Topology, tuple[Applied, ...]]


def topology(file: PipelineFile, names: Sequence[str]) -> Topology:
    """
    Draw what joins do without the optimiser: each stream is read and waits for each input by itself.

    A table that a join reads twice is looked up for both at once; its changes are read once in any case.

    Args:
        file: The pipeline file.
        names: The joins that run together, in the order in which they run.

    Raises:
        PipelineFileError: A statement is not one that is supported.
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
    Apply the rules that the file allows, in the order of `RULES`.

    Args:
        topology: What the joins do without them.
        file: The pipeline file.

    Returns:
        What they do with them, and what each rule did.
    """
    done: tuple[Applied, ...] = ()
    for rule in RULES:
        if file.uses(rule):
            topology, further = REWRITES[rule](topology)
            done += further
    return topology, done


def is_single_store(file: PipelineFile, name: str) -> bool:
    """
    Tell whether the rows of both inputs of a join wait in one store.

    Args:
        file: The pipeline file.
        name: The join.
    """
    found, _ = optimized(topology(file, [name]), file)
    return len(found.stores) == 1


def is_read_once(file: PipelineFile, name: str) -> bool:
    """
    Tell whether a join of two streams reads one source for both of its inputs.

    Args:
        file: The pipeline file.
        name: The join.
    """
    found, _ = optimized(topology(file, [name]), file)
    return len(found.reads) == 1


def single_store_self_join(topology: Topology) -> Rewritten:
    """Read a stream that an inner join joins with itself once, and keep its rows once (KIP-862)."""
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
        text = f"{' and '.join(aliases)} are one table: it is read once and its rows wait once"
        done.append(Applied("single_store_self_join", join.name, text))
    return topology, tuple(done)


def shared_reads(file: PipelineFile, names: Sequence[str]) -> dict[str, frozenset[str] | None]:
    """
    Name the sources whose changes several joins read that run together.

    Args:
        file: The pipeline file.
        names: The joins, in the order in which they run.

    Returns:
        For each source the columns that the joins may use, in lower case; None for all of them.
    """
    found, _ = optimized(topology(file, names), file)
    shared = {read.source: _joins_of(read) for read in found.reads if read.form != "whole table"}
    return {source: _named_by(file, source, joins) for source, joins in shared.items() if len(joins) > 1}


def share_change_reads(topology: Topology) -> Rewritten:
    """Read the changes of a source once for all inputs that want them, of a join and of those that run with it."""
    done = []
    for join in topology.joins:
        by_source: dict[str, list[Read]] = {}
        for read in topology.reads:
            if read.form == "changes" and any(reader.join == join.name for reader in read.readers):
                # Of a self-join two names may be one table.
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
            text = f"the changes of {source} are read once for {' and '.join(joins)}, where they take the same versions"
            done += [Applied("share_change_reads", name, text) for name in joins]
    return topology, tuple(done)


REWRITES: Mapping[Rule, Callable[[Topology], Rewritten]] = {
    "single_store_self_join": single_store_self_join,
    "share_change_reads": share_change_reads,
}


def _read_once(reads: Sequence[Read], together: Sequence[Read]) -> tuple[Read, ...]:
    """Put one read, for all their readers, in the place of the first of several."""
    first, *others = together
    one = replace(first, readers=tuple(reader for read in together for reader in read.readers))
    return tuple(one if read == first else read for read in reads if read not in others)


def _reads(file: PipelineFile, statement: Statement) -> tuple[Read, ...]:
    reads: dict[tuple[str, str], Read] = {}
    for side in statement.sides:
        read = Read(side.source, _form(file, statement, side), (Reader(statement.name, side.alias),))
        # Of two streams each input reads for itself.
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
    """Name the joins that a read feeds, each once."""
    return tuple(dict.fromkeys(reader.join for reader in read.readers))


def _named_by(file: PipelineFile, source: str, joins: Sequence[str]) -> frozenset[str] | None:
    """Name the columns that statements may use of a source, in lower case: all that they write; None for a star."""
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
