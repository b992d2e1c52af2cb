"""A pipeline file is read whole, or refused with everything that is wrong with it."""

from pathlib import Path

import pytest

from lakehouse.errors.errors import PipelineFileError
from pipelines.language import Join, PipelineFile, Source, Storage, find, load
from pipelines.language.file.options import RULES
from tests.cases import cases

GOOD = """
pipeline: flights
storage: {path: ./lake}
sources:
  flights: {key: flight_id}
  status: {key: [flight_id], table: main.a.status}
joins:
  flight_status:
    sql: SELECT f.*, s.state FROM flights f LEFT JOIN status s ON f.flight_id = s.flight_id
"""


def written(folder: Path, text: str | bytes) -> Path:
    path = folder / "lakejoin.yml"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def faults(folder: Path, text: str | bytes) -> list[str]:
    with pytest.raises(PipelineFileError) as caught:
        load(written(folder, text))
    assert caught.value.exit_code == 2
    return [str(fault).replace("\n    next: ", " | ") for fault in caught.value.faults]


def test_a_good_file(tmp_path):
    assert load(written(tmp_path, GOOD)) == PipelineFile(
        pipeline="flights",
        storage=Storage(path="./lake"),
        sources={"flights": Source(key=("flight_id",)), "status": Source(key=("flight_id",), table="main.a.status")},
        joins={
            "flight_status": Join(
                sql="SELECT f.*, s.state FROM flights f LEFT JOIN status s ON f.flight_id = s.flight_id",
                semantics="strict",
                changelog=False,
                refresh="auto",
                on_failed_gate="fail",
                expectations=[],
            )
        },
        timezone="UTC",
        optimizations="all",
    )


def test_all_that_the_file_can_say(tmp_path):
    """Options with other values than the defaults, and the other form of storage."""
    text = GOOD.replace("{path: ./lake}", "{schema: main.a, stage: /Volumes/x}") + "    refresh: full\n"
    text += "    on_failed_gate: warn\n    changelog: false\n    semantics: strict\n    expectations: []\n"
    file = load(written(tmp_path, "\ufeff" + text + "timezone: Europe/Oslo\noptimizations: none\n"))
    assert (file.storage.schema_name, file.storage.stage, file.storage.path) == ("main.a", "/Volumes/x", None)
    assert (file.joins["flight_status"].refresh, file.joins["flight_status"].on_failed_gate) == ("full", "warn")
    assert (file.timezone, file.optimizations) == ("Europe/Oslo", "none")


@cases(
    "written_as, used",
    ("all", {"single_store_self_join", "share_change_reads"}),
    ("none", set()),
    ("[share_change_reads]", {"share_change_reads"}),
    ("[share_change_reads, single_store_self_join]", {"single_store_self_join", "share_change_reads"}),
)
def test_optimizations_say_which_rules_are_used(tmp_path, written_as, used):
    file = load(written(tmp_path, GOOD + f"optimizations: {written_as}\n"))
    assert {rule for rule in RULES if file.uses(rule)} == used


def test_all_rules_are_used_without_being_asked_for(tmp_path):
    file = load(written(tmp_path, GOOD))
    assert all(file.uses(rule) for rule in RULES)


def test_a_rule_may_be_a_variable(tmp_path):
    """Its value is checked like one that is written."""
    path = written(tmp_path, GOOD + "optimizations: ['${var.rule}']\n")
    assert load(path, {"rule": "share_change_reads"}).optimizations == ("share_change_reads",)
    with pytest.raises(PipelineFileError, match="unknown rule `share_reads`"):
        load(path, {"rule": "share_reads"})
    with pytest.raises(PipelineFileError) as caught:
        load(path)
    assert ["rule" in fault.problem and "no value" in fault.problem for fault in caught.value.faults] == [True]


@cases(
    "text",
    b"a: \x01",
    b"a: &x [*x]",
    b"? [a, {b: c}]\n: d",
    b"a: !!timestamp x",
    b"a: !!bool x",
    b"a: 2024-99-99",
    b"[" * 5000,
    b"a: " + b"9" * 5000,
    b"\xff\xfea",
)
def test_what_is_no_pipeline_file(tmp_path, text):
    """Bad content is one fault of the file whatever it is; the likelier kinds are in the folder `wrong`."""
    assert len(faults(tmp_path, text)) == 1


def test_a_source_at_fault_does_not_hide_the_faults_of_statements(tmp_path):
    """Its name is known all the same, and the functions and the other names are looked at."""
    text = (
        GOOD.replace("{key: flight_id}", "{key: []}")
        .replace("s.state", "nope(s.state) AS x")
        .replace("status s", "stats s")
    )
    found = faults(tmp_path, text)
    assert [fault.split(" ")[0] for fault in found] == ["sources.flights.key", *["joins.flight_status.sql"] * 2]
    assert "`nope`" in found[1]
    assert "unknown source `stats`" in found[2]


def test_what_must_fit_together_is_told_beside_what_is_wrong_by_itself(tmp_path):
    """The form of storage, options that exclude each other and names that are taken, each once."""
    text = (
        GOOD.replace("{path: ./lake}", "{path: 5, schema: main.a}")
        .replace("flights: {key: flight_id}", "flights: {key: flight_id, table: a, path: b, kind: strem}")
        .replace("flight_status:", "Status:\n    refresh: often")
    )
    assert [fault.split(":")[0] for fault in faults(tmp_path, text)] == [
        "storage.path (line 3)",
        "storage (line 3)",
        "sources.flights.kind (line 5)",
        "sources.flights (line 5)",
        "joins.Status (line 8)",
        "joins.Status.refresh (line 9)",
    ]


@cases(
    "text, said",
    ("a: 1\nb: \x00", "(line 2): not YAML: the character U+0000"),
    ("a: 1\n\nb: '\x1b[31m'", "(line 3): not YAML: the character U+001B"),
    ("a: 1\nb: !!int x", "(line 2): not YAML: `x` cannot be read as int"),
    ("a: 1\nb: 2024-99-99", "(line 2): not YAML: `2024-99-99` cannot be read as timestamp"),
    ('a: 1\nb: "\\UFFFFFFFF"', "(line 2): not YAML: "),
)
def test_what_yaml_cannot_read_has_its_line(tmp_path, text, said):
    """In words that are not Python's."""
    (fault,) = faults(tmp_path, text)
    assert fault.startswith(f"lakejoin.yml {said}")


@pytest.mark.parametrize(("header", "line"), [("sql: |", 10), ("sql: |-", 10), ("sql: >", 8), ("sql:", 9)])
def test_a_fault_of_a_statement_names_its_line(tmp_path, header, line):
    """In a block of lines the very line, where YAML folds lines that on which the statement begins."""
    body = "\n".join(["SELECT f.flight_id,", "  nope(1) AS x", "FROM flights f JOIN status s USING (flight_id)"])
    folder = GOOD.split("    sql:")[0].lstrip("\n")
    text = folder + f"    {header}\n" + "".join(f"      {row}\n" for row in body.split("\n"))
    with pytest.raises(PipelineFileError) as caught:
        load(written(tmp_path, text))
    assert [fault.line for fault in caught.value.faults] == [line]


@pytest.mark.parametrize("name", ["missing.yml", "missing/lakejoin.yml", "."])
def test_a_file_that_cannot_be_read(tmp_path, name):
    with pytest.raises(PipelineFileError, match="cannot be read"):
        load(tmp_path / name)


def test_the_file_is_found_in_the_folder_or_above(tmp_path):
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    path = written(tmp_path, GOOD)
    assert find(tmp_path) == path
    assert find(below) == path
    nearer = written(below.parent, GOOD)
    assert find(below) == nearer


def test_no_file_is_found(tmp_path):
    with pytest.raises(PipelineFileError, match=r"lakejoin.yml: not found in this folder"):
        find(tmp_path)
