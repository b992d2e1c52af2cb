"""`sql`: queries by the names of the pipeline file, and nothing but queries."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.errors import ParseException

from pipelines.binding.workspace import Workspace
from pipelines.commands.query import ONLY_A_QUERY, BadQuery, answer, bare_query, words_in
from pipelines.language import load
from pipelines.report import ColumnReport, QueryReport, Report
from pipelines.report.facts import table
from tests.cases import cases
from tests.lake import Lake

COMMANDS = [
    "INSERT INTO left VALUES (9, 'x')",
    "INSERT INTO delta.`{left}` VALUES (9, 'x')",
    "INSERT OVERWRITE delta.`{left}` VALUES (9, 'x')",
    "UPDATE delta.`{left}` SET v = 'x'",
    "DELETE FROM delta.`{left}`",
    "MERGE INTO delta.`{left}` t USING delta.`{right}` s ON t.k = s.k WHEN MATCHED THEN DELETE",
    "TRUNCATE TABLE delta.`{left}`",
    "DROP TABLE delta.`{left}`",
    "DROP VIEW left",
    "CREATE TABLE t (a INT) USING delta",
    "CREATE TEMPORARY VIEW left AS SELECT 1",
    "CREATE OR REPLACE TABLE delta.`{left}` USING delta AS SELECT 1 AS k",
    "ALTER TABLE delta.`{left}` SET TBLPROPERTIES (a = 1)",
    "OPTIMIZE delta.`{left}`",
    "VACUUM delta.`{left}`",
    "VACUUM left",
    "RESTORE TABLE delta.`{left}` TO VERSION AS OF 0",
    "CACHE TABLE left",
    "CLEAR CACHE",
    "REFRESH left",
    "SET spark.sql.ansi.enabled = false",
    "SET TIME ZONE 'Asia/Tokyo'",
    "RESET",
    "USE default",
    "CALL system.optimize('left')",
    "DECLARE VARIABLE x INT",
    "EXECUTE IMMEDIATE 'DROP TABLE delta.`{left}`'",
    "BEGIN DELETE FROM delta.`{left}`; END",
    "EXPLAIN SELECT 1",
    "SHOW TABLES",
    "DESCRIBE left",
    "ADD JAR 'x.jar'",
    "",
    "left",
    ";",
    "-- nothing",
    "SELECT 1; DELETE FROM delta.`{left}`",
    "DELETE FROM delta.`{left}`; SELECT 1",
    "/* SELECT */ DELETE FROM delta.`{left}`",
    "/* /* */ SELECT 1 */ DELETE FROM delta.`{left}`",
    "-- SELECT 1\nDELETE FROM delta.`{left}`",
    "WITH s AS (SELECT 9 AS k, 'x' AS v) INSERT INTO delta.`{left}` SELECT * FROM s",
    "WITH s AS (SELECT 2 AS k) DELETE FROM delta.`{left}` WHERE k IN (SELECT k FROM s)",
    "FROM left INSERT INTO delta.`{left}` SELECT *",
    "FROM left INSERT OVERWRITE delta.`{left}` SELECT * INSERT INTO delta.`{right}` SELECT *",
    "(DELETE FROM delta.`{left}`)",
    "SELECT * FROM (DELETE FROM delta.`{left}`)",
    "SELECT 1) DELETE FROM delta.`{left}` WHERE (true",
    "SELECT 9, 'x') INSERT INTO delta.`{left}` (k",
    "SELECT 9, 'x') INSERT INTO delta.`{left}` TABLE lakejoin_asked --",
    "SELECT 1) SELECT * FROM lakejoin_asked); DELETE FROM delta.`{left}`; SELECT * FROM (SELECT (1",
    "SELECT 1 /*",
    "SELECT 'x",
    "TABLE left |> INSERT INTO delta.`{left}`",
]


@pytest.fixture
def workspace(standard: Lake) -> Workspace:
    return opened(standard)


def opened(lake: Lake) -> Workspace:
    return Workspace.open(lake.spark, load(lake.file), lake.folder)


def test_nothing_but_a_query_is_executed(standard: Lake) -> None:
    """Commands, alone, behind a query, in brackets or breaking out of them: all refused, and nothing has changed."""
    workspace = opened(standard)
    versions, settings = standard.versions(), dict(workspace.spark.conf.getAll)
    tables = workspace.spark.sql("SHOW TABLES").collect()
    for command in COMMANDS:
        text = command.replace("{left}", standard.path("left")).replace("{right}", standard.path("right"))
        with pytest.raises(BadQuery) as refused:
            answer(workspace, text, 10)
        assert (refused.value.exit_code, refused.value.code) == (2, "BAD_QUERY")
        with pytest.raises(ParseException):  # Spark alone refuses it too, whatever we make of its first word
            workspace.spark.sql(ONLY_A_QUERY.format(query=text))
    assert standard.versions() == versions
    assert settings.items() <= dict(workspace.spark.conf.getAll).items()
    assert workspace.spark.sql("SHOW TABLES").collect() == tables, "no view and no table is left behind"


def test_a_query_names_sources_results_and_the_ledger(loaded: Lake) -> None:
    """In any case, in their order, with any end; what it names is not there for the next one."""
    workspace = opened(loaded)
    joined = answer(workspace, "SELECT r.w, l.* FROM LEFT AS l JOIN `right` r USING (k) ORDER BY k DESC ;; -- end", 10)
    assert joined.rows == (("y", 3, "c"), ("x", 2, "b"))
    assert joined.columns[1] == ColumnReport(name="k", type="int")
    first = answer(workspace, "WITH x AS (TABLE result) SELECT k FROM x ORDER BY k DESC", 2)
    assert (first.rows, first.more) == (((3,), (2,)), True)
    every = answer(workspace, "FROM result |> SELECT k", 3)
    assert (len(every.rows), every.more) == (3, False)
    ((epoch, counts, source),) = answer(
        workspace, "SELECT epoch, counts, sources[0] FROM lakejoin_ledger WHERE step = 'committed'", 5
    ).rows
    assert (epoch, counts["inserted"], source["name"], source["to_version"]) == (1, 3, "left", 1)
    assert not workspace.spark.catalog.tableExists("left")


def test_what_is_not_there_is_named_with_what_helps(workspace: Workspace) -> None:
    """A result before the first run, a name that is near another, a column, a place in the text as it was given."""
    for query, problem, hint in (
        ("SELECT * FROM Result", "result does not exist yet", "run `lakejoin run` to create it"),
        ("SELECT * FROM lakejoin_ledger", "lakejoin_ledger does not exist yet", "run `lakejoin run` to create it"),
        ("SELECT * FROM rigth", "unknown table `rigth` (line 1, column 15)", "did you mean `right`?"),
        ("SELECT 1 FROM a.b", "unknown table `a.b` (line 1, column 15)", "known tables: left, right, result"),
        ("SELECT k,\n vv\nFROM left", "unknown column `vv` (line 2, column 2)", "did you mean `v` or `k`?"),
        ("SELECT 1 +", "Syntax error at or near ')' (at the end of the query)", "enter one read-only query"),
        ("SELECT count(*), k FROM left", "The query does not include a GROUP BY clause", ""),
        ("SELECT k / 0 FROM left", "Division by zero. Use `try_divide`", ""),
    ):
        with pytest.raises(BadQuery) as refused:
            answer(workspace, query, 5)
        assert refused.value.problem.startswith(problem)
        assert refused.value.hint.startswith(hint)
        assert not any(noise in refused.value.message for noise in ("SQLSTATE", "Project", "\tat ", "ansi.enabled"))


def test_a_source_that_is_not_there_does_not_keep_others_from_being_asked(workspace: Workspace) -> None:
    """It is missed only where it is meant."""
    sources = {**workspace.file.sources, "v": workspace.file.sources["left"]}
    workspace = replace(workspace, file=workspace.file.model_copy(update={"sources": sources}))
    assert answer(workspace, "SELECT max(v) FROM left", 5).rows == (("c",),)
    with pytest.raises(BadQuery, match="the source v does not exist"):
        answer(workspace, "SELECT * FROM v", 5)


def test_a_source_that_cannot_be_read_is_opened_only_by_its_name(workspace: Workspace) -> None:
    """Not for a word that its name is a part of; where it is named the refusal is in words."""
    broken = workspace.file.sources["left"].model_copy(update={"table": "no.such.catalog.v"})
    sources = {**workspace.file.sources, "v": broken}
    workspace = replace(workspace, file=workspace.file.model_copy(update={"sources": sources}))
    assert answer(workspace, "SELECT k FROM left GROUP BY k HAVING k = 2", 5).rows == ((2,),)
    for name in ("v", "V", "`v`"):
        with pytest.raises(BadQuery, match="v cannot be read: "):
            answer(workspace, f"SELECT * FROM {name}", 5)


def test_the_words_of_a_query_are_names_in_any_case_with_and_without_backticks() -> None:
    """Of a text that cannot be taken apart none are known."""
    words = words_in("SELECT `A``b`.c FROM Orders -- v")
    assert words is not None
    assert {"a`b", "c", "orders"} <= words
    assert "v" not in words
    assert words_in("SELECT 'open") is None


TYPED = [
    ("true", True),
    ("1Y", 1),
    ("9007199254740993L", 9007199254740993),
    ("1.5F", 1.5),
    ("double('NaN')", "NaN"),
    ("float('-inf')", "-Infinity"),
    ("1.50", "1.50"),
    ("0.00000001BD", "0.00000001"),
    ("'a\\nä'", "a\nä"),
    ("X'FF00'", "FF00"),
    ("NULL", None),
    ("DATE '2026-01-02'", "2026-01-02"),
    ("TIMESTAMP '2026-01-02 00:00:00Z'", "2026-01-02 01:00:00"),
    ("TIMESTAMP_NTZ '2026-01-02 00:00:00.5'", "2026-01-02 00:00:00.5"),
    ("INTERVAL '1' DAY", "INTERVAL '1' DAY"),
    ("make_interval(1, 2)", "1 years 2 months"),
    ('parse_json(\'{"a": [1, "x", null]}\')', {"a": [1, "x", None]}),
    ("array(DATE '2026-01-02', NULL)", ["2026-01-02", None]),
    ("array()", []),
    ("map(1, TIMESTAMP '2026-01-02 00:00:00Z')", {"1": "2026-01-02 01:00:00"}),
    ("map(named_struct('a', 1, 'b', 'x'), 2.5)", {"{1, x}": "2.5"}),
    ("named_struct('a.b', X'FF', '`', array(double('inf')), 'n', NULL)", {"a.b": "FF", "`": ["Infinity"], "n": None}),
    ("array(named_struct('v', parse_json('1')))", [{"v": 1}]),
    ("named_struct('a', 1, 'b', 2, 'a', 3)", {"col1": 1, "col2": 2, "col3": 3}),
]


def test_every_value_is_one_of_json_in_the_pipelines_time_zone(workspace: Workspace) -> None:
    """Whatever the columns are called, and nested as deep as it may be."""
    oslo = Workspace.open(workspace.spark, workspace.file.model_copy(update={"timezone": "Europe/Oslo"}), Path())
    names = ["same", "same", "a.b", "a`b", "", "sp ace"]
    items = ", ".join(
        f"{expression} AS `{names[n % len(names)].replace('`', '``')}`" for n, (expression, _) in enumerate(TYPED)
    )
    report = answer(oslo, f"SELECT {items}", 1)
    assert [column.name for column in report.columns] == [names[n % len(names)] for n in range(len(TYPED))]
    assert list(report.rows[0]) == [value for _, value in TYPED]
    assert Report.model_validate_json(json.dumps(Report(command="sql", query=report).machine(), allow_nan=False))


def report_of(kind: str, *values: object, more: bool = False) -> QueryReport:
    columns = (ColumnReport(name="k", type="int"), ColumnReport(name="value", type=kind))
    return QueryReport(columns=columns, rows=tuple((n, value) for n, value in enumerate(values)), more=more)


def test_a_person_reads_an_aligned_table() -> None:
    """Numbers to the right, decimals too; wide letters count twice; nulls are named."""
    assert report_of("decimal(5,2)", "1.50", None, "100.25").text().splitlines() == [
        "k   value",
        "─  ──────",
        "0    1.50",
        "1    NULL",
        "2  100.25",
        "3 rows",
    ]
    assert report_of("string", "日本", "a").text().splitlines()[1] == "─  ─────"
    assert report_of("array<int>", [1, None]).text().splitlines()[2:] == ["0  [1, null]", "1 row"]


def test_long_values_are_cut_and_control_characters_shown() -> None:
    """In the last column a message stays whole; a value cannot steer the terminal; a limit says how to see more."""
    lines = report_of("string", "x" * 1000, "y" * 1001, "a\n\x1b[31m\t", more=True).text().splitlines()
    assert lines[1] == "─  " + "─" * 80
    assert lines[2] == "0  " + "x" * 1000
    assert lines[3] == "1  " + "y" * 997 + "..."
    assert lines[4] == "2  a\\n\\x1b[31m\\t"
    assert lines[5] == "first 3 rows; --limit N for more"
    assert report_of("string").text().splitlines()[-1] == "0 rows"


def test_a_long_value_before_another_column_is_cut() -> None:
    lines = table(("v", "w"), [("x" * 80, "1"), ("y" * 81, "2")], (False, True))
    assert lines[2:] == ["x" * 80 + "  1", "y" * 77 + "...  2"]


@cases(
    "given, bare",
    ("SELECT 1", "SELECT 1"),
    ("SELECT 1 ; -- done", "SELECT 1 "),
    ("SELECT ';' -- ;", "SELECT ';' -- ;"),
    ("SELECT '; -- x'", "SELECT '; -- x'"),
    ("SELECT `a;b` FROM t;;\n", "SELECT `a;b` FROM t"),
)
def test_only_semicolons_at_the_end_are_taken_off(given: str, bare: str) -> None:
    """Those in strings, names and comments stay."""
    assert bare_query(given) == bare
