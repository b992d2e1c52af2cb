"""The command line: what it prints, how it exits, and how soon its help is there."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest
import yaml

from pipelines.cli import main
from tests.lake import Lake


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
    assert "left 1 commits behind" in call("status")
    (report,) = json.loads(call("run", "--output", "json"))["joins"]
    assert (report["outcome"], report["counts"]["updated"]) == ("done", 1)
    assert "nothing to do" in call("run")
    assert "current (epoch 2" in call("status")
    assert "3 rows are as the join says" in call("verify")
    (verified,) = json.loads(call("verify", "--output", "json", "--against", "lake/result"))["joins"]
    assert verified["counts"] == {"missing": 0, "surplus": 0, "expected": 3}
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
    assert "right: there is no such Delta table" in out
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
