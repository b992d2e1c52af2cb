"""A pipeline file is read whole, or refused with everything that is wrong with it."""

from pathlib import Path

import pytest

from lakehouse.errors import PipelineFileError
from pipelines.spec import Join, PipelineFile, Source, Storage, find, load

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
    """Defaults are filled in, and a key is always a tuple."""
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


def test_all_faults_at_once(tmp_path):
    """Faults of options do not hide those of statements, nor one statement's those of another."""
    text = """
pipeline: a/b
storage: {}
sources:
  flights: {kye: flight_id}
  status: {key: flight_id, key: id}
joins:
  one: {sql: SELECT now() FROM flights f JOIN status s USING (flight_id), refresh: often}
  two: {sql: SELECT * FROM flights LIMIT 1}
  three: {changelog: 'yes'}
timezone: Mars/Olympus
"""
    found = faults(tmp_path, text)
    for start in [
        "line 6: `key` is written twice",
        "pipeline: the name `a/b` holds",
        "storage: storage is either `path`, or `schema` together with `stage`",
        "sources.flights.key: is missing",
        "sources.flights.kye: no such option | did you mean `key`?",
        "joins.one.refresh: 'auto', 'incremental' or 'full'",
        "joins.one.sql: SELECT: `now`",
        "joins.two.sql: LIMIT",
        "joins.three.sql: is missing",
        "joins.three.changelog: ",
        "timezone: `Mars/Olympus` is no time zone name",
    ]:
        assert any(fault.startswith(start) for fault in found), (start, found)
    assert len(found) == 11


@pytest.mark.parametrize(
    ("replaced", "by", "fault"),
    [
        ("flight_status:", "flights:", "joins: `flights` names a source and a join"),
        ("flight_status:", "Status:", "joins: `status` and `Status` differ only in case"),
        ("flight_status:", "lakejoin_ledger:", "joins.lakejoin_ledger: the name `lakejoin_ledger` is reserved"),
        ("flight_status:", "a__state:", "joins.a__state: the name `a__state` ends as the tables"),
        ("flight_status:", "A__ChangeLog:", "joins.A__ChangeLog: the name"),
        ("flight_status:", "../up:", "joins.../up: the name `../up` holds `/`"),
        ("flight_status:", "'':", "joins.: a name must not be empty"),
        ("flight_status:", "1:", "joins.1: must be a text | put it in quotes"),
        ("  flights: {", "  a/b: {", "sources.a/b: the name"),
        ("key: flight_id}", "key: on}", "sources.flights.key: a key is one column name or a list"),
        ("key: flight_id}", "key: []}", "sources.flights.key: a key needs at least one column"),
        ("key: flight_id}", "key: [a, A]}", "sources.flights.key: a column is in the key twice"),
        ("key: flight_id}", "key: flight_id, path: x, table: y}", "sources.flights: a source has `table` or `path`"),
        ("key: flight_id}", "key: flight_id, kind: topic}", "sources.flights.kind: 'table', 'global_table'"),
        (
            "key: flight_id}",
            "key: flight_id, order_by: x}",
            "sources.flights: `order_by` of a table is not yet",
        ),
        ("key: flight_id}", "key: x, watermarks: {a: b}}", "sources.flights: `watermarks`: not an option of a source"),
        ("{key: flight_id}", "flight_id", "sources.flights: must be a mapping"),
        ("{path: ./lake}", "{path: a, schema: b, stage: c}", "storage: storage is either"),
        ("{path: ./lake}", "{schema: b}", "storage: storage is either"),
        ("{path: ./lake}", "{shcema: b, stage: c}", "storage.shcema: no such option | did you mean `schema`?"),
        ("    sql:", "    semantics: kafka\n    sql:", "joins.flight_status.semantics: semantics other than strict is"),
        ("    sql:", "    changelog: true\n    sql:", "joins.flight_status.changelog: the exact changelog"),
        ("    sql:", "    expectations: [{e: {column: a}}]\n    sql:", "joins.flight_status.expectations: a gate of"),
        ("    sql:", "    cap: 5\n    sql:", "joins.flight_status.cap: no such option"),
        ("pipeline: flights", "pipeline: p\noptimizations: [a]", "optimizations: optimizations by name are not yet"),
        ("pipeline: flights", "pipeline: p\ntimezone: Europe/Olso", "timezone: `Europe/Olso` is no time zone name"),
        ("pipeline: flights", "pipeline: p\ntimezone: Europe", "timezone: `Europe` is no time zone name"),
        ("pipeline: flights", "pipelines: p", "pipelines: no such option | did you mean `pipeline`?"),
        ("FROM flights f", "FROM flight_status f", "joins.flight_status.sql: FROM: `flight_status` is a join: a chain"),
        ("FROM flights f", "FROM flihgts f", "joins.flight_status.sql: FROM: there is no source `flihgts` | did you"),
    ],
)
def test_faults_of_the_file(tmp_path, replaced, by, fault):
    """Each names its place, what is wrong, and what is near."""
    text = GOOD.replace(replaced, by, 1)
    assert text != GOOD
    assert any(found.startswith(fault) for found in faults(tmp_path, text)), faults(tmp_path, text)


def test_what_is_not_yet_supported_says_so(tmp_path):
    """Every option of the design that is not built is recognised."""
    text = GOOD.replace(
        "    sql:", "    semantics: kafka-0.10.2\n    changelog: true\n    expectations: [{e: {}}]\n    sql:"
    )
    found = faults(tmp_path, text + "optimizations: [one]\n")
    assert len(found) == 4
    assert all("not yet supported" in fault for fault in found)


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ("", "lakejoin.yml: is empty"),
        ("# nothing", "lakejoin.yml: is empty"),
        ("[1, 2]", "lakejoin.yml: holds a list"),
        ("text", "lakejoin.yml: holds a str"),
        ("a: [1", "line 1: not YAML"),
        ("a: b\n\tc: d", "line 2: not YAML"),
        ("a: 1\n---\nb: 2", "line 2: not YAML"),
        (b"a: \xff\xfe", "lakejoin.yml: is not UTF-8 at byte 3"),
        ("a: \x01", "lakejoin.yml: not YAML"),
        ("a: &x [1]\nb: *x", "line 2: not YAML: an alias"),
        ("a: &x [*x]", "line 1: not YAML: an alias"),
        ("? [a, {b: c}]\n: d", "line 1: not YAML"),
        ("a: !!int x", "lakejoin.yml: not YAML"),
        ("a: !!timestamp x", "lakejoin.yml: not YAML"),
        ("a: !!bool x", "lakejoin.yml: not YAML"),
        ("a: 2024-99-99", "lakejoin.yml: not YAML"),
        ("a: !!python/object:os.system x", "line 1: not YAML"),
        ("[" * 5000, "lakejoin.yml: is nested too deep"),
        ("a: " + "[" * 5000 + "]" * 5000, "lakejoin.yml: is nested too deep"),
        ("a: " + "9" * 5000, "lakejoin.yml: not YAML"),
    ],
)
def test_what_is_no_pipeline_file(tmp_path, text, fault):
    """Bad content is a fault of the file whatever it is."""
    (found,) = faults(tmp_path, text)
    assert found.startswith(fault)


@pytest.mark.parametrize("name", ["missing.yml", "missing/lakejoin.yml", "."])
def test_a_file_that_cannot_be_read(tmp_path, name):
    """A missing file and a folder are faults too."""
    with pytest.raises(PipelineFileError, match="cannot be read"):
        load(tmp_path / name)


def test_the_file_is_found_in_the_folder_or_above(tmp_path):
    """The nearest one counts."""
    below = tmp_path / "a" / "b"
    below.mkdir(parents=True)
    path = written(tmp_path, GOOD)
    assert find(tmp_path) == path
    assert find(below) == path
    nearer = written(below.parent, GOOD)
    assert find(below) == nearer


def test_no_file_is_found(tmp_path):
    """The message names what was looked for."""
    with pytest.raises(PipelineFileError, match=r"lakejoin.yml: not in this folder"):
        find(tmp_path)
