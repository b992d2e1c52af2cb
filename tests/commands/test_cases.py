"""`test`: cases through the product on lakes of their own, and what is printed where rows differ."""

import json
import re
import shutil
from pathlib import Path
from xml.etree import ElementTree

import jsonschema
import pytest
from pyspark.sql import SparkSession

from lakehouse.errors.errors import LakejoinError
from pipelines.cli import main
from pipelines.commands.cases import Compared, literal
from pipelines.report import CaseReport, CasesReport, Difference, Report, report_schema
from tests.lake import Lake
from tests.pages import CONF, ROOT, blocks, section
from tests.pipeline_files import write

PASSED = CaseReport(file="a.test.yml", line=3, name="holds", join="j", verdict="passed", seconds=1.25)
DIFFERS = CaseReport(
    file="a.test.yml",
    line=9,
    name="differs",
    join="j",
    verdict="failed",
    seconds=0.5,
    differences=(
        Difference(what="result", row="k=1", column="v", expected="a", found="NULL"),
        Difference(what="delete", row="k=2  v=<b>", expected="absent", found="present"),
    ),
)
STOPPED = CaseReport(
    file="b.test.yml",
    line=2,
    name="stops",
    join="j",
    verdict="error",
    seconds=2,
    error=LakejoinError("j", "a source holds a key twice", hint="remove one"),
)
ALL = CasesReport(cases=(PASSED, DIFFERS, STOPPED), seconds=3.75)


def test_the_report_has_a_line_for_each_case_and_both_values_where_rows_differ() -> None:
    report = Report(command="test", pipeline="p", cases=ALL)
    assert report.exit_code == 1
    assert report.text().splitlines() == [
        "a.test.yml::holds PASSED  1.2 s",
        "a.test.yml::differs FAILED  0.5 s",
        "b.test.yml::stops ERROR  2.0 s",
        "",
        "differs (a.test.yml, line 9), join j",
        "rows    column  expected  found    row",
        "──────  ──────  ────────  ───────  ──────────",
        "result  v       a         NULL     k=1",
        "delete          absent    present  k=2  v=<b>",
        "",
        "stops (b.test.yml, line 2), join j",
        "j: a source holds a key twice",
        "  next: remove one",
        "",
        "1 error, 1 failed, 1 passed in 3.8 s",
    ]
    assert Report(command="test", cases=CasesReport(cases=(PASSED,), seconds=1.25)).exit_code == 0
    machine = json.loads(json.dumps(report.machine()))
    jsonschema.validate(machine, json.loads(report_schema()))
    assert machine["cases"]["cases"][1]["differences"][0]["found"] == "NULL"


def test_junit_counts_the_cases_and_has_what_is_printed() -> None:
    root = ElementTree.fromstring(ALL.junit("p"))
    assert root.attrib == {"tests": "3", "failures": "1", "errors": "1", "time": "3.750"}
    (suite,) = root
    one, other, stopped = suite
    assert (one.get("name"), one.get("file"), one.get("line"), [*one]) == ("holds", "a.test.yml", "3", [])
    assert [failure.tag for failure in (*other, *stopped)] == ["failure", "error"]
    assert other[0].text == DIFFERS.explanation()
    assert stopped[0].get("message") == "a source holds a key twice"


def test_null_is_not_the_string_null(spark: SparkSession) -> None:
    rows = spark.sql("SELECT 1 AS id, 'NULL' AS state, X'AB01' AS hash")
    expected = [{"id": 1, "state": None, "hash": "AB 01"}]
    found = [*Compared("j", rows.schema, ("id",)).differences("result", rows, expected, expected)]
    assert found == [Difference(what="result", row="id=1", column="state", expected="NULL", found="NULL")]


def test_a_value_does_not_end_its_literal() -> None:
    assert literal("00') --", "binary") == "unhex('00\\')--')"


def test_without_cases_and_with_faults_nothing_runs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Exit code 2, also for a file of cases that does not exist."""
    shutil.copy(ROOT / "conf" / "example" / "lakejoin.yml", tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["test"]) == 2
    assert "write them into lakejoin.test.yml beside it" in capsys.readouterr().err
    Path("lakejoin.test.yml").write_text("cases:\n  a:\n    join: orders_payed\n    expect: []\n")
    assert main(["test", "--output", "json"]) == 2
    error = json.loads(capsys.readouterr().out)["error"]
    assert (error["code"], error["faults"][0]["line"]) == ("BAD_PIPELINE_FILE", 3)
    assert main(["test", "missing.test.yml"]) == 2
    assert "cannot be read" in capsys.readouterr().err


def test_the_case_on_the_page_is_one_that_init_writes() -> None:
    (shown,) = blocks("yml", section(CONF, "Test a pipeline"))
    written = (ROOT / "conf" / "example" / "lakejoin.test.yml").read_text().splitlines()
    assert [line for line in shown.splitlines() if line not in written] == []
    assert "expect_feed:" in shown


def plainly(text: str) -> str:
    """Leave out how long cases took."""
    return re.sub(r"\d+\.\d s", "0.0 s", text)


COMPARED = ("what", "row", "column", "expected", "found")

CASES = """
columns:
  orders: {id: int, amount: "decimal(10, 2)", tags: array<string>, at: timestamp}
  payments: {id: int, method: string}
  clicks: {id: int, "user id": int}
cases:
  changes by each operation, and all that the last epoch changed:
    join: paid
    rows:
      orders: [{id: 1, amount: 20, tags: [a, null], at: 2026-01-01 10:00:00}, {id: 2}, {id: 3}]
      payments: [{id: 1, method: card}]
    changes:
      - insert: {payments: [{id: 2, method: cash}]}
      - update: {orders: [{ID: 1, amount: "0.10"}, {id: 2, amount: 5}]}
        insert: {orders: [{id: 4}]}
        delete: {payments: [{id: 2}], orders: [{id: 3}]}
    expect:
      - {id: 4}
      - {id: 1, amount: 0.1, method: card, tags: [a, null], at: 2026-01-01 10:00:00}
      - {id: 2, amount: 5}
    expect_feed:
      insert: [{id: 4}]
      update: [{id: 1}, {id: 2}]
      delete: [{id: 3}]
  a stream meets the table as it was:
    join: seen
    rows: {clicks: [{id: 1, "user id": 1}], orders: [{id: 1}], payments: [{id: 1, method: card}]}
    changes:
      - update: {payments: [{id: 1, method: cash}]}
      - insert: {clicks: [{id: 2, "user id": 1}, {id: 3, "user id": 9}]}
    expect: [{id: 1, method: card}, {id: 2, method: cash}, {id: 3}]
    expect_feed: {insert: [{id: 2}, {id: 3}]}
  rows that differ:
    join: paid
    rows: {orders: [{id: 1}, {id: 2}], payments: [{id: 1, method: card}]}
    expect: [{id: 1, method: cash}, {id: 3}]
    expect_feed: {insert: [{method: card}]}
  a key that occurs twice stops the join:
    join: paid
    rows: {orders: [{id: 1}, {id: 1}]}
    expect: []
  a row that does not exist:
    join: paid
    changes: [{delete: {orders: [{id: 7}]}}]
    expect: []
  a column that does not exist:
    join: paid
    expect: [{id: 1, metod: card}]
"""


@pytest.mark.slow
def test_cases_go_through_the_product_and_leave_the_lake_of_the_file_alone(
    lake: Lake, capsys: pytest.CaptureFixture[str]
) -> None:
    sources = {"orders": "id", "payments": "id", "clicks": {"key": "id", "kind": "stream"}}
    joins = {
        "paid": "SELECT o.*, p.method FROM orders o LEFT JOIN payments p ON o.id = p.id",
        "seen": "SELECT c.id, p.method FROM clicks c LEFT JOIN paid p ON c.`user id` = p.id",
    }
    write(lake.file, sources, joins)
    (lake.folder / "lakejoin.test.yml").write_text(CASES)
    junit = lake.folder / "junit.xml"
    assert main(["test", "-f", str(lake.file), "--junit", str(junit), "--output", "json"]) == 1
    reports = json.loads(capsys.readouterr().out)["cases"]["cases"]
    assert [(report["verdict"], report["error"] and report["error"]["code"]) for report in reports] == [
        ("passed", None),
        ("passed", None),
        ("failed", None),
        ("error", "DUPLICATE_KEY"),
        ("error", "BAD_CASE"),
        ("error", "BAD_CASE"),
    ]
    differences = [tuple(each[part] for part in COMPARED) for each in reports[2]["differences"]]
    assert differences == [
        ("result", "id=1", "method", "cash", "card"),
        ("result", "id=3  method=NULL", "", "present", "absent"),
        ("result", "id=2  method=NULL", "", "absent", "present"),
        ("insert", "method=NULL", "", "absent", "present"),
    ]
    assert "did you mean `method`?" in reports[5]["error"]["hint"]
    assert ElementTree.parse(junit).getroot().get("errors") == "3"
    assert not (lake.folder / "lake").exists()


@pytest.mark.deep
def test_a_fault_of_a_statement_is_found_as_the_page_shows(spark, tmp_path, monkeypatch, capsys):
    """The demo's pipeline passes; with INNER JOIN where LEFT was meant it does not."""
    for name in ("flight_status.yml", "flight_status.test.yml"):
        shutil.copy(ROOT / "conf" / name, tmp_path)
    monkeypatch.chdir(tmp_path)
    assert main(["test", "-f", "flight_status.yml"]) == 0
    capsys.readouterr()
    file = Path("flight_status.yml")
    file.write_text(file.read_text().replace("LEFT JOIN", "INNER JOIN"))
    assert main(["test", "-f", "flight_status.yml"]) == 1
    assert plainly(capsys.readouterr().out) in map(plainly, blocks("text", section(CONF, "Test a pipeline")))
