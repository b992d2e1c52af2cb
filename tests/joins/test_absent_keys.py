"""
Joins that read results whose rows may lack a side, over random histories. The histories of one shape and combination of
types are one Spark job.
"""

from collections import Counter

import pytest

from . import claims
from .absent_shapes import DRIVING, LOOKED_UP_WITH_NULLS, PAIRED_TWICE, READING, WHOLE_FULL, WHOLE_WITHOUT_NULLS
from .stars import oracle
from .test_stars import compute

HISTORIES = 40
IN_FULL_RUNS = {
    (DRIVING, ("left",)),
    (LOOKED_UP_WITH_NULLS, ("inner", "left")),
    (WHOLE_FULL, ("full",)),
    (WHOLE_WITHOUT_NULLS, ("left",)),
    (PAIRED_TWICE, ("left",)),
}
"""The other combinations are only tried by `make test-all`."""

KINDS = [
    pytest.param(
        star, how, id="-".join((star.name, *how)), marks=[] if (star, how) in IN_FULL_RUNS else [pytest.mark.slow]
    )
    for star in READING
    for how in star.types
]


@pytest.mark.parametrize(("star", "how"), KINDS)
def test_change_sets_are_what_plain_python_finds(spark, star, how):
    """The change sets add up to the join after every epoch, and hold exactly the rows that differ."""
    of = compute(spark, star, how, HISTORIES)
    claims.results_follow(of, lambda state: oracle(star, how, state))
    claims.changes_are_differences(of, lambda state: oracle(star, how, state))
    claims.changes_are_differences(of)
    changes = [(key, change) for epoch in of.changes.values() for key, change in epoch.items()]
    ops = Counter(change.op for _, change in changes)
    assert all(ops[op] >= 5 for op in ("insert", "update", "delete")), ops
    if star.may_be_absent and (star, how) != (WHOLE_WITHOUT_NULLS, ("inner",)):
        assert sum(None in key for key, _ in changes) >= 10
