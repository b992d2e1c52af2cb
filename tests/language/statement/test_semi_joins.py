"""Semi and anti joins, EXISTS and IN: what each looks up, by what, and which are refused."""

from pathlib import Path

import pytest

from pipelines.language import ResolvedQuery, load
from pipelines.language.join.fingerprint import fingerprint
from tests.cases import cases
from tests.language.examples import bound, complaints, outputs, refusals, taken_apart
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
    assert "`_lakejoin_match`.`_lakejoin_column_0`.`x` > `f`.`delay`" in join.where
    assert "`f`.`hops`" in join.where
    (added,) = (item for item in join.inputs if item.grouping)
    assert added.grouping.collected == (COLUMN.format(0),)
    assert added.columns == (VALUE.format(0), "_lakejoin_matches")


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
    ("{} WHERE f.delay IN (SELECT max(seats) FROM planes)", "`max` is an aggregate", ""),
    (
        "{} WHERE f.delay NOT IN (SELECT seats FROM planes p WHERE p.tailnum > 'a')",
        "NOT IN is true for no row once the subquery has a null",
        "write NOT EXISTS (SELECT 1 FROM planes AS p WHERE seats = f.delay AND p.tailnum > 'a')",
    ),
    (
        "SELECT f.delay IN (SELECT seats FROM planes) AS x, f.* FROM flights f",
        "NOT IN is true for no row",
        "NOT EXISTS",
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
