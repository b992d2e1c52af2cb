"""The README names all that there is, and what it says to type works."""

import importlib
import json
import pkgutil
import re
import runpy
import shlex
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from pyspark.sql import SparkSession

import expectations
import lakehouse
import pipelines
from lakehouse.errors import LakejoinError
from lakehouse.ledger import SCHEMA as LEDGER
from pipelines.cli import cli, main
from pipelines.report import report_schema
from pipelines.spec import fingerprint, load, schema

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()


def section(title: str) -> str:
    """The text below a heading, up to the next of its level."""
    found = re.search(rf"^## {re.escape(title)}\n(.*?)(?=^## |\Z)", README, re.MULTILINE | re.DOTALL)
    assert found, title
    return found.group(1)


def blocks(language: str, text: str = README) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def errors() -> Iterator[type[LakejoinError]]:
    """Every class of error of every module."""
    for package in (lakehouse, pipelines, expectations):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    pending: list[type[LakejoinError]] = [LakejoinError]
    while pending:
        kind = pending.pop()
        yield kind
        pending += kind.__subclasses__()


def test_every_command_and_option_is_in_the_readme() -> None:
    """Each command has its row, and each option is named in the section."""
    text = section("Commands")
    for name, command in cli.commands.items():
        assert f"| `lakejoin {name}" in text, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert any(f"`{option}" in text for option in parameter.opts), (name, parameter.opts)
    named = re.findall(r"^\| `lakejoin ([a-z]+)", text, re.MULTILINE)
    assert sorted(named) == sorted(cli.commands)


def test_every_command_and_option_has_a_help_text() -> None:
    """Nothing is left for the reader to guess."""
    for name, command in cli.commands.items():
        assert command.help, name
        assert all(option.help for option in command.params if isinstance(option, click.Option)), name


def test_every_error_code_stands_beside_its_exit_code() -> None:
    """And no code that is gone."""
    rows = dict(re.findall(r"^\| (\d) \|.*\| (.*) \|$", section("Exit codes and error codes"), re.MULTILINE))
    documented = {code: int(row) for row, codes in rows.items() for code in re.findall(r"`([A-Z_]{5,})`", codes)}
    assert documented == {kind.code: kind.exit_code for kind in errors()}


def test_nothing_in_the_readme_waits_to_be_filled_in() -> None:
    """Numbers are put in by hand."""
    assert "@@" not in README


def test_every_key_of_the_file_is_in_the_readme() -> None:
    """Those of storage, sources and joins too, with the part that they belong to; what is to come is listed once."""
    content = json.loads(schema())
    parts = {"": content, "storage.": content["$defs"]["Storage"], "sources.*.": content["$defs"]["Source"]}
    parts["joins.*."] = content["$defs"]["Join"]
    text = section("The pipeline file")
    for folder, part in parts.items():
        for key in part["properties"]:
            assert f"`{folder}{key}`" in text, folder + key


def test_every_column_of_the_ledger_is_in_the_readme() -> None:
    """So that a query can be written without looking into the table."""
    columns = re.findall(
        r"(\w+) (?:STRING|BIGINT|TIMESTAMP|ARRAY|MAP)\b", re.sub(r"<[^,>]*:.*?>>", "", LEDGER, flags=re.DOTALL)
    )
    assert len(columns) >= 13
    text = section("The ledger")
    assert [column for column in columns if f"`{column}`" not in text] == []


def test_the_published_schema_of_reports_is_that_of_the_code() -> None:
    """`lakejoin schema --report > conf/report.schema.json` writes it anew."""
    assert (ROOT / "conf" / "report.schema.json").read_text() == report_schema()


def test_what_the_readme_says_to_type_works(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The first pipeline step by step, then the Python and each query of the ledger."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path
    for line in "".join(blocks("console", section("A first pipeline in five minutes"))).splitlines():
        program, *arguments = shlex.split(line.removeprefix("$ "))
        if program == "cd":
            folder = folder / arguments[0]
            monkeypatch.chdir(folder)
        elif program == "python":
            runpy.run_path(str(folder / arguments[0]), run_name="__main__")
        else:
            assert program == "lakejoin"
            assert main(arguments) == 0, line
    capsys.readouterr()
    assert main(["history", "--output", "json"]) == 0
    newest, first = json.loads(capsys.readouterr().out)["joins"][0]["epochs"]
    assert first["counts"]["inserted"] == 5
    assert [newest["counts"][name] for name in ("inserted", "updated", "deleted")] == [1, 4, 1], "as sources.py says"
    (python,) = blocks("python")
    exec(python, {"spark": spark})
    assert "orders_paid: nothing to do" in capsys.readouterr().out
    for query in blocks("sql"):
        assert main(["sql", "--output", "json", query]) == 0, query
        assert json.loads(capsys.readouterr().out)["query"]["rows"] or "rejected" in query


def test_the_file_in_the_readme_is_that_of_the_example(tmp_path: Path) -> None:
    """Whoever copies it gets the same join."""
    (text,) = blocks("yaml")
    (tmp_path / "lakejoin.yml").write_text(text)
    written, example = load(tmp_path / "lakejoin.yml"), load(ROOT / "conf" / "example" / "lakejoin.yml")
    assert fingerprint(written, "orders_paid") == fingerprint(example, "orders_paid")


def test_the_faults_in_the_readme_are_what_check_prints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Two slips in the file of the README give the message that it shows."""
    (text,) = blocks("yaml")
    text = text.replace("payments: {key", "payments: {kye").replace("FROM orders o", "FROM ordres o")
    (tmp_path / "lakejoin.yml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["check", "-f", "lakejoin.yml"]) == 2
    assert [capsys.readouterr().err] == blocks("text")
