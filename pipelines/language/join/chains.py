"""The graph of the joins of a file: which joins each one reads, their order and cycles, statements and selection."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp

from lakehouse.errors.errors import LakejoinError, PipelineFileError
from pipelines.language.file.model import PipelineFile
from pipelines.language.names import nearest
from pipelines.language.sql.objection import Objection, faults_of
from pipelines.language.sql.syntax import read
from pipelines.language.statement.outputs import produced
from pipelines.language.statement.parse import called, parse, sql_path
from pipelines.language.statement.semi_joins import tables_of
from pipelines.language.statement.statement import Produced, Statement


class UnknownJoin(LakejoinError):
    """A command names a join that the pipeline file does not have, or no join."""

    exit_code = 2
    code = "UNKNOWN_JOIN"


@dataclass(frozen=True)
class Chains:
    """
    The joins of a file as a graph.

    Args:
        reads: For each join, the joins that it reads, each once, in the order of FROM.
        order: All joins, each after the joins that it reads, else in the order of the file.
        cycles: Lists of joins that each read the next, and the last reads the first, which is the first in the file.
    """

    reads: Mapping[str, Sequence[str]]
    order: Sequence[str]
    cycles: Sequence[Sequence[str]]

    def behind(self, name: str) -> set[str]:
        """Return the names of all joins that a join reads, directly or through other joins."""
        found: set[str] = set()
        pending = [name]
        while pending:
            more = set(self.reads[pending.pop()]) - found
            found |= more
            pending += more
        return found

    def objections(self, name: str, sql: str) -> Iterator[Objection]:
        """Yield an objection for each cycle that starts with a join, at the next join of the cycle in its statement."""
        for cycle in self.cycles:
            if cycle[0] == name:
                path = [*cycle, name]
                problem = f"FROM: a join cannot read its own result: {' -> '.join(path)}"
                about = next(table for table in _tables(sql) if table.name.lower() == path[1].lower())
                yield Objection(problem, "name a source, or a join that does not read this one", about)


def chains(sources: Collection[str], statements: Mapping[str, str]) -> Chains:
    """Build the graph of joins; its order ignores one edge of each cycle."""
    reads = {name: _read_by(sql, sources, statements) for name, sql in statements.items()}
    pending = {name: list(others) for name, others in reads.items()}
    order: list[str] = []
    cycles = []
    while pending:
        ready = next((name for name, others in pending.items() if not any(other in pending for other in others)), None)
        if ready is not None:
            order.append(ready)
            del pending[ready]
        else:
            cycle = _cycle(pending)
            cycles.append(cycle)
            pending[cycle[0]].remove([*cycle, cycle[0]][1])
    return Chains(reads, order, cycles)


class _Statements:
    """The statements of a file, each parsed on first use; `PipelineFileError` if joins read each other in a cycle."""

    def __init__(self, file: PipelineFile) -> None:
        self._file = file
        self._statements: dict[str, Statement] = {}
        self._produced: dict[str, Produced] = {}
        self.chains = chains(file.sources, {name: join.sql for name, join in file.joins.items()})
        if self.chains.cycles:
            faults = [
                fault
                for name, join in file.joins.items()
                for fault in faults_of(self.chains.objections(name, join.sql), sql_path(name), join.sql)
            ]
            raise PipelineFileError(file.pipeline, faults)

    def of(self, name: str) -> Statement:
        if name not in self._statements:
            behind = self.chains.behind(name)
            for other in (*(join for join in self.chains.order if join in behind), name):
                if other not in self._statements:
                    self._parse(other)
        return self._statements[name]

    def _parse(self, name: str) -> None:
        """Parse and cache the statement of a join; the joins that it reads must be cached already."""
        join, sources = self._file.joins[name], self._file.sources
        statement = parse(name, join.sql, sources, self._produced, appends_keys=join.key_columns == "append")
        whole = self._file.part_of(name)
        self._statements[name] = replace(statement, part_of=whole) if whole != name else statement
        self._produced[name] = produced(statement, self._file.sources)


@lru_cache(maxsize=16)
def _statements(file: PipelineFile) -> _Statements:
    return _Statements(file)


def chains_of(file: PipelineFile) -> Chains:
    """Return the graph of the joins of a file; raise `PipelineFileError` if joins read each other in a cycle."""
    return _statements(file).chains


def reads(file: PipelineFile, name: str) -> tuple[str, ...]:
    """Return the names of the joins that a join reads, in the order of FROM."""
    return tuple(chains_of(file).reads[name])


def sources_read(file: PipelineFile, names: Collection[str]) -> tuple[str, ...]:
    """Return the sources that joins read themselves, in the order of FROM."""
    named = (called(table, file.sources) for name in names for table in _named(file.joins[name].sql))
    return tuple(dict.fromkeys(name for name in named if name is not None))


def reading_alike(file: PipelineFile, name: str) -> tuple[str, ...]:
    """Return a join and all joins that share an input with it, in the order in which they run."""
    read = {other: {table.lower() for table in _named(file.joins[other].sql)} for other in file.joins}
    return tuple(other for other in chains_of(file).order if read[name] & read[other])


def keeps_changelog(file: PipelineFile, name: str) -> bool:
    """
    Return whether a join of tables keeps a changelog.

    It does if the file asks for one, or if a join with a stream or with that option reads it, directly or through
    others.
    """
    chains = chains_of(file)
    if is_stream(file, name):
        return False
    readers = (other for other in file.joins if file.joins[other].changelog or is_stream(file, other))
    return file.joins[name].changelog or any(name in chains.behind(other) for other in readers)


def is_stream(file: PipelineFile, name: str) -> bool:
    """Return whether a source is a stream, or a join produces one, because the first input of its FROM is a stream."""
    seen = set()
    while name in file.joins and name not in seen:
        seen.add(name)
        first = _named(file.joins[name].sql)[0]
        name = called(first, file.sources) or called(first, file.joins) or ""
    return name in file.sources and file.sources[name].kind == "stream"


def statement_of(file: PipelineFile, name: str) -> Statement:
    """Return the parsed statement of a join; raise `PipelineFileError` if it, or one that it reads, has errors."""
    return _statements(file).of(name)


def selected(file: PipelineFile, select: Collection[str] | None) -> list[str]:
    """
    Return the names of the joins to work on, each after the joins that it reads, else in the order of the file.

    Each selected name includes the parts of the join; `+name` also the joins that it reads, directly or through others.
    `UnknownJoin` says that the selection is empty or that the file does not have a join.
    """
    chains = chains_of(file)
    if select is None:
        return list(chains.order)
    named = [name.removeprefix("+") for name in select]
    unknown = [name for name in named if name not in file.joins]
    if unknown or not named:
        raise UnknownJoin(
            file.pipeline,
            f"no join is called {', '.join(unknown)}" if unknown else "the selection is empty",
            expected=f"one of {', '.join(file.joins)}",
            hint=" ".join(filter(None, (nearest(name, file.joins) for name in unknown))),
        )
    named += [part for name in named for part in file.parts(name)]
    wanted = {*named, *(other for name in select if name.startswith("+") for other in chains.behind(name[1:]))}
    return [name for name in chains.order if name in wanted]


def _read_by(sql: str, sources: Collection[str], joins: Collection[str]) -> tuple[str, ...]:
    """Return the joins that a statement names, in the order of FROM."""
    found = (called(name, joins) for name in _named(sql) if not called(name, sources))
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _named(sql: str) -> tuple[str, ...]:
    return tuple(table.name for table in _tables(sql))


@lru_cache(maxsize=1024)
def _tables(sql: str) -> tuple[exp.Table, ...]:
    select, _ = read(sql)
    return tuple(table for table in (tables_of(select) if select else ()) if not table.db)


def _cycle(reads: Mapping[str, Sequence[str]]) -> list[str]:
    """Find a cycle among joins that each read another of them; start it with its first join in the file."""
    path = [next(iter(reads))]
    while path[-1] not in path[:-1]:
        path.append(next(other for other in reads[path[-1]] if other in reads))
    cycle = path[path.index(path[-1]) : -1]
    first = min(cycle, key=list(reads).index)
    return cycle[cycle.index(first) :] + cycle[: cycle.index(first)]


def changelogs(file: PipelineFile, names: Collection[str]) -> list[str]:
    """Return the changelog sources that joins read, each once, in the order of the file."""
    read = {source for name in names for source in changelogs_of(file, name)}
    return [source for source in file.sources if source in read]


def changelogs_of(file: PipelineFile, name: str) -> tuple[str, ...]:
    """Return the changelog sources that one join reads, in the order of FROM."""
    if not any(source.kind == "changelog" for source in file.sources.values()):
        return ()
    read = statement_of(file, name).sources
    return tuple(source for source in read if source in file.sources and file.sources[source].kind == "changelog")
