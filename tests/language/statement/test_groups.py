"""GROUP BY and DISTINCT over one input: what groups are by, their aggregates, and what is refused."""

import random

import duckdb
import pytest

from pipelines.language import Source, bind, parse
from tests.cases import cases
from tests.language.duck import flat, in_duckdb
from tests.language.examples import bound, complaints, refusals, taken_apart

BY_CARRIER = "SELECT carrier, count(*) AS n, sum(delay) AS s FROM flights WHERE carrier IS NOT NULL GROUP BY {}"


@pytest.mark.parametrize("by", ["carrier", "1", "ALL", "flights.carrier", "Carrier"])
def test_a_statement_is_what_it_groups(by: str) -> None:
    join, statement = bound(BY_CARRIER.format(by)), taken_apart(BY_CARRIER.format(by))
    (item,) = join.inputs
    assert (statement.kind, join.key, join.where) == ("grouped", ("carrier",), None)
    assert item.grouping is not None
    assert [output.name for output in join.outputs] == ["carrier", "n", "s"]
    assert item.grouping.values == (("n", "COUNT(*)"), ("s", "SUM(`_lakejoin_column_0`)"))
    assert item.grouping.rows.query.where == "NOT `flights`.`carrier` IS NULL"
    assert item.grouping.rows.query.columns == ("Flight_ID", "carrier", "delay")


def test_values_are_expressions_over_groups_and_their_aggregates() -> None:
    sql = """
        SELECT upper(carrier) AS c, day(delay) AS d,
               sum(delay * 2) FILTER (WHERE delay > 1) / count(DISTINCT hops) AS x,
               concat(upper(f.carrier), max(tailnum)) AS y
        FROM flights f WHERE upper(carrier) IS NOT NULL AND day(f.delay) IS NOT NULL
        GROUP BY upper(f.carrier), 2 HAVING x > 3 OR min(delay * 2) < 0
    """
    join = bound(sql)
    (item,) = join.inputs
    assert item.grouping is not None
    assert join.key == ("c", "d")
    values = dict(item.grouping.values)
    assert values["x"] == (
        "SUM(`_lakejoin_column_0`) FILTER(WHERE `_lakejoin_column_1`) / COUNT(DISTINCT `_lakejoin_column_2`)"
    )
    assert values["y"] == "CONCAT(`c`, MAX(`_lakejoin_column_3`))"
    assert item.grouping.having == f"{values['x']} > 3 OR MIN(`_lakejoin_column_0`) < 0"
    assert item.grouping.summed == ("_lakejoin_column_0",)


def test_groups_are_inputs_whose_unused_values_cause_no_work() -> None:
    grouped = (
        "SELECT tailnum, count(*) AS n, max(delay) AS late FROM flights WHERE tailnum IS NOT NULL GROUP BY tailnum"
    )
    for sql in (
        f"SELECT p.*, g.n FROM planes p LEFT JOIN ({grouped}) g ON g.tailnum = p.tailnum",
        f"WITH g AS ({grouped}) SELECT p.*, g.n FROM planes p LEFT JOIN g ON g.tailnum = p.tailnum",
    ):
        item = bound(sql).inputs[1]
        assert (item.key, item.columns) == (("tailnum",), ("tailnum", "n"))
        assert item.ungrouped.query.columns == ("Flight_ID", "tailnum")
        assert taken_apart(sql).kind == "table-table"
    distinct = bound("SELECT DISTINCT carrier, coalesce(delay, 0) AS delay FROM flights WHERE carrier IS NOT NULL")
    assert (distinct.key, distinct.inputs[0].grouping.values) == (("carrier", "delay"), ())


@cases(
    "sql, named, hint",
    ("SELECT carrier, count(*) AS n FROM flights GROUP BY carrier", "whose key is null", "`carrier IS NOT NULL` to"),
    (
        "SELECT count(*) AS n FROM flights WHERE carrier IS NOT NULL GROUP BY carrier",
        "no key without `carrier`",
        "add it",
    ),
    ("SELECT flight_id, delay FROM flights GROUP BY flight_id", "`delay` is neither grouped", "max(...) of it"),
    ("SELECT flight_id, count(*) FROM flights GROUP BY flight_id", "beside groups has no name", "with AS"),
    ("SELECT *, count(*) AS n FROM flights GROUP BY flight_id", "`*` beside groups", "name each column"),
    ("SELECT flight_id, median(delay) AS m FROM flights GROUP BY flight_id", "`median` of a group is not", "count_if"),
    ("SELECT flight_id, sum(rand()) AS m FROM flights GROUP BY flight_id", "`rand` does not depend", ""),
    ("SELECT flight_id, sum(max(delay)) AS m FROM flights GROUP BY 1", "`max` is an aggregate", ""),
    ("SELECT flight_id FROM flights GROUP BY 2", "GROUP BY 2: SELECT has 1 items", ""),
    ("SELECT flight_id FROM flights GROUP BY ROLLUP (flight_id)", "ROLLUP is not supported", "for each grouping"),
    ("SELECT flight_id FROM flights GROUP BY flight_id WITH CUBE", "CUBE is not supported", "for each grouping"),
    ("SELECT upper(carrier) AS carrier FROM flights GROUP BY carrier", "may be a column of flights or", "its number"),
    ("SELECT flight_id FROM flights HAVING count(*) > 1", "HAVING without GROUP BY", "with a column"),
    ("SELECT carrier, 1 AS carrier FROM flights GROUP BY flight_id", "two outputs are called `carrier`", ""),
    ("SELECT DISTINCT * FROM flights", "`*` beside groups", "name each column"),
    (
        "SELECT x.n FROM (SELECT n FROM (SELECT flight_id, count(*) AS n FROM flights GROUP BY 1) g) x",
        "a subquery over groups",
        "HAVING",
    ),
    (
        "SELECT f.carrier, count(*) AS n FROM flights f JOIN status s ON f.flight_id = s.flight_id GROUP BY f.carrier",
        "GROUP BY is not supported in a join",
        "<aggregates> FROM <join> GROUP BY <columns>",
    ),
    ("SELECT flight_id, count(*) AS n FROM departures GROUP BY flight_id", "a subquery of a stream", ""),
    (
        "SELECT carrier, count(*) AS n FROM flights WHERE carrier IN (SELECT hub FROM hubs) AND carrier IS NOT NULL"
        " GROUP BY carrier",
        "subqueries are not supported",
        "",
    ),
)
def test_what_is_refused(sql, named, hint):
    faults = [fault for fault in refusals(sql) if named in fault]
    assert any(hint in fault for fault in faults), refusals(sql)


AGGREGATES = (
    "count(*)", "count(x)", "count(DISTINCT x)", "sum(y)", "min(x)", "max(x + y)", "sum(x * y) + count(y)",
    "count(*) FILTER (WHERE x > 0)", "max(y) - min(y)", "bool_or(x > 1)", "sum(DISTINCT x)",
)  # fmt: skip


def a_query(dice: random.Random) -> str:
    by = dice.choice(["x", "y", "x + 1", "coalesce(y, 9)", "x, y"])
    items = [f"{part} AS k{n}" for n, part in enumerate(by.split(", ") if by == "x, y" else [by])]
    present = " AND ".join(f"{part} IS NOT NULL" for part in (by.split(", ") if by == "x, y" else [by]))
    items += [f"{one} AS v{n}" for n, one in enumerate(dice.sample(AGGREGATES, dice.choice([1, 2, 3])))]
    where = dice.choice([present, f"{present} AND y > 0", f"{present} AND (x IS NULL OR x < 3)"])
    having = dice.choice(["", "", " HAVING count(*) > 1", " HAVING v0 IS NOT NULL", " HAVING max(y) > 1 OR min(x) = 0"])
    dice.shuffle(items)
    return f"SELECT {', '.join(items)} FROM a WHERE {where} GROUP BY {dice.choice([by, by, 'ALL'])}{having}"


def a_statement(dice: random.Random) -> str:
    query = a_query(dice)
    if dice.random() < 0.5:
        return query
    how, on = dice.choice(["LEFT", "", "LEFT"]), dice.choice(["g.k0 = b.id", "g.k0 = b.x", "g.k0 = b.y"])
    on += " AND g.k1 = b.x" if " k1" in query else ""
    return f"SELECT b.id, b.x, g.v0 FROM b {how} JOIN ({query}) g ON {on}"


@pytest.mark.parametrize("seed", range(3))
def test_no_definition_has_other_rows_than_its_statement(seed: int) -> None:
    """DuckDB computes both: the statement as written, and the groups that the definition makes of it."""
    dice, database, compared = random.Random(seed), duckdb.connect(), 0
    sources = {name: Source(key="id") for name in "ab"}
    for _ in range(60):
        sql = a_statement(dice)
        if complaints(lambda sql=sql: parse("j", sql, sources)):
            continue
        join = bind(parse("j", sql, sources), {name: ["id", "x", "y"] for name in "ab"})
        for name in "ab":
            database.execute(f"CREATE OR REPLACE TABLE {name} (id INT, x INT, y INT)")
            for key in dice.sample(range(8), 6):
                values = [key, *(dice.choice([None, 0, 1, 2, 3]) for _ in range(2))]
                database.execute(f"INSERT INTO {name} VALUES (?, ?, ?)", values)
        expected, found = (sorted(database.execute(text).fetchall(), key=repr) for text in (in_duckdb(sql), flat(join)))
        assert found == expected, sql
        compared += bool(expected)
    assert compared > 25, compared
