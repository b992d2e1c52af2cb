"""Wrong use and errors: told as text, or in the one JSON document that was asked for; no test starts Spark."""

import json
import os
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from lakehouse.errors.errors import LakejoinError
from pipelines.cli import main
from pipelines.report import JoinReport, report_schema
from tests.cases import cases


@pytest.fixture
def flights(tmp_path: Path) -> Path:
    """A pipeline file for the commands that start no Spark."""
    file = tmp_path / "lakejoin.yml"
    file.write_text((Path(__file__).parents[2] / "conf" / "flights.yml").read_text())
    return file


def test_what_is_stopped_is_a_report_too(flights, monkeypatch, capsys):
    """By Ctrl-C or a signal; by then the file was read, so that the report names the pipeline."""

    def stopped(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("pipelines.commands.explain.explain", stopped)
    assert main(["check", "-f", str(flights), "--output", "json"]) == 1
    report = json.loads(capsys.readouterr().out)
    assert (report["error"]["problem"], report["pipeline"]) == ("stopped", "flights")


def test_a_report_names_its_pipeline_once_the_file_is_read(flights: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Also where the command fails after that."""
    assert main(["explain", "-f", str(flights), "--select", "nope", "--output", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["pipeline"] == "flights"
    flights.write_text("pipeline: flights\n")
    assert main(["explain", "-f", str(flights), "--output", "json"]) == 2
    assert json.loads(capsys.readouterr().out)["pipeline"] == ""


@cases(
    "arguments, said",
    (["check", "--var", "x"], "`x` is not NAME=VALUE"),
    (["check", "--var", "=x"], "`=x` is not NAME=VALUE"),
    (["check", "--var", ""], "`` is not NAME=VALUE"),
    (["check", "--var", "a-b=1"], "`a-b=1` is not NAME=VALUE; a name consists of letters, digits and `_`"),
    (["check", "--var", "1=1"], "`1=1` is not NAME=VALUE"),
    (["check", "--var", "x=1", "--var", "x=2"], "`x` is set twice"),
    (["check", "-f", ""], "the file name is empty"),
    (["check", "-f", "/"], "is a directory"),
    (["history", "--limit", "0"], "0 is not in the range"),
    (["plan", "--nope"], "No such option"),
    (["sql"], "Missing argument 'QUERY'"),
)
def test_wrong_use_is_told_in_either_form(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """As text on stderr, or in the one document on stdout."""
    assert main(arguments) == 2
    printed = capsys.readouterr()
    assert (printed.out, said in printed.err) == ("", True)
    for form in (["--output", "json"], ["--output=json"]):
        assert main([arguments[0], *form, *arguments[1:]]) == 2
        printed = capsys.readouterr()
        report = json.loads(printed.out)
        jsonschema.validate(report, json.loads(report_schema()))
        assert (report["command"], report["exit_code"], printed.err) == (arguments[0], 2, "")
        assert (report["error"]["code"], said in report["error"]["problem"]) == ("USAGE", True)


def test_what_reports_nothing_tells_wrong_use_as_text(capsys: pytest.CaptureFixture[str]) -> None:
    """Commands without --output, and what is no command."""
    for arguments in (["dance", "--output", "json"], ["schema", "--output", "json"], ["plan", "--output", "xml"]):
        assert main(arguments) == 2
        assert capsys.readouterr().out == ""


def test_json_is_one_document_whatever_it_holds(flights: Path) -> None:
    """Also where stdout does not take every letter."""
    flights.write_text(flights.read_text().replace("pipeline: flights", "pipeline: 航空"))
    lakejoin = str(Path(sys.executable).with_name("lakejoin"))
    command = [lakejoin, "check", "--output", "json", "-f", str(flights)]
    done = subprocess.run(command, env={**os.environ, "PYTHONIOENCODING": "latin-1"}, capture_output=True, check=True)
    assert json.loads(done.stdout)["pipeline"] == "航空"


def test_a_number_that_json_has_not_is_an_error_in_json(flights, monkeypatch, capsys):
    """The document is rendered where an error becomes one too."""
    odd = JoinReport(join="flights", outcome="done", seconds={"plan": float("inf")})
    monkeypatch.setattr("pipelines.commands.explain.explain", lambda *_: odd)
    assert main(["check", "-f", str(flights), "--output", "json"]) == 1
    assert json.loads(capsys.readouterr().out)["error"]["code"] == "UNEXPECTED"


def test_a_failed_join_is_named_once() -> None:
    """Beside the table that it is about, if that is another."""
    for where, text in (
        ("left", "paid: FAILED  left: the feed has a gap\n  next: backfill"),
        ("paid", "paid: FAILED  the feed has a gap\n  next: backfill"),
    ):
        error = LakejoinError(where, "the feed has a gap", hint="backfill")
        assert JoinReport(join="paid", outcome="failed", error=error).text() == text
