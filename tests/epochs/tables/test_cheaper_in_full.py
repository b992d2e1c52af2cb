"""An epoch that is estimated to take less time in full: the same rows and the same feed, and every report says why."""

import json

import pytest
from click.testing import CliRunner

from pipelines.cli import cli
from pipelines.plan import cost
from tests.lake import Lake, only

pytestmark = pytest.mark.fast


def printed(lake: Lake, command: str, *options: str) -> str:
    result = CliRunner().invoke(cli, [command, "-f", str(lake.file), *options])
    assert result.exit_code == 0, result.output
    return result.output


def chosen_in_full(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let any epoch count as one of many changes that cost less in full."""
    monkeypatch.setattr(cost, "SMALL_EPOCH", 0)
    monkeypatch.setattr(cost, "MARGIN_TO_CHANGE", 0.0)


def test_the_cheaper_way_is_taken_and_told(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The feeds are read for few changes; then the same join holds them for many that cost less in full."""
    lake.create("left", "k INT, v INT", "(1, 1), (2, 2), (3, 3)")
    lake.create("right", "k INT, w INT", "(1, 10), (4, 40)")
    pipeline = lake.pipeline()
    assert only(pipeline.run(lake.spark)).estimates == {}
    lake.sql("UPDATE {left} SET v = 20 WHERE k = 2")
    few = only(pipeline.run(lake.spark))
    assert few.strategy == "incremental"
    assert few.estimates["incremental"] < few.estimates["reconcile"]

    lake.sql("UPDATE {right} SET w = 11 WHERE k = 1")
    lake.sql("INSERT INTO {left} VALUES (4, 4)")
    chosen_in_full(monkeypatch)
    plan = printed(lake, "plan")
    assert "result: reconcile, epoch 3 (cheaper-in-full: about " in plan
    assert "  estimated: incremental about " in plan
    base = lake.version()
    report = only(pipeline.run(lake.spark))
    assert (report.strategy, report.counts["inserted"], report.counts["updated"]) == ("reconcile", 1, 1)
    assert report.reason.startswith("cheaper-in-full: ")
    assert lake.rows() == [(1, 1, 11), (2, 20, None), (3, 3, None), (4, 4, 40)]
    assert [change for change, _ in lake.feed(base)] == ["insert", "update_postimage", "update_preimage"]

    ways = {"incremental", "reconcile"}
    recorded = lake.ledger()[-1]["estimates"]
    assert recorded.keys() == ways == report.estimates.keys()
    assert recorded["reconcile"]["seconds"] == report.estimates["reconcile"]
    assert recorded["incremental"]["pace"] != 1, "two epochs were committed, one of them from the feeds"
    assert "estimated: incremental about " in printed(lake, "history")
    newest = json.loads(printed(lake, "history", "--output", "json"))["joins"][0]["epochs"][0]
    assert newest["estimates"] == report.estimates
    printed(lake, "docs", "--folder", str(lake.folder / "site"))
    assert "Estimated: incremental about " in (lake.folder / "site" / "joins" / "result.html").read_text()


@pytest.mark.slow
def test_a_way_that_is_ruled_out_is_not_taken(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """`refresh: incremental` never computes in full, nor does an exact changelog, which needs each commit."""
    chosen_in_full(monkeypatch)
    lake.create("left", "k INT, v INT", "(1, 1)")
    lake.create("right", "k INT, w INT", "(1, 10)")
    join = "SELECT l.k, l.v, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(further={"logged": {"sql": join, "changelog": True}}, refresh="incremental")
    pipeline.backfill(lake.spark)
    lake.sql("UPDATE {left} SET v = 2")
    for report in pipeline.run(lake.spark):
        assert (report.strategy, [*report.estimates]) == ("incremental", ["incremental", "reconcile"])
