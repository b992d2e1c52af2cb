"""A pipeline file is data: it runs no code, writes below its storage alone, and what is secret in it stays so."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from lakehouse.errors.errors import PipelineFileError
from pipelines.cli import main
from pipelines.language import load
from tests.cases import cases
from tests.lake import JOIN, KEYED, Lake

SECRET = "hunter2-s3cr3t"
SETTINGS = ("fs.s3a.secret.key", "fs.azure.account.key", "spark.lakejoin.password")


def content(sql: str = JOIN, *, of_source: Mapping[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    sources: dict[str, Any] = {name: {"key": key} for name, key in KEYED.items()}
    sources["left"].update(of_source or {})
    joins = {"result": {"sql": sql, **options}}
    return {"pipeline": "test", "storage": {"path": "./lake"}, "sources": sources, "joins": joins}


def refused(folder: Path, said: Mapping[str, Any] | str, variables: Mapping[str, str] | None = None) -> str:
    file = folder / "lakejoin.yml"
    file.write_text(said if isinstance(said, str) else yaml.safe_dump(said, sort_keys=False))
    with pytest.raises(PipelineFileError) as error:
        load(file, variables)
    return error.value.message


@cases(
    "tagged",
    "!!python/object/apply:os.mkdir [{made}]",
    "!!python/object/new:os.mkdir [{made}]",
    "!!python/object/apply:subprocess.check_call [[mkdir, {made}]]",
    "!!python/object:pathlib.Path {{}}",
    "!!python/name:os.system",
    "!!python/module:os",
    "!anything {made}",
)
def test_a_tag_of_yaml_makes_no_object_and_calls_nothing(tmp_path: Path, tagged: str) -> None:
    made = tmp_path / "made"
    text = yaml.safe_dump(content(), sort_keys=False).replace("pipeline: test", f"pipeline: {tagged.format(made=made)}")
    assert "constructor" in refused(tmp_path, text)
    assert not made.exists()


UNSAFE = (
    "java_method('java.lang.System', 'lineSeparator')",
    "reflect('java.lang.System', 'lineSeparator')",
    "try_reflect('java.lang.System', 'lineSeparator')",
    "`reflect`('java.lang.System', 'lineSeparator')",
    "system.builtin.reflect('java.lang.System', 'lineSeparator')",
    "input_file_name()",
    "read_files('/etc')",
)


@pytest.mark.parametrize("call", UNSAFE)
def test_no_sql_of_the_file_reaches_java_classes_or_files(tmp_path: Path, call: str) -> None:
    """Neither in any clause of a statement, nor in a condition, nor in an expectation."""
    ways = {
        "SELECT": content(JOIN.replace("r.w", f"{call} AS w")),
        "ON": content(f"{JOIN} AND l.v = {call}"),
        "WHERE": content(f"{JOIN} WHERE l.v = {call}"),
        "tombstone": content(of_source={"kind": "changelog", "order_by": "n", "tombstone": f"v = {call}"}),
        "null_value": content(of_source={"kind": "stream", "null_value": f"v = {call}"}),
        "row_condition": content(expectations=[where(f"v = {call}")]),
        "unexpected_rows_query": content(expectations=[rows_of(f"SELECT * FROM {{batch}} WHERE v = {call}")]),
    }
    for way, said in ways.items():
        assert "1 fault" in (message := refused(tmp_path, said)), f"{way}: {message}"
        assert way in message


def where(condition: str, parser: str = "spark") -> dict[str, Any]:
    return {
        "expect_column_values_to_not_be_null": {"column": "v", "row_condition": condition, "condition_parser": parser}
    }


def rows_of(query: str) -> dict[str, Any]:
    return {"unexpected_rows_expectation": {"unexpected_rows_query": query}}


@cases(
    "statement",
    "DROP TABLE {batch}",
    "DELETE FROM {batch}",
    "INSERT INTO other SELECT * FROM {batch}",
    "FROM {batch} INSERT INTO other SELECT *",
    "SELECT l.k FROM {batch}; DROP TABLE other",
    "SET spark.sql.ansi.enabled = false",
    "ADD JAR '/tmp/x.jar'",
    "EXECUTE IMMEDIATE 'DROP TABLE other'",
    "SELECT TRANSFORM(k) USING 'sh' AS (y) FROM {batch}",
)
def test_sql_of_the_file_is_one_query(tmp_path: Path, statement: str) -> None:
    """Statement of a join or query of an expectation: nothing that changes a table, a session or runs a program."""
    assert "joins.result.sql" in refused(tmp_path, content(statement.format(batch=JOIN.partition(" FROM ")[2])))
    assert "unexpected_rows_query" in refused(tmp_path, content(expectations=[rows_of(statement)]))


def test_what_a_variable_stands_for_is_no_statement(tmp_path: Path) -> None:
    said = content(expectations=[rows_of("SELECT * FROM {batch} WHERE k = ${var.most}")])
    assert "one query" in refused(tmp_path, said, {"most": "1; DROP TABLE other"})
    (tmp_path / "lakejoin.yml").write_text(yaml.safe_dump(said))
    load(tmp_path / "lakejoin.yml", {"most": "1"})


def test_expectations_may_still_ask_what_queries_ask(tmp_path: Path) -> None:
    asked = [
        where("k > 1 AND v LIKE 'a%'"),
        where('col("k") > 1', "great_expectations"),
        rows_of("SELECT k, count(*) AS n FROM {batch} GROUP BY k HAVING count(*) > 1"),
        rows_of("WITH a AS (SELECT *, row_number() OVER (ORDER BY k) AS n FROM {batch}) SELECT * FROM a WHERE n > 9"),
        rows_of("SELECT * FROM {batch} WHERE CAST(v AS DATE) > current_date()"),
    ]
    (tmp_path / "lakejoin.yml").write_text(yaml.safe_dump(content(expectations=asked)))
    load(tmp_path / "lakejoin.yml")


@pytest.mark.parametrize("name", ["../out", "..", "a/../../out", "/tmp/out", "a\\b", "file:/tmp/out", "a\0b", " "])
def test_no_name_leads_out_of_the_storage(tmp_path: Path, name: str) -> None:
    """Results, changelogs, states and stages lie below the storage under the names of joins and sources."""
    join = content()
    join["joins"][name] = join["joins"].pop("result")
    source = content(JOIN.replace("FROM left", f"FROM `{name}`"))
    source["sources"][name] = source["sources"].pop("left")
    for said in (join, source):
        assert "name" in refused(tmp_path, said)


def held(lake: Lake) -> Iterator[tuple[str, str]]:
    """Give all that the folder of a lake holds as texts: each file as it is, and each table as rows."""
    for path in lake.folder.rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes().decode(errors="replace")
    for name in lake.versions():
        rows = lake.spark.read.format("delta").load(lake.path(name)).toJSON().collect()
        yield f"rows of {name}", "\n".join(rows)


@pytest.fixture
def with_secrets(standard: Lake, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lake]:
    for name in SETTINGS:
        standard.spark.conf.set(name, SECRET)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    kept_out = {"column": "v", "value_set": ["b"]}
    standard.pipeline(expectations=[{"expect_column_values_to_not_be_in_set": kept_out}], on_failed_gate="warn")
    yield standard
    for name in SETTINGS:
        standard.spark.conf.unset(name)


def test_a_secret_stands_in_no_log_no_report_and_no_file_of_the_lake(with_secrets, capfd):
    """Of a load, a run, a refused run and what tells of them."""
    lake, told = with_secrets, []
    given = ["-f", str(lake.file)]

    def call(*command: str, code: int = 0) -> None:
        assert main(["-v", "--log-format", "json", *command, *given]) == code
        said = capfd.readouterr()
        told.append((" ".join(command), said.out + said.err))

    call("run", "--output", "json")
    lake.sql("UPDATE {left} SET v = 'b' WHERE k = 1")
    call("plan")
    call("run")
    call("history", "--output", "json")
    call("docs", "--folder", str(lake.folder / "docs"))
    lake.sql("INSERT INTO {left} VALUES (1, 'twice')")
    call("run", code=1)
    call("status", "--output", "json")
    assert [where for where, text in (*told, *held(lake)) if SECRET in text] == []
    assert any("write ledger: publishing" in text for _, text in told), "writes were logged"


@pytest.mark.deep
def test_no_file_is_open_to_more_than_the_umask_allows(standard: Lake) -> None:
    umask = os.umask(0)
    os.umask(umask)
    call = ["-f", str(standard.file)]
    assert umask & 0o022 == 0o022, "the tests' own umask leaves nothing to see"
    for command in (["run"], ["docs", "--folder", str(standard.folder / "site")], ["validate", "--write-suites"]):
        assert main([*command, *call]) == 0
    wide = [path for path in standard.folder.rglob("*") if path.stat().st_mode & umask & 0o777]
    assert wide == []
    assert (standard.folder / "expectations").exists()


@pytest.mark.deep
def test_all_that_is_written_lies_below_the_storage(loaded: Lake) -> None:
    """The sources lie elsewhere, and nothing is written there."""
    lake, elsewhere = loaded, loaded.folder / "elsewhere"
    elsewhere.mkdir()
    for name in ("left", "right"):
        Path(lake.path(name)).rename(elsewhere / name)
    before = {path: path.stat().st_mtime_ns for path in lake.folder.rglob("*") if path.is_file()}
    sources = {name: {"key": "k", "path": f"./elsewhere/{name}"} for name in ("left", "right")}
    lake.pipeline(sources=sources, beside={"storage": {"path": "./other"}}, changelog=True).run(lake.spark)
    written = {
        path for path in lake.folder.rglob("*") if path.is_file() and before.get(path) != path.stat().st_mtime_ns
    }
    assert {path.relative_to(lake.folder).parts[0] for path in written} == {"other", lake.file.name}
