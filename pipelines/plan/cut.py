"""
Find the versions up to which an epoch of a join with a stream reads its sources.

A source may be cut before its newest version, by a bound or because a commit arrived while the other sources were being
examined. Then no other source is read beyond the first commit that was left out: each cut is a prefix of the total
order. This module is pure.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class NewCommit:
    """
    A commit with data, or an epoch of a join whose result is a stream. An epoch may have several positions.

    Args:
        version: The version of the commit, or the number of the epoch.
        time: The time of the commit, or of the first position of the epoch, in microseconds since 1970.
        bytes: The size of the new files.
        until: The time of the last position of an epoch; None for a commit.
    """

    version: int
    time: int
    bytes: int = 0
    until: int | None = None


@dataclass(frozen=True, kw_only=True)
class NewCommits:
    """
    The new commits of a source since the last epoch.

    Args:
        place: Its index in FROM.
        recorded: The version up to which the last epoch accounts for it; `newest` is that at which it was found.
        commits: The commits with data after the recorded version up to the newest one, oldest first.
        later: A commit with data that arrived while the other sources were being examined.
        clock: The greatest time of its earlier commits, in microseconds since 1970; None if unknown.
        is_last: Whether its commits come after the commits of all other sources at the same time. This is true for a
            stream that looks up tables.
    """

    name: str
    place: int
    recorded: int
    newest: int
    commits: tuple[NewCommit, ...]
    later: NewCommit | None = None
    clock: int | None = None
    is_last: bool = False


@dataclass(frozen=True)
class Cut:
    """The end of an epoch: the version up to which each source is read, and whether the epoch leaves out commits."""

    versions: dict[str, int]
    more: bool


Place = tuple[int, bool, int, int]
"""The place of a commit in the total order: time, whether its source comes last, place in FROM, version."""


def find_cut(sources: Sequence[NewCommits], max_versions: int | None = None, max_bytes: int | None = None) -> Cut:
    """
    Find the versions up to which an epoch reads; if any source has new commits, at least one advances.

    The bounds apply to each source: the number of its commits, and the bytes of their new files; one is always read.
    """
    taken = {source.name: _bounded(source.commits, max_versions, max_bytes) for source in sources}
    while True:
        left_out = {source.name: place for source in sources if (place := _first_left(source, taken[source.name]))}
        within = {source.name: _before(left_out, source, taken[source.name]) for source in sources}
        if within == taken:
            break
        taken = within  # an epoch that ends beyond the border is left out, and may begin before it: repeat
    versions = {
        source.name: source.commits[within[source.name]].version - 1
        if within[source.name] < len(source.commits)
        else source.newest
        for source in sources
    }
    more = any(versions[source.name] < source.newest for source in sources)
    return Cut(versions, more)


def _bounded(commits: Sequence[NewCommit], max_versions: int | None, max_bytes: int | None) -> int:
    """Count the commits within the bounds, at least one if any exist."""
    number = len(commits) if max_versions is None else min(max_versions, len(commits))
    if max_bytes is not None:
        sizes = accumulate(commit.bytes for commit in commits)
        number = min(number, max(1, sum(1 for size in sizes if size <= max_bytes)))
    return number


def _before(left_out: Mapping[str, Place], source: NewCommits, taken: int) -> int:
    """Count the taken commits that lie completely before every commit that the other sources leave out."""
    border = min((place for name, place in left_out.items() if name != source.name), default=None)
    return sum(1 for place in _places(source, last=True)[:taken] if border is None or place < border)


def _first_left(source: NewCommits, taken: int) -> Place | None:
    places = _places(source)
    return places[taken] if taken < len(places) else None


def _places(source: NewCommits, *, last: bool = False) -> list[Place]:
    """
    Return the places of the commits, and of the later commit if one arrived.

    The time of a version is at least the time of the version before it. An epoch with several positions has the place
    of its first position, or with `last` of its last position.
    """
    places, clock = [], 0 if source.clock is None else source.clock
    for commit in (*source.commits, *([source.later] if source.later else [])):
        first = max(clock, commit.time)
        clock = first if commit.until is None else max(first, commit.until)
        places.append((clock if last else first, source.is_last, source.place, commit.version))
    return places
