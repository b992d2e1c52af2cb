"""What a join has published: whole tables, or a range of epochs or versions, as rows with the suites to meet."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql.types import MapType

from expectations.catalogue import Declared, of_rows
from expectations.suites import Suite, of_changelog, of_changes
from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import FeedUnavailable, LakejoinError
from lakehouse.ledger.entries import COMMITTED, JoinHistory
from lakehouse.tables.table import FEED_COLUMNS, Table, get, read, read_feed
from lakehouse.values.compare import INCOMPARABLE, contains
from lakehouse.values.sqltext import Address
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.comparison import Published
from pipelines.epochs.kind import Kind
from pipelines.joins.changelog import Before, before_of, changes_of, logged_between
from pipelines.language import CHANGELOG_COLUMNS


class BadRange(LakejoinError):
    """An epoch, a version or a range of them is malformed, or does not exist."""

    exit_code = 2
    code = "BAD_RANGE"


@dataclass(frozen=True)
class RequestedRange:
    """A range as the user wrote it; `last` is None for the newest."""

    unit: Literal["epochs", "versions"]
    first: int
    last: int | None

    def __str__(self) -> str:
        if self.first == self.last:
            return f"{self.unit.removesuffix('s')} {self.first}"
        return f"{self.unit} {self.first} to {'the newest' if self.last is None else self.last}"


class VersionRange(NamedTuple):
    """The range of a result: its versions (after, to], and its committed epochs in ascending order."""

    after: int
    to: int
    epochs: tuple[int, ...]


class RowsWithSuite(NamedTuple):
    """Rows of a published table, what they are in words, and the suite to validate them against."""

    table: Address
    what: str
    rows: DataFrame
    suite: Declared


def read_range(epochs: str, versions: str, command: str = "validate") -> RequestedRange | None:
    """Parse a range of epochs or versions of the result, `3..7`, `3..` or `3`; None if both are empty."""
    if epochs and versions:
        raise BadRange(command, "--epochs and --versions exclude each other", hint="choose one of them")
    text = epochs or versions
    if not text:
        return None
    unit: Literal["epochs", "versions"] = "epochs" if epochs else "versions"
    if parts := re.fullmatch(r"(\d{1,18})(\.\.(\d{1,18})?)?", text):
        first = int(parts[1])
        last = first if parts[2] is None else int(parts[3]) if parts[3] else None
        if last is None or first <= last:
            return RequestedRange(unit, first, last)
    raise BadRange(command, f"`{text}` is not a range of {unit}", expected="3..7, 3.. (to the newest) or 3")


@contextmanager
def reading_range(name: str, hint: str) -> Iterator[None]:
    """Read a range of versions of a join; an error about versions that are gone says what to read instead."""
    try:
        with reading(name):
            yield
    except FeedUnavailable as error:
        raise FeedUnavailable(name, error.problem, expected=error.expected, found=error.found, hint=hint) from error


def find_range(name: str, requested: RequestedRange, history: JoinHistory, result: Table) -> VersionRange:
    """
    Resolve a range to the versions and epochs of a result, which is read at its newest version.

    Raises:
        BadRange: The epochs or versions do not exist.
        FeedUnavailable: The epochs wrote to an earlier table of this name.
    """
    current = _of_table(history, result)
    if requested.unit == "epochs":
        return _of_epochs(name, requested, history, current)
    last = result.version if requested.last is None else requested.last
    if max(requested.first, last) > result.version:
        expected = f"versions of the result from 0 to {result.version}"
        raise BadRange(name, f"the range does not exist: {requested}", expected=expected)
    before, newest = (current.at_result(version) for version in (requested.first - 1, last))
    epochs = current.between(before.epoch if before else 0, newest.epoch if newest else 0)
    return VersionRange(requested.first - 1, last, tuple(entry.epoch for entry in epochs))


def _of_epochs(name: str, requested: RequestedRange, history: JoinHistory, current: JoinHistory) -> VersionRange:
    newest = history.committed.epoch if history.committed else 0
    last = newest if requested.last is None else requested.last
    entries = history.between(requested.first - 1, last)
    if requested.first < 1 or max(requested.first, last) > newest or not entries:
        expected, hint = f"committed epochs from 1 to {newest}", f"`lakejoin history --select {name}` lists them"
        raise BadRange(name, f"the range does not exist: {requested}", expected=expected, hint=hint)
    epochs, written = [entry.epoch for entry in entries], [entry.epoch for entry in current.entries]
    replaced = [str(epoch) for epoch in epochs if epoch not in written]
    if replaced:
        raise FeedUnavailable(
            name,
            "the result was dropped and created again: the rows of earlier epochs are no longer readable",
            expected="epochs of the current table",
            found=f"epoch {', '.join(replaced)} of an earlier table",
        )
    return VersionRange(entries[0].result.base_version, entries[-1].result.newest, tuple(epochs))


def _of_table(history: JoinHistory, result: Table) -> JoinHistory:
    """Return the committed epochs of a result since it was last created."""
    return JoinHistory(tuple(e for e in history.entries if e.step == COMMITTED and e.result.id == result.id))


def published_at(name: str, version: int, history: JoinHistory, result: Table, definition: str) -> Published:
    """
    Find the last epoch that a version of a result holds, which is read at its newest version before the ledger.

    Raises:
        BadRange: The version does not exist, holds no epoch, only some slices of one, or an epoch that is not committed
            or whose definition has another fingerprint.
    """
    current = _of_table(history, result)
    last, listed = current.at_result(version), f"`lakejoin history --select {name}` lists the epochs"
    if last is None or version > result.version:
        first = min((entry.result.newest for entry in current.entries), default=0)
        expected = f"versions of the result from {first} to {result.version}" if current.entries else ""
        raise BadRange(name, f"the result has no epoch in version {version}", expected=expected, hint=listed)
    if history.open is not None and version > history.open.result.base_version:
        raise BadRange(
            name,
            f"version {version} of the result may hold rows of epoch {history.open.epoch}, which is not finished",
            expected=f"a version up to {history.open.result.base_version}",
            hint=f"run `lakejoin run --select {name}`, which finishes the epoch",
        )
    if last.definition != definition:
        raise BadRange(
            name,
            f"version {version} of the result is of epoch {last.epoch}, which had another definition",
            expected=f"an epoch of the definition with fingerprint {definition}",
            found=f"fingerprint {last.definition}",
            hint="verify it with the pipeline file as it was then",
        )
    for entry in current.entries:
        before, after = entry.result.base_version, entry.result.newest
        if entry.slices and before < version < after:
            problem = f"version {version} of the result holds some slices of epoch {entry.epoch}"
            expected = f"version {before} before it, or version {after} after it"
            raise BadRange(name, problem, expected=expected, hint=listed)
    return Published(version, last)


def suites(kind: Kind[Any], bound: BoundJoin) -> Iterator[tuple[Address, Declared]]:
    """List the published tables of a join, each with the suite of its kind and, for the result, those of the file."""
    yield bound.result, [*kind.suite(bound), *kind.workspace.file.joins[bound.join.name].expectations]
    if bound.changelog is not None:
        yield bound.changelog, _of_log(kind, bound)


def whole_tables(kind: Kind[Any], bound: BoundJoin) -> Iterator[RowsWithSuite]:
    """Return the whole tables at their newest versions, including foreign writes."""
    workspace = kind.workspace
    for table, suite in suites(kind, bound):
        version = get(workspace.engine, table).version
        yield RowsWithSuite(table, f"{table.label} at version {version}", read(workspace.spark, table, version), suite)


def published_between(kind: Kind[Any], bound: BoundJoin, published: VersionRange) -> Iterator[RowsWithSuite]:
    """
    Return what was published in a range: changes of a result with a key, or rows added to a stream or a changelog.

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
    """Return the changes with the suite of the kind, and the rows written with the expectations of the file."""
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
