"""What epochs changed in a result: the rows of its own change feed, each with the row before and the row after."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.errors.errors import LakejoinError, NotLoaded
from lakehouse.ledger.entries import Entry, JoinHistory
from lakehouse.tables.table import Table, commits_since, find, get, read
from lakehouse.values.compare import same, type_sql
from lakehouse.values.net_changes import each_change
from lakehouse.values.recorded import STATE
from lakehouse.values.sqltext import quote, row_struct, text
from pipelines.binding.workspace import Workspace
from pipelines.commands.plain_values import plain_value, plain_values
from pipelines.commands.published import RequestedRange, VersionRange, find_range, reading_range
from pipelines.language import ROW_COLUMNS, STREAM_COLUMNS, UnknownJoin, statement_of
from pipelines.language.names import DELETED, PREFIX, nearest
from pipelines.report import ChangesReport, RowChange
from pipelines.report.join_report import APPENDED, COUNTED

LATER = "choose a later range; `lakejoin history --select {}` lists the epochs"

EPOCH, POSITION = STREAM_COLUMNS


class BadKey(LakejoinError):
    """A condition on the key names a column that is not part of it, or a value that its type does not have."""

    exit_code = 2
    code = "BAD_KEY"


@dataclass(frozen=True)
class _Published:
    """
    A range of versions of a result.

    Args:
        key: Its key; empty for a stream, whose rows have none.
        columns: Its columns without those that lakejoin alone uses.
        epochs: The committed epochs in the range.
        changelog: Its changelog, which knows the causes; None if it has none.
    """

    workspace: Workspace
    table: Table
    key: tuple[str, ...]
    columns: StructType
    versions: VersionRange
    epochs: Sequence[Entry]
    changelog: Table | None

    @property
    def row_type(self) -> str:
        """The type of a row, as Spark SQL."""
        return type_sql(self.columns)


def report_changes(
    workspace: Workspace,
    name: str,
    requested: RequestedRange | None,
    key: Mapping[str, Any],
    limit: int,
) -> ChangesReport:
    """
    Report the first `limit` changes of a range, by default of the newest epoch that changed a row, and count all.

    Raises:
        UnknownJoin, BadRange, BadKey: The join, the range or the key does not exist.
        NotLoaded: The join has not run.
        FeedUnavailable: Versions of the range are no longer readable.
    """
    with reading_range(name, LATER.format(name)):
        requested, rows = _find_changes(workspace, name, requested, key)
        collected = plain_values(rows.limit(limit + 1)).collect()
        counts = Counter(row[0] for row in collected)
        if len(collected) > limit:
            counts = Counter({row[0]: row[1] for row in rows.groupBy("change").count().collect()})
    return ChangesReport(
        join=name,
        range="no epoch has changed a row" if requested is None else str(requested),
        counts={change: counts[change] for change in ("insert", "update", "delete")},
        rows=tuple(_row_change(rows.columns, row) for row in collected[:limit]),
    )


def changes_frame(
    workspace: Workspace, name: str, requested: RequestedRange | None = None, key: Mapping[str, Any] | None = None
) -> DataFrame:
    """Return the changes that `report_changes` reports, as `Pipeline.changes` describes them."""
    with reading_range(name, LATER.format(name)):
        return _find_changes(workspace, name, requested, key or {})[1]


def _find_changes(
    workspace: Workspace, name: str, requested: RequestedRange | None, key: Mapping[str, Any]
) -> tuple[RequestedRange | None, DataFrame]:
    """Return the range, None if no epoch has changed a row, and its changes in order."""
    if name not in workspace.nodes():
        raise UnknownJoin(
            workspace.file.pipeline,
            f"no join is called {name}",
            expected=f"one of {', '.join(workspace.nodes())}",
            hint=nearest(name, workspace.nodes()),
        )
    history = workspace.ledger.of(name)
    if history.committed is None:
        hint = f"run `lakejoin run --select {name}`"
        raise NotLoaded(name, "the result does not exist yet: the join has not run", hint=hint)
    if requested is None:
        last = history.last_committed(lambda entry: any(entry.counts.get(count) for count in (*COUNTED, APPENDED)))
        requested = None if last is None else RequestedRange("epochs", last.epoch, last.epoch)
    published = _published(workspace, name, requested, history)
    changes = _changes(published, _condition(workspace, name, published, key))
    return requested, _in_order(_with_epochs(published, changes), published)


def _published(workspace: Workspace, name: str, requested: RequestedRange | None, history: JoinHistory) -> _Published:
    is_join = name in workspace.file.joins
    table = get(workspace.engine, workspace.table(name if is_join else name + STATE))
    versions = VersionRange(-1, -1, ())
    if requested is not None:
        versions = find_range(name, requested, history, table)
        commits_since(workspace.engine, table, versions.after)  # the feed would silently skip a commit that is missing
    log = workspace.changelog(name) if is_join else None
    return _Published(
        workspace=workspace,
        table=table if is_join else replace(table, where=f"NOT {quote(DELETED)}"),
        key=key_of(workspace, name, table.schema),
        columns=StructType([field for field in table.schema if not is_internal(field.name)]),
        versions=versions,
        epochs=history.between(versions.epochs[0] - 1, versions.epochs[-1]) if versions.epochs else (),
        changelog=None if log is None else find(workspace.engine, log),
    )


def key_of(workspace: Workspace, name: str, columns: StructType) -> tuple[str, ...]:
    """Return the key of the result of a join, or of the KTable of a changelog source; empty for a stream."""
    file = workspace.file
    if name in file.joins:
        statement = statement_of(file, name)
        key = () if statement.reads_stream else statement.key
    else:
        key = file.sources[name].key
    own = {column.lower(): column for column in columns.fieldNames()}
    return tuple(own[column.lower()] for column in key)


def is_internal(column: str) -> bool:
    """Return whether lakejoin alone uses a column of a result."""
    return column in (*ROW_COLUMNS, EPOCH, DELETED) or column.startswith(PREFIX)


def _condition(workspace: Workspace, name: str, published: _Published, key: Mapping[str, Any]) -> str:
    """Return the SQL of a condition on the key, whose values are converted to the types of the columns."""
    names = {column.lower(): column for column in published.key or published.columns.fieldNames()}
    columns: dict[str, str] = {}
    for column, value in key.items():
        if column.lower() not in names:
            of = "key" if published.key else "columns"
            hint = nearest(column, names.values())
            problem = f"`{column}` is not in its {of}"
            raise BadKey(name, problem, expected=f"one of {', '.join(names.values())}", hint=hint)
        own = names[column.lower()]
        typed = type_sql(published.columns[own].dataType)
        columns[own] = f"CAST({text(str(value))} AS {typed})"
        if workspace.spark.sql(f"SELECT TRY_{columns[own]} IS NULL").collect()[0][0]:
            raise BadKey(name, f"`{value}` is not a value of the column {own}", expected=f"a value of type {typed}")
    return " AND ".join(f"{quote(column)} = {value}" for column, value in columns.items())


def _changes(published: _Published, condition: str) -> DataFrame:
    """Return `_change_type` (insert, update or delete), `_commit_version`, `old` and `new` of each change."""
    types = {field.name: field.dataType for field in published.columns}
    after, to, _ = published.versions
    if after == to:
        row = f"CAST(NULL AS {published.row_type})"
        empty = published.workspace.spark.sql(f"SELECT '' AS _change_type, 0L AS _commit_version, {row} AS old")
        return empty.withColumn("new", F.col("old")).where("FALSE")
    feeds = published.workspace.feeds
    feeds.inspect("", published.table, after, to, [*types])
    feed = feeds.read("", published.table, after, to, [*types], "commit by commit")
    feed = feed.where(condition) if condition else feed
    if published.key:
        return each_change(feed, published.key, types)
    is_new, row = "_change_type = 'insert'", row_struct(types)
    return feed.select(
        F.expr(f"IF({is_new}, 'insert', 'delete')").alias("_change_type"),
        "_commit_version",
        F.expr(f"IF({is_new}, NULL, {row})").alias("old"),
        F.expr(f"IF({is_new}, {row}, NULL)").alias("new"),
    )


def _with_epochs(published: _Published, changes: DataFrame) -> DataFrame:
    """Add `epoch` and `cause`, and for each change its key and the columns that differ."""
    differ = (
        f"IF({same(f'old.{quote(field.name)}', f'new.{quote(field.name)}', field.dataType)}, NULL, {text(field.name)})"
        for field in published.columns
    )
    rows = changes.selectExpr(
        "_change_type AS change",
        f"{_epoch_of(published.epochs)} AS epoch",
        "_commit_version AS version",
        f"IF(_change_type = 'update', array_compact(array({', '.join(differ)})), array()) AS differing",
        "old",
        "new",
    )
    log = published.changelog
    if log is None or not published.epochs:
        return rows.withColumn("cause", F.expr("CAST(array() AS ARRAY<STRING>)"))
    logged = read(published.workspace.spark, log.address, log.version)
    first, last = published.epochs[0].epoch, published.epochs[-1].epoch
    keys = [F.col(quote(name)).alias(f"k{number}") for number, name in enumerate(published.key)]
    causes = logged.where(f"{EPOCH} BETWEEN {first} AND {last}").groupBy(F.col(EPOCH).alias("of_epoch"), *keys)
    in_order = "array_distinct(array_sort(collect_list(struct(_position, _cause)))._cause)"
    same_key = [f"coalesce(new, old).{quote(name)} <=> k{number}" for number, name in enumerate(published.key)]
    met = F.expr(" AND ".join(["epoch = of_epoch", *same_key]))
    with_causes = rows.join(causes.agg(F.expr(in_order).alias("known")), on=met, how="left")
    return with_causes.withColumn("cause", F.expr("coalesce(known, array())"))


def _epoch_of(epochs: Sequence[Entry]) -> str:
    """Return the SQL of the epoch that made a commit; null for a commit of another writer."""
    made = ", ".join(
        f"named_struct('after', {entry.result.base_version}L, 'to', {entry.result.newest}L, 'epoch', {entry.epoch}L)"
        for entry in epochs
    )
    is_of = "made -> _commit_version > made.after AND _commit_version <= made.to"
    return f"try_element_at(filter(array({made}), {is_of}), 1).epoch" if made else "CAST(NULL AS BIGINT)"


def _in_order(changes: DataFrame, published: _Published) -> DataFrame:
    order = published.key or (POSITION,)
    row = "coalesce(new, old)"
    parts = [F.expr(f"{row}.{quote(name)}").alias(name) for name in published.key]
    key = [F.struct(*parts).alias("key")] if parts else []
    rows = changes.orderBy("version", *(F.expr(f"{row}.{quote(name)}") for name in order))
    return rows.select("change", "epoch", "version", "cause", *key, "differing", "old", "new")


def _row_change(columns: Sequence[str], collected: Row) -> RowChange:
    """Build the report of a change; the images lack the key and, in an update, the columns that are the same."""
    row = dict(zip(columns, map(plain_value, collected), strict=True))
    key = row.pop("key", {})
    shown = {
        image: None
        if row[image] is None
        else {
            name: value
            for name, value in row[image].items()
            if name not in key and (row["change"] != "update" or name in row["differing"])
        }
        for image in ("old", "new")
    }
    return RowChange(
        change=row["change"], epoch=row["epoch"], version=row["version"], cause=tuple(row["cause"]), key=key, **shown
    )
