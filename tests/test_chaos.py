"""The short form of `python -m tests.chaos`."""

import pytest

from tests.chaos import chaos, prepare
from tests.lake import Lake


@pytest.mark.slow
@pytest.mark.usefixtures("reader")
def test_whatever_comes_the_results_are_the_joins_and_no_row_was_written_twice(lake: Lake) -> None:
    prepare(lake)
    done = chaos(lake, seed=12, rounds=2, seconds=300)  # this draw kills, and backfills in slices
    assert done["feed_rows"] > 20
    assert done["killed"] >= 1
    assert done["backfills"] == 1
    assert done["results_of_cuts"] > 0
