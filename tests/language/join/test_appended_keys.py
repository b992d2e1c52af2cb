"""`key_columns: append` adds the key columns that the SELECT list lacks."""

from pathlib import Path
from typing import Any

import pytest

from lakehouse.errors.errors import PipelineFileError
from pipelines.commands.explain import explain
from pipelines.language import PipelineFile, Source, bind, fingerprint, load, parse, statement_of
from tests.cases import cases
from tests.language.examples import COLUMNS, SOURCES
from tests.pipeline_files import write

KEYS = {"flights": "flight_id", "status": "flight_id", "planes": "tailnum", "legs": ["day", "number"]}
KEYS |= {"crews": ["num", "on_day"]}
TWO = "FROM flights f {} status s ON f.flight_id = s.flight_id"
PAIRED = "FROM flights f LEFT JOIN status s ON f.carrier = s.state"


def appended(sql: str) -> list[str]:
    """The result columns that a statement does not select, each with its expression."""
    query = bind(parse("j", sql, SOURCES, appends_keys=True), COLUMNS)
    count = len(parse("j", sql, SOURCES, appends_keys=True).appended)
    return [f"{output.expression} AS {output.name}".replace("`", "") for output in query.outputs[-count:] if count]


@cases(
    "sql, columns",
    (f"SELECT s.state {TWO.format('JOIN')}", ["f.Flight_ID AS flight_id"]),
    (f"SELECT s.state {TWO.format('RIGHT JOIN')}", ["s.flight_id AS flight_id"]),
    (f"SELECT s.state {TWO.format('FULL JOIN')}", ["coalesce(f.Flight_ID, s.flight_id) AS flight_id"]),
    (f"SELECT f.* {TWO.format('FULL JOIN')}", ["coalesce(f.Flight_ID, s.flight_id) AS flight_id_key"]),
    (f"SELECT f.flight_id + 1 AS flight_id {TWO.format('JOIN')}", ["f.Flight_ID AS f_flight_id"]),
    (
        f"SELECT f.tailnum AS f_flight_id, s.flight_id + 1 AS flight_id {TWO.format('JOIN')}",
        ["f.Flight_ID AS f_flight_id_key"],
    ),
    (f"SELECT s.state, s.flight_id {TWO.format('JOIN')}", []),
    ("SELECT p.seats FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum", ["f.Flight_ID AS flight_id"]),
    (
        "SELECT p.seats, s.state FROM flights f JOIN planes p ON f.tailnum = p.tailnum "
        "JOIN status s ON f.flight_id = s.flight_id",
        ["f.Flight_ID AS flight_id"],
    ),
    ("SELECT l.day, c.pilot FROM legs l JOIN crews c ON l.day = c.on_day AND l.number = c.num", ["l.number AS number"]),
    (f"SELECT f.delay {PAIRED}", ["f.Flight_ID AS f_flight_id", "s.flight_id AS s_flight_id"]),
    (f"SELECT f.*, s.state {PAIRED}", ["s.flight_id AS s_flight_id"]),
    (
        "SELECT f.delay FROM planes p LEFT JOIN flights f ON f.tailnum = p.tailnum",
        ["p.tailnum AS tailnum", "f.Flight_ID AS flight_id"],
    ),
    ("SELECT f.delay FROM flights f, planes p WHERE f.tailnum = p.tailnum", ["f.Flight_ID AS flight_id"]),
    (
        "SELECT s.state FROM flights f FULL JOIN status s USING (flight_id)",
        ["coalesce(f.Flight_ID, s.flight_id) AS flight_id"],
    ),
)
def test_every_kind_of_join_of_tables_appends_what_it_lacks(sql, columns):
    """Table-table, foreign key, star and many to many, under a name that nothing else has."""
    assert [column.replace("COALESCE", "coalesce") for column in appended(sql)] == columns


def a_file(folder: Path, sql: str, **options: Any) -> PipelineFile:
    return load(write(folder / "lakejoin.yml", KEYS, {"j": {"sql": sql, **options}}))


def test_the_definition_is_that_of_the_columns_written_by_hand(tmp_path):
    """The option says how the statement is written, not what the result is."""
    short = a_file(tmp_path, f"SELECT f.delay {PAIRED}", key_columns="append")
    long = a_file(tmp_path, f"SELECT f.delay, f.flight_id AS f_flight_id, s.flight_id AS s_flight_id {PAIRED}")
    assert fingerprint(short, "j") == fingerprint(long, "j")
    assert statement_of(short, "j").key == ("f_flight_id", "s_flight_id")
    with pytest.raises(PipelineFileError, match="or set `key_columns: append`"):
        a_file(tmp_path, f"SELECT f.delay {PAIRED}", key_columns="select")


def test_explain_shows_the_appended_columns(tmp_path):
    told = explain(a_file(tmp_path, f"SELECT f.delay {PAIRED}", key_columns="append"), "j")
    note = "key_columns append: the result also has `f.flight_id AS f_flight_id`, `s.flight_id AS s_flight_id`"
    assert note in told.notes
    assert told.key == ("f.flight_id", "s.flight_id")
    told = explain(a_file(tmp_path, f"SELECT f.*, s.flight_id AS other {PAIRED}", key_columns="append"), "j")
    assert not [note for note in told.notes if "key_columns" in note]


def test_other_joins_read_the_appended_key(tmp_path):
    """Its name is the key of the result for them."""
    joins = {
        "one": {"sql": "SELECT p.seats FROM flights f JOIN planes p ON f.tailnum = p.tailnum", "key_columns": "append"},
        "two": "SELECT o.*, s.state FROM one o LEFT JOIN status s ON o.flight_id = s.flight_id",
    }
    file = load(write(tmp_path / "lakejoin.yml", KEYS, joins))
    assert statement_of(file, "two").kind == "table-table"
    assert statement_of(file, "two").key == ("flight_id",)


def test_a_stream_has_no_key_to_append(tmp_path):
    sources = {"clicks": {"key": "id", "kind": "stream"}, "planes": "tailnum"}
    join = {"sql": "SELECT c.id, p.seats FROM clicks c JOIN planes p ON c.tailnum = p.tailnum", "key_columns": "append"}
    with pytest.raises(PipelineFileError, match="is a stream, which has no key"):
        load(write(tmp_path / "lakejoin.yml", sources, {"j": join}))


def test_a_name_that_only_the_schema_shows_to_be_taken_is_given_by_hand():
    """A star may select any column, and the name of a result column does not depend on that."""
    sql = "SELECT p.*{} FROM flights f JOIN planes p ON f.tailnum = p.tailnum"
    columns = {**COLUMNS, "planes": ["tailnum", "Flight_Id"]}
    with pytest.raises(PipelineFileError) as caught:
        bind(parse("j", sql.format(""), SOURCES, appends_keys=True), columns)
    (fault,) = caught.value.faults
    assert "two outputs are called `flight_id`, of which `key_columns: append` adds one" in fault.problem
    assert fault.hint == "select the key column under another name"
    assert bind(parse("j", sql.format(", f.flight_id AS id"), SOURCES, appends_keys=True), columns).key == ("id",)


def test_odd_names_are_quoted():
    """What an advice shows can be typed."""
    sources = {"a": Source(key="order id"), "b": Source(key="select")}
    statement = parse("j", "SELECT b.x FROM a, b WHERE a.y = b.z", sources, appends_keys=True)
    assert statement.key == ("order id", "select")
    with pytest.raises(PipelineFileError) as caught:
        parse("j", "SELECT b.x FROM a, b WHERE a.y = b.z", sources)
    hints = [fault.hint.split(" as a column")[0] for fault in caught.value.faults]
    assert hints == ["add ``a`.`order id``", "add ``b`.`select``"]
