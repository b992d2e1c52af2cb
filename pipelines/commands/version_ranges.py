"""Versions of a result by the epochs that they hold: the range to validate, and the version to verify."""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lakehouse.errors.errors import FeedUnavailable, LakejoinError
from lakehouse.ledger.entries import COMMITTED, Entry, JoinHistory
from lakehouse.tables.table import Table
from pipelines.epochs.comparison import Published


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


def read_range(epochs: str, versions: str) -> RequestedRange | None:
    """
    Parse a range of epochs or of versions of the result: `3..7`, `3..` (to the newest) or `3`; None if both are empty.

    Raises:
        BadRange: The range is malformed, or both are given.
    """
    if epochs and versions:
        raise BadRange("validate", "--epochs and --versions exclude each other", hint="choose one of them")
    text = epochs or versions
    if not text:
        return None
    unit: Literal["epochs", "versions"] = "epochs" if epochs else "versions"
    if parts := re.fullmatch(r"(\d{1,18})(\.\.(\d{1,18})?)?", text):
        first = int(parts[1])
        last = first if parts[2] is None else int(parts[3]) if parts[3] else None
        if last is None or first <= last:
            return RequestedRange(unit, first, last)
    raise BadRange("validate", f"`{text}` is not a range of {unit}", expected="3..7, 3.. (to the newest) or 3")


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
        raise BadRange(
            name,
            f"the range does not exist: {requested}",
            expected=f"versions of the result from 0 to {result.version}",
        )
    epochs = current.between(_number(current.at_result(requested.first - 1)), _number(current.at_result(last)))
    return VersionRange(requested.first - 1, last, tuple(entry.epoch for entry in epochs))


def published_at(name: str, version: int, history: JoinHistory, result: Table, definition: str) -> Published:
    """
    Find the last epoch that a version of a result holds.

    Args:
        result: The result at its newest version, read before the ledger.
        definition: The fingerprint of the join's definition in the pipeline file.

    Raises:
        BadRange: The version does not exist, holds no epoch, only some slices of one, or an epoch that is not committed
            or had another definition.
    """
    current = _of_table(history, result)
    last = current.at_result(version)
    if last is None or version > result.version:
        first = min((entry.result.newest for entry in current.entries), default=0)
        raise BadRange(
            name,
            f"the result has no epoch in version {version}",
            expected=f"versions of the result from {first} to {result.version}" if current.entries else "",
            hint=f"`lakejoin history --select {name}` lists the epochs",
        )
    current_epoch = history.open
    if current_epoch is not None and version > current_epoch.result.base_version:
        raise BadRange(
            name,
            f"version {version} of the result may hold rows of epoch {current_epoch.epoch}, which is not finished",
            expected=f"a version up to {current_epoch.result.base_version}",
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
        versions = entry.result
        if entry.slices and versions.base_version < version < versions.newest:
            raise BadRange(
                name,
                f"version {version} of the result holds some slices of epoch {entry.epoch}",
                expected=f"version {versions.base_version} before it, or version {versions.newest} after it",
                hint=f"`lakejoin history --select {name}` lists the epochs",
            )
    return Published(version, last)


def _of_epochs(name: str, requested: RequestedRange, history: JoinHistory, current: JoinHistory) -> VersionRange:
    newest = _number(history.committed)
    last = newest if requested.last is None else requested.last
    entries = history.between(requested.first - 1, last)
    if requested.first < 1 or max(requested.first, last) > newest or not entries:
        raise BadRange(
            name,
            f"the range does not exist: {requested}",
            expected=f"committed epochs from 1 to {newest}",
            hint=f"`lakejoin history --select {name}` lists them",
        )
    written = [entry.epoch for entry in current.entries]
    replaced = [str(entry.epoch) for entry in entries if entry.epoch not in written]
    if replaced:
        raise FeedUnavailable(
            name,
            "the result was dropped and created again: the rows of earlier epochs are no longer readable",
            expected="epochs of the current table",
            found=f"epoch {', '.join(replaced)} of an earlier table",
        )
    return VersionRange(
        entries[0].result.base_version, entries[-1].result.newest, tuple(entry.epoch for entry in entries)
    )


def _of_table(history: JoinHistory, result: Table) -> JoinHistory:
    """Return the committed epochs of a result since it was last created."""
    return JoinHistory(tuple(e for e in history.entries if e.step == COMMITTED and e.result.id == result.id))


def _number(entry: Entry | None) -> int:
    return 0 if entry is None else entry.epoch
