"""
Up to which versions of its sources an epoch of a join with a stream reads; pure.

Where a source is cut short of its newest version, by a bound or because a commit came while the others were looked at,
no other one is read beyond the first commit that was left out: each cut is a prefix of the total order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate


@dataclass(frozen=True)
class Arrival:
    """
    A commit with data, or an epoch of a join that makes a stream, which may have several positions.

    Args:
        version: Its version; of an epoch its number.
        time: Its time in microseconds since 1970; of several positions the first one's.
        bytes: The bytes of its new files.
        until: Of several positions the last one's time.
    """

    version: int
    time: int
    bytes: int = 0
    until: int | None = None


@dataclass(frozen=True)
class Arrivals:
    """
    What came to a source since the last epoch.

    Args:
        name: The source.
        place: Its place in FROM.
        recorded: The version up to which it is accounted for.
        newest: The version at which it was found.
        commits: The commits with data after the recorded version up to the newest one, oldest first.
        later: A commit with data that came after that, while the other sources were looked at; None if none did.
        clock: The greatest time of its commits before, in microseconds since 1970; 0 where none is known.
        is_last: Whether at one time its commits come after those of all others, as those of a stream that looks up do.
    """

    name: str
    place: int
    recorded: int
    newest: int
    commits: tuple[Arrival, ...]
    later: Arrival | None = None
    clock: int = 0
    is_last: bool = False


@dataclass(frozen=True)
class Cut:
    """
    Where an epoch ends.

    Args:
        versions: The version to read up to, by source.
        more: Whether commits were left out.
    """

    versions: dict[str, int]
    more: bool


Place = tuple[int, bool, int, int]
"""The place of a commit in the total order: time, whether its source comes last, place in FROM, version."""


def find_cut(sources: Sequence[Arrivals], max_versions: int | None = None, max_bytes: int | None = None) -> Cut:
    """
    Decide up to which versions an epoch reads.

    Args:
        sources: What came to each source.
        max_versions: So many commits of a source at most.
        max_bytes: So many bytes of new files of a source at most; its first commit always is read.

    Returns:
        The versions; some source moves on wherever one has commits.
    """
    taken = {source.name: _bounded(source.commits, max_versions, max_bytes) for source in sources}
    while True:
        left_out = {source.name: place for source in sources if (place := _first_left(source, taken[source.name]))}
        kept = {source.name: _before(left_out, source, taken[source.name]) for source in sources}
        if kept == taken:
            break
        taken = kept  # an epoch that is left out may begin before the border that it goes beyond
    versions = {
        source.name: source.commits[kept[source.name]].version - 1
        if kept[source.name] < len(source.commits)
        else source.newest
        for source in sources
    }
    more = any(versions[source.name] < source.newest for source in sources)
    return Cut(versions, more)


def _bounded(commits: Sequence[Arrival], max_versions: int | None, max_bytes: int | None) -> int:
    """Count the commits that the bounds allow, one at least."""
    number = len(commits) if max_versions is None else min(max_versions, len(commits))
    if max_bytes is not None:
        sizes = accumulate(commit.bytes for commit in commits)
        number = min(number, max(1, sum(1 for size in sizes if size <= max_bytes)))
    return number


def _before(left_out: Mapping[str, Place], source: Arrivals, taken: int) -> int:
    """Count the commits, of those that are taken, that lie as a whole before what others leave out."""
    border = min((place for name, place in left_out.items() if name != source.name), default=None)
    return sum(1 for place in _places(source, last=True)[:taken] if border is None or place < border)


def _first_left(source: Arrivals, taken: int) -> Place | None:
    places = _places(source)
    return places[taken] if taken < len(places) else None


def _places(source: Arrivals, *, last: bool = False) -> list[Place]:
    """
    Give the places of the commits, and of the later one: no version has an earlier time than one before it.

    Of those with several positions that of the first, or the last one.
    """
    places, reached = [], source.clock
    for commit in (*source.commits, *([source.later] if source.later else [])):
        first = max(reached, commit.time)
        reached = first if commit.until is None else max(first, commit.until)
        places.append((reached if last else first, source.is_last, source.place, commit.version))
    return places
