"""Commas and CROSS JOIN whose equalities stand in WHERE are inner joins."""

import random

import duckdb
import pytest
from sqlglot import exp

from pipelines.language import Source
from pipelines.language.sql.dialect import as_written, render
from pipelines.language.sql.syntax import read
from pipelines.language.statement.parse import read_inputs
from tests.cases import cases
from tests.language.examples import bound, misfits, refusals, taken_apart

TABLES = {name: Source(key="id") for name in ("a", "b", "c", "d")}


def conditions(sql: str) -> tuple[list[tuple[str, str, str]], str]:
    """The type, the condition and its clause of each JOIN, and what remains of WHERE."""
    statement = taken_apart(sql)
    where = "" if statement.where is None else as_written(statement.where)
    return [(step.how, as_written(step.on), step.clause) for step in statement.steps], where


@cases(
    "written, joined",
    (
        "FROM flights f, planes p WHERE f.tailnum = p.tailnum",
        "FROM flights f JOIN planes p ON f.tailnum = p.tailnum",
    ),
    (
        "FROM flights f CROSS JOIN status s WHERE f.delay > 5 AND f.flight_id = s.flight_id AND s.since > f.at",
        "FROM flights f JOIN status s ON f.flight_id = s.flight_id WHERE f.delay > 5 AND s.since > f.at",
    ),
    (
        "FROM flights f JOIN status s WHERE (f.x = 1 OR f.y = 2) AND (f.flight_id = s.flight_id)",
        "FROM flights f JOIN status s ON f.flight_id = s.flight_id WHERE f.x = 1 OR f.y = 2",
    ),
    (
        "FROM flights f JOIN status s ON TRUE WHERE f.flight_id <=> s.flight_id",
        "FROM flights f JOIN status s ON f.flight_id <=> s.flight_id",
    ),
    (
        "FROM legs l, crews c WHERE c.num = l.number AND l.miles > 5 AND l.day = c.on_day",
        "FROM legs l JOIN crews c ON c.num = l.number AND l.day = c.on_day WHERE l.miles > 5",
    ),
    (
        "FROM flights f, status s, planes p WHERE p.tailnum = f.tailnum AND s.flight_id = f.flight_id",
        "FROM flights f JOIN status s ON s.flight_id = f.flight_id JOIN planes p ON p.tailnum = f.tailnum",
    ),
    (
        "FROM flights f, planes p LEFT JOIN planes q ON p.sister = q.tailnum WHERE f.a = p.tailnum AND f.b = q.maker",
        "FROM flights f JOIN planes p ON f.a = p.tailnum LEFT JOIN planes q ON p.sister = q.tailnum "
        "WHERE f.b = q.maker",
    ),
    (
        "FROM flights f LEFT JOIN status s ON f.flight_id = s.flight_id, planes p WHERE s.plane = p.tailnum",
        "FROM flights f LEFT JOIN status s ON f.flight_id = s.flight_id JOIN planes p ON s.plane = p.tailnum",
    ),
    (
        "FROM flights f RIGHT JOIN hubs h ON f.flight_id = h.hub, planes p WHERE h.plane = p.tailnum",
        "FROM flights f RIGHT JOIN hubs h ON f.flight_id = h.hub JOIN planes p ON h.plane = p.tailnum",
    ),
    (
        "FROM departures d, departures e WHERE e.at BETWEEN d.at AND d.at + INTERVAL 1 DAY AND d.x > e.x",
        "FROM departures d JOIN departures e ON e.at BETWEEN d.at AND d.at + INTERVAL '1' DAY WHERE d.x > e.x",
    ),
    (
        "FROM departures d, legs l WHERE d.number = l.number AND d.day = l.day AND d.seats > 3",
        "FROM departures d JOIN legs l ON d.number = l.number AND d.day = l.day WHERE d.seats > 3",
    ),
)
def test_an_equality_of_where_joins_the_last_input_that_it_compares(written, joined):
    """Either text is the same statement; only the place of the condition differs, which messages name."""
    found, where = conditions(f"SELECT * {written}")
    expected, remaining = conditions(f"SELECT * {joined}")
    assert [step[:2] for step in found] == [step[:2] for step in expected]
    assert where == remaining
    assert "WHERE" in {clause for *_, clause in found}


def test_a_join_of_two_inputs_needs_no_aliases():
    """Of two inputs, an equality compares the one or the other, which their columns decide later."""
    join = bound("SELECT carrier, Flight_ID, seats FROM flights f, planes p WHERE f.tailnum = p.tailnum AND seats > 3")
    assert (join.steps[0].on, join.where) == ("`f`.`tailnum` = `p`.`tailnum`", "`p`.`seats` > 3")
    assert bound("SELECT Flight_ID, seats FROM flights f, planes p WHERE delay = p.tailnum").links[0].over == 0
    assert misfits("SELECT Flight_ID, seats FROM flights f, planes p WHERE seats = p.tailnum") == [
        "WHERE: `seats` is a column of planes itself | write an alias before each column"
    ]


@cases(
    "sql, problem, hint",
    ("FROM flights f, status s", "no equality compares `s`", "JOIN status s ON f.<column> = s.<column>"),
    ("FROM flights f JOIN status s", "no equality compares `s`", "JOIN status s ON f.<column> = s.<column>"),
    ("FROM flights f CROSS JOIN status s WHERE f.x = 5 AND f.y < s.y", "grow with the product", "JOIN status s ON"),
    ("FROM flights f JOIN status s WHERE f.x = s.x OR f.y = s.y", "every row would match every row", "JOIN status"),
    (
        "FROM flights f, planes p, planes q WHERE f.a = q.tailnum AND p.tailnum = q.sister",
        "no equality compares `p`",
        "write `planes p` after `planes q`: `p.tailnum = q.sister` compares them",
    ),
    (
        "FROM flights f, planes p JOIN planes q ON f.a = q.tailnum AND p.tailnum = q.sister",
        "no equality compares `p`",
        "write `planes p` after `planes q`: `p.tailnum = q.sister` compares them",
    ),
    (
        "FROM flights f, planes p, hubs h WHERE plane = p.tailnum AND f.hub = h.hub",
        "no equality compares `p`",
        "write an alias before each column of `plane = p.tailnum`",
    ),
    (
        "FROM flights f, planes p FULL JOIN hubs h ON p.hub = h.hub WHERE f.tailnum = p.tailnum",
        "WHERE: `f.tailnum = p.tailnum` applies after FULL JOIN `h`, also to the rows that this JOIN keeps",
        "write JOIN planes p ON f.tailnum = p.tailnum if these rows should stay, else an inner or left JOIN",
    ),
    ("FROM flights f, status s WHERE flight_id = s.flight_id", "WHERE: `flight_id` is a column of both sides", "f."),
    (
        "FROM flights f, flights g WHERE f.flight_id = g.flight_id",
        "WHERE: flights is joined with itself on its key",
        "",
    ),
    ("FROM departures d, airlines a WHERE d.at > a.since", "no equality compares `a`", "JOIN airlines a ON d.<col"),
    ("FROM departures d, departures e WHERE d.x = 1", "no equality", "JOIN departures e ON, with bounds"),
    (
        "FROM departures d, departures e WHERE d.at > e.at",
        "nothing limits how far `e.at` may lie behind `d.at`",
        "at >=",
    ),
    ("FROM flights f LEFT JOIN status s", "JOIN `status` has no ON or USING", "write ON with an equality"),
    ("FROM flights f LEFT JOIN status s ON TRUE WHERE f.x = s.x", "ON TRUE compares nothing", "write ON"),
)
def test_where_no_equality_says_how_the_message_says_what_to_write(sql, problem, hint):
    (fault,) = refusals(f"SELECT * {sql}")
    found, told = fault.split(" | ")
    assert problem in found
    assert hint in told


@cases(
    "sql, hint",
    ("flights f NATURAL JOIN status s", "write JOIN status s USING (flight_id); add any other columns that both"),
    ("flights NATURAL LEFT JOIN status", "write LEFT JOIN status USING (flight_id); add any other"),
    ("flights f NATURAL FULL OUTER JOIN planes p", "write FULL JOIN planes p USING (<column>, ...); name all columns"),
    ("enriched e NATURAL JOIN hubs", "write JOIN hubs USING (<column>, ...); name all columns that both sides have"),
    ("daily d NATURAL JOIN crews c", "write JOIN crews c USING (num, on_day); add any other columns"),
)
def test_a_natural_join_shows_the_using_of_the_columns_that_are_known(sql, hint):
    """Those of the keys are known; which further columns two tables have is not, and may change."""
    (fault,) = refusals(f"SELECT * FROM {sql}")
    assert "NATURAL JOIN compares all columns that both sides have" in fault
    assert hint in fault


def test_a_refused_outer_join_says_what_means_the_same():
    """The two statements of the message: with the rows that RIGHT JOIN keeps, or without."""
    sql = "SELECT h.*, p.seats FROM flights f, planes p RIGHT JOIN hubs h ON {on} WHERE f.tailnum = p.tailnum"
    assert "applies after RIGHT JOIN `h`" in refusals(sql.format(on="f.flight_id = h.hub"))[0]
    assert conditions(
        "SELECT h.*, p.seats FROM flights f JOIN planes p ON f.tailnum = p.tailnum RIGHT JOIN hubs h "
        "ON f.flight_id = h.hub"
    )


OPERATORS = ("=", "=", "<=>", "<", "<>")


def a_statement(dice: random.Random) -> str:
    """Return a random statement over two to four tables, in Spark SQL, with CROSS JOIN instead of commas."""
    aliases = [f"t{number}" for number in range(dice.randint(2, 4))]
    tables = [dice.choice(list(TABLES)) for _ in aliases]

    def column(among: list[str]) -> str:
        return f"{dice.choice(among)}.{dice.choice(['id', 'x', 'y'])}"

    def condition(one: list[str], other: list[str]) -> str:
        drawn = dice.random()
        if drawn < 0.1:
            return f"({column(one)} = {column(other)} OR {column(one)} > 1)"
        if drawn < 0.2:
            return f"{column(one)} + {column(other)} = 2"
        if drawn < 0.3:
            return f"coalesce({column(one)}, 1) = {column(other)}"
        return f"{column(one)} {dice.choice(OPERATORS)} {column(other)}"

    sql = f"SELECT * FROM {tables[0]} {aliases[0]}"
    where = []
    for number in range(1, len(aliases)):
        how = dice.choice(["CROSS JOIN", "CROSS JOIN", "CROSS JOIN", "JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"])
        before, new = aliases[:number], [aliases[number]]
        sql += f" {how} {tables[number]} {aliases[number]}"
        if how == "CROSS JOIN":
            where.append(f"{column(before)} {dice.choice(['=', '=', '<=>'])} {column(new)}")
        else:
            sql += f" ON {condition(before, new)}"
    where += [condition(aliases, aliases) for _ in range(dice.randint(0, 2))]
    dice.shuffle(where)
    return f"{sql} WHERE {' AND '.join(where)}" if where else sql


def filled(dice: random.Random) -> duckdb.DuckDBPyConnection:
    """Fill four tables with few values and many nulls."""
    database = duckdb.connect()
    for name in TABLES:
        database.execute(f"CREATE TABLE {name} (id INT, x INT, y INT)")
        for key in range(dice.randint(2, 6)):
            database.execute(
                f"INSERT INTO {name} VALUES (?, ?, ?)", [key, *(dice.choice([None, 0, 1, 2]) for _ in range(2))]
            )
    return database


def rows(database: duckdb.DuckDBPyConnection, select: exp.Select) -> list[tuple[object, ...]]:
    return sorted(database.execute(select.sql("duckdb")).fetchall(), key=repr)


@pytest.mark.parametrize("seed", range(4))
def test_no_rewritten_statement_has_other_rows(seed: int) -> None:
    """DuckDB computes both; every JOIN has an equality then, and nothing but the conditions has moved."""
    dice = random.Random(seed)
    rewritten = different = 0
    for _ in range(10):
        database = filled(dice)
        for _ in range(50):
            sql = a_statement(dice)
            written, _ = read(sql)
            inputs, _ = read_inputs(written, TABLES, {})
            if inputs is None or "WHERE" not in inputs.clauses:
                continue
            rewritten += 1
            assert " CROSS " not in render(inputs.select)
            found = rows(database, written)
            assert rows(database, inputs.select) == found, sql
            different += bool(found)
            commas, _ = read(sql.replace(" CROSS JOIN", ","))
            assert read_inputs(commas, TABLES, {})[0].select == inputs.select
    assert rewritten > 150
    assert different > 50
