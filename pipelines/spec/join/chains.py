"""Which joins of a file read which: the order in which they run, the cycles, and what keys each that another reads."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

from sqlglot import exp

from lakehouse.errors import PipelineFileError
from pipelines.spec.file.model import PipelineFile
from pipelines.spec.join.produced import produced
from pipelines.spec.sql.objection import Objection, faults_of
from pipelines.spec.sql.syntax import read
from pipelines.spec.statement.inputs import Produced, called, defined, tables_of
from pipelines.spec.statement.sql import parse, sql_path
from pipelines.spec.statement.statement import Statement


@dataclass(frozen=True)
class Chains:
    """
    The joins of a file as a graph.

    Args:
        reads: For each join the joins that it reads, each once, in the order of FROM.
        order: All joins, each after those that it reads, else in the order of the file.
        cycles: Joins of which each reads the next and the last the first, the first of them in the file first.
    """

    reads: Mapping[str, Sequence[str]]
    order: Sequence[str]
    cycles: Sequence[Sequence[str]]

    def behind(self, name: str) -> set[str]:
        """Name all joins that a join reads, and those that these read."""
        found: set[str] = set()
        waiting = [name]
        while waiting:
            more = set(self.reads[waiting.pop()]) - found
            found |= more
            waiting += more
        return found

    def objections(self, name: str, sql: str) -> Iterator[Objection]:
        """Object to the cycles that begin with a join, where its statement names the next one."""
        for cycle in self.cycles:
            if cycle[0] == name:
                path = [*cycle, name]
                problem = f"FROM: a join cannot read its own result: {' -> '.join(path)}"
                about = next(table for table in _tables(sql) if table.name.lower() == path[1].lower())
                yield Objection(problem, "name a source, or a join that does not read this one", about)


def chains(sources: Collection[str], statements: Mapping[str, str]) -> Chains:
    """
    Find out which joins read which.

    Args:
        sources: The names of the file's sources.
        statements: The statement of each join; of one that cannot be read it shows elsewhere that it is at fault.

    Returns:
        The graph; its order leaves out one step of each cycle.
    """
    reads = {name: _read_by(sql, sources, statements) for name, sql in statements.items()}
    waiting = {name: list(others) for name, others in reads.items()}
    order: list[str] = []
    cycles = []
    while waiting:
        ready = next((name for name, others in waiting.items() if not any(other in waiting for other in others)), None)
        if ready is not None:
            order.append(ready)
            del waiting[ready]
        else:
            cycle = _cycle(waiting)
            cycles.append(cycle)
            waiting[cycle[0]].remove([*cycle, cycle[0]][1])
    return Chains(reads, order, cycles)


class _Statements:
    """
    The statements of a file, each taken apart when it is first asked for, and kept.

    Args:
        file: The pipeline file.

    Raises:
        PipelineFileError: If joins read each other in a cycle.
    """

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
        """
        Return the statement of a join.

        Raises:
            PipelineFileError: With all that is wrong with it, or with the first of those behind it that has faults.
            KeyError: If the file has no such join.
        """
        if name not in self._statements:
            behind = self.chains.behind(name)
            for other in (*(join for join in self.chains.order if join in behind), name):
                if other not in self._statements:
                    self._take_apart(other)
        return self._statements[name]

    def _take_apart(self, name: str) -> None:
        """Keep the statement of a join and what it gives; all joins that it reads come first."""
        statement = parse(name, self._file.joins[name].sql, self._file.sources, self._produced)
        whole = self._file.part_of(name)
        self._statements[name] = replace(statement, part_of=whole) if whole != name else statement
        self._produced[name] = produced(statement, self._file.sources)


@lru_cache(maxsize=16)
def _statements(file: PipelineFile) -> _Statements:
    return _Statements(file)


def chains_of(file: PipelineFile) -> Chains:
    """
    Find out which joins of a file read which.

    Raises:
        PipelineFileError: If there is a cycle.
    """
    return _statements(file).chains


def reads(file: PipelineFile, name: str) -> tuple[str, ...]:
    """
    Name the joins that a join reads.

    Args:
        file: The pipeline file.
        name: The join.

    Returns:
        Their names, in the order of FROM.
    """
    return tuple(chains_of(file).reads[name])


def reading_alike(file: PipelineFile, name: str) -> tuple[str, ...]:
    """
    Name a join and those that read a source or a join that it reads, too, in the order in which they run.

    Args:
        file: The pipeline file.
        name: The join.
    """
    read = {table.lower() for table in _named(file.joins[name].sql)}
    found = (
        other for other in chains_of(file).order if read & {table.lower() for table in _named(file.joins[other].sql)}
    )
    return tuple(found)


def keeps_changelog(file: PipelineFile, name: str) -> bool:
    """
    Tell whether a join keeps a changelog: it is asked for, or needed by another join that reads this one, which keeps
    one itself, or meets a stream with it.

    Args:
        file: The pipeline file.
        name: The join.
    """
    found = chains_of(file)
    if is_stream(file, name):
        return False
    needed = (other for other in file.joins if file.joins[other].changelog or is_stream(file, other))
    return file.joins[name].changelog or any(name in found.behind(other) for other in needed)


def is_stream(file: PipelineFile, name: str) -> bool:
    """
    Tell whether a source is a stream, or a join makes one: what comes first in its FROM is one.

    Args:
        file: The pipeline file.
        name: The source or the join.
    """
    seen = set()
    while name in file.joins and name not in seen:
        seen.add(name)
        first = _named(file.joins[name].sql)[0]
        name = called(first, file.sources) or called(first, file.joins) or ""
    return name in file.sources and file.sources[name].kind == "stream"


def statement_of(file: PipelineFile, name: str) -> Statement:
    """
    Take the statement of a join apart, and those of the joins that it reads for what they give.

    Args:
        file: The pipeline file.
        name: The join.

    Returns:
        Its statement, of a kind that is supported.

    Raises:
        PipelineFileError: With all that is wrong with the first of them that cannot be used.
        KeyError: If the file has no such join.
    """
    return _statements(file).of(name)


def _read_by(sql: str, sources: Collection[str], joins: Collection[str]) -> tuple[str, ...]:
    """Give the joins that a statement names, in the order of FROM."""
    found = (called(name, joins) for name in _named(sql) if not called(name, sources))
    return tuple(dict.fromkeys(name for name in found if name is not None))


def _named(sql: str) -> tuple[str, ...]:
    """Return the bare names in FROM."""
    return tuple(table.name for table in _tables(sql))


def _tables(sql: str) -> list[exp.Table]:
    select, _ = read(sql)
    tables = tables_of(select) if select else None
    own = defined(select) if select else ()
    return [table for table in tables or () if not table.db and table.name.lower() not in own]


def _cycle(reads: Mapping[str, Sequence[str]]) -> list[str]:
    """Find a cycle where every join reads another one of them, and begin it with its first in the file."""
    path = [next(iter(reads))]
    while path[-1] not in path[:-1]:
        path.append(next(other for other in reads[path[-1]] if other in reads))
    cycle = path[path.index(path[-1]) : -1]
    first = min(cycle, key=list(reads).index)
    return cycle[cycle.index(first) :] + cycle[: cycle.index(first)]
