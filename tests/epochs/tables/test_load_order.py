"""A loaded result lies in files whose key ranges do not overlap, and is what plain Spark SQL makes of the sources."""

from functools import reduce
from itertools import pairwise

import pyarrow
import pyarrow.parquet
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.values.pruning import bounds_of, compared, range_of
from lakehouse.values.sqltext import numbered
from pipelines.epochs.views import in_order
from tests.cases import cases
from tests.exact import held, plain
from tests.lake import Lake

ROWS = "SELECT id, CAST(id AS INT) AS i, concat('k ', lpad(id, 4, '0'), IF(id % 2 = 0, '\\u00e9', '')) AS s, "
ROWS += "date_add(DATE'2020-01-01', CAST(id AS INT)) AS d, concat('v', hash(id, {salt})) AS v FROM range({range})"


@pytest.fixture(scope="module")
def lake(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    """Two tables that share a part of their keys, in several files, and rows without a key."""
    lake = Lake(spark, tmp_path_factory.mktemp("order"))
    for name, keys, kind in (("left", "0, 400, 2, 3", "INT"), ("right", "100, 500, 3, 2", "BIGINT")):
        columns = f"i {kind}, s STRING, d DATE, c CHAR(8), v STRING"
        lake.create(name, columns)
        rows = ROWS.format(salt=len(name), range=keys)
        lake.sql(f"INSERT INTO {{{name}}} SELECT i, s, d, left(s, 7), v FROM ({rows}) ORDER BY hash(i)", name)
        lake.sql(f"INSERT INTO {{{name}}} VALUES (NULL, NULL, NULL, NULL, 'no key')", name)
    return lake


def key_ranges(lake: Lake, name: str, key: str) -> list[tuple[object, object]]:
    """Return the first and the last key of each file of a table that holds rows, after checking that they ascend."""
    found = []
    for file in DeltaTable(lake.path(name)).file_uris():
        keys = pyarrow.parquet.read_table(file, columns=[key])[key].to_pylist()
        assert keys == sorted(keys)
        found += [(keys[0], keys[-1])] if keys else []
    return sorted(found)


OF_KEY = {"LEFT": "l.{0}", "INNER": "l.{0}", "RIGHT": "r.{0}", "FULL": "coalesce(l.{0}, r.{0}) AS {0}"}
"""What the SELECT list says of a part of the key, for each type of join."""


@cases(
    "how, key",
    ("LEFT", "i"),
    ("FULL", "i"),
    ("RIGHT", "s"),
    ("INNER", "s"),
    ("FULL", "s d"),
    ("LEFT", "d i"),
    ("LEFT", "c"),
)
def test_files_of_a_load_have_separate_key_ranges(lake, monkeypatch, how, key):
    monkeypatch.setattr(limits, "BYTES_PER_FILE", 3000)
    monkeypatch.delattr(in_order, "expected_rows")  # the rows are not exchanged after the join
    names = key.split()
    chosen = ", ".join(OF_KEY[how].format(name) for name in names)
    on = " AND ".join(f"l.{name} = r.{name}" for name in names)
    sql = f"SELECT {chosen}, l.v, r.v AS w FROM left l {how} JOIN right r ON {on}"
    result = f"r_{how}_{key.replace(' ', '_')}".lower()
    lake.pipeline(sql, {"left": list(names), "right": list(names)}, result).run(lake.spark)
    with_key = " AND ".join(f"{name} IS NOT NULL" for name in names)
    expected = plain(lake, f"SELECT * FROM ({sql}) WHERE {with_key}")
    assert held(lake, result) == expected
    assert len(expected) >= 50
    ranges = key_ranges(lake, result, names[0])
    assert len(ranges) > 1
    assert all(last <= first for (_, last), (first, _) in pairwise(ranges))  # type: ignore[operator]


@cases(
    "kind, joined",
    ("small", "left l LEFT JOIN texts_small t ON l.s = t.s"),
    ("second", "texts_second t RIGHT JOIN left l ON l.s = t.s"),
    ("third", "texts_third t LEFT JOIN texts_third u ON u.s = t.w RIGHT JOIN left l ON l.s = t.s"),
    ("large", "left l LEFT JOIN texts_large t ON l.s = t.s"),
    ("inner", "left l JOIN texts_inner t ON l.s = t.s"),
)
@pytest.mark.deep
def test_a_foreign_key_join_has_separate_key_ranges(lake, monkeypatch, kind, joined):
    """Rows are cut into ranges before outer look-ups in small tables, else after the look-ups."""
    monkeypatch.setattr(limits, "BYTES_PER_FILE", 3000)
    if kind in ("small", "second"):
        monkeypatch.delattr(in_order, "expected_rows")
    if kind == "large":
        monkeypatch.setattr(limits, "BROADCAST_BYTES", 0)
    lake.create(f"texts_{kind}", "s STRING, w STRING")
    rows = "SELECT s, concat('w', s) FROM {left} WHERE i < 300"
    lake.sql(f"INSERT INTO {{texts_{kind}}} {rows}", f"texts_{kind}")
    sql = f"SELECT l.i, l.v, t.w FROM {joined} WHERE l.i > 10"
    lake.pipeline(sql, {"left": "i", f"texts_{kind}": "s"}, f"referring_{kind}").run(lake.spark)
    assert held(lake, f"referring_{kind}") == plain(lake, sql)
    ranges = key_ranges(lake, f"referring_{kind}", "i")
    assert len(ranges) > 1
    assert all(last < first for (_, last), (first, _) in pairwise(ranges))  # type: ignore[operator]


@pytest.mark.deep
def test_three_tables_are_sorted_after_the_join(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "BYTES_PER_FILE", 3000)
    sql = "SELECT coalesce(l.i, r.i, m.i) AS i, l.v, r.v AS w, m.s FROM left l FULL JOIN right r ON l.i = r.i "
    sql += "FULL JOIN more m ON coalesce(l.i, r.i) = m.i"
    lake.create("more", "i INT, s STRING", "(7, 'a'), (100, 'b'), (1000, 'c')")
    lake.pipeline(sql, {"left": "i", "right": "i", "more": "i"}, "three").run(lake.spark)
    assert held(lake, "three") == plain(lake, f"SELECT * FROM ({sql}) WHERE i IS NOT NULL")
    ranges = key_ranges(lake, "three", "i")
    assert len(ranges) > 1
    assert all(last < first for (_, last), (first, _) in pairwise(ranges))  # type: ignore[operator]


@pytest.mark.deep
def test_ranges_hold_about_equal_numbers_of_keys_in_order(spark: SparkSession) -> None:
    keys = spark.sql("SELECT named_struct('k0', concat('k', id % 50), 'k1', id) AS key FROM range(5000)")
    bounds = bounds_of(keys, 5000, 8)
    assert bounds is not None
    assert len(bounds) == 7
    ranged = keys.selectExpr(f"{range_of(compared(['key.k0', 'key.k1']), bounds)} AS place", "key")
    found = ranged.groupBy("place").agg(
        F.count("key").alias("n"), F.min("key").alias("low"), F.max("key").alias("high")
    )
    rows = found.orderBy("place").collect()
    assert [row.place for row in rows] == list(range(8))
    assert all(300 < row.n < 1200 for row in rows)
    assert all(one.high < other.low for one, other in pairwise(rows))
    in_order = reduce(lambda one, other: f"{one} AND {other}", (f"{a} < {b}" for a, b in pairwise(bounds)))
    assert spark.sql(f"SELECT {in_order}").collect()[0][0]


@pytest.mark.deep
def test_a_key_that_occurs_often_is_in_one_range_and_unordered_types_have_none(spark: SparkSession) -> None:
    same = spark.sql("SELECT named_struct('k0', IF(id < 90, 5, id)) AS key FROM range(100)")
    bounds = bounds_of(same, 100, 4)
    assert bounds == ["5L"]
    assert bounds_of(same.where("false"), 0, 4) == []
    assert bounds_of(spark.sql("SELECT named_struct('k0', true) AS key"), 1, 4) is None
    assert compared(["a"]) == "a"
    assert compared(["a", "b"]) == numbered(["a", "b"])
