"""The gate of a first load: a sample of whole rows is what the join makes of its sources."""

from collections.abc import Callable
from typing import Any

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.gate import loaded
from lakehouse import limits
from lakehouse.errors.errors import GateFailed
from pipelines import Pipeline
from pipelines.epochs.views import load
from tests.cases import cases
from tests.lake import KEYED, Lake, only

MISSING, SURPLUS, DIFFERS = "has every row", "does not compute", "a row of the result equals"
FAULTS: dict[str, tuple[Callable[[DataFrame], DataFrame], str]] = {
    "a wrong value": (lambda rows: rows.withColumn("w", F.expr("IF(k = 2, 'wrong', w)")), DIFFERS),
    "no value": (lambda rows: rows.withColumn("w", F.expr("IF(k = 2, NULL, w)")), DIFFERS),
    "a map in another order": (
        lambda rows: rows.withColumn("m", F.expr("map_from_entries(reverse(map_entries(m)))")),
        DIFFERS,
    ),
    "no row": (lambda rows: rows.where("k <> 2"), MISSING),
    "no rows": (lambda rows: rows.where("FALSE"), MISSING),
    "a row of nothing": (lambda rows: rows.unionAll(rows.where("k = 2").withColumn("k", F.lit(9))), SURPLUS),
}
KINDS = {
    "foreign-key": "SELECT l.k, l.m, r.w FROM left l LEFT JOIN right r ON l.f = r.k",
    "table-table": "SELECT l.k, l.m, r.w FROM left l JOIN right r ON l.k = r.k",
    "table-table, full": "SELECT k, l.m, r.w FROM left l FULL JOIN right r USING (k)",
}


@pytest.fixture
def unloaded(lake: Lake) -> Lake:
    lake.create(
        "left", "k INT, f INT, m MAP<STRING, INT>", "(1, 1, map('a', 1, 'b', 2)), (2, 4, NULL), (3, NULL, NULL)"
    )
    lake.create("right", "k INT, w STRING", "(1, 'A'), (2, 'B'), (4, 'D'), (NULL, 'E')")
    return lake


def _loading(monkeypatch: pytest.MonkeyPatch, change: Callable[[DataFrame], DataFrame]) -> None:
    append = load.append

    def faulty(rows: DataFrame, *args: Any, **options: Any) -> Any:
        return append(change(rows), *args, **options)

    monkeypatch.setattr(load, "append", faulty)


@pytest.mark.parametrize("size", ["small", "large"])
@pytest.mark.parametrize("fault", FAULTS)
def test_a_planted_fault_is_found_and_the_load_is_dropped(unloaded, monkeypatch, fault, size):
    change, finding = FAULTS[fault]
    if size == "large":
        for name in ("SMALL_BYTES", "LITERAL_BYTES", "BROADCAST_BYTES"):
            monkeypatch.setattr(limits, name, -1)
    pipeline = unloaded.pipeline(KINDS["foreign-key"], KEYED)
    with monkeypatch.context() as planted:
        _loading(planted, change)
        with pytest.raises(GateFailed, match=finding):
            pipeline.run(unloaded.spark)
    assert not unloaded.is_there("result")
    assert only(pipeline.run(unloaded.spark)).counts["inserted"] == 3


@cases(
    "size", ("SMALL_BYTES", 2**40), ("LITERAL_BYTES", 2**40), ("LITERAL_BYTES", -1), ids=["small", "between", "large"]
)
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_right_passes(unloaded, monkeypatch, kind, size):
    """Rows without a key, without a partner, and that an inner join leaves out are no findings."""
    if size[0] == "LITERAL_BYTES":
        monkeypatch.setattr(limits, "SMALL_BYTES", -1)
        monkeypatch.setattr(limits, "BROADCAST_BYTES", -1)
    monkeypatch.setattr(limits, *size)
    pipeline = unloaded.pipeline(KINDS[kind], KEYED)
    assert only(pipeline.run(unloaded.spark)).outcome == "done"


@pytest.mark.deep
def test_another_load_is_looked_at_elsewhere(unloaded: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sample is of the run: a fault in one row of many is found sooner or later."""
    monkeypatch.setattr(limits, "SAMPLED_KEYS", 1)
    lake, seen = unloaded, set[int]()
    lake.sql("INSERT INTO {left} SELECT id, id, NULL FROM range(10, 40)")
    driver_copy = loaded.driver_copy

    def sampled(rows: DataFrame) -> DataFrame:
        collected = driver_copy(rows)
        if rows.columns == ["key"]:
            seen.update(row.key.k0 for row in collected.collect())
        return collected

    monkeypatch.setattr(loaded, "driver_copy", sampled)
    pipeline: Pipeline = lake.pipeline(KINDS["foreign-key"], KEYED)
    with monkeypatch.context() as planted:
        _loading(planted, lambda rows: rows.where("k < 0"))
        for _ in range(3):
            with pytest.raises(GateFailed):
                pipeline.run(lake.spark)
    assert len(seen) > 1


@cases(
    "fault, finding",
    ("IF(k = 25, array(), array(k))", "32 rows for 33$"),
    ("IF(k = 25, array(99), array(k))", "33 rows for 33 with other keys$"),
    ("IF(k = 25, array(k, k), array(k))", r"one change per key: k \(2 rows\).*34 rows for 33$"),
    ids=["lost", "under another key", "twice"],
)
def test_no_row_of_a_left_join_may_be_lost_or_added_outside_the_sample(unloaded, monkeypatch, fault, finding):
    """The keys of the whole result are those of the first table; the sample sees none of these rows."""
    sampled = loaded._with_wrong_rows
    monkeypatch.setattr(loaded, "_with_wrong_rows", lambda *given: sampled(*given).where("FALSE"))
    lake = unloaded
    lake.sql("INSERT INTO {left} SELECT id, id, NULL FROM range(10, 40)")
    pipeline: Pipeline = lake.pipeline(KINDS["foreign-key"], KEYED)
    with monkeypatch.context() as planted:
        _loading(planted, lambda rows: rows.withColumn("k", F.explode(F.expr(fault))))
        with pytest.raises(GateFailed, match=finding):
            pipeline.run(lake.spark)
    assert only(pipeline.run(lake.spark)).counts["inserted"] == 33


@pytest.mark.deep
def test_keys_are_compared_part_by_part_whatever_their_order_in_the_statement(lake: Lake) -> None:
    """Parts of two types, named and selected in another order than in the key, one of them padded text."""
    lake.create("left", "a INT, b CHAR(3), c BIGINT", "(1, 'x', 1), (2, 'y', NULL), (NULL, 'z', 1)")
    lake.create("right", "k BIGINT, w STRING", "(1, 'A')")
    sql = "SELECT l.a AS z, l.b AS y, r.w FROM left l LEFT JOIN right r ON l.c = r.k"
    assert only(lake.pipeline(sql, {"left": ["b", "a"], "right": "k"}).run(lake.spark)).counts["inserted"] == 2
