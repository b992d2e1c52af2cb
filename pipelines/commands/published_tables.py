"""The published rows of a join with their suites: whole tables, or what was published in a range."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.types import MapType

from expectations.catalogue import Declared, of_rows
from expectations.suites import Suite, of_changelog, of_changes
from lakehouse.errors.address import Address
from lakehouse.tables.feed import FEED_COLUMNS, read_feed
from lakehouse.tables.table import get, read
from lakehouse.values.compare import INCOMPARABLE, contains
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.commands.version_ranges import VersionRange
from pipelines.epochs.kind import Kind
from pipelines.joins.before_images import Before, before_of, changes_of, logged_between
from pipelines.language import CHANGELOG_COLUMNS


class TableSuite(NamedTuple):
    """A published table and its suite."""

    table: Address
    suite: Declared


class RowsWithSuite(NamedTuple):
    """Rows of a published table, what they are in words, and the suite to validate them against."""

    table: Address
    what: str
    rows: DataFrame
    suite: Declared


def suites(kind: Kind[Any], bound: BoundJoin) -> Iterator[TableSuite]:
    """List the published tables of a join, each with the suite of its kind and, for the result, those of the file."""
    yield TableSuite(bound.result, [*kind.suite(bound), *kind.workspace.file.joins[bound.join.name].expectations])
    if bound.changelog is not None:
        yield TableSuite(bound.changelog, _of_log(kind, bound))


def whole_tables(kind: Kind[Any], bound: BoundJoin) -> Iterator[RowsWithSuite]:
    """Return the whole tables at their newest versions, including foreign writes."""
    workspace = kind.workspace
    for table, suite in suites(kind, bound):
        version = get(workspace.engine, table).version
        yield RowsWithSuite(table, f"{table.label} at version {version}", read(workspace.spark, table, version), suite)


def published_between(kind: Kind[Any], bound: BoundJoin, published: VersionRange) -> Iterator[RowsWithSuite]:
    """
    Return what was published in a range: the changes of a result with a key or the rows added to a stream, and the rows
    added to the changelog.

    Expectations of the file about a whole table are left out, and so are tables without published rows in the range.
    """
    workspace = kind.workspace
    declared = of_rows(workspace.file.joins[bound.join.name].expectations)
    if not kind.only_appends and published.after < published.to:
        yield from _changes(kind, bound, published, declared)
    if not published.epochs:
        return
    first, last = published.epochs[0], published.epochs[-1]
    which = f"rows of epoch {first}" if first == last else f"rows of epochs {first} to {last}"
    if kind.only_appends:
        rows = _newest(workspace, bound.result).where(f"_epoch BETWEEN {first} AND {last}")
        yield RowsWithSuite(bound.result, f"{bound.result.label}, {which}", rows, [*kind.suite(bound), *declared])
    if bound.changelog is not None:
        before = before_of(_compared(bound) or (), [*bound.columns.fieldNames(), *CHANGELOG_COLUMNS])
        log = _newest(workspace, bound.changelog)
        rows = logged_between(log, (first, last), bound.join.key, bound.columns, before)
        yield RowsWithSuite(bound.changelog, f"{bound.changelog.label}, {which}", rows, _of_log(kind, bound, before))


def _changes(kind: Kind[Any], bound: BoundJoin, published: VersionRange, declared: Declared) -> Iterator[RowsWithSuite]:
    """
    Return the changes of a result with a key, with the suite of its kind.

    If the file has expectations about rows, also return the rows that were inserted or updated, with these.
    """
    names, key, values = bound.columns.fieldNames(), bound.join.key, _compared(bound)
    operation, version, _ = FEED_COLUMNS
    before = before_of([*key, *(values or ())], [*names, *FEED_COLUMNS])
    feed = read_feed(kind.workspace.spark, bound.result, published.after, published.to, names)
    changes = changes_of(feed, key, bound.columns, before)
    first = published.after + 1
    versions = f"version {first}" if first == published.to else f"versions {first} to {published.to}"
    compared = {} if values is None else before.values
    suite = of_changes(kind.sides(bound), compared, operation, version, before.known)
    yield RowsWithSuite(bound.result, f"{bound.result.label}, changes of {versions}", changes, suite)
    if declared:
        written = changes.where(f"{operation} <> 'delete'")
        yield RowsWithSuite(bound.result, f"{bound.result.label}, rows written in {versions}", written, declared)


def _newest(workspace: Workspace, table: Address) -> DataFrame:
    return read(workspace.spark, table, get(workspace.engine, table).version)


def _of_log(kind: Kind[Any], bound: BoundJoin, before: Before | None = None) -> Suite:
    """Return the suite of a changelog: of the whole table, or of a range if the rows before it are given."""
    operation, position = CHANGELOG_COLUMNS[0], (CHANGELOG_COLUMNS[3], CHANGELOG_COLUMNS[2])
    is_strict = bound.semantics == "strict"
    values, known = (before.values, before.known) if before is not None else (None, "")
    return of_changelog(
        kind.sides(bound), _compared(bound) or (), operation, position, strict=is_strict, before=values, known=known
    )


def _compared(bound: BoundJoin) -> list[str] | None:
    """
    List the columns of a result, other than its key, that show whether a row is repeated.

    It is None if one of them cannot be compared: a row that changes it alone would seem repeated.
    """
    fields = [field for field in bound.columns if field.name not in bound.join.key]
    if any(contains(field.dataType, (MapType, *INCOMPARABLE)) for field in fields):
        return None
    return [field.name for field in fields]
