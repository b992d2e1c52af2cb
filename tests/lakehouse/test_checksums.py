"""Checksums find whatever differs between two tables, and nothing where rows are equal."""

from collections.abc import Sequence

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse.values.checksums import FLAGS, compare_checksums, part_of

ROW = "1, 5, CAST(NULL AS INT), 0.0D, 't', named_struct('p', 1, 'q', CAST(NULL AS INT)), array('u', NULL), "
ROW += "map('v', 1, 'w', 2)"
OTHERS = {
    "a value": ("5, CAST(NULL AS INT)", "6, CAST(NULL AS INT)"),
    "a null that moved": ("5, CAST(NULL AS INT)", "CAST(NULL AS INT), 5"),
    "a text": ("'t'", "'T'"),
    "a number": ("0.0D", "1e-300D"),
    "a null in a struct": ("'p', 1, 'q', CAST(NULL AS INT)", "'p', CAST(NULL AS INT), 'q', 1"),
    "a null in an array": ("array('u', NULL)", "array(NULL, 'u')"),
    "no null in an array": ("array('u', NULL)", "array('u')"),
    "a text for a null": ("array('u', NULL)", "array('u', 'null')"),
    "a null for an equal text": ("array('null', NULL)", "array(NULL, 'null')"),
    "an entry of a map": ("'w', 2", "'w', 3"),
    "a key": ("1, 5", "2, 5"),
}
"""What is replaced in the row, and by what, so that it is another row."""


def table(spark: SparkSession, *rows: str) -> DataFrame:
    whole = [f"SELECT {row}" for row in rows]
    others = f"SELECT CAST(id AS INT) + 10, {ROW.partition(', ')[2]} FROM range(300)"
    return spark.sql(" UNION ALL ".join([others, *whole])).toDF("k", "a", "b", "x", "s", "r", "l", "m")


def differing(one: DataFrame, other: DataFrame, key: Sequence[str] = ("k",)) -> tuple[int, ...]:
    return compare_checksums(one, other, key).differing


@pytest.mark.parametrize(("old", "new"), OTHERS.values(), ids=OTHERS)
def test_another_row_has_another_checksum(ours: SparkSession, old: str, new: str) -> None:
    row = ROW.replace("'u'", "'null'") if "'null', NULL" in old else ROW
    assert row.count(old) == 1
    one, other = table(ours, row), table(ours, row.replace(old, new))
    found = differing(one, other)
    assert found
    parts = one.unionAll(other).where("k < 10").selectExpr(part_of(list(one.schema), ["k"])).distinct().collect()
    assert set(found) == {part for (part,) in parts}


def test_equal_rows_in_any_order_have_one_checksum(ours: SparkSession) -> None:
    one = table(ours, ROW, ROW.replace("1, 5", "2, 5").replace("0.0D", "double('NaN')"))
    turned = ROW.replace("0.0D", "-0.0D").replace("'v', 1, 'w', 2", "'w', 2, 'v', 1")
    other = table(ours, ROW.replace("1, 5", "2, 5").replace("0.0D", "-double('NaN')"), turned)
    compared = compare_checksums(one, other.orderBy("k"), ["k"])
    assert (compared.rows, compared.differing) == (302, ())


def test_maps_within_maps_are_hashed_by_their_entries(ours: SparkSession) -> None:
    nested = "map('a', map('x', {0}, 'y', 2), 'b', NULL)"
    one, turned, other = (
        ours.range(3).selectExpr("id AS k", f"{sql} AS m")
        for sql in (nested.format(1), "map('b', NULL, 'a', map('y', 2, 'x', 1))", nested.format(3))
    )
    assert differing(one, turned) == ()
    assert differing(one, other)


def test_lost_doubled_and_swapped_rows_have_other_checksums(ours: SparkSession) -> None:
    more = ROW.replace("1, 5", "2, 6")
    one = table(ours, ROW, more)
    for other in (table(ours, ROW), table(ours, ROW, more, more), table(ours, ROW, ROW, ROW)):
        assert differing(one, other)
    assert differing(one, table(ours, ROW.replace("1, 5", "1, 6"), more.replace("2, 6", "2, 5")))
    assert differing(one.where("false"), one.where("false")) == ()
    assert differing(one.where("false"), one)


def test_nulls_of_any_number_of_columns_count(ours: SparkSession) -> None:
    names = [f"c{n}" for n in range(2 * FLAGS + 3)]
    for place in (0, FLAGS - 1, FLAGS, 2 * FLAGS, 2 * FLAGS + 2):
        one, other = (
            ours.range(1).selectExpr("1 AS k", *(f"IF({n} = {at}, 7, NULL) AS {name}" for n, name in enumerate(names)))
            for at in (place, (place + 1) % len(names))
        )
        assert differing(one, other)
