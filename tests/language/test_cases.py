"""Files of cases as values: all faults at once with their lines, and which value of YAML fits which type."""

from datetime import date, datetime
from pathlib import Path
from typing import Any

import pytest

from lakehouse.errors.errors import PipelineFileError
from pipelines.language import PipelineFile, load
from pipelines.language.cases import Known, case_files, misfit_of, read_cases
from tests.cases import cases
from tests.pipeline_files import write

SOURCES = {"orders": "id", "payments": "id", "clicks": {"key": "id", "kind": "stream"}}
JOINS = {
    "paid": "SELECT o.id, p.method FROM orders o LEFT JOIN payments p ON o.id = p.id",
    "seen": "SELECT c.id, p.method FROM clicks c LEFT JOIN paid p ON c.id = p.id",
}
TABLES = {
    "orders": {"id": "int", "note": "string"},
    "payments": {"id": "int", "method": "string"},
    "clicks": {"id": "int"},
}


@pytest.fixture
def file(tmp_path: Path) -> PipelineFile:
    return load(write(tmp_path / "lakejoin.yml", SOURCES, JOINS))


def known(name: str) -> Known:
    return lambda source: TABLES[source] if source != name else None


def faults(path: Path, file: PipelineFile, text: str, unknown: str = "") -> list[tuple[int | None, str]]:
    path.write_text(text)
    with pytest.raises(PipelineFileError) as refused:
        read_cases([path], file, known(unknown))
    assert (refused.value.exit_code, refused.value.where) == (2, "cases of test")
    return [(fault.line, fault.problem) for fault in refused.value.faults]


def test_a_case_has_the_columns_of_all_sources_that_its_join_reads(tmp_path: Path, file: PipelineFile) -> None:
    """Through other joins, too; those of the case before those of the file before those of the table."""
    path = tmp_path / "lakejoin.test.yml"
    path.write_text(
        "columns: {orders: {id: bigint}, payments: {id: bigint, method: string}}\n"
        "cases:\n"
        "  one:\n    join: seen\n    columns: {orders: {id: smallint}}\n    expect: []\n"
    )
    (case,) = read_cases([path], file, known(""))
    assert (case.name, case.line, case.file) == ("one", 3, "lakejoin.test.yml")
    payments = {"id": "bigint", "method": "string"}
    assert case.tables == {"clicks": {"id": "int"}, "orders": {"id": "smallint"}, "payments": payments}


def test_every_fault_of_a_file_is_listed_with_its_line(tmp_path: Path, file: PipelineFile) -> None:
    text = """cases:
  one:
    join: padi
    expect: []
  two:
    join: paid
  three:
    join: paid
    rows:
      orders: [{id: x, noet: a}]
      paymets: []
    changes:
      - update:
          orders: [{note: b}]
    expect: []
  four:
    join: seen
    columns: {clicks: {id: itn}}
    changes:
      - delete: {clicks: [{id: 1}]}
    expect: []
"""
    assert faults(tmp_path / "a.test.yml", file, text, unknown="payments") == [
        (3, "the pipeline file has no such join"),
        (5, "expects nothing"),
        (5, "the columns of payments are unknown"),
        (7, "the columns of payments are unknown"),
        (10, "`x` is not a value of type int"),
        (10, "orders has no column `noet`"),
        (11, "paid reads no source of this name"),
        (14, "the row lacks its key: id"),
        (16, "the columns of payments are unknown"),
        (18, "`itn` is not a type of Spark SQL"),
        (20, "rows of a stream are only inserted"),
    ]


@cases(
    "text, line, problem, hint",
    ("cases: {}", 1, "must not be empty", ""),
    ("case: {}", 1, "no such option", "did you mean `cases`?"),
    ("cases:\n  a:\n    join: paid\n    rwos: {}", 4, "no such option", "did you mean `rows`?"),
    ("cases:\n  a:\n    join: paid\n    changes: [{insrt: {}}]", 4, "no such option", "did you mean `insert`?"),
    ("cases:\n  a:\n    join: paid\n    expect_feed: {removed: []}", 4, "no such option", "the options are insert,"),
    ("cases:\n  a:\n    rows: []", 2, "is missing", ""),
    ("cases: [a", 1, "not YAML", ""),
)
def test_a_slip_in_the_form_is_named(
    tmp_path: Path, file: PipelineFile, text: str, line: int, problem: str, hint: str
) -> None:
    path = tmp_path / "a.test.yml"
    path.write_text(text)
    with pytest.raises(PipelineFileError) as refused:
        read_cases([path], file, known(""))
    assert any(
        (fault.line or 1, fault.hint.startswith(hint)) == (line, True) and problem in fault.problem
        for fault in refused.value.faults
    ), refused.value.message
    assert refused.value.faults[0].path.startswith("a.test.yml")


@cases(
    "data_type, fit, unfit",
    ("int", [1, None], [1.5, "1", True, date(2026, 1, 1)]),
    ("decimal(10, 2)", [1, 12.5, "12.50"], ["twelve", True]),
    ("double", [1, float("nan"), "1e3"], ["x", []]),
    ("string", ["x", "1"], [1, True, date(2026, 1, 1)]),
    ("boolean", [True], [1, "true"]),
    ("date", [date(2026, 1, 2), "2026-01-02"], [datetime(2026, 1, 2), "tomorrow", 3]),
    ("timestamp", [datetime(2026, 1, 2), date(2026, 1, 2), "2026-01-02 10:00:00"], ["noon", 3]),
    ("binary", ["0AFF"], ["xyz", 1]),
    ("array<int>", [[1]], [1, {}]),
    ("struct<a: int>", [{"a": 1}], [1, []]),
    ("interval day", ["1"], []),
)
def test_a_value_fits_its_type_or_is_a_fault(data_type: str, fit: list[Any], unfit: list[Any]) -> None:
    """A value that YAML reads as something else is not turned into a string in silence."""
    assert [value for value in fit if misfit_of(value, data_type)] == []
    assert [value for value in unfit if not misfit_of(value, data_type)] == []
    assert misfit_of(7, "string") == ("`7` is not a value of type string", "put it in quotes")


def test_char_is_refused_with_a_way_around(tmp_path: Path, file: PipelineFile) -> None:
    text = "columns: {orders: {id: int, code: char(3), name: varchar(3)}}\ncases: {a: {join: paid, expect: []}}"
    ((_, problem),) = faults(tmp_path / "a.test.yml", file, text)
    assert problem == "`orders.code` is of type char(3), which cases do not support"


def test_files_of_cases_belong_to_the_pipeline_file_whose_name_they_begin_with(tmp_path: Path) -> None:
    names = ["lakejoin.yml", "lakejoin.test.yml", "lakejoin.late.test.yml", "other.test.yml", "lakejoin.test.yaml"]
    for name in names:
        (tmp_path / name).touch()
    assert [path.name for path in case_files(tmp_path / "lakejoin.yml")] == [names[2], names[1]]
