"""GROUP BY and DISTINCT over one input: what groups are by, their aggregates, and what is refused."""

import random
from pathlib import Path

import pytest

from pipelines.language import load
from pipelines.language.join.fingerprint import fingerprint
from tests.cases import cases
from tests.language.duck import compare
from tests.language.examples import bound, refusals, taken_apart
from tests.pipeline_files import write

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
    assert item.grouping.having == f"({values['x']}) > 3 OR MIN(`_lakejoin_column_4`) < 0"
    assert item.grouping.summed == ("_lakejoin_column_0",)
    # The filter is part of the value, which may raise for a row that it leaves out.
    assert "IF(`f`.`delay` > 1, `f`.`delay` * 2, NULL)" in item.ungrouped.query.values


@cases(
    "sql, name, expected",
    ("SELECT carrier AS k, max(addr).carrier AS x", "x", "MAX(`_lakejoin_column_0`).`carrier`"),
    (
        "SELECT carrier AS k, CAST(max(delay) AS STRUCT<carrier: INT>) AS x",
        "x",
        "CAST(MAX({}) AS STRUCT<`carrier`: INT>)",
    ),
    ("SELECT carrier, 2 AS v, CAST(max(delay) AS DECIMAL(10, 2)) AS x", "x", "CAST(MAX({}) AS DECIMAL(10, 2))"),
    ("SELECT carrier, 2 AS v, round(max(delay), 2) AS x", "x", "ROUND(MAX({}), 2)"),
    ("SELECT carrier AS k, concat(carrier, '-', count(*)) AS x", "x", "CONCAT(`k`, '-', COUNT(*))"),
    ("SELECT carrier, carrier AS again, count(*) AS x", "x", "COUNT(*)"),
)
def test_only_what_groups_are_by_is_replaced(sql, name, expected) -> None:
    """Not a field, a type, a constant or an alias that looks like it."""
    (item,) = bound(f"{sql} FROM flights WHERE carrier IS NOT NULL GROUP BY ALL").inputs
    assert dict(item.grouping.values)[name] == expected.format("`_lakejoin_column_0`")


@cases(
    "having, expected",
    ("n * 2 > 10", "(SUM(`_lakejoin_column_0`) + 1) * 2 > 10"),
    ("N > 1 AND c = 'x'", "(SUM(`_lakejoin_column_0`) + 1) > 1 AND (`C`) = 'x'"),
    ("carrier = 'x'", "`C` = 'x'"),
)
def test_having_names_outputs(having, expected) -> None:
    sql = "SELECT carrier AS C, sum(delay) + 1 AS n FROM flights WHERE carrier IS NOT NULL GROUP BY carrier HAVING"
    assert bound(f"{sql} {having}").inputs[0].grouping.having == expected


def test_two_groups_of_one_source_may_be_joined() -> None:
    grouped = "(SELECT carrier, count(*) AS n FROM flights WHERE carrier IS NOT NULL GROUP BY carrier{})"
    sql = f"SELECT a.carrier, a.n FROM {grouped.format('')} a JOIN {grouped.format(' HAVING n > 2')} b"
    assert bound(f"{sql} ON a.carrier = b.carrier").members == (0, 1)


def test_a_changed_having_or_key_is_a_changed_definition(tmp_path: Path) -> None:
    sql = "SELECT a, count(b) AS n FROM s WHERE a IS NOT NULL GROUP BY a HAVING {}"
    prints = set()
    for key, having in (("a", "n > 1"), ("b", "n > 1"), ("a", "n > 2")):
        file = load(write(tmp_path / "lakejoin.yml", {"s": key}, {"j": sql.format(having)}))
        prints.add(fingerprint(file, "j"))
    assert len(prints) == 3


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
    ("SELECT DISTINCT flight_id FROM flights HAVING rand() > 0", "HAVING without GROUP BY", "with a column"),
    ("SELECT addr.flight_id, count(*) AS n FROM flights GROUP BY addr.flight_id", "whose key is null", ""),
    (
        "SELECT flight_id, count(DISTINCT *) AS n FROM flights GROUP BY 1",
        "`*` inside an expression",
        "name the columns",
    ),
    ("SELECT flight_id, count(*, delay) AS n FROM flights GROUP BY 1", "`*` inside an expression", "name the columns"),
    ("SELECT coalesce() AS c FROM flights GROUP BY coalesce()", "whose key is null", ""),
    ("SELECT count(*) AS n FROM flights GROUP BY 1", "`count(*)` is an aggregate", "group by columns"),
    ("SELECT DISTINCT flight_id, delay FROM flights", "DISTINCT: rows without `delay`", "leave DISTINCT out"),
    ("SELECT flight_id, transform(hops, x -> sum(x)) AS n FROM flights GROUP BY 1", "inside of a lambda", "outside"),
    (
        "SELECT f.* FROM flights f LEFT SEMI JOIN (SELECT DISTINCT state FROM status WHERE state IS NOT NULL) s"
        " ON s.state = f.carrier",
        "SEMI JOIN over groups",
        "a join of their own",
    ),
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
    "count(*) FILTER (WHERE x > 0)", "max(y) - min(y)", "sum(DISTINCT x)", "sum(y) + 1", "sum(x) FILTER (WHERE y > 0)",
)  # fmt: skip


def a_query(dice: random.Random) -> str:
    by = dice.choice(["x", "y", "x + 1", "coalesce(y, 9)", "x, y"])
    items = [f"{part} AS k{n}" for n, part in enumerate(by.split(", ") if by == "x, y" else [by])]
    present = " AND ".join(f"{part} IS NOT NULL" for part in (by.split(", ") if by == "x, y" else [by]))
    items += [f"{one} AS v{n}" for n, one in enumerate(dice.sample(AGGREGATES, dice.choice([1, 2, 3])))]
    where = dice.choice([present, f"{present} AND y > 0", f"{present} AND (x IS NULL OR x < 3)"])
    havings = ["count(*) > 1", "v0 IS NOT NULL", "max(y) > 1 OR min(x) = 0", "v0 * 2 > 3", "k0 > 1 OR v0 - 1 < 1"]
    having = dice.choice(["", "", *(f" HAVING {one}" for one in havings)])
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
    assert compare(a_statement, seed, 60) > 25
