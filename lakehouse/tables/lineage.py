"""
Trace columns of a table from one version to another through the commits of its history.

    RENAME COLUMN a TO b        the column at a is at b after the commit
    DROP COLUMN, ADD COLUMNS    a column of this name after the commit differs from all columns before it
    RESTORE TO VERSION n        every column is where it was at version n

A commit whose parameters do not show its effect counts as a replacement of all columns.
"""

import json
import re
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from lakehouse.tables.commits import Commit

Path = tuple[str, ...]
"""The names of a column and of nested fields; `element`, `key` and `value` stand for the parts of arrays and maps."""

EVERYTHING: Path = ()
"""The path that contains all columns."""


class Moved(NamedTuple):
    """The rename of the column or field at one path."""

    old: Path
    new: Path


class Replaced(NamedTuple):
    """The removal or addition of the columns or fields at these paths."""

    paths: tuple[Path, ...]


def lowest_target(commits: Iterable[Commit], since: int) -> int:
    """Return the lowest of a version and the target versions of the RESTORE commits."""
    return min([since, *(_parent(commit) for commit in commits if commit.operation == "RESTORE")])


def other_columns(paths: Iterable[Path], commits: Iterable[Commit], since: int, until: int) -> dict[Path, Commit]:
    """
    Find the paths, of those that two versions have, at which the later one has a different column, each with the first
    commit that moved or replaced the earlier column.

    Args:
        commits: All commits after the lowest of `since` and the target versions of the RESTORE commits among them.
    """
    steps = list(_steps({commit.version: commit for commit in commits}, since, until))
    found = {path: _replacing(_folded(path), steps) for path in paths}
    return {path: commit for path, commit in found.items() if commit is not None}


def _steps(commits: Mapping[int, Commit], since: int, until: int) -> Iterable[tuple[Commit, Moved | Replaced]]:
    """List the steps from the columns of one version to another's: commits undone, then commits applied."""
    undone, done = [], []
    while since != until:
        if since > until:
            undone.append(commits[since])
            since = _parent(commits[since])
        else:
            done.append(commits[until])
            until = _parent(commits[until])
    for commit in undone:
        step = _step(commit)
        if step is not None:
            yield commit, Moved(step.new, step.old) if isinstance(step, Moved) else step
    for commit in reversed(done):
        step = _step(commit)
        if step is not None:
            yield commit, step


def _replacing(path: Path, steps: Iterable[tuple[Commit, Moved | Replaced]]) -> Commit | None:
    """Trace the column at a path; return the first commit that moved or replaced it, None if it ends there."""
    at: Path = path
    first: Commit | None = None
    for commit, step in steps:
        if isinstance(step, Moved) and _is_within(at, step.old):
            now = step.new + at[len(step.old) :]
        elif any(_is_within(at, taken) for taken in ((step.new,) if isinstance(step, Moved) else step.paths)):
            return first or commit
        else:
            continue
        first, at = (first if now == at else first or commit), now
    return None if at == path else first


def _parent(commit: Commit) -> int:
    """Return the version whose columns a commit starts from: the previous one, or the target of a RESTORE."""
    target = commit.parameters.get("version", "") if commit.operation == "RESTORE" else ""
    return int(target) if target.isdecimal() else commit.version - 1


def _step(commit: Commit) -> Moved | Replaced | None:
    values = commit.parameters
    if commit.operation == "RENAME COLUMN":
        old, new = (_path(values.get(name, "")) for name in ("oldColumnPath", "newColumnPath"))
        return Moved(old, new) if old and new else Replaced((EVERYTHING,))
    if commit.operation in ("DROP COLUMNS", "ADD COLUMNS"):
        return Replaced(_named(values.get("columns", "")))
    is_unclear = commit.operation == "REPLACE COLUMNS" or (commit.operation == "RESTORE" and not values.get("version"))
    return Replaced((EVERYTHING,)) if is_unclear else None


def _named(columns: str) -> tuple[Path, ...]:
    try:
        names = [part if isinstance(part, str) else part["column"]["name"] for part in json.loads(columns)]
    except (ValueError, TypeError, KeyError):
        return (EVERYTHING,)
    return tuple(map(_path, names))


def _path(text: str) -> Path:
    """Parse a path, in which only names with a dot are in backticks; lower case, `EVERYTHING` if it is ambiguous."""
    parts = re.findall(r"(?:`([^`]*\.[^`]*)`|([^.`]+))(?:\.|$)", text)
    names = [quoted or plain for quoted, plain in parts]
    written = ".".join(f"`{quoted}`" if quoted else plain for quoted, plain in parts)
    return _folded(names) if written == text else EVERYTHING


def _folded(path: Iterable[str]) -> Path:
    return tuple(name.lower() for name in path)


def _is_within(path: Path, outer: Path) -> bool:
    return path[: len(outer)] == outer
