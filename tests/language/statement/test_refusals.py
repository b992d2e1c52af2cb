"""A message shows the shortest statement that is taken and means the same, or says that none does."""

import random
import re
from pathlib import Path

import duckdb
import pytest
from sqlglot import parse_one

from pipelines.language import load, statement_of
from pipelines.language.sql.dialect import Verbatim
from tests.cases import cases
from tests.language.examples import ON, refusals, taken_apart
from tests.pipeline_files import write

NONE = "no join means the same"
FLIGHTS = "SELECT f.* FROM flights f"
DEPARTURES = "SELECT d.* FROM departures d"
MEANS_THE_SAME = (
    (
        f"{DEPARTURES} WHERE EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = d.tailnum AND p.seats > 1)",
        "write JOIN planes p ON p.tailnum = d.tailnum AND p.seats > 1",
        f"{DEPARTURES} JOIN planes p ON p.tailnum = d.tailnum AND p.seats > 1",
    ),
    (
        f"{DEPARTURES} WHERE d.delay = 1 AND NOT EXISTS (SELECT 1 FROM planes p WHERE p.tailnum = d.tailnum)",
        "write LEFT JOIN planes p ON p.tailnum = d.tailnum, and p.tailnum IS NULL instead of the condition",
        f"{DEPARTURES} LEFT JOIN planes p ON p.tailnum = d.tailnum WHERE d.delay = 1 AND p.tailnum IS NULL",
    ),
    (
        f"{DEPARTURES} WHERE d.delay = 1 OR EXISTS (SELECT * FROM planes p WHERE p.tailnum = d.tailnum)",
        "write LEFT JOIN planes p ON p.tailnum = d.tailnum, and p.tailnum IS NOT NULL instead of the condition",
        f"{DEPARTURES} LEFT JOIN planes p ON p.tailnum = d.tailnum WHERE d.delay = 1 OR p.tailnum IS NOT NULL",
    ),
    (
        "SELECT * FROM departures d WHERE d.tailnum IN (SELECT tailnum FROM planes WHERE seats > 0)",
        "write JOIN planes ON d.tailnum = planes.tailnum AND seats > 0; with `d.*` instead of `*`",
        f"{DEPARTURES} JOIN planes ON d.tailnum = planes.tailnum AND seats > 0",
    ),
    (
        "SELECT f.*, (SELECT s.state FROM status s WHERE s.flight_id = f.flight_id) AS x FROM flights f",
        "write LEFT JOIN status s ON s.flight_id = f.flight_id, and s.state instead of the subquery",
        "SELECT f.*, s.state AS x FROM flights f LEFT JOIN status s ON s.flight_id = f.flight_id",
    ),
    (
        "SELECT * FROM departures d LEFT SEMI JOIN planes p ON d.tailnum = p.tailnum AND p.seats > 0",
        "write JOIN planes p ON d.tailnum = p.tailnum AND p.seats > 0; with `d.*` instead of `*`",
        f"{DEPARTURES} JOIN planes p ON d.tailnum = p.tailnum AND p.seats > 0",
    ),
    (
        f"{DEPARTURES} LEFT ANTI JOIN planes p ON d.tailnum = p.tailnum",
        "write LEFT JOIN planes p ON d.tailnum = p.tailnum, and p.tailnum IS NULL in WHERE",
        f"{DEPARTURES} LEFT JOIN planes p ON d.tailnum = p.tailnum WHERE p.tailnum IS NULL",
    ),
    (
        f"{DEPARTURES} LEFT SEMI JOIN status s USING (flight_id)",
        "write JOIN status s USING (flight_id)",
        f"{DEPARTURES} JOIN status s USING (flight_id)",
    ),
    (
        "SELECT DISTINCT f.flight_id, p.seats FROM flights f JOIN planes p ON f.tailnum = p.tailnum",
        "leave it out if SELECT has the key of the result",
        "SELECT f.flight_id, p.seats FROM flights f JOIN planes p ON f.tailnum = p.tailnum",
    ),
)
"""Refused statements, what the messages say, and the statements that these mean."""


def a_database(dice: random.Random) -> duckdb.DuckDBPyConnection:
    """Fill the tables with few values and many nulls, and none in a key."""
    database = duckdb.connect()
    for name, key, columns in (
        ("flights", "flight_id", ["tailnum", "delay"]),
        ("departures", "flight_id", ["tailnum", "delay"]),
        ("status", "flight_id", ["state"]),
        ("planes", "tailnum", ["seats"]),
    ):
        database.execute(f"CREATE TABLE {name} ({', '.join(f'{column} INT' for column in (key, *columns))})")
        for number in dice.sample(range(6), dice.randint(1, 5)):
            values = [number, *(dice.choice([None, 0, 1, 2, 3]) for _ in columns)]
            database.execute(f"INSERT INTO {name} VALUES ({', '.join('?' * len(values))})", values)
    return database


def rows(database: duckdb.DuckDBPyConnection, sql: str) -> list[tuple[object, ...]]:
    return sorted(database.execute(parse_one(sql, read=Verbatim).sql("duckdb")).fetchall(), key=repr)


@cases("refused, hint, shown", *MEANS_THE_SAME)
def test_what_a_message_shows_is_taken_and_means_the_same(refused, hint, shown):
    (fault,) = refusals(refused)
    assert hint in fault.split(" | ")[1]
    assert refusals(shown) == []
    dice, found = random.Random(refused), 0
    for _ in range(40):
        database = a_database(dice)
        expected = rows(database, refused)
        assert rows(database, shown) == expected
        found += bool(expected)
    assert found > 5


def on_the_page() -> list[tuple[str, str]]:
    """Return the statements of the page, each with what it says to write instead."""
    page = (Path(__file__).parents[3] / "conf" / "joins.md").read_text()
    section = page.split("### Subqueries, semi and anti joins", 1)[1].split("\n### ", 1)[0]
    rows_of_table = [line for line in section.splitlines() if line.startswith("| `")]
    return [(one, other) for one, other in (re.findall(r"`([^`]+)`", row) for row in rows_of_table)]


@cases("refused, shown", *on_the_page())
def test_what_the_page_says_to_write_is_taken_and_means_the_same(refused, shown):
    assert refusals(refused)
    assert refusals(shown) == []
    for number in range(20):
        database = a_database(random.Random(number))
        assert rows(database, shown) == rows(database, refused)


def test_not_in_says_what_it_does_to_nulls():
    """NOT IN with a null on the left is never true, unless the subquery is empty; the join keeps such a row."""
    (fault,) = refusals(f"{DEPARTURES} WHERE d.tailnum NOT IN (SELECT tailnum FROM planes)")
    assert "planes.tailnum IS NULL instead of the condition: it keeps rows without d.tailnum, which NOT IN" in fault


@cases(
    "sql, named, hint",
    ("SELECT * FROM departures d", "the only input", "CREATE VIEW ... AS SELECT ... FROM departures"),
    (f"{DEPARTURES} WHERE EXISTS (SELECT 1 FROM status s WHERE s.state = d.at)", "EXISTS", "equal in state, declare"),
    (f"{DEPARTURES} WHERE EXISTS (SELECT 1 FROM status)", "EXISTS", NONE),
    (f"{FLIGHTS} WHERE EXISTS (SELECT 1 FROM airlines a WHERE a.carrier = f.carrier)", "EXISTS", NONE),
    (
        f"{DEPARTURES} WHERE EXISTS (SELECT 1 FROM status d WHERE d.flight_id = tailnum)",
        "EXISTS",
        "give status in the subquery an alias of its own",
    ),
    (
        f"{FLIGHTS} WHERE f.tailnum IN (SELECT p.tailnum FROM planes p JOIN planes q ON p.x = q.tailnum)",
        "subqueries",
        "make what the subquery joins a join of its own under `joins:`",
    ),
    (f"{DEPARTURES} WHERE d.tailnum IN (SELECT p.maker FROM planes p)", "subqueries", "equal in maker, declare that"),
    (f"SELECT f.*, (SELECT max(s.state) FROM status s) AS x {ON[:14]}", "subqueries", NONE),
    (f"{DEPARTURES} LEFT SEMI JOIN status s ON d.at = s.state", "SEMI JOIN", "are equal in state, declare"),
    (f"{DEPARTURES} LEFT ANTI JOIN status s ON d.delay > s.state", "ANTI JOIN", NONE),
    (
        "SELECT h.* FROM flights f LEFT ANTI JOIN status s ON f.flight_id = s.flight_id "
        "RIGHT JOIN hubs h ON f.flight_id = h.hub",
        "ANTI JOIN before a RIGHT JOIN",
        "make the part before it a join of its own",
    ),
    (f"{FLIGHTS} ASOF JOIN planes p ON f.tailnum = p.tailnum AND f.at >= p.at", "ASOF JOIN", "AND o.day < p.valid_to"),
    (
        f"{FLIGHTS} ASOF JOIN planes p MATCH_CONDITION (f.at >= p.at) ON f.tailnum = p.tailnum",
        f"ASOF JOIN is not supported: {NONE}",
        "store until when each row is valid",
    ),
    (f"{FLIGHTS} UNION ALL {FLIGHTS}", NONE, "SELECT * FROM <first> UNION ALL SELECT * FROM <second>"),
    (f"{FLIGHTS} UNION {FLIGHTS}", NONE, "SELECT * FROM <first> UNION SELECT * FROM <second>"),
    (f"{FLIGHTS} EXCEPT {FLIGHTS}", NONE, "SELECT * FROM <first> EXCEPT SELECT * FROM <second>"),
    (f"SELECT DISTINCT s.state {ON}", "DISTINCT", f"else {NONE}"),
    (f"SELECT explode(f.hops) AS hop, f.flight_id {ON}", "`explode` produces several rows", NONE),
)
def test_a_message_says_that_none_means_the_same(sql, named, hint):
    """Or by what else the rows can be had."""
    faults = [fault for fault in refusals(sql) if named in fault]
    assert any(hint in fault for fault in faults), refusals(sql)


@cases(
    "items",
    "count(*) AS n",
    "s.state, count(*) AS n",
    "max(s.since) + 1 AS newest",
    "DISTINCT s.state",
)
def test_groups_are_not_told_to_add_a_key(items):
    """A key would make other groups; the one fault is that groups are not joins."""
    (fault,) = refusals(f"SELECT {items} {ON}")
    assert NONE in fault
    assert "key" not in fault.split(" | ")[0]


def test_a_validity_is_not_told_to_have_a_key_of_its_own():
    """Several rows of prices have one product, so their key is not the product alone."""
    sql = "SELECT f.flight_id FROM flights f LEFT JOIN planes p ON f.carrier = p.carrier AND f.at >= p.since{}"
    for until in (" AND f.at < p.until", "", " AND (f.at < p.until OR p.until IS NULL)"):
        (fault,) = refusals(sql.format(until))
        assert "add `p.tailnum` as a column of its own" in fault
        assert "declare that as its `key:`" not in fault
    (fault,) = refusals("SELECT f.flight_id FROM flights f LEFT JOIN planes p ON f.at BETWEEN p.since AND p.until")
    assert "would have to be compared with every row of the other side" in fault
    assert taken_apart(sql.format(" AND f.at < p.until").replace("f.flight_id ", "f.flight_id, p.tailnum "))


@pytest.mark.parametrize("how", ["RIGHT", "FULL"])
def test_an_outer_join_after_many_to_many_is_a_join_of_its_own(tmp_path: Path, how: str):
    """An inner or left join would lose the rows that it keeps; the two joins of the message are taken."""
    many = "SELECT f.flight_id, s.flight_id AS other, f.tailnum FROM flights f JOIN status s ON f.carrier = s.state"
    (fault,) = refusals(f"{many} {how} JOIN planes p ON p.tailnum = f.tailnum")
    assert f"the second one reads its result: FROM <first> {how} JOIN planes ON ..." in fault
    second = f"SELECT x.flight_id, x.other, p.tailnum FROM first x {how} JOIN planes p ON p.tailnum = x.tailnum"
    keys = {"flights": "flight_id", "status": "flight_id", "planes": "tailnum"}
    file = load(write(tmp_path / "lakejoin.yml", keys, {"first": many, "second": second}))
    assert statement_of(file, "second").kind == "many-to-many"
