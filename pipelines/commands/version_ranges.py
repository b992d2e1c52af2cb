"""The range to validate: what some epochs published, or the changes of some versions of the result."""

import re
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lakehouse.entries import COMMITTED, Entry, JoinHistory
from lakehouse.errors import FeedUnavailable, LakejoinError
from lakehouse.tables import Table


class BadRange(LakejoinError):
    """A range of epochs or versions is malformed, or contains epochs or versions that do not exist."""

    exit_code = 2
    code = "BAD_RANGE"


@dataclass(frozen=True)
class RequestedRange:
    """
    A range as the user wrote it.

    Args:
        unit: Whether the numbers are epochs or versions.
        first: The first number.
        last: The last number; None for the newest.
    """

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
    Parse a range.

    Args:
        epochs: `3..7`, `3..` (to the newest) or `3`; empty for no range of epochs.
        versions: The same for versions of the result.

    Returns:
        The range; None if both are empty.

    Raises:
        BadRange: The range is malformed, or both are given.
    """
    if epochs and versions:
        raise BadRange("validate", "--epochs and --versions exclude each other", hint="choose one of them")
    if not (epochs or versions):
        return None
    unit: Literal["epochs", "versions"] = "epochs" if epochs else "versions"
    given = epochs or versions
    parts = re.fullmatch(r"(\d{1,18})(\.\.(\d{1,18})?)?", given)
    first, last = (int(parts[1]), parts[3] if parts[2] else parts[1]) if parts else (0, None)
    if not parts or (last is not None and int(last) < first):
        raise BadRange(
            "validate",
            f"`{given}` is not a range of {unit}",
            expected="3..7, 3.. (to the newest) or 3",
        )
    return RequestedRange(unit, first, None if last is None else int(last))


def find_range(name: str, requested: RequestedRange, history: JoinHistory, result: Table) -> VersionRange:
    """
    Resolve a range to the versions and epochs of a result.

    Args:
        name: The join.
        requested: The range.
        history: The join's ledger.
        result: The result at its newest version.

    Raises:
        BadRange: The epochs or versions do not exist.
        FeedUnavailable: The epochs wrote to an earlier table of this name.
    """
    current = JoinHistory(tuple(e for e in history.entries if e.step == COMMITTED and e.result.id == result.id))
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
    version = entries[-1].result.version
    assert version is not None, "a committed epoch has the version of its result"
    return VersionRange(entries[0].result.base_version, version, tuple(entry.epoch for entry in entries))


def _number(entry: Entry | None) -> int:
    return 0 if entry is None else entry.epoch
