"""Columns of every Delta type join, compare and change without a spurious row; keys of mixed types too."""

import pytest

from tests.lake import Lake, only

VALUES = {
    "TINYINT": ("1Y", "2Y"),
    "SMALLINT": ("1S", "2S"),
    "INT": ("1", "2"),
    "BIGINT": ("1L", "2L"),
    "FLOAT": ("float('NaN')", "float(1)"),
    "DOUBLE": ("double('NaN')", "double(1)"),
    "DECIMAL(38, 10)": ("1.5BD", "2.5BD"),
    "STRING": ("'é`'", "''"),
    "CHAR(3)": ("'a'", "'b'"),
    "VARCHAR(5)": ("'a'", "'b'"),
    "BINARY": ("X'00FF'", "X''"),
    "BOOLEAN": ("true", "false"),
    "DATE": ("DATE'2013-01-01'", "DATE'0001-01-01'"),
    "TIMESTAMP": ("TIMESTAMP'2013-03-10 02:30:00'", "TIMESTAMP'1900-01-01 00:00:00.000001'"),
    "TIMESTAMP_NTZ": ("TIMESTAMP_NTZ'2013-03-10 02:30:00'", "TIMESTAMP_NTZ'2013-03-10 02:30:00.5'"),
    "STRUCT<`a b`: INT, m: MAP<STRING, DOUBLE>>": (
        "named_struct('a b', 1, 'm', map('x', double('NaN')))",
        "named_struct('a b', NULL, 'm', map('x', -0.0D))",
    ),
    "ARRAY<STRUCT<x: INT, y: STRING>>": ("array(named_struct('x', 1, 'y', NULL))", "array()"),
    "MAP<INT, STRING>": ("map(1, 'a', 2, NULL)", "map()"),
}


@pytest.mark.deep
def test_no_type_makes_a_spurious_row(lake: Lake) -> None:
    """Nulls, NaN, -0.0 and nested values: an overwrite with equal rows changes nothing, a real change one row."""
    columns = [f"c{n}" for n in range(len(VALUES))]
    for side in ("left", "right"):
        typed = ", ".join(f"{c} {kind}" for c, kind in zip(columns, VALUES, strict=True))
        lake.create(side, f"k INT, {typed}", **{"columnMapping.mode": "name"})
        first = ", ".join(value[0] for value in VALUES.values())
        second = ", ".join(value[1] for value in VALUES.values())
        nulls = ", ".join("NULL" for _ in VALUES)
        lake.sql(f"INSERT INTO {{{side}}} SELECT 1, {first} UNION ALL SELECT 2, {second} UNION ALL SELECT 3, {nulls}")
    select = ", ".join(f"l.{c} AS v_{c}, r.{c} AS w_{c}" for c in columns)
    pipeline = lake.pipeline(
        f"SELECT l.k, {select} FROM left l FULL JOIN right r ON l.k = r.k".replace(
            "SELECT l.k", "SELECT coalesce(l.k, r.k) AS k"
        )
    )
    zero = columns[list(VALUES).index("DOUBLE")]
    lake.sql(f"UPDATE {{right}} SET {zero} = 0.0D WHERE k = 3")
    pipeline.run(lake.spark)
    start = lake.version()
    for side in ("left", "right"):
        lake.sql(f"INSERT OVERWRITE {{{side}}} SELECT * FROM {{{side}}}")
    lake.sql(f"UPDATE {{right}} SET {zero} = -0.0D WHERE k = 3")
    assert only(pipeline.run(lake.spark)).changed == 0, "0.0 equals -0.0, and everything else itself"
    assert lake.feed(start) == []
    for half, key in ((0, 3), (1, 1)):
        changes = [f"{c} = {value[1]}" for c, value in zip(columns, VALUES.values(), strict=True)][half::2]
        lake.sql(f"UPDATE {{left}} SET {', '.join(changes)} WHERE k = {key}")
    report = only(pipeline.run(lake.spark))
    assert report.counts["updated"] == 2
    only(pipeline.verify(lake.spark))


@pytest.mark.slow
def test_composite_keys_of_mixed_types(lake: Lake) -> None:
    """An integer that is wider on one side, a timestamp, a string, a double: rows meet by value."""
    mapped = {"columnMapping.mode": "name"}
    lake.create("left", "a INT, `b c` TIMESTAMP, `order` STRING, x DOUBLE, v STRING", **mapped)
    lake.create("right", "x DOUBLE, a BIGINT, `order` STRING, `b c` TIMESTAMP, w STRING", **mapped)
    lake.sql(
        "INSERT INTO {left} VALUES (1, TIMESTAMP'2013-01-01', 'p', double('NaN'), 'a'), "
        "(2, TIMESTAMP'2013-01-02', 'q', 0.0, 'b'), (2, TIMESTAMP'2013-01-02', NULL, 0.0, 'n')"
    )
    lake.sql(
        "INSERT INTO {right} VALUES (double('NaN'), 1, 'p', TIMESTAMP'2013-01-01', 'x'), "
        "(-0.0, 2, 'q', TIMESTAMP'2013-01-02', 'y')"
    )
    pipeline = lake.pipeline(
        "SELECT l.*, r.w FROM left l LEFT JOIN right r "
        "ON r.x = l.x AND l.a = r.a AND l.`b c` = r.`b c` AND l.`order` = r.`order`",
        {"left": ["a", "b c", "order", "x"], "right": ["x", "a", "order", "b c"]},
        name="é `quoted` order",
    )
    pipeline.run(lake.spark)
    assert [(row[0], row[-1]) for row in lake.rows("é `quoted` order")] == [(1, "x"), (2, "y")]
    lake.sql("UPDATE {right} SET w = 'z' WHERE a = 2")
    lake.sql("DELETE FROM {left} WHERE a = 1")
    report = only(pipeline.run(lake.spark))
    assert (report.counts["updated"], report.counts["deleted"]) == (1, 1)
    only(pipeline.verify(lake.spark))


@pytest.mark.deep
def test_values_that_are_equal_but_not_identical_are_seen_by_expressions(lake: Lake) -> None:
    """0.0 equals -0.0, and a map its entries in another order; their text and their keys differ, and follow."""
    lake.create("left", "k INT, x DOUBLE, m MAP<STRING, INT>", "(1, 0.0, map('a', 1, 'b', 2)), (2, 1.0, NULL)")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    pipeline = lake.pipeline(
        "SELECT l.k, l.x, l.m, CAST(l.x AS STRING) AS t, map_keys(l.m) AS ks FROM left l LEFT JOIN right r ON l.k = r.k"
    )
    pipeline.run(lake.spark)
    lake.sql("UPDATE {left} SET x = -0.0D, m = map('b', 2, 'a', 1) WHERE k = 1")
    assert only(pipeline.run(lake.spark)).counts["updated"] == 1
    only(pipeline.verify(lake.spark))
    assert (lake.rows()[0][3], lake.rows()[0][4]) == ("-0.0", ["b", "a"])


@pytest.mark.slow
def test_columns_that_are_never_null_and_a_key_called_count(lake: Lake) -> None:
    """As tables with a primary key have them: inserts and deletes bring no row where there is none."""
    for side in ("left", "right"):
        lake.create(side, "count INT NOT NULL, v STRING NOT NULL", "(1, 'a'), (2, 'b')")
    sql = "SELECT l.count, l.v, r.v AS w FROM left l LEFT JOIN right r ON l.count = r.count"
    pipeline = lake.pipeline(sql, {"left": "count", "right": "count"})
    only(pipeline.run(lake.spark))
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")
    lake.sql("DELETE FROM {right} WHERE count = 1")
    report = only(pipeline.run(lake.spark))
    assert (report.strategy, report.counts["inserted"], report.counts["updated"]) == ("incremental", 1, 1)
    assert lake.rows() == [(1, "a", None), (2, "b", "b"), (3, "c", None)]
