"""A join bound to the tables that its statement names, each pinned to a version: the input of an epoch."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, IntegerType, LongType, StructField, StructType

from lakehouse.errors.errors import Remedy, SourceRecreated
from lakehouse.ledger.entries import JoinHistory
from lakehouse.tables.identity import commit_identity
from lakehouse.tables.table import Table, read_rows
from lakehouse.values.groups import grouped
from lakehouse.values.net_changes import null_key
from lakehouse.values.recorded import SourceVersions
from lakehouse.values.sqltext import Address, quote, text
from pipelines.binding.sources import BoundKTable
from pipelines.binding.workspace import Workspace
from pipelines.language import CHANGELOG_COLUMNS, Grouping, Input, ResolvedQuery, Semantics, Statement, Stream
from pipelines.language.statement.outputs import is_star

IDENTITY_TYPE = StructType(
    [StructField("version", LongType()), StructField("hash", LongType()), StructField("number", IntegerType())]
)
"""The identity of a stream row: the version that appended it, a hash of its columns, its number among equal rows."""


@dataclass(frozen=True, kw_only=True)
class BoundJoin:
    """
    A join with all facts that depend on its tables.

    Args:
        definition: The fingerprint of its definition in the pipeline file; `statement` is its text.
        sources: The source tables at their pinned versions, each once, in the order of FROM.
        types: The types in which the parts of the key are compared, for each input; for a pairing then also those in
            which the parts of its values are compared.
        columns: The columns of the result: the key, then the others in the order of the SELECT list.
        changelog: The address of its changelog; None if it keeps none.
        logs: The changelogs of the joins among the sources, at their pinned versions, if the order of their changes
            matters: for a join that keeps a changelog or reads a stream.
        streams: How the rows of the streams are read, in the order of FROM; none for a join of tables.
        times: For a join with a stream: the column that orders the rows of each source; empty if commits order them.
        state: The address of the buffered rows of a join of two streams; None for other joins.
        is_single_store: Whether a stream that is joined with itself is buffered once for both sides (KIP-862).
        is_read_once: Whether a stream that is joined with itself is read once for both sides.
        is_read: Whether another join reads the result.
        cluster_by: The columns by which the result is laid out or, before it exists, is to be; empty for its key.
        made: The histories of the joins that make streams among the sources, by name.
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
    statement: str = ""
    cluster_by: tuple[str, ...] = ()

    @property
    def is_self_join(self) -> bool:
        """Whether a stream is joined with itself."""
        return self.join.window is not None and self.join.window.is_self_join

    @property
    def stream(self) -> Stream | None:
        """The first stream; None for a join of tables."""
        return self.streams[0] if self.streams else None

    def table(self, index: int) -> Table:
        """Return the source table of an input."""
        return self.sources[self.join.sources.index(self.join.inputs[index].source)]

    def over(self, change: Callable[[Table], Table]) -> "BoundJoin":
        """Return the join over its sources, and the changelogs that it reads, as a function changes them."""
        logs = {name: change(log) for name, log in self.logs.items()}
        return replace(self, sources=tuple(map(change, self.sources)), logs=logs)

    @property
    def rebuild_remedy(self) -> str:
        """The remedy that gives the result other columns: drop the tables that the join keeps and load them again."""
        dropped = " and ".join(
            table.path or table.table for table in (self.result, self.changelog) if table is not None
        )
        return f"drop {dropped} and run `lakejoin backfill --select {self.join.name}`, which loads the join again"

    @property
    def columns_remedy(self) -> str:
        """The remedy if the columns of the result differ from those of the statement."""
        new = ", ".join(f"{source}.{quote(column)}" for source, column in self.join.left_out)
        added = f" (new in the sources: {new})" if new else ""
        return f"write a SELECT list that returns the existing columns{added}, or {self.evolving_remedy}"

    @property
    def evolving_remedy(self) -> str:
        """The remedy that gives the result the columns of the statement: of a stream it has to be loaded again."""
        if self.streams:
            return self.rebuild_remedy
        return f"run `lakejoin backfill --select {self.join.name}`, which gives the result the columns of the statement"

    def used(self, source: str) -> tuple[str, ...]:
        """Return the columns of a source that the join uses, the key first."""
        return self._used_by(self.join.places(source))

    def used_by_feed(self, index: int) -> tuple[str, ...]:
        """Return the columns of its source that the inputs with the changes of an input use, the key first."""
        places = self.join.places(self.join.inputs[index].source)
        return self._used_by([place for place in places if self.join.feed_of(place) == self.join.feed_of(index)])

    def _used_by(self, places: Sequence[int]) -> tuple[str, ...]:
        inputs = [self.join.inputs[place] for place in places]
        source = inputs[0].source
        further = [column for stream in self.streams if stream.source == source for column in stream.columns]
        time = [self.times[source]] if source in self.times else []
        columns = (column for item in inputs for column in item.source_columns)
        return tuple(dict.fromkeys((*inputs[0].source_key, *columns, *further, *time)))


Bound = BoundJoin | BoundKTable
"""A node with epochs of its own: a join, or the KTable of a changelog source."""


def notes_on(bound: Bound | None) -> tuple[str, ...]:
    """Describe, in a line for each source, the new columns that the result of a join does not include."""
    if not isinstance(bound, BoundJoin):
        return ()
    columns: dict[str, list[str]] = {}
    for source, name in bound.join.left_out:
        columns.setdefault(source, []).append(quote(name))
    return tuple(
        f"{source} gained {', '.join(names)}: `*` still stands for the columns of the result; "
        f"to include new columns, {bound.evolving_remedy}"
        for source, names in columns.items()
    )


def rows_of(workspace: Workspace, side: Input, table: Table, version: int) -> DataFrame:
    """Read the rows of an input from its source at a version, with only the columns that the join uses."""
    return as_input(read_rows(workspace.spark, table, version), side)


def as_input(rows: DataFrame, side: Input, further: Sequence[str] = ()) -> DataFrame:
    """
    Return the rows of an input that rows of its source, or images of such rows in a feed, make.

    Args:
        rows: The columns of the source that the input needs, and others.
        further: Columns to pass on, which an input that groups rows cannot.
    """
    if side.grouping is not None:
        return _grouped(as_input(rows, side.grouping.rows), side, side.grouping)
    query, others = side.query, [*map(quote, further)]
    if query is None:
        return rows.selectExpr(*map(quote, side.columns), *others)
    rows = rows.alias(side.alias)
    taken = rows if query.where is None else rows.where(query.where)
    return taken.selectExpr(*_named(query.values, side), *others)


def _grouped(rows: DataFrame, side: Input, grouping: Grouping) -> DataFrame:
    """Group rows by the key of an input; rows without it, or without a key of their own, are in no group."""
    own = null_key(grouping.rows.key, may_be_absent=grouping.rows.may_be_absent)
    keyed = rows.where(f"NOT {own} AND NOT {null_key(side.key)}")
    return grouped(keyed, side.key, dict(grouping.values), grouping.having).select(*map(quote, side.columns))


def as_logged_input(rows: DataFrame, side: Input, op: str, tombstone: str) -> DataFrame:
    """
    Return the changelog of an input that the changelog of its source makes.

    A row that the filter does not take becomes a tombstone: `op` is the column that says which rows are.
    """
    query = side.query
    if query is None:
        return rows
    taken = "TRUE" if query.where is None else f"coalesce({query.where}, FALSE)"
    others = [name for name in CHANGELOG_COLUMNS if name != op]
    of_input = f"IF({taken}, {quote(op)}, {text(tombstone)}) AS {quote(op)}"
    values = [f"IF({taken}, {sql}, NULL)" for sql in query.values[len(side.key) :]]  # which may raise for other rows
    named = _named((*query.values[: len(side.key)], *values), side)
    return rows.alias(side.alias).selectExpr(*named, of_input, *map(quote, others))


def _named(values: Iterable[str], side: Input) -> Iterator[str]:
    return (f"{sql} AS {quote(name)}" for sql, name in zip(values, side.columns, strict=True))


def at_recorded(bound: BoundJoin, recorded: Sequence[SourceVersions]) -> BoundJoin:
    """
    Pin the sources, and the changelogs of joins among them that an epoch read, to the versions that it read.

    The error `SourceRecreated` says that a source was recreated, or restored from a copy.
    """
    versions = {source.name: source for source in recorded}

    def pinned(table: Table) -> Table:
        before = versions[table.address.label]
        is_other = before.id != table.id
        if is_other or commit_identity(table, before.to_version).contradicts(before.commit):
            what = "was dropped and created again" if is_other else "was restored from a copy, or its log was changed"
            same = f"version {before.to_version} is the commit that the epoch read"
            raise SourceRecreated(
                bound.join.name,
                f"{table.address.label} {what}",
                expected=f"the table with id {before.id}" if is_other else same,
                found=f"id {table.id}" if is_other else "another commit with that version",
                hint=Remedy("{reconcile}", bound.join.name),
            )
        return replace(table, version=before.to_version)

    logs = {name: pinned(log) for name, log in bound.logs.items() if log.address.label in versions}
    return replace(bound, sources=tuple(map(pinned, bound.sources)), logs=logs)


Found = Callable[[], tuple[Table | None, JoinHistory]]
"""Returns the result of a join, None if it does not exist, and its history in the ledger."""


def result_columns(statement: Statement, definition: str, found: Found) -> tuple[str, ...] | None:
    """
    Return the columns of the existing result, which fix the columns that the stars of a statement stand for.

    They are None if they do not: the statement has no star, for which nothing is read, or the result does not exist,
    was not written by the last epoch, or was made by another definition, by fingerprint.
    """
    if not any(map(is_star, statement.select)):
        return None
    table, history = found()
    last = history.committed
    if table is None or last is None or (last.result.id, last.definition) != (table.id, definition):
        return None
    return tuple(table.schema.fieldNames())
