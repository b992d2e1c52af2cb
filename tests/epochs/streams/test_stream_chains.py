"""Joins that read the results of joins with streams: order, watermarks and rows go from one to the next."""

from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors.errors import CannotContinue, DefinitionChanged
from lakehouse.tables.table import Table
from pipelines import Pipeline
from pipelines.binding import run_versions
from pipelines.binding.workspace import Workspace
from pipelines.commands.status import status_of
from tests.cases import cases
from tests.epochs.lookup.clicks import commit_at
from tests.epochs.window.test_windows import Streams, large_ways, never_alone_and_joined
from tests.joins.oracle import Bound, Emitted, Oracle
from tests.killing import killed
from tests.lake import only

SHOP: dict[str, Any] = {
    name: {"key": "id", "kind": "stream", "watermarks": {"t": "2 minutes"}}
    for name in ("orders", "deliveries", "returns")
}
DELIVERED = """
    SELECT o.id AS o, o.k, o.t AS ordered, d.id AS d, d.t AS delivered FROM orders o {how} JOIN deliveries d
    ON o.k = d.k AND d.t BETWEEN o.t - INTERVAL 1 MINUTE AND o.t + INTERVAL 3 MINUTES
"""
RETURNED = """
    SELECT s.o, s.d, r.id AS r FROM delivered s {how} JOIN returns r
    ON r.k = s.k AND r.t BETWEEN s.delivered - INTERVAL 1 MINUTE AND s.delivered + INTERVAL 4 MINUTES
"""


WHOLE = """
    SELECT o.id AS o, d.id AS d, r.id AS r FROM orders o
    {first} JOIN deliveries d ON o.k = d.k AND d.t BETWEEN o.t - INTERVAL 1 MINUTE AND o.t + INTERVAL 3 MINUTES
    {second} JOIN returns r ON r.k = o.k AND r.t BETWEEN d.t - INTERVAL 1 MINUTE AND d.t + INTERVAL 4 MINUTES
"""
"""The same as one statement."""


class Shop(Streams):
    """Orders, deliveries and returns, with times as minutes after noon; the joins over them, one after the other."""

    def chain(self, first: str = "LEFT", second: str = "LEFT", *, whole: bool = False, **options: Any) -> Pipeline:
        """Write the file: `result` reads `delivered`, or has it as a part of its own statement."""
        if whole:
            return self.pipeline(WHOLE.format(first=first, second=second), SHOP, **options)
        return self.pipeline(
            RETURNED.format(how=second), SHOP, further={"delivered": DELIVERED.format(how=first)}, **options
        )


@pytest.fixture
def shop(spark: SparkSession, tmp_path: Path) -> Shop:
    lake = Shop(spark, tmp_path)
    for name in SHOP:
        lake.create(name, "id INT, k STRING, t TIMESTAMP")
        commit_at(lake, name, 0)
    return lake


class Chain:
    """The two joins in plain Python: what the first one emits, and its watermarks, go to the second one."""

    def __init__(self, first: str, second: str) -> None:
        late = {"l.t": 2, "r.t": 2}
        self.first = Oracle(
            first, [Bound("r.t", "l.t", 1), Bound("l.t", "r.t", 3)], {"l": ("t",), "r": ("t",)}, late,
            lambda o, d: within(o, d, o["t"], d["t"], -1, 3), *free(),
        )  # fmt: skip
        self.second = Oracle(
            second, [Bound("r.t", "l.delivered", 1), Bound("l.delivered", "r.t", 4)],
            {"l": ("ordered", "delivered"), "r": ("t",)}, {"r.t": 2},
            lambda s, r: within(s, r, s["delivered"], r["t"], -1, 4), *free(),
        )  # fmt: skip
        self.rows: list[tuple[Any, ...]] = []

    def come(self, name: str, rows: list[tuple[int, str | None, int | None]]) -> None:
        named = [(row[0], dict(zip(("id", "k", "t"), row, strict=True))) for row in rows]
        if name == "returns":
            self._told(self.second.rows("r", named))
            return
        emitted, late = self.first.rows("l" if name == "orders" else "r", named), self.second.counts["late"]
        self._told(self.second.rows("l", [passed_on(one) for one in emitted]))
        assert self.second.counts["late"] == late, "no row of the first join, alone or not, is late for the second"
        for column, mark in self.first.outputs().items():
            self._told(self.second.watermark({"l.t": "l.ordered", "r.t": "l.delivered"}[column], mark))

    def flush(self) -> None:
        self._told(self.second.rows("l", [passed_on(one) for one in self.first.flush()]))
        self._told(self.second.flush())

    def _told(self, emitted: list[Emitted]) -> None:
        for one in emitted:
            self.rows.append((*(one.left[0] if one.left else (None, None)), one.right[0] if one.right else None))


def passed_on(emitted: Emitted) -> tuple[Any, dict[str, Any]]:
    """Give a row of the first join as the second one sees it."""
    order, delivery = (side[1] if side else {} for side in (emitted.left, emitted.right))
    values = {"k": order.get("k"), "ordered": order.get("t"), "delivered": delivery.get("t")}
    return (order.get("id"), delivery.get("id")), values


def states(shop: Shop, join: Pipeline) -> list[str]:
    workspace = Workspace.open(shop.spark, join.file, join.folder)
    return [status_of(workspace, name).state for name in workspace.joins()]


def within(one: Any, other: Any, start: Any, time: Any, least: int, most: int) -> bool | None:
    if None in (one["k"], other["k"], start, time):
        return None
    return bool(one["k"] == other["k"] and start + least <= time <= start + most)


def free() -> tuple[Any, Any]:
    """No condition on one side alone; a null key."""
    return {side: lambda values: True for side in "lr"}, {side: lambda values: values["k"] is None for side in "lr"}


@pytest.mark.slow
@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("seed", range(5))
def test_what_one_join_makes_the_next_one_takes_as_it_came(shop, seed, few, monkeypatch):
    """
    Epochs cut at random: the result is the oracle's, and no row that stands alone is late for the next join. Written as
    two joins or as one statement, it is the same.
    """
    if not few:
        large_ways(monkeypatch)
    random, spark = Random(seed), shop.spark
    first, second = random.choice(("left", "full", "inner")), random.choice(("left", "full"))
    join = shop.chain(first.upper(), second.upper(), whole=seed % 2 == 1)
    join.run(spark)
    chain = Chain(first, second)
    now, number, late = 0, 0, 0
    for second_ in range(10, 17 if seed == 0 else 24):
        name = random.choice((*SHOP, "orders", "deliveries"))
        now += random.randint(0, 3)
        came: list[tuple[int, str | None, int | None]] = []
        for _ in range(random.randint(1, 4)):
            number += 1
            minute = None if random.random() < 0.1 else now + random.randint(-4, 2)
            came.append((number, random.choice(("a", "a", "b", None)), minute))
        shop.come(name, *came, second=second_)
        chain.come(name, came)
        if random.random() < 0.3:
            late += sum(report.counts.get("late", 0) for report in join.run(spark) if report.join == "result")
    late += sum(report.counts.get("late", 0) for report in join.run(spark) if report.join == "result")
    assert shop.found() == sorted(chain.rows, key=repr)
    assert never_alone_and_joined(shop)
    assert late == chain.second.counts["late"]
    join.flush(spark)
    chain.flush()
    assert shop.found() == sorted(chain.rows, key=repr)
    assert [report.outcome for report in join.verify(spark)] == ["done", "done"]


@pytest.mark.slow
def test_an_epoch_that_only_moves_a_watermark_makes_the_next_join_emit_what_is_due(shop: Shop) -> None:
    """The orders, deliveries and returns of the Hazelcast design: what can meet nothing more is told as it is due."""
    spark, join = shop.spark, shop.chain("INNER", "FULL", whole=True)
    join.run(spark)
    shop.come("orders", (1, "a", 0), second=10)
    shop.come("deliveries", (2, "a", 1), second=11)
    join.run(spark)
    assert shop.found() == []
    shop.come("returns", (3, "z", 60), second=20)
    assert [report.outcome for report in join.run(spark)] == ["nothing", "done"]
    assert shop.found() == [(1, 2, None)], "no return before 58 can come, and the delivery was at 1"
    shop.come("orders", (4, "b", 59), second=30)
    shop.come("deliveries", (5, "b", 60), second=31)
    join.run(spark)
    shop.come("returns", (6, "z", 62), second=40)
    assert join.run(spark)[-1].counts["buffered"] == 3, "the returns of 60 and 62, and the delivery"
    shop.come("orders", (7, "c", 90), second=50)
    shop.come("deliveries", (8, "d", 90), second=51)
    first, second = join.run(spark)
    assert (first.counts["appended"], second.outcome) == (0, "done"), "rows none, a watermark"
    assert second.counts["buffered"] == 1
    alone = [(None, None, 3), (None, None, 6)]
    assert shop.found() == [(1, 2, None), *alone], "no delivery can come any more that returns of 60 and 62 meet"
    assert [report.outcome for report in join.run(spark)] == ["nothing", "nothing"]


@pytest.mark.slow
def test_a_first_load_takes_what_the_join_before_it_has(shop: Shop) -> None:
    """All rows came before the first run: what can meet meets, and what is due by the recorded watermark is told."""
    spark = shop.spark
    shop.come("orders", (1, "a", 0), (2, "b", 0), (3, "c", 60), second=10)
    shop.come("deliveries", (4, "a", 1), (5, "c", 61), (6, "b", 2), second=11)
    shop.come("returns", (7, "a", 3), (8, "c", 62), (9, "z", 0), second=12)
    join = shop.chain("LEFT", "FULL")
    join.run(spark)
    assert (1, 4, 7) in shop.found()
    assert (2, 6, None) in shop.found(), "delivered at 2, and the returns are past 60"
    assert (3, 5, 8) in shop.found()
    assert (None, None, 9) in shop.found(), "the recorded watermark of deliveries is past 0"
    assert len(shop.found()) == 4
    shop.come("deliveries", (10, "z", 90), second=20)
    shop.come("orders", (11, "z", 90), second=21)
    join.run(spark)
    assert [report.outcome for report in join.verify(spark)] == ["done", "done"]


@pytest.mark.slow
def test_a_stream_that_looks_up_passes_its_watermark_on_with_rows_or_without(shop: Shop) -> None:
    """An order of no shop is dropped, and tells how late it is all the same; a table is then met as it was."""
    spark, random = shop.spark, Random(3)
    shop.create("shops", "k STRING, name STRING", "('a', 'A')")
    commit_at(shop, "shops", 0)
    sources = {**SHOP, "shops": {"key": "k"}}
    placed = "SELECT o.id, o.k, o.t AS ordered, p.name FROM orders o JOIN shops p ON o.k = p.k"
    result = """
        SELECT s.id AS o, r.id AS r FROM placed s LEFT JOIN returns r
        ON r.k = s.k AND r.t BETWEEN s.ordered AND s.ordered + INTERVAL 4 MINUTES
    """
    named = "SELECT x.o, x.r, p.name FROM result x JOIN shops p ON coalesce(if(x.r IS NULL, 'z', 'a'), 'z') = p.k"
    join = shop.pipeline(result, sources, further={"placed": placed, "named": named})
    join.run(spark)
    oracle = Oracle(
        "left", [Bound("r.t", "l.t", 0), Bound("l.t", "r.t", 4)], {"l": ("t",), "r": ("t",)}, {"r.t": 2},
        lambda s, r: within(s, r, s["t"], r["t"], 0, 4), *free(),
    )  # fmt: skip
    emitted, seen, now, number = [], -99, 0, 0
    for second in range(10, 15):
        name, now = random.choice(("orders", "returns")), now + random.randint(0, 4)
        rows = [(number + n, random.choice("aab"), now + random.randint(-3, 1)) for n in range(1, 4)]
        number += 3
        shop.come(name, *rows, second=second)
        values = [(row[0], dict(zip(("id", "k", "t"), row, strict=True))) for row in rows]
        if name == "returns":
            emitted += oracle.rows("r", values)
        else:
            emitted += oracle.rows("l", [row for row in values if row[1]["k"] == "a"])
            seen = max(seen, *(row[2] for row in rows))
            emitted += oracle.watermark("l.t", seen - 2)
        if random.random() < 0.4:
            join.run(spark)
    reports = join.run(spark)
    assert [report.join for report in reports] == ["placed", "result", "named"]
    told = [tuple(side and side[0] for side in (one.left, one.right)) for one in emitted]
    assert shop.found() == sorted(told, key=repr)
    assert sorted(tuple(row)[:3] for row in shop.rows("named")) == sorted((*one, "A") for one in told if one[1])
    assert {report.outcome for report in join.verify(spark)} == {"done"}


@pytest.mark.slow
def test_what_the_first_join_has_not_taken_yet_holds_the_next_one_back(shop: Shop) -> None:
    """Orders that came before a return wait in their stream: the return is not taken before them."""
    spark, join = shop.spark, shop.chain("LEFT", "LEFT")
    join.run(spark)
    shop.come("orders", (1, "a", 0), second=10)
    join.run(spark)
    shop.come("orders", (2, "b", 30), second=20)
    shop.come("returns", (3, "a", 90), second=30)
    alone = only(join.run(spark, select=["result"]))
    assert alone.outcome == "nothing", "at 20 something came to the orders that `delivered` does not have yet"
    assert alone.reason.startswith("held-back: ")
    first, second = join.run(spark)
    assert (first.counts["read"], second.counts["read"]) == (1, 1)


@pytest.mark.slow
def test_upkeep_of_the_first_result_is_no_commit_behind(shop: Shop) -> None:
    """OPTIMIZE made the version that the first load of the next join read: it goes on, and needs no version before."""
    spark, join = shop.spark, shop.chain("LEFT", "LEFT")
    shop.come("orders", (1, None, 0), (2, "a", 0), second=10)
    join.run(spark, select=["delivered"])
    shop.come("orders", (3, None, 0), second=11)
    join.run(spark, select=["delivered"])
    shop.sql("OPTIMIZE {delivered}", "delivered")
    join.run(spark)
    assert {report.outcome for report in join.run(spark)} == {"nothing"}
    assert states(shop, join) == ["current", "current"]
    shop.come("orders", (4, "b", 9), second=12)
    shop.come("deliveries", (5, "b", 30), second=13)
    join.run(spark, select=["delivered"])
    assert states(shop, join) == ["current", "behind"]
    join.run(spark)
    assert shop.found() == [(number, None, None) for number in (1, 2, 3, 4)]


@pytest.mark.slow
def test_a_statement_that_gains_a_stream_is_another_definition(shop: Shop) -> None:
    spark = shop.spark
    shop.pipeline("SELECT o.id AS o, d.id AS d, d.id AS r FROM orders o LEFT JOIN deliveries d ON o.t = d.t", SHOP).run(
        spark
    )
    with pytest.raises(DefinitionChanged):
        shop.chain(whole=True).run(spark)


@pytest.mark.slow
def test_a_flush_goes_on_through_joins_that_look_up(shop: Shop) -> None:
    """Rows that leave the first join are looked up for, and meet what waits in the last one before that is flushed."""
    spark = shop.spark
    shop.create("shops", "k STRING, name STRING", "('a', 'A')")
    placed = "SELECT s.o, s.k, s.ordered, p.name FROM delivered s JOIN shops p ON s.k = p.k"
    result = """
        SELECT s.o, r.id AS r FROM placed s FULL JOIN returns r
        ON r.k = s.k AND r.t BETWEEN s.ordered AND s.ordered + INTERVAL 4 MINUTES
    """
    further = {"delivered": DELIVERED.format(how="LEFT"), "placed": placed}
    join = shop.pipeline(result, {**SHOP, "shops": {"key": "k"}}, further=further)
    join.run(spark)
    shop.come("orders", (1, "a", 0), second=10)
    shop.come("returns", (2, "a", 1), second=11)
    reports = join.flush(spark)
    assert [report.join for report in reports] == ["delivered", "placed", "result"]
    assert shop.found() == [(1, 2)]


def test_streams_are_cut_at_one_place_for_a_join_of_their_joins(shop: Shop, monkeypatch: pytest.MonkeyPatch) -> None:
    """While the streams are looked at more comes to all of them: none is read beyond the first that was left out."""
    paid = DELIVERED.replace("deliveries", "returns").format(how="LEFT")
    both = """
        SELECT a.o, b.o AS other FROM delivered a LEFT JOIN paid b
        ON a.k = b.k AND a.ordered BETWEEN b.ordered - INTERVAL 1 MINUTE AND b.ordered + INTERVAL 1 MINUTE
    """
    further = {"delivered": DELIVERED.format(how="LEFT"), "paid": paid}
    file = shop.pipeline(both, SHOP, further=further).file
    workspace = Workspace.open(shop.spark, file, shop.folder)
    shop.come("orders", (1, "a", 0), second=10)
    shop.come("deliveries", (2, "a", 0), second=30)
    looked = run_versions.refresh
    second = iter(range(15, 90))

    def busy(spark: SparkSession, table: Table) -> Table:
        if table.address.label == "orders":
            shop.come("orders", (3, "a", 0), second=next(second))
        return looked(spark, table)

    monkeypatch.setattr(run_versions, "refresh", busy)
    tables = run_versions.newest_sources(workspace, ["delivered", "paid", "result"])
    cut = {name: table.version for name, table in tables.items()}
    assert cut == {"orders": shop.version("orders") - 1, "deliveries": 0, "returns": 0}, "30 is later than 17"


@pytest.mark.slow
def test_a_reset_of_the_first_join_is_one_for_the_next_as_well(shop: Shop) -> None:
    """Its positions begin anew, rows or not: the next one says so, and what to do."""
    spark, join = shop.spark, shop.chain("LEFT", "LEFT")
    shop.come("orders", (1, "a", 0), second=10)
    join.run(spark)
    join.backfill(spark, select=["delivered"], remedy="reset")
    shop.come("orders", (2, "b", 30), second=20)
    with pytest.raises(CannotContinue, match="was recreated") as caught:
        join.run(spark)
    assert "`lakejoin backfill --reset --select result`" in caught.value.hint
    join.backfill(spark, select=["result"], remedy="reset")
    assert {report.outcome for report in join.run(spark)} == {"nothing"}


@pytest.mark.slow
@cases("write", "load delivered", "load delivered__state", "ledger: committed epoch 2 of delivered", "load result")
def test_a_killed_run_of_a_chain_is_finished_with_the_positions_that_it_recorded(shop: Shop, write: str) -> None:
    """What the next join learns of watermarks is in the row of the ledger from which the epoch is finished."""
    spark, join, chain = shop.spark, shop.chain("LEFT", "LEFT"), Chain("left", "left")
    join.run(spark)
    commits: list[tuple[str, list[tuple[int, str | None, int | None]]]] = [
        ("orders", [(1, "a", 0), (2, "b", 0)]),
        ("deliveries", [(3, "a", 1), (4, "z", 30)]),
        ("returns", [(5, "a", 2), (6, "z", 30)]),
        ("orders", [(7, "a", 40)]),
    ]
    for second, (name, rows) in enumerate(commits, start=10):
        shop.come(name, *rows, second=second)
        chain.come(name, rows)
    with killed(write):
        join.run(spark)
    join.run(spark)
    assert shop.found() == sorted(chain.rows, key=repr) != []
    assert {report.outcome for report in join.run(spark)} == {"nothing"}
