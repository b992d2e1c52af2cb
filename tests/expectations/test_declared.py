"""Expectations of the pipeline file: which there are, and what becomes of rows that do not meet them."""

from pathlib import Path
from typing import Any

import pytest

from expectations import catalogue, cataloguing
from expectations.catalogue import argument_faults, columns_of, of_rows, of_whole
from expectations.validation import expectations_of
from lakehouse.errors.errors import GateErrored, GateFailed, NotLoaded, PipelineFileError
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.commands.explain import explain
from pipelines.commands.history import last_gate
from tests.lake import Lake, only

BETWEEN = {"expect_column_values_to_be_between": {"column": "v", "min_value": 0}}
STREAMS = {name: {"key": "id", "kind": "stream", "watermarks": {"t": "1 minute"}} for name in ("left", "right")}
WINDOWED = "SELECT l.id, r.id AS r, l.v FROM left l LEFT JOIN right r ON r.t BETWEEN l.t AND l.t + INTERVAL 1 MINUTE"


def test_the_catalogue_is_that_of_the_great_expectations_that_is_installed() -> None:
    """`python -m expectations.cataloguing` writes it."""
    assert cataloguing.generate() == catalogue._catalogue()


def test_a_share_of_rows_and_uniqueness_are_about_the_whole_table() -> None:
    share = {"expect_column_values_to_be_between": {"column": "v", "min_value": 0, "mostly": 0.9}}
    unique: dict[str, Any] = {"expect_column_values_to_be_unique": {"column": "v"}}
    rows: dict[str, Any] = {"expect_table_row_count_to_be_between": {"min_value": 1}}
    declared = [BETWEEN, share, unique, rows]
    assert (of_rows(declared), of_whole(declared)) == ([BETWEEN], [share, unique, rows])


def test_ours_are_known_by_name_too() -> None:
    """Their columns are columns of the result; what they have from Great Expectations and fix is no argument."""
    present, once = ({f"expect_{name}": {"key_columns": ["k"]}} for name in ("key_to_be_present", "one_change_per_key"))
    assert (of_rows([present, once]), of_whole([present, once])) == ([present], [once])
    (fault,) = argument_faults("expect_one_change_per_key", {"key_columns": ["k"], "mostly": 0.5})
    assert (fault.argument, fault.problem, "key_columns" in fault.known) == ("mostly", "no such argument", True)
    answered = {"reference_columns": ["k"], "answer_columns": ["v"], "partner_columns": ["w", "x"], "found_column": "f"}
    assert columns_of(answered) == ("k", "v", "w", "x", "f")
    with pytest.raises(GateErrored, match="are inconsistent") as caught:
        expectations_of([{"expect_foreign_key_to_be_answered": answered}])
    assert "does not name as many columns" in caught.value.found


@pytest.mark.parametrize("name", ["missing", "V"])
def test_a_column_that_the_result_does_not_have_is_a_fault_of_the_file(priced: Lake, name: str) -> None:
    """Great Expectations knows columns by their case."""
    join = declared(priced, {"expect_column_values_to_not_be_null": {"column": name}})
    with pytest.raises(PipelineFileError, match=f"`{name}` is not a column of the result"):
        join.run(priced.spark)
    assert not Path(priced.path("result")).exists()


@pytest.mark.slow
def test_a_loaded_result_that_does_not_meet_them_is_dropped(priced: Lake) -> None:
    priced.sql("UPDATE {right} SET v = -1 WHERE k = 2")
    with pytest.raises(GateFailed, match=r"min_value: 0.0\): 1 of 2 rows, for example -1"):
        declared(priced, BETWEEN).run(priced.spark)
    assert not Path(priced.path("result")).exists()


def test_rows_that_do_not_meet_them_are_not_published(priced: Lake) -> None:
    """Neither what is published already is looked at, nor deletes; the next run is judged anew."""
    present: dict[str, Any] = {"expect_key_to_be_present": {"key_columns": ["k"]}}
    join = declared(priced, BETWEEN, present, {"expect_table_row_count_to_equal": {"value": 99}})
    assert only(join.run(priced.spark)).outcome == "done", "those about the whole table are for `validate`"
    with pytest.raises(GateFailed, match=r"row_count_to_equal\(value: 99\): 2"):
        join.validate(priced.spark)
    before = priced.version("result")
    priced.sql("UPDATE {right} SET v = -5 WHERE k = 1")
    priced.sql("DELETE FROM {left} WHERE k = 2")
    with pytest.raises(GateFailed, match="1 of 1 rows, for example -5") as caught:
        join.run(priced.spark)
    assert caught.value.exit_code == 3
    assert priced.version("result") == before
    priced.sql("UPDATE {right} SET v = 5 WHERE k = 1")
    assert only(join.run(priced.spark)).counts["deleted"] == 1
    report = only(declared(priced, BETWEEN).validate(priced.spark))
    assert (report.outcome, report.counts) == ("done", {"rows": 1, "expectations": 3})


@pytest.mark.slow
def test_what_somebody_else_wrote_is_found_by_validate(priced: Lake) -> None:
    """A job for data quality sees the result as its readers do."""
    join = declared(priced)
    with pytest.raises(NotLoaded):
        join.validate(priced.spark)
    join.run(priced.spark)
    assert only(join.validate(priced.spark)).counts["rows"] == 2
    priced.sql("INSERT INTO {result} VALUES (1, 3)", "result")
    with pytest.raises(GateFailed, match=r"expect_one_change_per_key.*: 2 of 3 rows"):
        join.validate(priced.spark)


@pytest.mark.deep
def test_check_tells_which_gate_and_which_are_for_validate(priced: Lake) -> None:
    unique = {"expect_column_values_to_be_unique": {"column": "v"}}
    told = explain(declared(priced, BETWEEN, unique).file, "result")
    assert (len(told.gated), len(told.validated)) == (1, 1)
    assert "  validate   expect_column_values_to_be_unique(column: v)" in told.text()


@pytest.mark.slow
def test_a_pipeline_may_be_warned_only(priced: Lake) -> None:
    """The rows are published, the report and the ledger tell what they did not meet."""
    join = declared(priced, BETWEEN, on_failed_gate="warn")
    join.run(priced.spark)
    priced.sql("UPDATE {right} SET v = -5 WHERE k = 1")
    report = only(join.run(priced.spark))
    assert (report.outcome, report.counts["updated"]) == ("done", 1)
    (warning,) = report.warnings
    assert warning.endswith("1 of 1 rows, for example -5")
    assert f"warning: {warning}" in report.text()
    with pytest.raises(GateFailed, match="1 of 2 rows, for example -5"):
        join.validate(priced.spark)
    assert priced.ledger()[-1]["message"] == warning
    gate = last_gate(Workspace.open(priced.spark, join.file, join.folder).ledger.of("result"))
    assert gate is not None
    assert gate.text() == f"last gate: passed, epoch 2, warned: {warning}"


def test_an_expectation_that_cannot_be_evaluated_lets_nothing_through(priced: Lake) -> None:
    """It is no verdict: the error has another exit code than a gate that failed, under `warn` too."""
    wrong = {"expect_column_values_to_match_regex": {"column": "v", "regex": "("}}
    with pytest.raises(GateErrored, match="match_regex") as caught:
        declared(priced, wrong, on_failed_gate="warn").run(priced.spark)
    assert caught.value.exit_code == 1


@pytest.mark.slow
def test_rows_added_to_a_stream_are_held_to_them(lake: Lake) -> None:
    for name in STREAMS:
        lake.create(name, "id INT, v INT, t TIMESTAMP")
    join = lake.pipeline(WINDOWED, STREAMS, expectations=[BETWEEN])
    join.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (1, 1, TIMESTAMP'2026-01-01 00:00:00')", "left")
    waits = only(join.run(lake.spark))
    assert (waits.counts["appended"], waits.counts["buffered"]) == (0, 1), "of no row of the result is anything asked"
    lake.sql("INSERT INTO {left} VALUES (2, -1, TIMESTAMP'2026-01-01 00:01:00')", "left")
    lake.sql("INSERT INTO {right} VALUES (9, 0, TIMESTAMP'2026-01-01 00:01:00')", "right")
    with pytest.raises(GateFailed, match="1 of 2 rows, for example -1"):
        join.run(lake.spark)
    assert lake.rows() == []


@pytest.fixture
def priced(lake: Lake) -> Lake:
    lake.create("left", "k INT", "(1), (2)")
    lake.create("right", "k INT, v INT", "(1, 10), (2, 20)")
    return lake


def declared(lake: Lake, *expectations: dict[str, dict[str, Any]], **options: Any) -> Pipeline:
    return lake.pipeline(
        "SELECT l.k, r.v FROM left l LEFT JOIN right r ON l.k = r.k", expectations=[*expectations], **options
    )
