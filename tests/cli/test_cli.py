"""The command line: what it prints, how it exits, and how soon its help is there."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from expectations.validation import Verdict
from lakehouse.publish.stage import Stage
from pipelines.binding.bound import BoundJoin
from pipelines.cli import main
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.publish.publish import publishing_entry
from pipelines.epochs.tables.kind import TablesKind
from pipelines.plan.values import Computed
from pipelines.report import report_schema
from tests.lake import Lake
from tests.log_readers import without_delta_rs


def test_help_is_there_in_under_half_a_second_and_starts_no_spark() -> None:
    """The best of three, as the machine may be busy; JAVA_HOME points nowhere."""
    command = [str(Path(sys.executable).with_name("lakejoin")), "--help"]
    took = []
    for _ in range(3):
        start = time.monotonic()
        done = subprocess.run(
            command, env={**os.environ, "JAVA_HOME": "/nonexistent"}, capture_output=True, text=True, check=True
        )
        took.append(time.monotonic() - start)
    assert min(took) < 0.5
    assert all(name in done.stdout for name in ("run", "backfill", "verify", "plan", "status", "demo"))


@pytest.mark.slow
@pytest.mark.parametrize("command", ["status", "history", "docs"])
def test_status_history_and_docs_start_no_spark(loaded: Lake, command: str) -> None:
    """A Java that cannot be started would stop them."""
    program = [str(Path(sys.executable).with_name("lakejoin")), command, "-f", str(loaded.file)]
    without = {"JAVA_HOME": "/nowhere", "PATH": "/nowhere"}
    done = subprocess.run(program, capture_output=True, text=True, env=without, timeout=60)
    assert done.returncode == 0, done.stderr
    assert "Spark" not in done.stderr
    assert {"status": "result: current", "history": "committed  load", "docs": "index.html"}[command] in done.stdout


@pytest.mark.slow
def test_with_spark_as_the_reader_status_says_the_same(loaded, capsys, monkeypatch):
    told = []
    for reader in ("delta-rs", "spark"):
        if reader == "spark":
            without_delta_rs(monkeypatch, loaded.folder)
        for command in ("status", "history"):
            assert main([command, "-f", str(loaded.file), "--output", "json"]) == 0
            told.append(json.loads(capsys.readouterr().out))
    assert without_ages(told[:2]) == without_ages(told[2:])


def without_ages(reports: list[dict[str, Any]]) -> Any:
    """Leave out what depends on the moment of the command."""
    return json.loads(re.sub(r'"seconds_behind": [0-9.]+', '"seconds_behind": 0', json.dumps(reports)))


@pytest.mark.slow
def test_the_commands_tell_the_same_story(standard: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake = standard
    file = str(lake.file)

    def call(*arguments: str, code: int = 0) -> str:
        assert main([arguments[0], "-f", file, *arguments[1:]]) == code
        return capsys.readouterr().out

    assert "no faults" in call("check")
    assert "load, epoch 1 (first-load" in call("plan")
    assert "not loaded" in call("status")
    assert "3 inserted" in call("run")
    lake.sql("UPDATE {left} SET v = 'n' WHERE k = 1")
    assert "versions 2 to 2" in call("plan")
    (plan,) = json.loads(call("plan", "--output", "json"))["joins"]
    assert (plan["strategy"], plan["epoch"], plan["sources"][0]["to_version"]) == ("incremental", 2, 2)
    assert "left: 1 commit behind" in call("status")
    (report,) = json.loads(call("run", "--output", "json"))["joins"]
    assert (report["outcome"], report["counts"]["updated"]) == ("done", 1)
    assert "nothing to do" in call("run")
    assert "current (epoch 2" in call("status")
    assert "3 rows equal the recomputed join" in call("verify")
    (verified,) = json.loads(call("verify", "--output", "json", "--against", "lake/result"))["joins"]
    assert verified["counts"] == {"missing": 0, "surplus": 0, "expected": 3}
    assert "3 rows equal the recomputed join" in call("verify", "--against", f"file:{lake.path('result')}")
    lake.sql("DELETE FROM {result} WHERE k = 1")
    (failed,) = json.loads(call("run", "--output", "json", code=4))["joins"]
    assert failed["error"]["code"] == "FOREIGN_WRITER"
    assert "drifted" in call("verify", "--against", "lake/result", code=1)
    assert "0 deleted" in call("backfill")


def test_wrong_use_exits_with_2_and_says_what_is_there(standard: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake = standard
    assert main(["run", "-f", str(lake.file), "--select", "nope"]) == 2
    assert "one of result" in capsys.readouterr().err
    assert main(["run", "-f", str(lake.file), "--select", ""]) == 2
    assert main(["run", "-f", str(lake.folder / "missing.yml")]) == 2
    assert main(["dance"]) == 2
    assert main(["run", "-f", str(lake.file), "--conf", "driver.memory=8g"]) == 2
    assert "`driver.memory` is not a setting of Spark" in capsys.readouterr().err
    assert main(["docs", "-f", str(lake.file), "--folder", "s3a://bucket/docs"]) == 2
    assert "`s3a://bucket/docs` is a URI" in capsys.readouterr().err
    for wrong in (["--conf", "spark.driver.memory"], ["--var", "8g"], ["--var", "a=1", "--var", "a=2"]):
        assert main(["run", "-f", str(lake.file), *wrong]) == 2
    lake.file.write_text("pipeline: p\nsources: []\n")
    capsys.readouterr()
    assert main(["check", "-f", str(lake.file)]) == 2
    faults = capsys.readouterr().err
    assert "storage" in faults
    assert "joins" in faults


def test_a_missing_source_says_where_it_was_looked_for(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake.create("left", "k INT, v STRING")
    lake.pipeline()
    assert main(["run", "-f", str(lake.file)]) == 1
    out = capsys.readouterr().out
    assert "right: the Delta table does not exist" in out
    assert lake.path("right") in out


def test_two_joins_of_a_file_run_though_one_fails(standard: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    lake = standard
    content = yaml.safe_load(lake.file.read_text())
    content["joins"]["other"] = {"sql": "SELECT l.k, l.zz FROM left l JOIN right r ON l.k = r.k"}
    lake.file.write_text(yaml.safe_dump(content))
    assert main(["run", "-f", str(lake.file)]) == 2
    out = capsys.readouterr().out
    assert "3 inserted" in out
    assert "zz" in out
    for command, said in (("plan", "result: nothing"), ("verify", "result: verified"), ("history", "result:\n")):
        assert main([command, "-f", str(lake.file)]) == (0 if command == "history" else 2)
        out = capsys.readouterr().out
        assert said in out
        assert command == "history" or "other: FAILED  1 fault\n  joins.other.sql: " in out


def test_every_exit_code_is_reached(loaded, monkeypatch, capsys):
    """Each by a command, with the error in the one document on stdout; `lakehouse/README.md` says what they mean."""
    lake = loaded
    reached = {}

    def call(*arguments: str) -> dict[str, Any]:
        code = main([arguments[0], "-f", str(lake.file), "--output", "json", *arguments[1:]])
        report: dict[str, Any] = json.loads(capsys.readouterr().out)
        jsonschema.validate(report, json.loads(report_schema()))
        error = report["error"] or next((join["error"] for join in report["joins"] if "error" in join), None)
        assert report["exit_code"] == code == (error["exit_code"] if error else 0)
        reached[code] = error and error["code"]
        return report

    compute = TablesKind.compute

    def another_run_is_quicker(kind: TablesKind, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
        computed = compute(kind, epoch, stage)
        kind.workspace.ledger.append(publishing_entry(epoch, "another", stage.path, computed))
        return computed

    call("status")
    call("plan", "--select", "nope")
    call("verify", "--against", "./nowhere")
    call("verify", "--against", "./lake/left")
    lake.sql("UPDATE {left} SET v = 'n' WHERE k = 2")
    monkeypatch.setattr(TablesKind, "gate", lambda *_: Verdict(("made up",)))
    call("run")
    monkeypatch.undo()
    monkeypatch.setattr(TablesKind, "compute", another_run_is_quicker)
    call("run")
    assert reached == {0: None, 1: "FAILED", 2: "UNKNOWN_JOIN", 3: "GATE_FAILED", 4: "SCHEMA_BROKEN", 5: "ANOTHER_RUN"}


def test_an_error_that_nobody_foresaw_is_a_report_too(standard, monkeypatch, capsys):
    """No traceback, in either form; stdout stays one document."""
    monkeypatch.setattr("pipelines.commands.explain.explain", lambda *_: 1 / 0)
    assert main(["check", "-f", str(standard.file), "--output", "json"]) == 1
    said = capsys.readouterr()
    assert (json.loads(said.out)["error"]["code"], said.err) == ("UNEXPECTED", "")
    assert main(["check", "-f", str(standard.file)]) == 1
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("lakejoin: division by zero\n  found: an unexpected ZeroDivisionError")
