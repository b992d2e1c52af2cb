"""Many rows of a stream are not staged: they are counted, then computed once more where they are appended."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame

from lakehouse import limits
from lakehouse.errors.errors import AnotherRun, BrokenEpoch, GateFailed
from lakehouse.publish.stage import Deferred
from pipelines.epochs.lookup.kind import Lookups
from pipelines.epochs.publish import publish
from tests.cases import cases
from tests.epochs.lookup import test_streams
from tests.epochs.lookup.clicks import Clicks
from tests.killing import killed, recorded_writes
from tests.lake import only

LATER = ("(4, 1, NULL)", "(5, 1, NULL), (6, 2, NULL), (7, NULL, NULL)")


@pytest.fixture(autouse=True)
def _in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGED_STREAM_BYTES", -1)
    monkeypatch.setattr(limits, "CHANGES_VIA_DRIVER", -1)


def later(lake: Clicks) -> None:
    lake.click(LATER[0])
    lake.rename(1, "Ann")
    lake.click(LATER[1])


def written(lake: Clicks) -> list[tuple[str, str]]:
    return [(row["step"], row["writes"][-1]["mode"]) for row in lake.ledger()]


@cases(
    "claim",
    test_streams.test_rows_meet_the_table_as_it_was_and_its_changes_add_nothing,
    test_streams.test_an_inner_join_drops_what_meets_nothing_and_counts_null_keys,
    test_streams.test_several_tables_and_a_global_one_in_one_statement,
)
@pytest.mark.slow
def test_rows_are_those_of_a_staged_epoch(claim: Callable[[Clicks], None], clicks: Clicks) -> None:
    claim(clicks)
    assert {mode for _, mode in written(clicks)} == {"append in place"}


@cases(
    "claim",
    test_streams.test_a_duplicate_key_of_a_table_stops_the_epoch,
    test_streams.test_bounded_epochs_go_on_until_the_sources_are_reached,
)
@pytest.mark.slow
def test_refusals_and_limits_are_those_of_a_staged_epoch(claim, loaded_clicks):
    claim(loaded_clicks)


@pytest.mark.slow
def test_nothing_of_the_result_is_staged(loaded_clicks: Clicks) -> None:
    lake = loaded_clicks
    later(lake)
    with recorded_writes() as done:
        report = only(lake.stream().run(lake.spark))
    assert report.counts["appended"] == 4
    assert "stage result" not in done
    assert done[-4:] == [
        f"ledger: publishing epoch 2 of {report.join}",
        f"load {report.join}",
        f"ledger: committed epoch 2 of {report.join}",
        "delete stage",
    ]
    only(lake.stream().verify(lake.spark))


@pytest.mark.slow
@cases(
    "moment, what, steps",
    ("before", "load result", ["publishing", "abandoned", "publishing", "committed"]),
    ("after", "load result", ["publishing", "committed"]),
)
def test_a_killed_epoch_is_finished_or_computed_again(loaded_clicks, moment, what, steps):
    lake = loaded_clicks
    later(lake)
    with killed(what, moment):
        lake.stream().run(lake.spark)
    lake.stream().run(lake.spark)
    assert [step for step, _ in written(lake)][2:] == steps
    assert sorted(row[:3] for row in lake.rows()) == [
        (1, 1, "ann"),
        (2, 2, None),
        (3, None, None),
        (4, 1, "ann"),
        (5, 1, "Ann"),
        (6, 2, None),
        (7, None, None),
    ]
    only(lake.stream().verify(lake.spark))
    lake.click("(8, 1, NULL)")
    assert only(lake.stream().run(lake.spark)).counts["appended"] == 1


@pytest.mark.deep
def test_a_killed_first_load_is_computed_again(clicks: Clicks) -> None:
    """The result exists and is empty; the commit that fences the dead run off is not taken for rows of somebody."""
    with killed("load result"):
        clicks.stream().run(clicks.spark)
    assert only(clicks.stream().run(clicks.spark)).counts["appended"] == 3
    assert [step for step, _ in written(clicks)] == ["publishing", "abandoned", "publishing", "committed"]
    clicks.click("(8, 1, NULL)")
    assert only(clicks.stream().run(clicks.spark)).counts["appended"] == 1
    only(clicks.stream().verify(clicks.spark))


@pytest.mark.slow
def test_a_run_that_was_taken_for_dead_appends_nothing_any_more(loaded_clicks, monkeypatch):
    """While one run is about to append, another abandons its epoch: on object stores no lock makes it wait."""
    lake, real = loaded_clicks, publish.append
    later(lake)

    def slowly(rows: DataFrame, *given: Any, **options: Any) -> None:
        monkeypatch.setattr(publish, "append", real)
        only(lake.stream().run(lake.spark))
        real(rows, *given, **options)

    monkeypatch.setattr(publish, "append", slowly)
    with pytest.raises(AnotherRun):
        lake.stream().run(lake.spark)
    assert [step for step, _ in written(lake)][2:] == ["publishing", "abandoned", "publishing", "committed"]
    assert len(lake.rows()) == 7
    only(lake.stream().verify(lake.spark))
    lake.click("(8, 1, NULL)")
    assert only(lake.stream().run(lake.spark)).counts["appended"] == 1


@pytest.mark.slow
def test_rows_that_are_not_those_of_the_gate_break_the_epoch(loaded_clicks, monkeypatch):
    lake, real = loaded_clicks, Deferred.observed
    later(lake)

    def other(deferred: Deferred) -> Any:
        rows = deferred.rows.withColumn("_position", deferred.rows["_position"] * None)
        return real(Deferred(rows, deferred.facts, deferred.found))

    monkeypatch.setattr(Deferred, "observed", other)
    with pytest.raises(BrokenEpoch, match="epoch 2 is broken"):
        lake.stream().run(lake.spark)
    assert "'unplaced': 4" in lake.ledger()[-1]["message"]


def test_what_does_not_pass_the_gate_is_not_appended(loaded_clicks: Clicks, monkeypatch: pytest.MonkeyPatch) -> None:
    lake, real, version = loaded_clicks, Lookups._look_up, loaded_clicks.version()
    later(lake)

    def unplaced(lookups: Lookups) -> Any:
        found = real(lookups)
        return found._replace(rows=found.rows.withColumn("_position", found.rows["_position"] * None))

    monkeypatch.setattr(Lookups, "_look_up", unplaced)
    with pytest.raises(GateFailed, match="every row has a position"):
        lake.stream().run(lake.spark)
    assert lake.version() == version


@pytest.mark.slow
def test_expectations_of_a_join_keep_its_rows_in_the_stage(loaded_clicks: Clicks, tmp_path: Path) -> None:
    lake = loaded_clicks
    later(lake)
    declared = [{"expect_column_values_to_not_be_null": {"column": "id"}}]
    only(lake.stream(expectations=declared).run(lake.spark))
    assert written(lake)[-1] == ("committed", "append")
