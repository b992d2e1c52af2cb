"""The running checksum in the ledger: every way to write a result moves it, and any other change of the table shows."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse import limits
from lakehouse.errors.errors import AnotherRun, Drifted, NotLoaded
from lakehouse.ledger.entries import VERIFIED
from lakehouse.session.session import settings
from lakehouse.values.checksums import checksum_of
from lakehouse.values.recorded import Checksum
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.commands.docs import write_docs
from pipelines.commands.history import history_of
from pipelines.commands.status import status_of
from pipelines.epochs.views import load
from pipelines.epochs.views.quick_verify import NoChecksum
from tests.lake import Lake, only

COLUMNS = "k INT, v DOUBLE, m MAP<STRING, INT>"
JOIN = "SELECT l.k, l.v, l.m, r.w, named_struct('w', r.w, 'v', l.v) AS s FROM left l FULL JOIN right r ON l.k = r.k"
FULL = JOIN.replace("l.k, l.v", "coalesce(l.k, r.k) AS k, l.v")


def pipeline(lake: Lake) -> Pipeline:
    return lake.pipeline(FULL)


def checksum(lake: Lake) -> Checksum | None:
    row = [row for row in lake.ledger() if row["step"] == "committed"][-1]["checksum"]
    return None if row is None else Checksum(**row.asDict())


def agrees(lake: Lake) -> None:
    """Check that the result has the checksum of the last epoch, by the command and by a computation of its own."""
    report = only(pipeline(lake).verify(lake.spark, quick=True))
    found = checksum_of(lake.spark.read.format("delta").load(lake.path("result")))
    assert checksum(lake) == found
    assert report.counts == {"rows": found.rows}
    only(pipeline(lake).verify(lake.spark))


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark, tmp_path_factory.mktemp("checksum"))
    lake.create("left", COLUMNS)
    lake.create("right", "k INT, w STRING")
    lake.sql(
        "INSERT INTO {left} SELECT CAST(id AS INT), IF(id % 7 = 0, NULL, id / 3), map('a', id, 'b', NULL) "
        "FROM range(60)"
    )
    lake.sql("INSERT INTO {right} SELECT CAST(id AS INT), IF(id % 5 = 0, NULL, concat('w', id)) FROM range(30, 90)")
    only(pipeline(lake).run(spark))
    return lake


@pytest.mark.slow
def test_every_epoch_moves_the_checksum_by_its_change_set(loaded: Lake, tmp_path: Path) -> None:
    lake = loaded.copy(tmp_path / "lake")
    before = checksum(lake)
    assert before is not None
    assert before.rows == 90
    agrees(lake)
    lake.sql("UPDATE {left} SET v = -0.0D WHERE k < 20")
    lake.sql("DELETE FROM {left} WHERE k IN (1, 35)")
    lake.sql("INSERT INTO {right} VALUES (1, 'back'), (400, NULL)")
    report = only(pipeline(lake).run(lake.spark))
    assert report.strategy == "incremental"
    moved = checksum(lake)
    assert moved is not None
    assert moved.rows == before.rows + report.counts["inserted"] - report.counts["deleted"]
    agrees(lake)
    lake.sql("UPDATE {left} SET v = 0.0D WHERE k < 20")  # equal values: nothing changes
    lake.sql("UPDATE {left} SET v = v WHERE k = 40")
    assert only(pipeline(lake).run(lake.spark)).changed == 0
    assert checksum(lake) == moved
    agrees(lake)


@pytest.mark.parametrize("few_bytes", [True, False], ids=["rows", "checksums"])
@pytest.mark.slow
def test_backfills_take_the_checksum_anew(loaded, tmp_path, monkeypatch, few_bytes):
    lake = loaded.copy(tmp_path / "lake")
    if not few_bytes:
        monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    lake.sql("DELETE FROM {result} WHERE k % 3 = 0")
    lake.sql("UPDATE {left} SET v = 5 WHERE k = 7")
    assert only(pipeline(lake).backfill(lake.spark)).changed == 31
    agrees(lake)
    lake.sql("UPDATE {result} SET v = 6 WHERE k = 8")
    assert only(pipeline(lake).backfill(lake.spark, where="k < 10")).changed == 1
    agrees(lake)
    lake.sql("UPDATE {result} SET v = 6 WHERE k % 10 = 8")
    assert only(pipeline(lake).backfill(lake.spark, slices=3)).changed == 8
    agrees(lake)


FAULTS: dict[str, Callable[[Lake], object]] = {
    "a changed value": lambda lake: lake.sql("UPDATE {result} SET v = 2.5 WHERE k = 8"),
    "a null for a value": lambda lake: lake.sql("UPDATE {result} SET s.w = NULL WHERE k = 31"),
    "a lost row": lambda lake: lake.sql("DELETE FROM {result} WHERE k = 8"),
    "a row twice": lambda lake: lake.sql("INSERT INTO {result} SELECT * FROM {result} WHERE k = 8"),
    "a row thrice": lambda lake: lake.sql(
        "INSERT INTO {result} SELECT r.* FROM {result} r JOIN range(2) WHERE r.k = 8"
    ),
    "two rows swapped": lambda lake: lake.sql("UPDATE {result} SET k = IF(k = 8, 9, 8) WHERE k IN (8, 9)"),
}


@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
def test_any_other_change_of_the_table_shows(loaded: Lake, tmp_path: Path, fault: Callable[[Lake], object]) -> None:
    lake = loaded.copy(tmp_path / "lake")
    fault(lake)
    with pytest.raises(Drifted, match="does not have the checksum of epoch 1") as raised:
        pipeline(lake).verify(lake.spark, quick=True)
    assert f"in version {lake.version()}" in raised.value.found
    assert not [row for row in lake.ledger() if row["step"] == VERIFIED]


def test_a_change_that_the_log_does_not_betray_shows(loaded: Lake, tmp_path: Path) -> None:
    lake = loaded.copy(tmp_path / "lake")
    run_id = lake.ledger()[-1]["run_id"]
    with settings(lake.spark, {"spark.databricks.delta.commitInfo.userMetadata": run_id}):
        lake.sql("UPDATE {result} SET v = 2.5 WHERE k = 8")
    assert only(pipeline(lake).run(lake.spark)).outcome == "nothing"
    with pytest.raises(Drifted):
        pipeline(lake).verify(lake.spark, quick=True)


@pytest.mark.slow
def test_upkeep_keeps_the_checksum_and_a_success_is_recorded(loaded: Lake, tmp_path: Path) -> None:
    lake = loaded.copy(tmp_path / "lake")
    lake.sql("OPTIMIZE {result} FULL")
    epochs = only(pipeline(lake).verify(lake.spark, quick=True)).epoch
    (row,) = [row for row in lake.ledger() if row["step"] == VERIFIED]
    assert (row["epoch"], row["checksum"]["rows"]) == (epochs, 90)
    made = pipeline(lake)
    workspace = Workspace.open(lake.spark, made.file, lake.folder)
    status = status_of(workspace, "result")
    assert (status.state, status.epoch, status.verified_epoch) == ("current", 1, 1)
    assert "checksum last verified:" in status.text()
    assert [epoch.step for epoch in history_of(workspace, "result", 10).epochs] == ["committed"]
    assert "Checksum last verified" in (write_docs(workspace).parent / "joins/result.html").read_text()
    lake.sql("UPDATE {left} SET v = 1 WHERE k = 7")
    assert only(pipeline(lake).run(lake.spark)).epoch == 2


@pytest.mark.deep
def test_a_result_without_a_recorded_checksum_says_what_helps(loaded: Lake, tmp_path: Path) -> None:
    lake = loaded.copy(tmp_path / "lake")
    lake.spark.sql(f"UPDATE {lake.at('lakejoin_ledger')} SET checksum = NULL")
    with pytest.raises(NoChecksum) as raised:
        pipeline(lake).verify(lake.spark, quick=True)
    assert "lakejoin backfill --select result" in raised.value.message
    lake.sql("UPDATE {left} SET v = 1 WHERE k = 7")
    only(pipeline(lake).run(lake.spark))
    assert checksum(lake) is None
    only(pipeline(lake).backfill(lake.spark))
    agrees(lake)


@pytest.mark.deep
def test_the_documented_statement_computes_the_checksum(loaded: Lake) -> None:
    page = (Path(__file__).parents[3] / "lakehouse" / "README.md").read_text()
    (statement,) = [part for part in page.split("```sql\n") if "bit_xor(hash)" in part]
    columns = "v AS amount, k AS order_id, w AS customer, CAST(NULL AS STRING) AS method, m['a'] AS paid_at"
    table = f"(SELECT {columns} FROM {{result}})"
    sql = statement.partition("```")[0].replace("orders_paid", table)
    (row,) = loaded.sql(sql)
    named = loaded.spark.sql(f"SELECT * FROM {table}".replace("{result}", loaded.at("result")))
    assert Checksum(**row.asDict()) == checksum_of(named)


@pytest.mark.deep
def test_a_join_that_has_not_run_has_no_checksum(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    lake.create("left", COLUMNS)
    lake.create("right", "k INT, w STRING")
    with pytest.raises(NotLoaded):
        pipeline(lake).verify(spark, quick=True)


@pytest.mark.slow
def test_a_load_that_another_run_finishes_meanwhile_has_its_checksum(spark, tmp_path, monkeypatch):
    """Delta skips the second append, so that nothing observes its rows."""
    lake, real = Lake(spark, tmp_path), load.append
    lake.create("left", COLUMNS, "(1, 2.0, NULL)")
    lake.create("right", "k INT, w STRING", "(1, 'w')")

    def late(*given: Any, **options: Any) -> bool:
        monkeypatch.setattr(load, "append", real)
        only(pipeline(lake).run(spark))
        return real(*given, **options)

    monkeypatch.setattr(load, "append", late)
    only(pipeline(lake).run(spark))
    agrees(lake)


@pytest.mark.slow
def test_an_epoch_that_is_published_meanwhile_is_not_taken_for_a_fault(loaded, tmp_path, monkeypatch):
    lake = loaded.copy(tmp_path / "lake")
    lake.sql("UPDATE {left} SET v = 1 WHERE k = 7")
    real = checksum_of

    def slowly(rows: object) -> Checksum:
        found = real(rows)  # type: ignore[arg-type]
        only(pipeline(lake).run(lake.spark))
        return Checksum(found.rows, found.xor + 1, found.sum)

    monkeypatch.setattr("pipelines.epochs.views.quick_verify.checksum_of", slowly)
    with pytest.raises(AnotherRun):
        pipeline(lake).verify(lake.spark, quick=True)
