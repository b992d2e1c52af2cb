"""A join with the tables that its statement names, each pinned to a version: what an epoch is computed for."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, IntegerType, LongType, StructField, StructType

from lakehouse.address import Address
from lakehouse.commit_log import commit_identity
from lakehouse.entries import JoinHistory, SourceVersions
from lakehouse.errors import SourceRecreated
from lakehouse.sqltext import quote
from lakehouse.tables import Table, read_rows
from pipelines.binding.ktable import BoundKTable
from pipelines.binding.schema_diff import begun_anew, gained
from pipelines.binding.workspace import Workspace
from pipelines.spec import Input, ResolvedQuery, Semantics, Stream

IDENTITY_TYPE = StructType(
    [StructField("version", LongType()), StructField("hash", LongType()), StructField("number", IntegerType())]
)
"""What tells a row of a stream apart: the version that brought it, a hash of its columns, its number among equals."""


@dataclass(frozen=True)
class BoundJoin:
    """
    A join with everything that its tables tell.

    Args:
        join: The join over real column names.
        definition: Fingerprint of its definition in the pipeline file.
        sources: The source tables at their pinned versions, each once, in the order of FROM.
        types: For each input the types in which the parts of its key are compared.
        columns: The result's columns: the key, then the others in the order of the SELECT list.
        result: Where the result lies.
        changelog: Where its changelog lies, if it keeps one.
        semantics: Which rows the changelog has.
        logs: The changelogs of the joins among the sources, at their pinned versions, where their order counts: where a
            changelog is kept, and with a stream.
        streams: How the rows of the streams are read, in the order of FROM; none for a join of tables.
        state: Where the rows lie that wait, in a join of two streams.
        is_single_store: Whether they wait once for both sides of a stream that is joined with itself (KIP-862).
        is_read_once: Whether such a stream is read once for both sides.
        is_read: Whether another join reads the result.
        made: What the ledger knows of the joins that make streams among the sources, by name.
        times: With a stream: the column that orders the rows of each source, where all have one; else their commits do.
    """

    join: ResolvedQuery
    definition: str
    sources: tuple[Table, ...]
    types: tuple[tuple[DataType, ...], ...]
    columns: StructType
    result: Address
    changelog: Address | None = None
    semantics: Semantics = "strict"
    logs: Mapping[str, Table] = field(default_factory=dict)
    streams: tuple[Stream, ...] = ()
    times: Mapping[str, str] = field(default_factory=dict)
    state: Address | None = None
    is_single_store: bool = False
    is_read_once: bool = False
    is_read: bool = False
    made: Mapping[str, JoinHistory] = field(default_factory=dict)

    @property
    def is_self_join(self) -> bool:
        """Tell whether a stream is joined with itself."""
        return self.join.window is not None and self.join.window.is_self_join

    @property
    def stream(self) -> Stream | None:
        """The first stream; None for a join of tables."""
        return self.streams[0] if self.streams else None

    def table(self, place: int) -> Table:
        """Give the source table of an input."""
        return self.sources[self.join.sources.index(self.join.inputs[place].source)]

    @property
    def anew(self) -> str:
        """Say what gives the result other columns."""
        return begun_anew(self.join.name, [self.result] if self.changelog is None else [self.result, self.changelog])

    @property
    def reshaped(self) -> str:
        """Say what helps where the result has other columns than the statement makes."""
        new = ", ".join(f"{source}.{quote(column)}" for source, column in self.join.left_out)
        told = f" (there is {new} now)" if new else ""
        return f"write a SELECT list that makes the columns as they are{told}, or {self.anew}"

    @property
    def newest(self) -> dict[str, int]:
        """The versions at which the sources were found, by name."""
        return {table.address.label: max(table.version, *(c.version for c in table.commits)) for table in self.sources}

    def used(self, source: str) -> tuple[str, ...]:
        """Name the columns of a source that the join uses, the key first."""
        inputs = [self.join.inputs[place] for place in self.join.places(source)]
        further = [column for stream in self.streams if stream.source == source for column in stream.columns]
        time = [self.times[source]] if source in self.times else []
        named = (*inputs[0].key, *(column for item in inputs for column in item.columns), *further, *time)
        return tuple(dict.fromkeys(named))


Bound = BoundJoin | BoundKTable
"""What an epoch is computed for."""


def notes_on(bound: Bound | None) -> tuple[str, ...]:
    """Say which columns the sources of a join have gained that its result does not take over."""
    return gained(bound.join.left_out, bound.anew) if isinstance(bound, BoundJoin) else ()


def rows_of(workspace: Workspace, side: Input, table: Table, version: int) -> DataFrame:
    """Read a source at a version, with only the columns that the join uses."""
    rows = read_rows(workspace.spark, table, version)
    return rows.selectExpr(*map(quote, side.columns))


def at_recorded(bound: BoundJoin, recorded: Sequence[SourceVersions], backfill: str = "backfill") -> BoundJoin:
    """
    Put the sources, and the changelogs of joins among them, back to the versions that an epoch read.

    A changelog that it did not read is left out: the join keeps one only since then.

    Args:
        bound: The join, with its sources as they are now.
        recorded: What the epoch read.
        backfill: The command that helps where that is not possible.

    Raises:
        SourceRecreated: One is another table by now, or was put back from a copy.
    """
    versions = {source.name: source for source in recorded}

    def put(table: Table) -> Table:
        before = versions[table.address.label]
        if before.id != table.id:
            raise SourceRecreated(
                bound.join.name,
                f"{table.address.label} was dropped and created again",
                expected=f"the table with id {before.id}",
                found=f"id {table.id}",
                hint=f"run `lakejoin {backfill} --select {bound.join.name}`",
            )
        if commit_identity(table, before.to_version).contradicts(before.commit):
            raise SourceRecreated(
                bound.join.name,
                f"{table.address.label} was put back from a copy, or its log was changed",
                expected=f"under version {before.to_version} the commit that the epoch read",
                found="another commit under that version",
                hint=f"run `lakejoin {backfill} --select {bound.join.name}`",
            )
        return replace(table, version=before.to_version)

    logs = {name: put(log) for name, log in bound.logs.items() if log.address.label in versions}
    return replace(bound, sources=tuple(map(put, bound.sources)), logs=logs)
