"""Where an epoch of a join with a stream ends: every cut is a prefix of the total order."""

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from pipelines.plan.cut import Cut, NewCommit, NewCommits, find_cut


def arrivals(name: str, place: int, *times: int, later: int | None = None, size: int = 1) -> NewCommits:
    """Give a source whose commits came at these times; its versions count from 1."""
    commits = tuple(NewCommit(number, time, size) for number, time in enumerate(times, start=1))
    after = None if later is None else NewCommit(len(times) + 1, later)
    return NewCommits(
        name=name, place=place, recorded=0, newest=len(times), commits=commits, later=after, is_last=place == 0
    )


def test_without_bounds_everything_is_read() -> None:
    assert find_cut([arrivals("s", 0, 1, 5), arrivals("t", 1, 2, 9)]) == Cut({"s": 2, "t": 2}, more=False)
    assert find_cut([]) == Cut({}, more=False)


def test_no_source_is_read_beyond_what_another_one_leaves_out() -> None:
    """The stream is cut after its first commit; of the table only what came before the second is read."""
    assert find_cut([arrivals("s", 0, 1, 5), arrivals("t", 1, 2, 9)], max_versions=1) == Cut(
        {"s": 1, "t": 1}, more=True
    )
    sources = [arrivals("s", 0, 1, 5), arrivals("t", 1, 6)]
    assert find_cut(sources, max_versions=1) == Cut({"s": 1, "t": 0}, more=True)


def test_bytes_bound_an_epoch_but_never_to_nothing() -> None:
    sources = [arrivals("s", 0, 1, 2, 3, 4, size=10)]
    assert find_cut(sources, max_bytes=25).versions == {"s": 2}
    assert find_cut(sources, max_bytes=1).versions == {"s": 1}


def test_at_the_same_time_a_tables_change_comes_before_a_row() -> None:
    """A row of 5 that is left out lets a change of 5 in; a change of 5 that is left out keeps a row of 5 out."""
    assert find_cut([arrivals("s", 0, 1, 5), arrivals("t", 1, 5)], max_versions=1).versions == {"s": 1, "t": 1}
    assert find_cut([arrivals("s", 0, 5), arrivals("t", 1, 1, 5)], max_versions=1).versions == {"s": 0, "t": 1}


def test_of_two_streams_the_left_one_comes_first_at_the_same_time() -> None:
    """A row of 5 on the right that is left out lets one of 5 on the left in, and not the other way round."""
    left, right = (replace(arrivals("l", 0, 1, 5), is_last=False), arrivals("r", 1, 1, 5))
    assert find_cut(
        [left, replace(right, commits=(*right.commits, NewCommit(3, 5)), newest=3)], max_versions=2
    ).versions == {"l": 2, "r": 2}
    assert find_cut([left, right], max_versions=1).versions == {"l": 1, "r": 1}


def test_an_epoch_of_a_join_before_is_read_as_a_whole_or_not_at_all() -> None:
    """It passed positions 3 to 8. Beside a commit at 5 that came too late it waits, and so does what is after 3."""
    made = replace(arrivals("made", 0), newest=1, commits=(NewCommit(1, 3, until=8),), is_last=False)
    assert find_cut([made, arrivals("t", 1, 4, 7)]) == Cut({"made": 1, "t": 2}, more=False)
    assert find_cut([made, arrivals("t", 1, 2, 4, later=5)]) == Cut({"made": 0, "t": 1}, more=True)
    assert find_cut([made, arrivals("t", 1, 2, 4, later=9)]) == Cut({"made": 1, "t": 2}, more=False)
    behind = replace(made, later=NewCommit(2, 6))  # what is behind it has gone on, and it has not followed yet
    assert find_cut([behind, arrivals("t", 1, 4, 7, 9)]) == Cut({"made": 1, "t": 2}, more=True)


def test_two_names_of_one_stream_are_cut_after_the_same_commit() -> None:
    """Both come at one place: neither holds the other back, nor runs ahead, whatever the clock of the writer did."""
    both = [arrivals("a", 0, 5, 3, 9), arrivals("b", 0, 5, 3, 9)]
    for bound in (1, 2, 3):
        assert find_cut(both, max_versions=bound) == Cut({"a": bound, "b": bound}, more=bound < 3)


def test_a_commit_that_came_meanwhile_is_left_out_with_all_after_it() -> None:
    assert find_cut([arrivals("s", 0, 1, 7), arrivals("t", 1, 2, later=5)]) == Cut({"s": 1, "t": 1}, more=True)


def test_where_something_came_first_to_a_source_that_was_looked_at_before_all_wait() -> None:
    """The plan says "nothing" then, and the next run finds the commit."""
    assert find_cut([arrivals("s", 0, 7), arrivals("t", 1, later=5)]) == Cut({"s": 0, "t": 0}, more=True)


def test_no_version_has_an_earlier_time_than_one_before_it() -> None:
    """The second commit of the table counts as of 9, so that the row of 5 is not beyond it."""
    sources = [arrivals("s", 0, 5, 20), arrivals("t", 1, 9, 3)]
    assert find_cut(sources, max_versions=1).versions == {"s": 1, "t": 1}


@given(times=st.lists(st.lists(st.integers(0, 6), max_size=5), min_size=1, max_size=3), bound=st.integers(1, 3))
def test_epoch_after_epoch_everything_is_read_in_order(times: list[list[int]], bound: int) -> None:
    """Each epoch moves on, and what it reads comes before all that is left, source by source."""
    recorded = {f"s{place}": 0 for place in range(len(times))}
    floors = dict.fromkeys(recorded, 0)
    for _ in range(sum(map(len, times)) + 1):
        sources = []
        for place, moments in enumerate(times):
            name = f"s{place}"
            commits = tuple(
                NewCommit(number, time) for number, time in enumerate(moments, start=1) if number > recorded[name]
            )
            newest, floor = len(moments), floors[name]
            sources.append(
                NewCommits(
                    name=name,
                    place=place,
                    recorded=recorded[name],
                    newest=newest,
                    commits=commits,
                    clock=floor,
                    is_last=place == 0,
                )
            )
        if not any(source.commits for source in sources):
            break
        pins = find_cut(sources, max_versions=bound)
        assert any(pins.versions[name] > recorded[name] for name in recorded), "some source moves on"
        read, left = [], []
        for source in sources:
            reached = floors[source.name]
            for commit in source.commits:
                reached = max(reached, commit.time)
                key = (reached, source.place == 0, source.place, commit.version)
                taken = commit.version <= pins.versions[source.name]
                (read if taken else left).append((key, source.name))
                if taken:
                    floors[source.name] = reached
        for key, name in left:
            assert all(key > other for other, owner in read if owner != name)
        recorded = dict(pins.versions)
    assert all(recorded[f"s{place}"] == len(moments) for place, moments in enumerate(times))
