"""Joins of two streams through real Delta tables: what is added when, what waits, and what is kept exactly once."""

import shutil
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

import pytest
from pyspark.sql import DataFrameWriter, SparkSession

from lakehouse import limits
from lakehouse.errors.errors import BufferFull, CannotContinue, DefinitionChanged, ForeignWriter, PipelineFileError
from lakehouse.session import session
from pipelines import Pipeline
from pipelines.epochs.publish import publish
from pipelines.epochs.window import ordered_rows
from tests.epochs.lookup.clicks import commit_at
from tests.joins.oracle import Bound, Oracle
from tests.killing import killed
from tests.lake import Lake, only

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
SOURCES: dict[str, Any] = {
    "left": {"key": "id", "kind": "stream", "watermarks": {"t": "5 minutes"}},
    "right": {"key": "id", "kind": "stream", "watermarks": {"t": "5 minutes"}},
}
WITHIN = "r.t BETWEEN l.t - INTERVAL 10 MINUTES AND l.t + INTERVAL 20 MINUTES"
JOIN = f"SELECT l.id AS l, r.id AS r FROM left l LEFT JOIN right r ON l.k = r.k AND {WITHIN}"


class Streams(Lake):
    """Two streams of rows with a key and a time, given as minutes after noon."""

    def come(self, name: str, *rows: tuple[int, str | None, int | None], second: float | None = None) -> None:
        listed = ", ".join(
            f"({number}, {'NULL' if key is None else repr(key)}, {at(minute)})" for number, key, minute in rows
        )
        self.sql(f"INSERT INTO {{{name}}} VALUES {listed}", name)
        if second is not None:
            commit_at(self, name, second)

    def join(self, sql: str = JOIN, **options: Any) -> Pipeline:
        given = {name: {**SOURCES[name], **options.pop(name, {})} for name in SOURCES}
        return self.pipeline(sql, given, **options)

    def found(self) -> list[tuple[Any, ...]]:
        return [row[:-4] for row in self.rows()]

    def waits(self) -> list[int]:
        rows = self.spark.sql(f"SELECT coalesce(left_row, right_row).id FROM {self.at('result__state')}").collect()
        return sorted(row[0] for row in rows)


def at(minute: int | None) -> str:
    return "NULL" if minute is None else f"TIMESTAMP'{(NOON + timedelta(minutes=minute)).isoformat()}'"


@pytest.fixture(scope="session")
def _streams(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Streams:
    lake = Streams(spark, tmp_path_factory.mktemp("streams"))
    lake.create("left", "id INT, k STRING, t TIMESTAMP")
    lake.create("right", "id INT, k STRING, t TIMESTAMP")
    for name in ("left", "right"):
        commit_at(lake, name, 0)
    return lake


@pytest.fixture
def streams(_streams: Streams, tmp_path: Path) -> Streams:
    return _streams.copy(tmp_path / "streams")


@pytest.mark.fast
def test_rows_meet_wait_and_leave_once(streams: Streams) -> None:
    """A pair across epochs, a row that stands alone once nothing can meet it, and one that is late."""
    spark, join = streams.spark, streams.join()
    streams.come("left", (1, "a", 0), (2, "b", 0), (3, None, 0), second=10)
    first = only(join.run(spark))
    assert (first.strategy, streams.found(), streams.waits()) == ("load", [(3, None)], [1, 2])
    assert (first.counts["null_keys"], first.counts["buffered"], first.counts["appended"]) == (1, 2, 1)
    streams.come("right", (10, "a", 20), second=20)
    second = only(join.run(spark))
    assert (second.counts["appended"], streams.found()) == (1, [(1, 10), (3, None)])
    assert second.counts["buffered_updated"] == 1, "that a row has met another is kept"
    streams.come("left", (4, "a", 60), second=30)
    streams.come("right", (11, "b", 26), (12, "a", 12), second=40)
    third = only(join.run(spark))
    assert (third.counts["late"], third.counts["appended"]) == (1, 1), "12 is below 20 less 5 minutes, and 26 is not"
    assert streams.found() == [(1, 10), (2, None), (3, None)], "alone once the right stream is past 20 by 5 minutes"
    assert streams.waits() == [4], "of the right, 26 leaves as soon as left rows of 55 and more alone can come"
    assert only(join.run(spark)).outcome == "nothing"
    assert only(join.verify(spark)).counts["missing"] == 0


@pytest.mark.deep
def test_the_fault_tolerance_example_of_the_hazelcast_design(streams: Streams) -> None:
    """After a restart a row is late as it was before: what it would have met has left the buffer."""
    sources = {name: {"key": "id", "kind": "stream", "watermarks": {"time": 0}} for name in ("ls", "rs")}
    for name in sources:
        streams.create(name, "id INT, time INT")
    join = streams.pipeline("SELECT l.id AS l, r.id AS r FROM ls l LEFT JOIN rs r ON l.time = r.time", sources)
    streams.sql("INSERT INTO {ls} VALUES (1, 10)", "ls")
    streams.sql("INSERT INTO {rs} VALUES (1, 10)", "rs")
    join.run(streams.spark)
    streams.sql("INSERT INTO {ls} VALUES (3, 15)", "ls")
    join.run(streams.spark)
    assert streams.found() == [(1, 1)]
    streams.sql("INSERT INTO {ls} VALUES (2, 10)", "ls")
    restarted = Pipeline.load(streams.file)
    assert only(restarted.run(streams.spark)).counts["late"] == 1
    assert streams.found() == [(1, 1)], "not l2 alone, beside r1 that had left"


@pytest.mark.slow
@pytest.mark.parametrize("few", [True, False], ids=["through the driver", "through the stage"])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_epochs_cut_at_random_are_what_the_oracle_says(streams, seed, few, monkeypatch):
    """Commits of both streams in turn; a run now and then; what waits and what was added are the oracle's."""
    if not few:
        large_ways(monkeypatch)
    random, spark = Random(seed), streams.spark
    how = random.choice(("left", "full"))
    join = streams.join(JOIN.replace("LEFT", how.upper()))
    join.run(spark)
    oracle = oracle_of(how)
    rows: list[tuple[Any, Any]] = []
    now, number = 0, 0
    for second in range(10, 19 if seed == 0 else 24):
        name = random.choice(("left", "right"))
        now += random.randint(0, 8)
        came = []
        for _ in range(random.randint(1, 4)):
            number += 1
            minute = None if random.random() < 0.1 else now + random.randint(-9, 4)
            came.append((number, random.choice(("a", "a", "b", None)), minute))
        streams.come(name, *came, second=second)
        named = [(one[0], dict(zip(("id", "k", "t"), one, strict=True))) for one in came]
        for emitted in oracle.rows("l" if name == "left" else "r", named):
            rows.append(tuple(None if side is None else side[0] for side in (emitted.left, emitted.right)))
        if random.random() < 0.3:
            join.run(spark)
    report = only(join.run(spark))
    assert spark._jsparkSession.sharedState().cacheManager().isEmpty(), "nothing that was remembered is left"
    assert streams.found() == sorted(rows, key=repr)
    assert streams.waits() == sorted(held.row[0] for held in oracle.buffered)
    assert report.outcome == "nothing" or report.counts["buffered"] == len(oracle.buffered)
    assert never_alone_and_joined(streams)
    join.flush(spark)
    rows += [tuple(side and side[0] for side in (one.left, one.right)) for one in oracle.flush()]
    assert streams.found() == sorted(rows, key=repr)
    assert streams.waits() == []
    assert only(join.verify(spark)).counts["expected"] == len(rows)


def large_ways(monkeypatch: pytest.MonkeyPatch) -> None:
    """Take, for a few rows, the ways that are meant for many: through the stage, merged, positions in a frame."""
    monkeypatch.setattr(limits, "CHANGES_VIA_DRIVER", -1)
    monkeypatch.setattr(limits, "REWRITTEN_STATE_BYTES", -1)
    monkeypatch.setattr(limits, "CONSTANT_POSITIONS", 0)


@pytest.mark.parametrize("is_in_order", [True, False])
@pytest.mark.parametrize("few", [True, False])
@pytest.mark.slow
def test_a_first_load_is_the_history_row_by_row_in_the_order_of_its_times(streams, is_in_order, few, monkeypatch):
    """Rows without a time come first, then by time, left before right; no watermark is looked up to see that."""
    if not few:
        large_ways(monkeypatch)
    if not is_in_order:
        monkeypatch.setattr(ordered_rows, "is_in_order", lambda _: False)
    random, rows = Random(7), []
    for number in range(1, 61):
        minute = None if random.random() < 0.1 else random.randint(0, 60)
        rows.append((random.choice("lr"), (number, random.choice(("a", "b", None)), minute)))
    streams.come("left", *(row for side, row in rows if side == "l"), second=10)
    streams.come("right", *(row for side, row in rows if side == "r"), second=20)
    join = streams.join(JOIN.replace("LEFT", "FULL"))
    join.run(streams.spark)
    oracle = oracle_of("full")
    emitted = []
    for side, row in sorted(rows, key=lambda one: (one[1][2] is not None, one[1][2] or 0, one[0])):
        emitted += oracle.rows(side, [(row[0], dict(zip(("id", "k", "t"), row, strict=True)))])
    told = [tuple(side and side[0] for side in (one.left, one.right)) for one in emitted]
    assert streams.found() == sorted(told, key=repr)
    assert streams.waits() == sorted(held.row[0] for held in oracle.buffered)


@pytest.mark.slow
def test_an_append_that_upkeep_of_the_table_disturbed_is_tried_again(streams, monkeypatch):
    """OPTIMIZE rewrote what the state replaces: nobody wrote to it, so the same rows are written once more."""
    spark, join, tried = streams.spark, streams.join(), []
    join.run(spark)
    streams.come("left", (1, "a", 0), second=10)
    append = publish.append

    def disturbed(*args: Any, **options: Any) -> None:
        tried.append(args[1].label)
        if len(tried) == 1:
            raise RuntimeError("[DELTA_CONCURRENT_DELETE_READ] as OPTIMIZE makes it")
        append(*args, **options)

    monkeypatch.setattr(publish, "append", disturbed)
    assert only(join.run(spark)).counts["buffered"] == 1
    assert (tried, streams.waits()) == (["result__state"] * 2, [1])


def oracle_of(how: str, of_left: Callable[[Any], bool] = lambda values: True) -> Oracle:
    """Give the oracle of the join of this module, with a condition on its left rows; times are minutes."""

    def meets(left: Any, right: Any) -> bool | None:
        if None in (left["k"], right["k"], left["t"], right["t"]):
            return None
        return left["k"] == right["k"] and left["t"] - 10 <= right["t"] <= left["t"] + 20 and of_left(left)

    return Oracle(
        how,
        [Bound("r.t", "l.t", 10), Bound("l.t", "r.t", 20)],
        {"l": ("t",), "r": ("t",)},
        {"l.t": 5, "r.t": 5},
        meets,
        {"l": of_left, "r": lambda values: True},
        {"l": lambda values: values["k"] is None, "r": lambda values: values["k"] is None},
    )


def never_alone_and_joined(lake: Streams, result: str = "result") -> bool:
    """Ask the result itself: no row of a stream is in it with a partner and without."""
    both = (
        f"SELECT {mine} FROM {lake.at(result)} WHERE {mine} IS NOT NULL GROUP BY {mine} "
        f"HAVING count_if({other} IS NULL) > 1 OR (count_if({other} IS NULL) = 1 AND count(*) > 1)"
        for mine, other in (("_left_row", "_right_row"), ("_right_row", "_left_row"))
    )
    return all(lake.spark.sql(query).count() == 0 for query in both)


@pytest.mark.slow
@pytest.mark.parametrize("few", [False, True])
def test_equal_rows_are_rows_of_their_own(streams: Streams, few: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each meets and each stands alone; they differ by their number alone, in a first load of many rows too."""
    if not few:
        large_ways(monkeypatch)
    join = streams.join(JOIN.replace("LEFT", "FULL"))
    streams.come("left", (1, "a", 0), (1, "a", 0), (2, "b", 0), (2, "b", 0), second=10)
    streams.come("right", (9, "a", 0), second=20)
    join.run(streams.spark)
    assert streams.found() == [(1, 9), (1, 9)]
    assert streams.waits() == [1, 1, 2, 2, 9]
    join.flush(streams.spark)
    assert streams.found() == [(1, 9), (1, 9), (2, None), (2, None)]


@pytest.mark.slow
def test_rows_of_a_commit_that_differ_by_where_a_null_lies_are_rows_of_their_own(streams: Streams) -> None:
    """One of the two rows meets its partner and leaves the buffer matched; the other one leaves it null-padded."""
    sources = {name: {"key": "id", "kind": "stream", "watermarks": {"n": 0}} for name in ("ls", "rs")}
    streams.create("ls", "id INT, other INT, n INT")
    streams.create("rs", "id INT, n INT")
    sql = (
        "SELECT l.id AS l, l.other, r.id AS r FROM ls l LEFT JOIN rs r ON l.id <=> r.id AND l.n BETWEEN r.n - 9 AND r.n"
    )
    join = streams.pipeline(sql, sources)
    join.run(streams.spark)
    for row in ("(NULL, 5, 1), (5, NULL, 1)", "(5, NULL, 2), (NULL, 5, 2)"):
        streams.sql(f"INSERT INTO {{ls}} SELECT * FROM VALUES {row}", "ls")
    streams.sql("INSERT INTO {rs} VALUES (5, 3)", "rs")
    assert only(join.run(streams.spark)).counts["appended"] == 2
    only(join.flush(streams.spark))
    assert streams.found() == sorted([(5, None, 5)] * 2 + [(None, 5, None)] * 2, key=repr)


@pytest.mark.slow
def test_more_rows_than_may_wait_stop_the_epoch_before_anything_is_published(streams: Streams) -> None:
    """It counts after each position: three rows wait at once although none does at the end."""
    spark = streams.spark
    streams.join(max_buffered_rows=2).run(spark)
    streams.come("left", (1, "a", 0), (2, "a", 1), (3, "a", 2), second=10)
    streams.come("right", (4, "z", 90), second=20)
    streams.come("left", (5, "z", 90), second=30)
    before = streams.versions()
    with pytest.raises(BufferFull, match="at most 2 rows") as caught:
        streams.join(max_buffered_rows=2).run(spark)
    assert "3" in caught.value.found
    assert streams.versions() == before
    assert only(streams.join(max_buffered_rows=3).run(spark)).counts["buffered"] == 2


@pytest.mark.slow
def test_a_backfill_appends_what_is_missing_and_a_reset_begins_result_and_state_anew(streams: Streams) -> None:
    spark, join = streams.spark, streams.join()
    join.run(spark)
    streams.come("left", (1, "a", 0), (2, "b", 0), second=10)
    streams.come("right", (9, "a", 5), (8, "c", 40), second=20)
    join.run(spark)
    assert streams.found() == [(1, 9), (2, None)]
    streams.sql("DELETE FROM {result} WHERE l = 1")
    with pytest.raises(ForeignWriter):
        join.run(spark)
    assert only(join.backfill(spark)).counts["appended"] == 1
    assert streams.found() == [(1, 9), (2, None)]
    streams.sql("DELETE FROM {result__state}", "result__state")
    streams.come("right", (7, "b", 41), second=30)
    with pytest.raises(ForeignWriter, match="a foreign write changed") as caught:
        join.run(spark)
    assert "--reset" in caught.value.hint
    reset = only(join.backfill(spark, remedy="reset"))
    assert (reset.strategy, streams.found()) == ("reset", [(1, 9), (2, None)])
    assert streams.waits() == [7, 8, 9]
    assert only(join.verify(spark)).counts["expected"] == 2
    streams.come("left", (3, "c", 39), second=40)
    join.run(spark)
    assert streams.found() == [(1, 9), (2, None), (3, 8)]


@pytest.mark.slow
def test_order_by_takes_rows_one_by_one_and_kafka_has_one_time(streams: Streams) -> None:
    """By the order of the rows the pair meets before the left one leaves, whatever their commits; nothing is late."""
    sources = {name: {"key": "id", "kind": "stream", "order_by": "n", "watermarks": {"ts": 5}} for name in ("ls", "rs")}
    for name in sources:
        streams.create(name, "n INT, id INT, ts INT")
    sql = "SELECT l.id AS l, r.id AS r FROM ls l FULL JOIN rs r ON l.id = r.id AND l.ts BETWEEN r.ts - 10 AND r.ts + 10"
    join = streams.pipeline(sql, sources, semantics="kafka")
    join.run(streams.spark)
    streams.sql("INSERT INTO {rs} VALUES (4, 9, 100), (2, 1, 8)", "rs")
    streams.sql("INSERT INTO {ls} VALUES (3, 2, 60), (1, 1, 0), (5, 3, 50)", "ls")
    report = only(join.run(streams.spark))
    assert report.counts["late"] == 0
    assert [row[:2] for row in streams.rows()] == [(1, 1), (2, None), (3, None)]
    assert {row[0]: row[3] for row in streams.rows()} == {1: 2, 2: 4, 3: 5}, "the position is the order's"
    assert only(join.verify(streams.spark)).counts["missing"] == 0


@pytest.mark.slow
def test_what_is_seen_of_one_stream_is_seen_although_the_other_one_is_empty(streams, monkeypatch):
    """Adaptive plans leave out a join with nothing and what lies below it: counts and clocks are there all the same."""
    monkeypatch.setitem(session.FIXED, "spark.sql.adaptive.enabled", "true")
    monkeypatch.setattr(limits, "CHANGES_VIA_DRIVER", -1)
    monkeypatch.setattr(limits, "LARGE_STREAM_ROWS", -1)
    spark, join = streams.spark, streams.join()
    streams.come("left", (1, "a", 0), (2, None, 0), second=10)
    first = only(join.run(spark))
    assert (first.counts["read"], first.counts["null_keys"], first.counts["buffered"]) == (2, 1, 1)
    streams.come("left", (3, "a", 40), (4, "b", -60), second=20)
    second = only(join.run(spark))
    assert (second.counts["read"], second.counts["late"], second.counts["buffered"]) == (2, 1, 2)
    assert only(join.verify(spark)).counts["missing"] == 0


@pytest.mark.slow
def test_dates_where_filters_and_rows_without_a_value(streams: Streams) -> None:
    """WHERE drops rows of the result and not that they have met; a row without a value moves its watermark."""
    for name in ("ls", "rs"):
        streams.create(name, "id INT, day DATE, v STRING")
    sources = {
        name: {"key": "id", "kind": "stream", "null_value": "v IS NULL", "watermarks": {"day": "1 day"}}
        for name in ("ls", "rs")
    }
    sql = (
        "SELECT l.id AS l, r.id AS r FROM ls l FULL JOIN rs r ON l.day >= r.day - INTERVAL 2 DAYS AND "
        "l.day <= r.day WHERE coalesce(r.v, l.v) <> 'x'"
    )
    join = streams.pipeline(sql, sources)
    join.run(streams.spark)
    streams.sql("INSERT INTO {ls} VALUES (1, DATE'2026-01-01', 'a'), (2, DATE'2026-01-09', 'b')", "ls")
    streams.sql("INSERT INTO {rs} VALUES (1, DATE'2026-01-02', 'x'), (3, DATE'2026-01-20', NULL)", "rs")
    report = only(join.run(streams.spark))
    assert (report.counts["null_values"], streams.found()) == (1, [(2, None)])
    only(join.flush(streams.spark))
    assert streams.found() == [(2, None)], "the first rows met, although WHERE dropped what they made"


def test_times_of_other_types_than_their_bounds_are_faults(streams: Streams) -> None:
    streams.create("ints", "id INT, t INT")
    sources = {**SOURCES, "ints": {"key": "id", "kind": "stream", "watermarks": {"t": "5 minutes"}}}
    both = "SELECT l.id FROM left l JOIN ints r ON l.t = r.t"
    with pytest.raises(PipelineFileError) as caught:
        streams.pipeline(both, sources).run(streams.spark)
    assert "its lateness is an interval" in caught.value.message
    assert "times of different kinds" in caught.value.message
    number = "SELECT l.id FROM left l JOIN right r ON l.t BETWEEN r.t - 5 AND r.t + 5"
    with pytest.raises(PipelineFileError, match="compared with a number"):
        streams.join(number).run(streams.spark)


@pytest.mark.slow
@pytest.mark.parametrize("merged", [False, True])
def test_an_epoch_that_is_let_go_puts_back_what_waited(streams, merged, monkeypatch):
    """The state was written, then somebody else wrote to the result: `--accept` goes on with the rows not yet taken."""
    if merged:
        large_ways(monkeypatch)
    spark, join = streams.spark, streams.join()
    join.run(spark)
    streams.come("left", (1, "a", 0), (2, "b", 0), second=10)
    join.run(spark)
    streams.come("right", (9, "a", 5), second=20)

    with killed("load result"):
        join.run(spark)
    assert streams.waits() == [1, 2, 9], "the state is ahead of the result"
    streams.sql("INSERT INTO {result} VALUES (77, 77, 1, 0, NULL, NULL)")
    with pytest.raises(CannotContinue):
        join.run(spark)
    with killed("ledger: abandoned"):
        join.backfill(spark, remedy="accept")
    assert streams.waits() == [1, 2], "put back already"
    with pytest.raises(ForeignWriter):  # before anything is written again
        join.run(spark)
    only(join.backfill(spark, remedy="accept"))
    assert streams.waits() == [1, 2]
    only(join.run(spark))
    assert streams.found() == [(1, 9), (77, 77)]
    assert streams.waits() == [1, 2, 9]


@pytest.mark.slow
def test_an_epoch_whose_stage_lost_a_part_is_let_go_by_a_backfill(streams: Streams) -> None:
    """A run says what is missing and publishes nothing; the epoch that comes instead takes the same rows."""
    spark, join = streams.spark, streams.join()
    join.run(spark)
    streams.come("left", (1, "a", 0), second=10)
    streams.come("right", (9, "a", 5), second=20)
    with killed("load result__state"):
        join.run(spark)
    (stage,) = (streams.folder / "lake").glob("**/*-*/state")
    shutil.rmtree(stage)
    before = streams.versions()
    with pytest.raises(CannotContinue, match="cannot be finished") as caught:
        join.run(spark)
    assert "backfill" in caught.value.hint
    assert streams.versions() == before
    only(join.backfill(spark))
    only(join.run(spark))
    assert (streams.found(), streams.waits()) == ([(1, 9)], [1, 9])


@pytest.mark.slow
def test_no_plan_is_a_product_of_all_rows_with_all_others(streams: Streams, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without an equality rows meet by buckets of time: no cartesian product, no nested loop, in any query of a run."""
    plans: list[str] = []
    written = DataFrameWriter.parquet

    def parquet(self: Any, path: str, *args: Any, **options: Any) -> None:
        plans.append(self._df._jdf.queryExecution().executedPlan().toString())
        written(self, path, *args, **options)

    monkeypatch.setattr(DataFrameWriter, "parquet", parquet)
    sql = f"SELECT l.id AS l, r.id AS r FROM left l FULL JOIN right r ON {WITHIN}"
    join = streams.join(sql)
    streams.come("left", (1, "a", 0), (2, "b", 9), second=10)
    streams.come("right", (3, "a", 15), (4, "z", 90), second=20)
    join.run(streams.spark)
    assert streams.found() == [(1, 3), (2, 3)]
    streams.come("left", (5, "a", 95), second=30)
    join.run(streams.spark)
    assert (5, 4) in streams.found()
    assert len(plans) >= 4
    for text in plans:
        assert "CartesianProduct" not in text
        assert "NestedLoop" not in text, text


@pytest.mark.slow
def test_names_of_the_users_are_the_users(streams: Streams) -> None:
    """Aliases and columns are called as the working columns might be."""
    columns = "`row` INT, op STRING, `first` TIMESTAMP, key STRING"
    for name in ("second", "value"):
        streams.create(name, columns)
    sources = {
        name: {"key": "row", "kind": "stream", "watermarks": {"first": "5 minutes"}} for name in ("second", "value")
    }
    sql = (
        "SELECT op.`row` AS `at`, `row`.`row` AS `value`, coalesce(op.key, `row`.key) AS `before` FROM second op "
        "FULL JOIN value `row` ON op.op = `row`.op AND op.`first` BETWEEN `row`.`first` AND `row`.`first` + "
        "INTERVAL 5 MINUTES WHERE coalesce(op.key, `row`.key) <> 'x'"
    )
    join = streams.pipeline(sql, sources)
    streams.sql(f"INSERT INTO {{value}} VALUES (1, 'a', {at(0)}, 'k'), (2, 'b', {at(0)}, 'x')", "value")
    join.run(streams.spark)
    streams.sql(f"INSERT INTO {{second}} VALUES (1, 'a', {at(3)}, 'k'), (9, 'z', {at(60)}, 'l')", "second")
    join.run(streams.spark)
    assert streams.found() == [(1, 1, "k")]
    join.flush(streams.spark)
    assert streams.found() == [(1, 1, "k"), (9, None, "l")]
    assert only(join.verify(streams.spark)).counts["expected"] == 2


@pytest.mark.slow
def test_what_an_earlier_result_has_left_waits_no_more(streams: Streams) -> None:
    """The result is dropped and loaded anew; and a changed definition begins both anew, with other columns."""
    spark, join = streams.spark, streams.join()
    streams.come("left", (1, "a", 0), second=10)
    join.run(spark)
    shutil.rmtree(streams.path("result"))
    assert only(join.backfill(spark)).strategy == "load"
    assert streams.waits() == [1]
    wider = JOIN.replace("ON l.k", "ON l.id < r.id AND l.k")
    with pytest.raises(DefinitionChanged):
        streams.join(wider).run(spark)
    fewer = streams.join(f"SELECT l.id AS l, r.id AS r FROM left l LEFT JOIN right r ON {WITHIN}")
    assert only(fewer.backfill(spark, remedy="reset")).counts["buffered"] == 1
    streams.come("right", (9, "z", 3), second=20)
    only(fewer.run(spark))
    assert streams.found() == [(1, 9)]


@pytest.mark.slow
def test_clocks_that_change_do_not_move_times_without_a_zone(streams: Streams) -> None:
    """At night of 2026-03-29 no clock in Oslo shows 2:30; a bound on what clocks show holds all the same."""
    kinds = {"ls": "TIMESTAMP_NTZ", "rs": "TIMESTAMP_NTZ"}
    for name, kind in kinds.items():
        streams.create(name, f"id INT, t {kind}", **{"feature.timestampNtz": "supported"})
    sources = {name: {"key": "id", "kind": "stream", "watermarks": {"t": "0 minutes"}} for name in kinds}
    sql = "SELECT l.id AS l, r.id AS r FROM ls l LEFT JOIN rs r ON l.t BETWEEN r.t - INTERVAL 30 MINUTES AND r.t"
    join = streams.pipeline(sql, sources, beside={"timezone": "Europe/Oslo"})
    join.run(streams.spark)
    streams.sql("INSERT INTO {ls} VALUES (1, TIMESTAMP_NTZ'2026-03-29 02:30:00')", "ls")
    streams.sql("INSERT INTO {rs} VALUES (1, TIMESTAMP_NTZ'2026-03-29 03:00:00')", "rs")
    join.run(streams.spark)
    assert streams.found() == [(1, 1)]


@pytest.mark.slow
def test_soak(streams: Streams) -> None:
    """The short form of `python -m tests.soak`: what waits is the oracle's after each epoch, killed runs or not."""
    from tests.soak import soak

    found = soak(streams, seed=3, commits=18, seconds=600)
    assert found["commits"] >= 18
    assert found["epochs"] > 1


@pytest.mark.slow
def test_a_star_goes_on_without_a_new_column_and_what_waits_is_found_again(streams: Streams) -> None:
    """Rows of before and after it meet, and the column is read of neither."""
    spark, join = (
        streams.spark,
        streams.join(f"SELECT l.*, r.id AS r FROM left l LEFT JOIN right r ON l.k = r.k AND {WITHIN}"),
    )
    streams.come("left", (1, "a", 0))
    join.run(spark)
    for name in ("left", "right"):
        streams.sql(f"ALTER TABLE {{{name}}} ADD COLUMNS (more STRING)")
    streams.sql(f"INSERT INTO {{right}} VALUES (10, 'a', {at(5)}, 'm')")
    report = only(join.run(spark))
    assert (report.counts["appended"], [line.split(":")[0] for line in report.details]) == (1, ["left gained `more`"])
    assert [row[:2] for row in streams.rows()] == [(1, "a")]
    only(join.verify(spark))
