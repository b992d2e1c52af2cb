"""Look-ups of a stream in results whose rows may lack a side, and by keys with parts from several inputs."""

import random
from collections.abc import Mapping
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, LongType, StructField, StructType

from lakehouse.session.session import settings
from pipelines.joins.lookup import as_rows, emitted, look_up
from pipelines.joins.timeline import versions
from pipelines.language.names import ALWAYS, POSITION
from tests.cases import cases
from tests.joins.claims import literal
from tests.joins.epochs import bound, key_types
from tests.joins.lookup_histories import Step, compared
from tests.joins.streams import stream_rows


def _integers(*names: str) -> StructType:
    return StructType([StructField(name, IntegerType()) for name in names])


SCHEMAS = {"s": _integers("n", "a", "b"), "u": _integers("id", "x", "z"), "r": _integers("p", "q", "v")}
KEYS = {"s": ("n",), "u": ("id",), "r": ("p", "q")}
CASES = 60
PARTS = [1, 2, 3, None]
Row = tuple[Any, ...]


def equal(one: Any, other: Any) -> bool:
    return one is not None and one == other


def whole_equal(s: Row, r: Row) -> bool:
    return equal(s[1], r[0]) and equal(s[2], r[1])


STATEMENTS: dict[str, tuple[str, tuple[str, ...]]] = {
    "by =": ("SELECT s.n, r.v, 0 AS x FROM s {0} JOIN r ON s.a = r.p AND s.b = r.q", ("LEFT", "INNER")),
    "by <=>": ("SELECT s.n, r.v, 0 AS x FROM s {0} JOIN r ON s.a <=> r.p AND r.q <=> s.b", ("LEFT", "INNER")),
    "by both": (
        "SELECT s.n, r.v, 0 AS x FROM s {0} JOIN r ON s.a = r.p AND s.b <=> r.q AND (r.v <> 2 OR r.v IS NULL)",
        ("LEFT", "INNER"),
    ),
    "from another table": (
        "SELECT s.n, r.v, u.x FROM s {0} JOIN u ON s.a = u.id AND u.z > 0 {0} JOIN r ON r.p <=> u.x AND r.q <=> u.z",
        ("LEFT", "INNER"),
    ),
    "from both": (
        "SELECT s.n, r.v, u.x FROM s {0} JOIN u ON s.a = u.id AND u.z > 0 {0} JOIN r ON r.p = u.x AND r.q = s.b",
        ("LEFT", "INNER"),
    ),
    "from both by <=>": (
        "SELECT s.n, r.v, u.x FROM s LEFT JOIN u ON s.a = u.id AND u.z > 0 {0} JOIN r ON r.p <=> u.x AND r.q <=> s.b",
        ("LEFT", "INNER"),
    ),
    "from both, and on": (
        "SELECT s.n, r.v, w.x FROM s LEFT JOIN u ON s.a = u.id AND u.z > 0 {0} JOIN r ON r.p <=> u.x AND r.q = s.b "
        "LEFT JOIN u w ON r.v = w.id",
        ("LEFT", "INNER"),
    ),
}


def _found(rows: Mapping[Any, Row], meets: Any) -> Row | None:
    (*matched,) = filter(meets, rows.values())
    return matched[0] if matched else None


def oracle(which: str, how: str, s: Row, tables: Mapping[str, dict[Any, Row]]) -> Row | None:
    """Say what a row of the stream makes of the tables as they are: go through all rows of each."""
    nothing: Row = (None, None, None)
    u = _found(tables["u"], lambda u: equal(s[1], u[0]) and u[2] is not None and u[2] > 0)
    x = (u or nothing)[1]
    parts = (x, (u or nothing)[2]) if which == "from another table" else (x, s[2])
    on = {
        "by =": lambda r: whole_equal(s, r),
        "by <=>": lambda r: (s[1], s[2]) == r[:2],
        "by both": lambda r: equal(s[1], r[0]) and s[2] == r[1] and r[2] != 2,
        "from another table": lambda r: parts == r[:2],
        "from both": lambda r: equal(x, r[0]) and equal(s[2], r[1]),
        "from both by <=>": lambda r: parts == r[:2],
        "from both, and on": lambda r: x == r[0] and equal(s[2], r[1]),
    }[which]
    r = _found(tables["r"], on)
    is_inner_u = which in ("from another table", "from both")
    if how == "INNER" and (r is None or (is_inner_u and u is None)):
        return None
    v = (r or nothing)[2]
    if which == "from both, and on":
        x = (_found(tables["u"], lambda w: equal(v, w[0])) or nothing)[1]
    return s[0], v, 0 if which.startswith("by") else x


def _step(chosen: random.Random, number: int) -> Step:
    side = chosen.choice(["s", "s", "s", "u", "r", "r", "r"])
    if side == "s":
        return side, (number, chosen.choice(PARTS), chosen.choice(PARTS))
    if side == "u":
        key = chosen.choice([1, 2, 3])
        new = (key, chosen.choice(PARTS), chosen.choice([0, 1, 2, 2, 3, None]))
        return side, ((key,), chosen.choice([new, new, new, None]))
    parts = (chosen.choice(PARTS), chosen.choice(PARTS))
    parts = (1, None) if parts == (None, None) else parts  # as a row of a join, which never lacks both sides
    new = (*parts, chosen.choice([1, 2, 3, None]))
    return side, (parts, chosen.choice([new, new, new, None]))


@pytest.mark.parametrize(
    ("which", "how"),
    [
        pytest.param(which, how, marks=[] if number or which == "by both" else [pytest.mark.slow])
        for which, (_, hows) in STATEMENTS.items()
        for number, how in enumerate(hows)
    ],
)
def test_each_row_meets_the_row_with_its_key_and_nulls(spark: SparkSession, which: str, how: str) -> None:
    """`=` finds no null, `<=>` does, at every position and however the history is cut."""
    sql = STATEMENTS[which][0].format(how)
    join = bound(sql, KEYS, SCHEMAS, {"s": "stream"}, results=("r",))
    choices = random.Random(f"{which} {how}")
    found, expected = compared(
        spark, join, SCHEMAS, _step, lambda s, tables: oracle(which, how, s, tables), choices, CASES
    )
    assert found == expected
    met = [row for rows in expected.values() for row in rows if row[1] is not None]
    assert len(met) > CASES // 3


NULLS = 20_000
MANY = {
    "spark.sql.shuffle.partitions": "8",
    "spark.sql.autoBroadcastJoinThreshold": "-1",
    "spark.sql.adaptive.enabled": "false",
}


@pytest.mark.parametrize("broadcast", [False, True])
@cases(
    "on, null_keys, values",
    ("s.a = r.p AND s.b <=> r.q", NULLS // 2, 1 + 2),
    ("s.a <=> r.p AND s.b <=> r.q", NULLS // 4, 1 + 2 + 3),
)
def test_references_of_nulls_are_spread_and_nulls_that_are_values_are_not(spark, on, null_keys, values, broadcast):
    """A quarter of the rows has no null, one of each part, and one has nulls alone; a table may have such a row."""
    join = bound(f"SELECT s.n, r.v FROM s JOIN r ON {on}", KEYS, SCHEMAS, {"s": "stream"}, results=("r",))
    types = key_types(join, SCHEMAS)
    stream = spark.range(NULLS).selectExpr(
        "CAST(id AS INT) AS n",
        "IF(id % 4 < 2, CAST(id % 1000 DIV 4 AS INT), NULL) AS a",
        "IF(id % 2 = 0, CAST(id % 1000 DIV 4 AS INT), NULL) AS b",
        f"id AS {POSITION}",
    )
    each = "CAST(id AS INT)"
    table = spark.range(250).selectExpr(f"stack(3, {each}, {each}, 1, {each}, NULL, 2, NULL, {each}, 3) AS (p, q, v)")
    table = table.unionAll(spark.sql("SELECT CAST(NULL AS INT), CAST(NULL AS INT), 9"))
    with settings(spark, MANY):
        cuts = versions(None, table, join.inputs[1], types[1], beginning=ALWAYS)
        rows = look_up(as_rows(stream, join.inputs[0]), join.links[0], join, types, cuts, broadcast=broadcast)
        sizes = [row["count"] for row in rows.groupBy(F.spark_partition_id()).count().collect()]
        counts = emitted(rows, join).agg(F.count_if("null_key"), F.count("row"), F.sum("row.v")).collect()[0]
    assert sum(sizes) == NULLS
    assert tuple(counts) == (null_keys, NULLS - null_keys, NULLS // 4 * values)
    assert broadcast or max(sizes) < 2 * sorted(sizes)[4]


@pytest.mark.parametrize(("how", "null_keys"), [("LEFT", [2]), ("INNER", [2, 4])])
def test_a_null_of_a_row_that_does_not_satisfy_on_is_no_null_key(spark, how, null_keys):
    """Row 1 finds a null in a row of `u` that ON leaves out, row 2 in another, row 3 finds none, row 4 has a null."""
    sql = f"SELECT s.n, r.v FROM s {how} JOIN u ON s.a = u.id AND u.z > 0 JOIN r ON r.p = u.x AND r.q = s.b"
    join = bound(sql, KEYS, SCHEMAS, {"s": "stream"}, results=("r",))
    types = key_types(join, SCHEMAS)
    columns = StructType([*SCHEMAS["s"], StructField(POSITION, LongType())])
    stream = literal(spark, [(1, 1, 1, 1), (2, 2, 1, 2), (3, 3, 1, 3), (4, None, 1, 4)], columns)
    tables = {"u": [(1, None, 0), (2, None, 1)], "r": [(1, 1, 5)]}
    cuts = {
        place: versions(
            None, literal(spark, tables[item.source], SCHEMAS[item.source]), item, types[place], beginning=ALWAYS
        )
        for place, item in enumerate(join.inputs)
        if place
    }
    rows = stream_rows(stream, join, types, cuts).collect()
    assert sorted(row["position"] for row in rows if row["null_key"]) == null_keys
    assert all(row["row"] is None for row in rows)
