"""Logs as JSON: every line of stderr is an object, whatever happens; stdout stays as it was."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from pipelines.cli import main
from tests.lake import Lake


def logged(capsys: pytest.CaptureFixture[str]) -> tuple[str, list[dict[str, Any]]]:
    said = capsys.readouterr()
    return said.out, [json.loads(line) for line in said.err.splitlines()]


def test_a_run_tells_each_epoch_and_each_outcome(loaded: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    loaded.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
    assert main(["--log-format", "json", "run", "-f", str(loaded.file)]) == 0
    out, (begun, through) = logged(capsys)
    assert out.startswith("result: epoch 2 (incremental): 0 inserted, 1 updated")
    assert (begun["join"], begun["epoch"], begun["strategy"], begun["level"]) == ("result", 2, "incremental", "info")
    assert (through["join"], through["outcome"], through["message"]) == ("result", "done", "result: done")
    assert abs(datetime.fromisoformat(begun["at"]) - datetime.now(UTC)) < timedelta(minutes=5)


@pytest.mark.deep
def test_writes_are_records_too_where_they_are_asked_for(loaded: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    loaded.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
    assert main(["-v", "--log-format", "json", "run", "-f", str(loaded.file)]) == 0
    _, records = logged(capsys)
    writes = [record["message"] for record in records if record["logger"] == "lakehouse.session.writing"]
    assert "write ledger: publishing epoch 2 of result" in writes


def test_an_error_is_a_record_with_its_code(standard: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--log-format", "json", "check", "-f", f"{standard.file}.gone"]) == 2
    out, (record,) = logged(capsys)
    assert (out, record["level"], record["code"], record["exit_code"]) == ("", "error", "BAD_PIPELINE_FILE", 2)


@pytest.mark.deep
def test_an_error_of_a_join_is_told_with_its_traceback(standard: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    standard.sql("INSERT INTO {right} VALUES (2, 'twice')")
    assert main(["--log-format", "json", "run", "-f", str(standard.file)]) == 1
    _, records = logged(capsys)
    (failed,) = (record for record in records if record["message"] == "result failed")
    assert "DuplicateKey" in failed["exception"]
    assert (records[-1]["outcome"], records[-1]["level"]) == ("failed", "error")


@pytest.mark.deep
def test_without_it_logs_are_lines(loaded: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "-f", str(loaded.file)]) == 0
    assert capsys.readouterr().err == ""
