"""Inputs that are subqueries or names of WITH: filtered, projected tables over one source or join."""

import random

import duckdb
import pytest
from sqlglot import exp, parse_one

from pipelines.language import InputQuery, ResolvedQuery, bind, fingerprint, parse
from pipelines.language.join.chains import chains
from pipelines.language.sql.dialect import Verbatim
from tests.cases import cases
from tests.language.examples import SOURCES, bound, complaints, refusals, taken_apart
from tests.language.join.test_fingerprint import file

LATE = "(SELECT flight_id AS id, upper(state) AS state FROM status WHERE since > 3)"
LEFT = f"SELECT f.carrier, f.flight_id, s.state FROM flights f LEFT JOIN {LATE} s ON f.flight_id = s.id"


def test_an_input_is_what_its_subquery_says():
    """Its columns are expressions over the source; its key is that of the source, as it names it; no filter moves."""
    join = bound(LEFT)
    item = join.inputs[1]
    assert (item.source, item.alias, item.key, item.columns) == ("status", "s", ("id",), ("id", "state"))
    assert item.query == InputQuery(
        key=("flight_id",),
        columns=("flight_id", "state", "since"),
        values=("`s`.`flight_id`", "UPPER(`s`.`state`)"),
        where="`s`.`since` > 3",
    )
    assert (join.where, join.steps[0].on) == (None, "`f`.`Flight_ID` = `s`.`id`")
    assert (taken_apart(LEFT).kind, join.members, join.inputs[0].query) == ("table-table", (0, 1), None)


def test_with_is_the_same_by_name():
    assert bound(f"WITH late AS {LATE} {LEFT.replace(LATE, 'late')}") == bound(LEFT)


def test_a_with_that_is_used_twice_is_two_inputs():
    join = bound(
        f"WITH late AS {LATE} SELECT a.id, a.state, b.id AS other FROM late a LEFT JOIN late b ON b.id = a.state"
    )
    assert [(item.source, item.columns) for item in join.inputs] == [("status", ("id", "state")), ("status", ("id",))]
    assert [item.query.columns for item in join.inputs] == [("flight_id", "state", "since"), ("flight_id", "since")]
    assert join.feeds == (0, 1)


def test_queries_nest_and_use_only_what_is_used():
    """Filters of all levels hold; a column that nobody uses is none of the input."""
    sql = """
        WITH seated AS (SELECT tailnum, seats + 1 AS x, seats AS unused FROM planes AS q WHERE q.seats > 0),
             wide AS (SELECT x * 2 AS x, s.tailnum AS plane FROM seated s WHERE x < 9)
        SELECT f.flight_id, w.x FROM flights f JOIN (SELECT * FROM wide) w ON f.tailnum = w.plane
    """
    item = bound(sql).inputs[1]
    assert (item.key, item.columns) == (("plane",), ("plane", "x"))
    assert item.query == InputQuery(
        key=("tailnum",),
        columns=("tailnum", "seats"),
        values=("`w`.`tailnum`", "((`w`.`seats` + 1) * 2)"),
        where="`w`.`seats` > 0 AND (`w`.`seats` + 1) < 9",
    )


def test_a_statement_of_one_input_is_a_kind_of_its_own():
    statement = taken_apart("SELECT f.flight_id AS id, upper(f.carrier) AS carrier FROM flights f WHERE f.delay > 1")
    assert (statement.kind, statement.key, statement.steps) == ("table", ("id",), ())
    assert bound("SELECT * FROM (SELECT flight_id, delay + 1 AS delay FROM flights) x").key == ("flight_id",)
    assert bound("SELECT * FROM enriched").inputs[0].source == "enriched"
    (fault,) = refusals("SELECT f.carrier FROM flights f")
    assert "the result has no key without `f.flight_id`" in fault


def test_two_filters_of_one_table_may_meet_by_its_key():
    """Each row is in either, in both or in none; without filters it would always match itself."""
    sql = "SELECT coalesce(a.tailnum, b.tailnum) AS id, a.x FROM {} a FULL JOIN {} b ON a.tailnum = b.tailnum"
    few, many = "(SELECT tailnum, 1 AS x FROM planes WHERE seats < 5)", "(SELECT * FROM planes WHERE seats > 3)"
    assert bound(sql.format(few, many)).members == (0, 1)
    assert "joined with itself" in refusals(sql.format(few, few))[0]


@cases(
    "sql, named",
    ("SELECT f.flight_id, s.x FROM flights f JOIN (SELECT flight_id, sate FROM status) s USING (flight_id)", "`sate`"),
    ("SELECT f.flight_id, s.x FROM flights f JOIN (SELECT flight_id FROM status) s USING (flight_id)", "column `x`"),
    ("SELECT f.flight_id FROM flights f JOIN (SELECT *, 1 AS State FROM status) s USING (flight_id)", "`State`"),
    ("SELECT x.* FROM (SELECT flight_id, 1 AS _change_type FROM flights) x", "Delta's change feeds"),
    ("SELECT x.* FROM (SELECT y.* FROM flights f) x", "unknown input `y`"),
)
def test_names_of_a_subquery_are_checked(sql, named):
    assert any(named in fault for fault in complaints(lambda: bound(sql))), complaints(lambda: bound(sql))


def test_a_join_may_be_read_through_a_subquery():
    few = "(SELECT id, seats FROM enriched WHERE seats < 9)"
    sql = f"SELECT f.flight_id, e.seats FROM flights f LEFT JOIN {few} e ON e.id = f.tailnum"
    assert bound(sql).inputs[1].query.key == ("id",)
    assert chains(SOURCES, {"enriched": "", "j": sql}).reads["j"] == ("enriched",)


def test_a_changed_filter_is_a_changed_definition():
    sql = "SELECT f.*, s.x FROM flights f LEFT JOIN (SELECT id, x FROM status WHERE y > {}) s ON f.id = s.id"
    prints = {fingerprint(file(sql.format(value)), "j") for value in (1, 2, "/* two */ 2")}
    assert len(prints) == 2
    assert fingerprint(file("SELECT * FROM flights"), "j") != fingerprint(file("SELECT * FROM flights WHERE x"), "j")


def flat(join: ResolvedQuery) -> str:
    """Write what a definition means as one statement, each input with its filter and its columns."""
    inputs = []
    for item in join.inputs:
        alias = exp.to_identifier(item.alias, quoted=True).sql("spark")
        values = item.columns if item.query is None else item.query.values
        named = ", ".join(f"{value} AS `{name}`" for value, name in zip(values, item.columns, strict=True))
        where = "" if item.query is None or item.query.where is None else f" WHERE {item.query.where}"
        inputs.append(f"(SELECT {named} FROM {item.source} {alias}{where}) {alias}")
    joined = " ".join(f"{step.how} JOIN {item} ON {step.on}" for step, item in zip(join.steps, inputs[1:], strict=True))
    outputs = ", ".join(f"{output.expression} AS `{output.name}`" for output in join.outputs)
    where = "" if join.where is None else f" WHERE {join.where}"
    return f"SELECT {outputs} FROM {inputs[0]} {joined}{where}"


def a_query(dice: random.Random, source: str, depth: int = 0) -> str:
    """Write a random subquery with the columns id, x and y."""
    inner, name = (
        (source, source) if dice.random() < 0.6 or depth > 2 else (f"({a_query(dice, source, depth + 1)}) q", "q")
    )
    x = dice.choice(["x", f"{name}.x + 1 AS x", "y AS x", "x * y - 1 AS x", "coalesce(x, 0) AS x"])
    items = dice.choice([f"id, {x}, y", f"{x}, {name}.y, id", "*", f"* EXCEPT (x), {x}", f"{name}.*"])
    condition = dice.choice(["x > 0", "y IS NULL", f"{name}.x = y", "x + y > 1 OR y IS NULL", "NOT x = 1"])
    return f"SELECT {items} FROM {inner}" + (f" WHERE {condition}" if dice.random() < 0.7 else "")


def a_statement(dice: random.Random) -> str:
    one, other = (f"({a_query(dice, name)})" for name in "ab")
    how, on = dice.choice(["", "LEFT", "RIGHT", "FULL"]), dice.choice(["l.id = r.id", "l.x = r.id", "l.x = r.y"])
    sql = f"SELECT coalesce(l.id, r.id) AS k, l.id AS i, r.id AS j, l.x, r.y FROM {{}} l {how} JOIN {{}} r ON {on}"
    if dice.random() < 0.3:
        sql += " WHERE l.y IS NULL OR r.x > 0"
    if dice.random() < 0.2:
        return f"SELECT * FROM {one} l"
    return f"WITH w AS {one} " + sql.format("w", other) if dice.random() < 0.4 else sql.format(one, other)


@pytest.mark.parametrize("seed", range(2))
def test_no_definition_has_other_rows_than_its_statement(seed: int) -> None:
    """DuckDB computes both: the statement as written, and the inputs that the definition makes of it."""
    dice, database = random.Random(seed), duckdb.connect()
    sources = {name: SOURCES["flights"].model_copy(update={"key": ("id",)}) for name in "ab"}
    compared = 0
    for _ in range(60):
        sql = a_statement(dice)
        if complaints(lambda sql=sql: parse("j", sql, sources)):
            continue
        join = bind(parse("j", sql, sources), {name: ["id", "x", "y"] for name in "ab"})
        for name in "ab":
            database.execute(f"CREATE OR REPLACE TABLE {name} (id INT, x INT, y INT)")
            for key in dice.sample(range(8), 6):
                database.execute(
                    f"INSERT INTO {name} VALUES (?, ?, ?)", [key, *(dice.choice([None, 0, 1, 2]) for _ in range(2))]
                )
        expected, found = (
            sorted(database.execute(parse_one(text, read=Verbatim).sql("duckdb")).fetchall(), key=repr)
            for text in (sql, flat(join))
        )
        assert found == expected, sql
        compared += bool(expected)
    assert compared > 25, compared
