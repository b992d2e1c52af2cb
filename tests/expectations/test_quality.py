"""What `validate` writes, suites and pages, and that it asks nobody on the network."""

import json
import os
import re
import socket
import subprocess
import sys
from typing import Any

import great_expectations as gx
import pytest

import expectations.own  # noqa: F401  (registers our expectations)
from expectations.validation import _context
from pipelines import Pipeline
from pipelines.cli import main
from tests.lake import Lake

TABLES = ("result", "result__changelog")


@pytest.mark.slow
def test_suites_are_written_once_and_read_back_by_great_expectations(logged, capsys):
    """A suite that is there as it is stays untouched; each judges the table that it is named for."""
    asked = ["validate", "-f", str(logged.file), "--write-suites"]
    assert main(asked) == 0
    files = {table: logged.folder / "expectations" / f"{table}.json" for table in TABLES}
    for path in files.values():
        os.utime(path, (1, 1))
    capsys.readouterr()
    assert main(asked) == 0
    assert capsys.readouterr().out.count(".json, unchanged") == 2
    for table, path in files.items():
        assert path.stat().st_mtime == 1
        text = path.read_text()
        content = json.loads(text)
        assert text == json.dumps(content, indent=2, sort_keys=True) + "\n"
        assert not re.search(r'"id"|version', text)
        frame = logged.spark.read.format("delta").load(logged.path(table))
        assert _judged(content, frame).success
    content = json.loads(files["result"].read_text())
    assert [one["type"] for one in content["expectations"]][-2] == "expect_column_values_to_not_be_null"
    doubled = logged.spark.sql(f"SELECT * FROM {logged.at('result')} UNION ALL SELECT * FROM {logged.at('result')}")
    assert not _judged(content, doubled).success
    files["result"].write_text("{}")
    assert main(asked) == 2
    assert "not a suite of result" in capsys.readouterr().err
    assert files["result"].read_text() == "{}"


def _judged(content: dict[str, Any], frame: Any) -> Any:
    sources = _context().data_sources
    asset = sources.add_or_update_spark("read back", persist=False).add_dataframe_asset("rows")
    batch = asset.add_batch_definition_whole_dataframe("all").get_batch(batch_parameters={"dataframe": frame})
    return batch.validate(gx.ExpectationSuite(**content))


@pytest.mark.slow
def test_pages_say_what_was_found_and_refer_to_nothing_elsewhere(logged, capsys):
    """One for each table, with the sentences of our own expectations; what is in the data is text."""
    site = logged.folder / "site"
    (site / "data_docs").mkdir(parents=True)
    for name in ("theirs", "gone"):
        mark = '<meta name="generator" content="lakejoin">' if name == "gone" else ""
        (site / "data_docs" / f"{name}.html").write_text(mark)
    logged.sql("INSERT INTO {result} VALUES (8, '<img src=\"http://x.example/y.png\">', NULL)")
    logged.sql("INSERT INTO {result} VALUES (9, '<img src=\"http://x.example/y.png\">', 'w')")
    assert main(["validate", "-f", str(logged.file), "--docs", str(site)]) == 3
    told = capsys.readouterr().out
    pages = {path.stem: path.read_text() for path in (site / "data_docs").glob("*.html")}
    assert sorted(pages) == ["index", "result", "result__changelog", "theirs"]
    assert all(f"page: {site}/data_docs/{table}.html" in told for table in TABLES)
    assert "&lt;img src=" in pages["result"]
    assert "no two rows have the same key k" in pages["result"]
    assert "w values must never be null" in pages["result"]
    assert ">not met<" in pages["result"]
    assert ">not met<" not in pages["result__changelog"]
    tombstones = "a tombstone, where _op is one of tombstone, removes an existing row of key k"
    assert tombstones in pages["result__changelog"]
    for path in site.rglob("*.html"):
        tags = " ".join(re.findall(r"<[a-z][^>]*>", path.read_text()))
        assert re.findall(r"https?:|=[\"']//", tags) == [], path
    assert 'href="result.html"' in pages["index"]
    assert 'href="../index.html"' in pages["result"]
    assert 'href="data_docs/index.html"' in (site / "index.html").read_text()


@pytest.mark.deep
def test_a_join_that_cannot_be_validated_is_listed_with_the_reason(standard: Lake) -> None:
    site = standard.folder / "site"
    assert main(["validate", "-f", str(standard.file), "--docs", str(site)]) == 4
    assert "the result does not exist yet: the join has not run" in (site / "data_docs" / "index.html").read_text()


@pytest.mark.slow
def test_neither_the_gate_nor_validate_asks_the_network(logged: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only Spark's own process, on this machine, is spoken to."""
    asked: list[Any] = []
    connect, look_up = socket.socket.connect, socket.getaddrinfo

    def is_here(address: Any) -> bool:
        return isinstance(address, str | bytes) or address[0] in ("127.0.0.1", "::1", "localhost")

    def connect_here(self: socket.socket, address: Any) -> None:
        if not is_here(address):
            asked.append(address)
            raise OSError("the network is off")
        connect(self, address)

    def look_up_here(host: Any, *rest: Any, **named: Any) -> Any:
        if not is_here((host,)):
            asked.append(host)
            raise OSError("the network is off")
        return look_up(host, *rest, **named)

    _context.cache_clear()
    monkeypatch.setattr(socket.socket, "connect", connect_here)
    monkeypatch.setattr(socket.socket, "connect_ex", connect_here)
    monkeypatch.setattr(socket, "getaddrinfo", look_up_here)
    join = Pipeline.load(logged.file)
    logged.sql("UPDATE {left} SET v = 'new' WHERE k = 4")
    join.run(logged.spark)
    join.validate(logged.spark, epochs="2..", docs=logged.folder / "site", write_suites=True)
    join.validate(logged.spark)
    assert asked == []


def test_great_expectations_is_told_to_report_nothing_before_it_is_imported() -> None:
    code = """
import os, sys
from expectations.validation import as_json
assert os.environ["GX_ANALYTICS_ENABLED"] == "false"
assert "great_expectations" not in sys.modules
as_json("t", [])
assert "great_expectations" in sys.modules
"""
    given = {name: value for name, value in os.environ.items() if name != "GX_ANALYTICS_ENABLED"}
    found = subprocess.run([sys.executable, "-c", code], env=given, capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
