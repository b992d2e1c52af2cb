"""A stream joined with itself through real Delta tables: what meets, what waits, with one store and with two."""

from copy import deepcopy
from itertools import cycle
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import SparkSession

from lakehouse.errors.errors import BufferFull
from pipelines import Pipeline
from tests.epochs.lookup.clicks import commit_at
from tests.epochs.window.test_windows import Streams, large_ways, never_alone_and_joined, oracle_of
from tests.killing import killed
from tests.lake import only

SOURCES: dict[str, Any] = {"visits": {"key": "id", "kind": "stream", "watermarks": {"t": "5 minutes"}}}
JOIN = """
    SELECT a.id AS l, b.id AS r FROM visits a JOIN visits b
    ON a.k = b.k AND b.t BETWEEN a.t - INTERVAL 10 MINUTES AND a.t + INTERVAL 20 MINUTES AND a.id > 0
"""


class Visits(Streams):
    """A stream of rows with a key and a time, given as minutes after noon."""

    def visit(self, *rows: tuple[int, str | None, int | None], second: int) -> None:
        self.come("visits", *rows, second=second)

    def self_join(self, optimizations: Any = "all", sql: str = JOIN, **options: Any) -> Pipeline:
        return self.pipeline(sql, SOURCES, beside={"optimizations": optimizations}, **options)

    def waiting(self) -> list[tuple[int, int]]:
        rows = self.spark.sql(f"SELECT _side, coalesce(left_row, right_row).id FROM {self.state}").collect()
        return sorted((row[0], row[1]) for row in rows)

    @property
    def state(self) -> str:
        first = self.spark.sql(f"SELECT * FROM {self.at('result__state')}").columns[0]
        return f"(SELECT {first} AS _side, left_row, right_row FROM {self.at('result__state')})"


@pytest.fixture
def visits(spark: SparkSession, tmp_path: Path) -> Visits:
    lake = Visits(spark, tmp_path)
    lake.create("visits", "id INT, k STRING, t TIMESTAMP")
    commit_at(lake, "visits", 0)
    return lake


@pytest.mark.slow
@pytest.mark.parametrize("few", [True, False])
@pytest.mark.parametrize("seed", [0, 1, 2])
@pytest.mark.parametrize("how", ["inner", "full"])
def test_with_one_store_or_two_and_switched_at_random_it_is_what_the_oracle_says(visits, how, seed, few, monkeypatch):
    """One commit is one position: its right rows meet the left rows stored at it, each row itself among them."""
    if not few:
        large_ways(monkeypatch)
    random, spark = Random(seed), visits.spark
    sql = JOIN if how == "inner" else JOIN.replace("JOIN visits b", "FULL JOIN visits b")
    visits.self_join(random.choice(("all", "none")), sql).run(spark)
    oracle = oracle_of(how, lambda left: bool(left["id"] > 0))
    rows: list[tuple[Any, Any]] = []
    rules = cycle(("all", "none", ["single_store_self_join"], ["share_change_reads"]))
    now, number, forms = 0, 0, set()
    for second in range(10, 21):
        now += random.randint(0, 12)
        came = []
        for _ in range(random.randint(1, 4)):
            number += 1
            minute = None if random.random() < 0.1 else now + random.randint(-9, 4)
            came.append((random.choice((number, number, -number)), random.choice(("a", "a", "b", None)), minute))
        visits.visit(*came, second=second)
        named = [(one[0], dict(zip(("id", "k", "t"), one, strict=True))) for one in came]
        for emitted in oracle.both(named, named):
            rows.append(tuple(None if side is None else side[0] for side in (emitted.left, emitted.right)))
        if random.random() < 0.5:
            rule = next(rules)
            visits.self_join(rule, sql).run(spark)
            waits, held = visits.waiting(), [({"l": 0, "r": 1}[one.side], one.row[0]) for one in oracle.buffered]
            assert visits.found() == sorted(rows, key=repr)
            if how == "inner" and rule in ("all", ["single_store_self_join"]):
                assert waits == sorted({(2, one) for _, one in held}), "each once, whatever side needs it"
            else:
                assert waits == sorted(held)
            forms |= {side for side, _ in waits}
    assert how == "full" or forms >= {0, 2}, "both ways were taken"
    assert never_alone_and_joined(visits)
    join = visits.self_join("all", sql)
    join.run(spark)
    assert only(join.flush(spark)).counts["buffered"] == 0
    rows += [tuple(side and side[0] for side in (one.left, one.right)) for one in oracle.flush()]
    assert visits.found() == sorted(rows, key=repr)
    assert only(join.verify(spark)).counts["expected"] == len(rows)


@pytest.mark.slow
def test_a_killed_run_is_finished_and_the_rule_may_have_changed_meanwhile(visits: Visits) -> None:
    spark = visits.spark
    visits.self_join("none").run(spark)
    visits.visit((1, "a", 0), (2, "b", 1), second=10)
    with killed("load result"):
        visits.self_join("all").run(spark)
    visits.visit((3, "a", 4), second=20)
    visits.self_join("none").run(spark)
    assert visits.found() == [(1, 1), (1, 3), (2, 2), (3, 1), (3, 3)]
    assert visits.waiting() == [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3)]


@pytest.mark.slow
def test_rows_that_wait_once_count_once(visits: Visits) -> None:
    spark = visits.spark
    visits.self_join(max_buffered_rows=3).run(spark)
    visits.visit((1, "a", 0), (2, "a", 1), (3, "b", 2), second=10)
    with pytest.raises(BufferFull, match="at most 3 rows"):
        visits.self_join("none", max_buffered_rows=3).run(spark)
    assert only(visits.self_join(max_buffered_rows=3).run(spark)).counts["buffered"] == 3


def test_two_names_of_one_table_are_one_stream(visits: Visits) -> None:
    """The table is read and kept once; rows are known by the same identity on both sides."""
    spark, place = visits.spark, visits.path("visits")
    one = {**SOURCES["visits"], "path": place}
    sql = JOIN.replace("visits a", "earlier a").replace("visits b", "later b")
    join = visits.pipeline(sql, {"earlier": one, "later": deepcopy(one)})
    join.run(spark)
    visits.visit((1, "a", 0), second=10)
    visits.visit((2, "a", 3), second=20)
    report = only(join.run(spark))
    assert (report.counts["read"], report.counts["behind_cut"]) == (2, 0)
    assert visits.found() == [(1, 1), (1, 2), (2, 1), (2, 2)]
    assert visits.waiting() == [(2, 1), (2, 2)]
    assert visits.sql("SELECT count(DISTINCT _left_row) FROM {result}")[0][0] == 2
    assert visits.sql("SELECT count(*) FROM {result} WHERE _left_row = _right_row")[0][0] == 2


@pytest.mark.slow
def test_one_store_halves_what_waits_and_what_is_read(visits: Visits) -> None:
    """The claim of KIP-862, measured: with bounds alike both ways each row waits on both sides as long."""
    spark = visits.spark
    sql = JOIN.replace("10 MINUTES", "20 MINUTES")
    counts = {}
    for rule in ("none", "all"):
        lake = visits.copy(visits.folder.parent / f"with_{rule}")
        lake.self_join(rule, sql).run(spark)
        lake.visit(*((n, "abcd"[n % 4], n % 10) for n in range(1, 41)), second=10)
        report = only(lake.self_join(rule, sql).run(spark))
        counts[rule] = (report.counts["buffered"], report.counts["read"], sorted(lake.found()))
    (two, twice, plain), (one, once, optimized) = counts["none"], counts["all"]
    assert (two, twice) == (2 * one, 2 * once)
    assert plain == optimized
