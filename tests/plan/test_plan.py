"""What an epoch will do, as far as it follows from values: whether its changes are few."""

from datetime import UTC, datetime

from lakehouse import limits
from lakehouse.tables.delta_log import Commit
from pipelines.plan.values import EpochPlan, SourceRange
from tests.cases import cases

MERGED = {"numTargetRowsInserted": "1", "numTargetRowsUpdated": "2", "numTargetRowsDeleted": "3"}


@cases(
    "operation, mode, metrics, rows",
    ("MERGE", "", MERGED, 6),
    ("UPDATE", "", {"numUpdatedRows": "7"}, 7),
    ("DELETE", "", {"numDeletedRows": "8"}, 8),
    ("STREAMING UPDATE", "Append", {"numOutputRows": "9"}, 9),
    ("STREAMING UPDATE", "Complete", {"numOutputRows": "9"}, None),
    ("WRITE", "Append", {"numOutputRows": "10"}, 10),
    ("WRITE", "Overwrite", {"numOutputRows": "10"}, None),
    ("RESTORE", "", {"numRestoredFiles": "1"}, None),
    ("MERGE", "", {"num_target_rows_inserted": "1"}, None),
    ("DELETE", "", {}, None),
)
def test_a_commit_says_how_many_rows_it_changed_or_nobody_knows(operation, mode, metrics, rows):
    """An overwrite does not count what it removed, another writer's metrics have other names."""
    assert Commit(1, datetime.now(UTC), operation, "", metrics, mode=mode).changed_rows == rows


@cases(
    "strategy, changed, few",
    ("incremental", [1, limits.CHANGES_VIA_DRIVER - 1], True),
    ("incremental", [1, limits.CHANGES_VIA_DRIVER], False),
    ("incremental", [1, None], False),
    ("incremental", [0, 0], True),
    ("reconcile", [1, 1], False),
    ("load", [0, 0], False),
)
def test_changes_are_few_only_where_every_commit_says_so(strategy, changed, few):
    ranges = tuple(
        SourceRange(name=f"s{n}", id="id", from_version=1, to_version=3, read_after=1, changed_rows=rows)
        for n, rows in enumerate(changed)
    )
    quiet = SourceRange(name="quiet", id="id", from_version=3, to_version=3, read_after=3)
    plan = EpochPlan(join="join", epoch=2, strategy=strategy, reason="", sources=(*ranges, quiet))
    assert plan.via_driver == few
