"""Semi and anti joins, EXISTS and IN: what each looks up, by what, and which are refused."""

import random
from pathlib import Path

import pytest

from pipelines.language import ResolvedQuery, bind, load
from pipelines.language.join.fingerprint import fingerprint
from tests.cases import cases
from tests.language.duck import compare
from tests.language.examples import COLUMNS, bound, complaints, outputs, refusals, taken_apart
from tests.pipeline_files import write

FLIGHTS = "SELECT * FROM flights f"
VALUE, COLUMN = "_lakejoin_value_{}", "_lakejoin_column_{}"


def looked_up(join: ResolvedQuery) -> list[tuple[str, tuple[str, ...], str | None]]:
    """Return the source, the values and the filter of each input that the statement adds."""
    found = []
    for item in join.inputs:
        if item.grouping is not None:
            rows = item.grouping.rows
            values = dict(zip(rows.columns, rows.query.values, strict=True))
            found.append((item.source, tuple(values[name] for name in item.key), rows.query.where))
    return found


@cases(
    "sql, expected",
    ("{} WHERE EXISTS (SELECT 1 FROM status s WHERE s.state = f.carrier)", ("status", ("`s`.`state`",), None)),
    (
        "{} WHERE f.delay > 1 OR NOT EXISTS (SELECT since FROM status WHERE carrier = state AND f.carrier = state + 1 "
        "AND since > 2)",
        ("status", ("`status`.`state` + 1",), "`status`.`carrier` = `status`.`state` AND `status`.`since` > 2"),
    ),
    ("{} LEFT SEMI JOIN planes p ON f.addr.x = p.seats", ("planes", ("`p`.`seats`",), None)),
    ("{} ANTI JOIN status s USING (flight_id)", ("status", ("`s`.`flight_id`",), None)),
    ("{} WHERE delay IN (SELECT DISTINCT seats FROM planes)", ("planes", ("`planes`.`seats`",), None)),
    (
        "{} WHERE (f.carrier, f.delay) IN (SELECT p.tailnum, seats FROM planes p)",
        ("planes", ("`p`.`tailnum`", "`p`.`seats`"), None),
    ),
    ("{} WHERE f.carrier IN (SELECT e.carrier FROM enriched e)", ("enriched", ("`e`.`carrier`",), None)),
    (
        "WITH big AS (SELECT seats AS n FROM planes WHERE seats > 9) {} WHERE f.delay IN (SELECT n + 1 FROM big b)",
        ("planes", ("`b`.`seats` + 1",), "`b`.`seats` > 9"),
    ),
    ("{} WHERE f.flight_id NOT IN (SELECT s.flight_id FROM status s)", ("status", ("`s`.`flight_id`",), None)),
    (
        "{} WHERE f.delay IS NOT NULL AND f.delay NOT IN (SELECT seats FROM planes WHERE seats IS NOT NULL)",
        ("planes", ("`planes`.`seats`",), "NOT `planes`.`seats` IS NULL"),
    ),
)
def test_what_is_looked_up(sql, expected):
    sql = sql.format(FLIGHTS).replace("carrier = state AND f", "Delay_Code = state AND f")
    source, values, where = expected
    join = bound(sql)
    assert looked_up(join) == [(source, values, where and where.replace("`carrier`", "`Delay_Code`"))]
    assert outputs(sql).keys() == outputs("SELECT * FROM flights").keys()
    assert taken_apart(sql).kind == "semi-join"


def test_further_conditions_are_met_by_any_row_with_the_value():
    exists = "EXISTS (SELECT 1 FROM status s WHERE s.state = f.carrier AND s.since.x > f.delay AND f.hops)"
    sql = f"{FLIGHTS} WHERE {exists}"
    join = bound(sql)
    assert join.where is not None
    assert "`_lakejoin_match`.`_lakejoin_column_0` > `f`.`delay`" in join.where
    assert "`f`.`hops`" in join.where
    (added,) = (item for item in join.inputs if item.grouping)
    assert "`s`.`since`.`x`" in added.grouping.rows.query.values
    assert added.grouping.collected == (COLUMN.format(0),)
    assert added.columns == (VALUE.format(0), "_lakejoin_matches")


@cases(
    "equality, is_look_up",
    ("s.since = f.delay", True),
    ("s.since = f.delay + p.seats", False),
    ("s.since = coalesce(p.seats, 0)", False),
)
def test_an_equality_that_is_no_look_up_is_a_condition(equality, is_look_up):
    """Beside another one: the value of several inputs, or one that is there although its input is not."""
    exists = f"EXISTS (SELECT 1 FROM status s WHERE s.state = f.carrier AND {equality})"
    join = bound(f"SELECT f.* FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum WHERE {exists}")
    (added,) = (item for item in join.inputs if item.grouping)
    assert (len(added.key), len(added.grouping.collected)) == ((2, 0) if is_look_up else (1, 1))


@cases(
    "condition, values, rest",
    (
        "s.since > CASE WHEN s.open THEN s.since - 1 ELSE f.delay END",
        ("`s`.`since`", "`s`.`open`", "`s`.`since` - 1"),
        "`_lakejoin_column_1` THEN `_lakejoin_match`.`_lakejoin_column_2` ELSE `f`.`delay` END",
    ),
    ("exists(f.hops, t -> t = s.since + 1)", ("`s`.`since`",), "`t` = `_lakejoin_match`.`_lakejoin_column_0` + 1"),
    (
        "exists(s.tags, t -> t = 1) <> f.hops",
        ("EXISTS(`s`.`tags`, `t` -> `t` = 1)",),
        ".`_lakejoin_column_0` <> `f`.`hops`",
    ),
    ("s.tags['x'] > f.delay", ("`s`.`tags`['x']",), "`_lakejoin_match`.`_lakejoin_column_0` > `f`.`delay`"),
)
def test_what_further_conditions_need_of_a_row_are_its_largest_values(condition, values, rest):
    columns = {**COLUMNS, "status": ["flight_id", "state", "since", "open", "tags"]}
    sql = f"{FLIGHTS} WHERE EXISTS (SELECT 1 FROM status s WHERE s.state = f.carrier AND {condition})"
    join = bind(taken_apart(sql), columns)
    rows = join.inputs[1].grouping.rows
    named = dict(zip(rows.columns, rows.query.values, strict=True))
    assert tuple(named[name] for name in join.inputs[1].grouping.collected) == values
    assert rest in join.where


def test_the_kind_is_that_of_the_inputs_of_from():
    exists = "EXISTS (SELECT 1 FROM crews c WHERE c.pilot = f.carrier)"
    for joined, kind in (
        ("JOIN status s ON f.flight_id = s.flight_id", "table-table"),
        ("JOIN planes p ON f.tailnum = p.tailnum", "foreign-key"),
        ("JOIN status s ON f.flight_id = s.flight_id LEFT JOIN planes p ON f.tailnum = p.tailnum", "star"),
    ):
        assert taken_apart(f"SELECT f.* FROM flights f {joined} WHERE {exists}").kind == kind
    paired = f"SELECT f.flight_id, s.flight_id AS x FROM flights f JOIN status s ON f.delay = s.since WHERE {exists}"
    assert taken_apart(paired).kind == "many-to-many"


def test_two_of_them_have_names_of_their_own():
    """Also where a subquery calls its table as FROM calls another one."""
    join = bound(
        f"{FLIGHTS} WHERE EXISTS (SELECT 1 FROM status s WHERE s.state = f.carrier)"
        " AND NOT EXISTS (SELECT 1 FROM status s WHERE s.since = f.delay)"
    )
    assert len({item.alias for item in join.inputs}) == 3


def test_the_same_one_twice_is_two_look_ups():
    exists = "EXISTS (SELECT 1 FROM status s WHERE s.since = f.flight_id)"
    assert len(bound(f"{FLIGHTS} WHERE {exists} OR (f.delay > 1 AND {exists})").inputs) == 3


def test_no_column_of_theirs_can_be_selected():
    exists = "EXISTS (SELECT 1 FROM status s WHERE s.state = f.carrier)"
    (fault,) = complaints(lambda: bound(f"SELECT f.*, s.since FROM flights f WHERE {exists}"))
    assert "unknown input `s`" in fault
    (fault,) = complaints(lambda: bound(f"SELECT f.*, s.* FROM flights f WHERE {exists}"))
    assert "unknown input `s`" in fault


@cases(
    "sql, named, hint",
    ("{} WHERE EXISTS (SELECT 1 FROM status s WHERE s.since > f.delay)", "EXISTS: no equality", "s.<column> ="),
    ("{} WHERE EXISTS (SELECT 1 FROM status)", "EXISTS: no equality", "with an alias on both sides"),
    ("{} LEFT SEMI JOIN status s ON s.since <=> f.delay", "SEMI JOIN: no equality", "s.<column> ="),
    ("{} LEFT SEMI JOIN status s ON s.since = delay", "`delay` may be a column of either side", "an alias before each"),
    ("{} WHERE EXISTS (SELECT 1 FROM stats s WHERE s.since = f.delay)", "unknown source `stats`", "`status`"),
    ("{} WHERE EXISTS (SELECT 1 FROM status s WHERE s.state = f.delay AND rand() > 0)", "`rand` does not depend", ""),
    ("{} WHERE f.delay IN (SELECT * FROM status s)", "IN compares 1 values", "by their names"),
    ("{} WHERE EXISTS (SELECT 1 FROM status VERSION AS OF 3 s WHERE s.state = f.carrier)", "time travel", "leave it"),
    ("{} WHERE EXISTS (SELECT 1 FROM status AS s(state, x) WHERE s.state = f.carrier)", "a column list", "with AS"),
    ("{} WHERE EXISTS (SELECT count(*) FROM status s WHERE s.state = f.carrier)", "`count` is an aggregate", ""),
    ("{} WHERE EXISTS (SELECT explode(x) FROM status s WHERE s.state = f.carrier)", "`explode` produces", ""),
    ("{} WHERE EXISTS (SELECT 1 FROM status s WHERE s.state = f.carrier LIMIT 1)", "LIMIT in EXISTS", "one row is"),
    ("{} WHERE EXISTS (SELECT 1 FROM (SELECT * FROM status) WHERE state = f.carrier)", "has no name", "an alias"),
    ("{} WHERE (f.delay, rand()) IN (SELECT s.state, s.since FROM status s)", "`rand` does not depend", ""),
    ("{} WHERE 5 IN (SELECT s.state FROM status s)", "not columns of FROM", "a column of the other"),
    ("{} WHERE f.delay IN (SELECT f.x FROM status s)", "not columns of FROM", "a column of the other"),
    ("{} WHERE EXISTS (SELECT 1 FROM status f WHERE f.flight_id = tailnum)", "no equality", "an alias of its own"),
    ("{} WHERE f.addr.flight_id NOT IN (SELECT s.flight_id FROM status s)", "NOT IN is true for no row", ""),
    ("{} WHERE f.flight_id NOT IN (SELECT s.addr.flight_id FROM status s)", "NOT IN is true for no row", ""),
    ("{} LEFT SEMI JOIN planes p ON p.seats = f.delay WHERE tailnum NOT IN (SELECT hub FROM hubs)", "NOT IN is", ""),
    ("SELECT f.*, EXISTS (SELECT 1 FROM status s WHERE s.state = f.carrier) FROM flights f", "has no name", "with AS"),
    (
        "SELECT f.* FROM flights f LEFT SEMI JOIN status s ON s.state = p.seats JOIN planes p ON p.tailnum = f.tailnum",
        "SEMI JOIN: no equality",
        "",
    ),
    ("SELECT f.*, s._lakejoin_value_0 AS x FROM flights f", "names that begin with _lakejoin_", ""),
    (
        "{} WHERE EXISTS (SELECT 1 FROM (SELECT x, count(*) AS n FROM status GROUP BY x) s WHERE s.n = f.delay)",
        "EXISTS and IN over groups",
        "a join of their own",
    ),
    ("{} WHERE f.delay IN (SELECT max(seats) FROM planes)", "`max` is an aggregate", ""),
    (
        "{} WHERE f.delay NOT IN (SELECT seats FROM planes p WHERE p.tailnum > 'a')",
        "NOT IN is true for no row once the subquery has a null",
        "write NOT EXISTS (SELECT 1 FROM planes AS p WHERE seats = f.delay AND p.tailnum > 'a')",
    ),
    (
        "SELECT f.delay IN (SELECT seats FROM planes) AS x, f.* FROM flights f",
        "IN is neither true nor",
        "write EXISTS",
    ),
    (
        "SELECT f.*, p.seats FROM flights f JOIN planes p USING (tailnum) WHERE f.delay IN (SELECT seats FROM planes)",
        "USING in a statement with a semi join",
        "write ON",
    ),
)
def test_what_is_refused(sql, named, hint):
    (fault,) = refusals(sql.format(FLIGHTS))
    assert named in fault
    assert hint in fault


@pytest.mark.parametrize("condition", ["EXISTS (SELECT 1 FROM s WHERE s.x = f.y)", "f.y IN (SELECT x FROM s)"])
def test_they_are_part_of_the_definition(tmp_path: Path, condition: str):
    files = (
        load(write(tmp_path / "lakejoin.yml", {"f": "id", "s": "id"}, {"j": f"SELECT * FROM f WHERE {one}"}))
        for one in (condition, condition.replace("x", "z"))
    )
    assert len({fingerprint(file, "j") for file in files}) == 2


CONDITIONS = (
    "{o}.x = {i}.x",
    "{o}.x + 1 = {i}.y",
    "{i}.y = {o}.id",
    "{i}.id = {o}.x",
    "{o}.x = {i}.x AND {i}.y > 0",
    "{o}.y = {i}.x AND {i}.id > {o}.id",
    "{i}.x = {o}.x AND {i}.y = {o}.y",
    "{i}.x = {o}.y AND NOT ({i}.y = {o}.x OR {o}.id > 3)",
    "{i}.x = {o}.x AND {o}.y IS NOT NULL",
    "{i}.x = {o}.x AND ({i}.y <=> {o}.y)",
    "{i}.x = {o}.x AND {i}.y BETWEEN {o}.y AND {o}.id",
)
NAMES = ("p", "q", "a", "b")


def a_condition(dice: random.Random, outer: str) -> str:
    """Return EXISTS or IN over one of the tables, in any of the places that WHERE has for it."""
    table, name, negated = dice.choice("ab"), dice.choice(NAMES), dice.choice(["", "NOT "])
    if dice.random() < 0.6 and name != outer:
        condition = dice.choice(CONDITIONS).format(o=outer, i=name)
        found = f"{negated}EXISTS (SELECT {dice.choice(['1', '*', 'x'])} FROM {table} {name} WHERE {condition})"
    else:
        own = dice.choice(["", " WHERE y > 0", f" WHERE {name}.y IS NOT NULL AND {name}.id < 5"])
        wanted = dice.choice(["id", "id", "x", "y + 1"])
        value = dice.choice([f"{outer}.id", f"{outer}.x", f"{outer}.y - 1"])
        found = f"{value} {negated}IN (SELECT {wanted} FROM {table} {name}{own})"
    other = dice.choice([f"{outer}.y > 0", f"{outer}.x IS NULL", f"{outer}.id < 6"])
    return dice.choice([found, found, f"{other} OR {found}", f"NOT ({other} AND {found})", f"({found}) IS NOT NULL"])


def a_statement(dice: random.Random) -> str:
    joined = dice.choice(
        ["", "", " LEFT JOIN b r ON l.x = r.id", " JOIN b r ON l.id = r.id", " FULL JOIN b r ON l.id = r.id"]
    )
    key, outer = ("coalesce(l.id, r.id) AS id", dice.choice("lr")) if "FULL" in joined else ("l.id", "l")
    semi = ""
    if "FULL" not in joined and dice.random() < 0.4:
        condition = dice.choice(CONDITIONS).format(o="l", i="s")
        semi = f" LEFT {dice.choice(['SEMI', 'ANTI'])} JOIN {dice.choice('ab')} s ON {condition}"
    conditions = [f"({a_condition(dice, outer)})" for _ in range(dice.choice([1, 1, 2]))]
    has = f", {a_condition(dice, outer)} AS has" if dice.random() < 0.3 else ""
    return (
        f"SELECT {key}, {outer}.y{has} FROM a l{joined}{semi} WHERE {dice.choice([' AND ', ' OR ']).join(conditions)}"
    )


@pytest.mark.parametrize("seed", range(3))
def test_no_definition_has_other_rows_than_its_statement(seed: int) -> None:
    """DuckDB computes both: the statement as written, and the look-ups that the definition makes of it."""
    assert compare(a_statement, seed, 80) > 30
