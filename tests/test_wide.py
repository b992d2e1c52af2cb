"""Tables with many columns: what an epoch costs follows what changed, not how many columns there are."""

import re

import pytest
from pyspark.sql import functions as F
from pyspark.sql.types import DoubleType, IntegerType, MapType, StringType

from lakehouse.publish import merge as publish
from lakehouse.publish.merge import merge_statement
from lakehouse.publish.stage import Stage
from lakehouse.session.files import Files
from lakehouse.values.compare import is_exact
from lakehouse.values.sqltext import Address
from tests.lake import Lake, only

COLUMNS = 2_000
KINDS = ("INT", "STRING", "DOUBLE")


def assigned(statement: str) -> list[str]:
    return re.findall(r"t\.`(\w+)` = s\.after", statement.partition("UPDATE SET")[2].partition("WHEN")[0])


@pytest.mark.deep
def test_an_update_assigns_only_the_columns_that_may_differ(lake: Lake) -> None:
    """Columns that differ in some update, and those of types in which equal values may be written differently."""
    row = "STRUCT<k: INT, v: STRING, w: INT, d: DOUBLE, m: MAP<STRING, INT>>"
    schema = f"op STRING, key STRUCT<k: INT>, before {row}, after {row}"
    rest = (0.0, {"a": 1})
    first = ("update", (1,), (1, "a", 1, *rest), (1, "b", 1, *rest))
    inserted = ("insert", (9,), None, (9, "x", 1, *rest))
    cases = [
        ([first], ["v", "d", "m"]),
        ([first, inserted], ["v", "d", "m"]),
        ([first, ("update", (2,), (2, "a", 1, *rest), (2, "a", 5, *rest))], ["v", "w", "d", "m"]),
        ([("update", (1,), (1, "a", 1, *rest), (1, "a", 1, 2.0, {"a": 1}))], ["d", "m"]),
    ]
    lake.create("t", "k INT, v STRING, w INT, d DOUBLE, m MAP<STRING, INT>", "(1, 'a', 1, 0.0, map('a', 1))")
    for number, (changes, expected) in enumerate(cases):
        stage = Stage(str(lake.folder / "stage" / str(number)), Files())
        stage.put("result", lake.spark.createDataFrame(changes, schema))
        ops = sorted({change[0] for change in changes})
        statement = merge_statement(Address("t", lake.path("t")), stage, stage.get(lake.spark, "result"), ops)
        assert assigned(statement) == expected
        if number == 1:
            lake.spark.sql(statement)
            assert lake.rows("t") == [(1, "b", 1, 0.0, {"a": 1}), (9, "x", 1, 0.0, {"a": 1})]


def test_only_types_whose_equal_values_are_identical_are_exact() -> None:
    """0.0 equals -0.0, maps are equal in any order of their entries, and a collation makes different texts equal."""
    assert is_exact(IntegerType())
    assert is_exact(StringType())
    assert not is_exact(DoubleType())
    assert not is_exact(MapType(StringType(), IntegerType()))
    assert not is_exact(StringType("UTF8_LCASE"))


@pytest.mark.slow
def test_one_change_in_two_thousand_columns(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The epoch updates one row, in the result and its feed, and its MERGE assigns what differs."""
    kinds = {f"c{n}": KINDS[n % len(KINDS)] for n in range(COLUMNS - 1)}
    lake.create("left", ", ".join(["k INT", *(f"{name} {kind}" for name, kind in kinds.items())]))
    values = [f"CAST(id + {n} AS {kind}) AS {name}" for n, (name, kind) in enumerate(kinds.items())]
    rows = lake.spark.range(1, 21).select(F.col("id").cast("int").alias("k"), *map(F.expr, values))
    rows.write.format("delta").mode("append").save(lake.path("left"))
    lake.create("right", "k INT, w STRING", "(1, 'one'), (7, 'seven')")
    pipeline = lake.pipeline("SELECT l.*, r.w FROM left l LEFT JOIN right r ON l.k = r.k")
    only(pipeline.run(lake.spark))
    written: list[str] = []

    def recorded(*args: object, **options: object) -> str:
        written.append(merge_statement(*args, **options))  # type: ignore[arg-type]
        return written[-1]

    monkeypatch.setattr(publish, "merge_statement", recorded)
    before = lake.version()
    lake.sql("UPDATE {left} SET c0 = -1, c1 = 'changed' WHERE k = 7")
    report = only(pipeline.run(lake.spark))
    assert {name: report.counts[name] for name in ("inserted", "updated", "deleted")} == {
        "inserted": 0,
        "updated": 1,
        "deleted": 0,
    }
    (statement,) = written
    doubles = [name for name, kind in kinds.items() if kind == "DOUBLE"]
    assert assigned(statement) == ["c0", "c1", *doubles]
    old, new = (
        (
            7,
            first,
            second,
            *(float(7 + n) if n % 3 == 2 else 7 + n if n % 3 == 0 else str(7 + n) for n in range(2, 1999)),
        )
        for first, second in ((7, "8"), (-1, "changed"))
    )
    assert sorted(lake.feed(before)) == [("update_postimage", (*new, "seven")), ("update_preimage", (*old, "seven"))]
    assert len(lake.rows()) == 20
