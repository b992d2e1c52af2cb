"""Joins in which rows match in any number, through real Delta tables and the driver."""

import random
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from expectations.gate import pairs as pairs_gate
from lakehouse import limits
from lakehouse.errors.errors import BrokenEpoch, Drifted, GateFailed, PipelineFileError
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.commands.published import read_range
from pipelines.commands.validate import validate_joins
from pipelines.epochs.views import load
from pipelines.joins import kernel, pairing
from pipelines.plan.values import EpochPlan
from tests.cases import cases
from tests.lake import Lake, only

A, B, G = "aid INT, city STRING, v INT", "bid INT, city STRING, w INT, gref INT", "gid INT, g STRING"
P = "x INT, y INT, p STRING"
SOURCES = {"a": "aid", "b": "bid", "g": "gid", "p": ["x", "y"]}
MANY = "SELECT a.aid, b.bid, a.v, b.w, a.city FROM a {} JOIN b ON a.city = b.city"
JOINS = {
    **{f"many_{how}": MANY.format(how) for how in ("inner", "left", "right", "full")},
    "parent": "SELECT a.aid, b.bid, a.v, b.w FROM a LEFT JOIN b ON b.gref = a.aid AND b.w <> 1",
    "null_safe": "SELECT a.aid, b.bid, b.w FROM a FULL JOIN b ON a.city <=> coalesce(b.city, 'x') "
    "AND CAST(a.v AS BIGINT) <=> b.w WHERE b.w IS NULL OR b.w > 0",
    "on_top": "SELECT x.aid AS one, y.aid AS other, g.g FROM a x LEFT JOIN a y ON x.city = y.city AND x.v < y.v "
    "LEFT JOIN g ON y.v = g.gid",
    "both_sides": "SELECT a.aid, b.bid, a.v, p.p, g.g FROM a LEFT JOIN g ON a.v = g.gid FULL JOIN b ON a.city = b.city "
    "LEFT JOIN p ON p.x = g.gid AND p.y = b.w AND p.p <> 'p4'",
    "narrowed": "SELECT a.aid, b.bid, g.g, b.w FROM a JOIN g ON a.v = g.gid AND g.g > 'g4' FULL JOIN b "
    "ON a.city = b.city",
    "looked_up": "SELECT a.aid, b.bid, g.g, b.w FROM a LEFT JOIN g ON a.v = g.gid FULL JOIN b "
    "ON a.city = b.city AND (g.g > 'g4' OR b.w > 1)",
    "through": "SELECT a.aid, b.bid, a.city, p.p, b.w FROM a LEFT JOIN g ON a.v = g.gid LEFT JOIN p ON p.x = a.v "
    "AND p.y = g.gid FULL JOIN b ON p.p = substring('pqs', b.w + 1, 1) AND a.city <> b.city "
    "WHERE coalesce(b.gref, 0) < 3",
}
FEWER = ("many_full", "null_safe", "on_top")
CITIES, SEED = ["x", "x", "y", "z", None], 11


class Pairs(Lake):
    options: Mapping[str, Any] = MappingProxyType({})
    sources: Mapping[str, Any] = SOURCES

    def fill(self, script: random.Random) -> None:
        for name, columns in (("a", A), ("b", B), ("g", G), ("p", P)):
            self.create(name, columns)
        self.sql(f"INSERT INTO {{a}} VALUES {self._rows(script, 7, 1)}", "a")
        self.sql(f"INSERT INTO {{b}} VALUES {self._rows(script, 7, 2)}", "b")
        self.sql("INSERT INTO {g} VALUES (0, 'p'), (1, 'q'), (2, NULL)", "g")
        self.sql("INSERT INTO {p} VALUES (0, 0, 'p'), (1, 1, 'q'), (1, 2, NULL), (2, 1, 'r'), (2, 2, 's')", "p")

    def _rows(self, script: random.Random, number: int, values: int) -> str:
        ids = script.sample(range(1, 12), number)
        return ", ".join(f"({one}, {self._city(script)}, {self._numbers(script, values)})" for one in ids)

    def _city(self, script: random.Random) -> str:
        city = script.choice(CITIES)
        return "NULL" if city is None else f"'{city}'"

    def _numbers(self, script: random.Random, values: int) -> str:
        return ", ".join(str(script.choice([0, 1, 2, 3, "NULL"])) for _ in range(values))

    def commit(self, script: random.Random) -> str:
        name, key, values = script.choice([("a", "aid", 1), ("b", "bid", 2), ("g", "gid", 0), ("p", "x", 0)])
        if name == "g":
            statement = f"UPDATE {{g}} SET g = 'g{script.randrange(9)}' WHERE gid = {script.randrange(3)}"
        elif name == "p":
            x, y, p = script.randrange(3), script.randrange(3), script.randrange(6)
            statement = script.choice(
                [
                    f"UPDATE {{p}} SET p = 'p{p}' WHERE x = {x}",
                    f"DELETE FROM {{p}} WHERE y = {y} AND x = {x}",
                    f"MERGE INTO {{p}} t USING (SELECT {x} AS x, {y} AS y) s ON t.x = s.x AND t.y = s.y "
                    f"WHEN NOT MATCHED THEN INSERT (x, y, p) VALUES (s.x, s.y, 'p{p}')",
                ]
            )
        else:
            column, columns = ("v", "aid, city, v") if name == "a" else ("w", "bid, city, w, gref")
            one, two = script.randrange(1, 12), script.randrange(1, 12)
            statement = script.choice(
                [
                    f"DELETE FROM {{{name}}} WHERE {key} IN ({one}, {two})",
                    f"UPDATE {{{name}}} SET city = {self._city(script)} WHERE {key} IN ({one}, {two})",
                    f"UPDATE {{{name}}} SET {column} = {self._numbers(script, 1)} WHERE {key} >= {one}",
                    f"MERGE INTO {{{name}}} t USING (VALUES {self._rows(script, 2, values)}) s ON t.{key} = s.col1 "
                    f"WHEN MATCHED THEN UPDATE SET city = s.col2, {column} = s.col3 "
                    f"WHEN NOT MATCHED THEN INSERT ({columns}) "
                    f"VALUES ({', '.join(f's.col{n + 1}' for n in range(2 + values))})",
                ]
            )
        self.sql(statement, name)
        return statement

    def meanings(self, joins: Mapping[str, str]) -> dict[str, Counter[tuple[Any, ...]]]:
        """Evaluate the statements over the tables as they are, one after the other."""
        session = self.spark.newSession()  # the views of this one are seen by other tests
        for name in self.sources:
            session.read.format("delta").load(self.path(name)).createOrReplaceTempView(name)
        found = {}
        for name, sql in joins.items():
            frame = session.sql(sql)
            found[name] = Counter(tuple(row) for row in frame.collect())
            frame.createOrReplaceTempView(name)
        return found

    def joins(self, joins: Mapping[str, str]) -> Pipeline:
        further = {name: {"sql": sql, **self.options} for name, sql in joins.items()}
        (first, *_) = joins
        return self.pipeline(joins[first], self.sources, first, further)

    def follow(
        self,
        pipeline: Pipeline,
        joins: Mapping[str, str],
        before: Mapping[str, Counter[tuple[Any, ...]]],
        told: str,
        keys: Mapping[str, int] = MappingProxyType({}),
    ) -> dict[str, Counter[tuple[Any, ...]]]:
        """Run; each result must be its statement over the tables, its feed the difference of two results."""
        seen = {name: self.version(name) if self.is_there(name) else 0 for name in joins}
        pipeline.run(self.spark)
        expected = self.meanings(joins)
        for name in joins:
            assert Counter(self.rows(name)) == expected[name], f"{name}, {told}"
            feed = changed(before[name], expected[name], keys.get(name, 2))
            assert self.feed(seen[name], name) == feed, f"{name}, {told}"
        return expected


def changed(before: Counter[tuple[Any, ...]], after: Counter[tuple[Any, ...]], keys: int) -> list[tuple[str, Any]]:
    """Return what a change feed holds if it has exactly the difference."""
    old, new = ({row[:keys]: row for row in rows} for rows in (before - after, after - before))
    expected: list[tuple[str, Any]] = []
    for key, row in old.items():
        expected.append(("update_preimage" if key in new else "delete", row))
    for key, row in new.items():
        expected.append(("update_postimage" if key in old else "insert", row))
    return sorted(expected, key=repr)


@pytest.mark.slow
@cases(
    "few, names, epochs",
    pytest.param(True, FEWER, 2, id="through the driver"),
    pytest.param(True, ("both_sides",), 1, id="parts from both sides, through the driver"),
    pytest.param(False, ("many_full", "narrowed", "through"), 1, id="through the stage"),
    pytest.param(True, tuple(JOINS), 4, id="all through the driver"),
    pytest.param(False, tuple(JOINS), 3, id="all through the stage"),
)
def test_results_and_feeds_of_random_histories(spark, tmp_path, monkeypatch, few, names, epochs):
    monkeypatch.setattr(EpochPlan, "via_driver", few)
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)  # so that rows are looked up as those of large tables are
    lake, script = Pairs(spark, tmp_path), random.Random(SEED)
    lake.fill(script)
    joins = {name: JOINS[name] for name in names}
    before: dict[str, Counter[tuple[Any, ...]]] = {name: Counter() for name in joins}
    pipeline = lake.joins(joins)
    for epoch in range(epochs + 1):
        told = [lake.commit(script) for _ in range(4)] if epoch else ["load"]
        before = lake.follow(pipeline, joins, before, f"seed {SEED}, epoch {epoch}, after {told}")
    for reports in (pipeline.verify(spark), pipeline.verify(spark, quick=True)):
        assert [report.outcome for report in reports] == ["done"] * len(joins)


@pytest.mark.fast
def test_a_recorded_history_of_customers_and_their_orders(lake: Lake) -> None:
    """A first match, one of two and the last, a moved one, a changed and a deleted customer: rows and feed of each."""
    lake.create("customers", "cid INT, name STRING", "(1, 'Ann'), (2, 'Bo'), (3, 'Cy'), (NULL, 'none')")
    lake.create("orders", "oid INT, cust INT, amount INT", "(10, 1, 5), (11, 1, 6), (12, 9, 7), (14, NULL, 9)")
    sql = "SELECT c.cid, o.oid, c.name, o.amount FROM customers c LEFT JOIN orders o ON c.cid = o.cust"
    pipeline = lake.pipeline(sql, {"customers": "cid", "orders": "oid"})
    assert only(pipeline.run(lake.spark)).counts["inserted"] == 4
    ann, bo, cy, alone = (1, 10, "Ann", 5), (2, None, "Bo", None), (3, None, "Cy", None), (1, None, "Ann", None)
    assert lake.rows() == sorted([ann, (1, 11, "Ann", 6), bo, cy], key=repr)
    first = lake.version()
    lake.sql("INSERT INTO {orders} VALUES (13, 2, 8)", "orders")
    lake.sql("DELETE FROM {orders} WHERE oid = 10", "orders")
    assert only(pipeline.run(lake.spark)).counts["deleted"] == 2
    assert lake.feed(first) == sorted([("delete", ann), ("delete", bo), ("insert", (2, 13, "Bo", 8))], key=repr)
    second = lake.version()
    lake.sql("DELETE FROM {orders} WHERE oid = 11", "orders")
    lake.sql("UPDATE {orders} SET cust = 3 WHERE oid = 13", "orders")
    lake.sql("UPDATE {customers} SET name = 'Cyd' WHERE cid = 3", "customers")
    lake.sql("DELETE FROM {customers} WHERE cid = 2", "customers")
    lake.sql("INSERT INTO {customers} VALUES (9, 'Di')", "customers")
    pipeline.run(lake.spark)
    deleted = [("delete", row) for row in ((1, 11, "Ann", 6), (2, 13, "Bo", 8), cy)]
    inserted = [("insert", row) for row in (alone, (3, 13, "Cyd", 8), (9, 12, "Di", 7))]
    assert lake.feed(second) == sorted([*deleted, *inserted], key=repr)
    third = lake.version()
    lake.sql("UPDATE {customers} SET name = 'Dia' WHERE cid = 9", "customers")
    assert only(pipeline.run(lake.spark)).counts["updated"] == 1
    assert [kind for kind, _ in lake.feed(third)] == ["update_postimage", "update_preimage"]
    assert lake.rows() == sorted([alone, (3, 13, "Cyd", 8), (9, 12, "Dia", 7)], key=repr)


@pytest.fixture(scope="module")
def loaded(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Pairs:
    lake = Pairs(spark, tmp_path_factory.mktemp("pairs"))
    lake.fill(random.Random(3))
    lake.sql("INSERT INTO {a} VALUES (50, 'lonely', 1), (51, 'pair', 1), (52, 'pair', 2)", "a")
    lake.sql("INSERT INTO {b} VALUES (60, 'pair', 1, 1), (61, 'nobody', 1, 1)", "b")
    full(lake).run(spark)
    return lake


def full(lake: Pairs) -> Pipeline:
    return lake.joins({"result": MANY.format("full")})


@pytest.mark.slow
def test_a_backfill_reconciles_keys_with_nulls(loaded: Pairs, tmp_path: Path) -> None:
    lake = loaded.copy(tmp_path / "lake")
    expected = Counter(lake.rows())
    for options in ({}, {"slices": 3}, {"where": "city = 'pair' OR city IS NULL"}):
        lake.sql("DELETE FROM {result} WHERE aid IS NULL AND w IS NOT NULL")
        lake.sql("UPDATE {result} SET w = 77 WHERE bid = 60")
        lake.sql("INSERT INTO {result} VALUES (999, NULL, 1, 1, 'pair')")
        with pytest.raises(Drifted):
            full(lake).verify(lake.spark, quick=True)
        only(full(lake).backfill(lake.spark, **options))
        assert Counter(lake.rows()) == expected, options
        only(full(lake).verify(lake.spark))
        only(full(lake).verify(lake.spark, quick=True))


@pytest.mark.slow
def test_one_changed_order_of_a_customer_with_many_makes_one_pair(loaded, tmp_path, monkeypatch):
    """Its other orders are not read, unless it may have lost its last one."""
    lake = loaded.copy(tmp_path / "lake")
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    lake.sql("INSERT INTO {b} SELECT CAST(id AS INT), 'pair', 1, 1 FROM range(1000, 2000)", "b")
    assert only(full(lake).run(lake.spark)).counts["inserted"] == 2000
    lake.sql("UPDATE {b} SET w = 2 WHERE bid = 1500", "b")
    report = only(full(lake).run(lake.spark))
    assert (report.counts["updated"], report.changed) == (2, 2)
    assert report.counts["looked_up"] <= 4
    lake.sql("DELETE FROM {b} WHERE bid = 1500", "b")
    report = only(full(lake).run(lake.spark))
    assert (report.counts["deleted"], report.changed) == (2, 2)
    only(full(lake).verify(lake.spark, quick=True))


@pytest.mark.slow
def test_published_rows_meet_their_suites(loaded: Pairs, tmp_path: Path) -> None:
    """`validate` knows that parts of the key may be null."""
    lake = loaded.copy(tmp_path / "lake")
    lake.sql(FIRST, "b")
    full(lake).run(lake.spark)
    workspace = Workspace.open(lake.spark, full(lake).file, lake.folder)
    for epochs in ("", "2..2"):
        (report,) = validate_joins(workspace, None, read_range(epochs, ""))
        assert (report.outcome, report.error) == ("done", None), report.text()
    lake.sql("INSERT INTO {result} VALUES (NULL, NULL, 1, 1, 'pair')")  # neither side
    (report,) = validate_joins(workspace, None, read_range("", ""))
    assert report.error is not None
    assert "expect_part_of_key_to_be_present(" in str(report.error.found)
    assert "1 of " in str(report.error.found)


def no_look_up_of_others(lake: Pairs, patch: pytest.MonkeyPatch) -> None:
    """Let a partner stand alone as soon as it matches no touched row."""
    patch.setattr(pairing._Pairs, "_without", lambda pairs, keys, others: keys)


def partners_never_unmatched(lake: Pairs, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(pairing._Pairs, "_unmatched_keys", lambda pairs, place, own, rows: pairs._touched[1].where("false"))


def without_partners(lake: Pairs, patch: pytest.MonkeyPatch) -> None:
    real = pairing._Pairs._partners
    patch.setattr(pairing._Pairs, "_partners", lambda pairs, place, others: real(pairs, place, others).where("false"))


def without_old_values(lake: Pairs, patch: pytest.MonkeyPatch) -> None:
    real = pairing._Pairs._valued
    patch.setattr(
        pairing._Pairs,
        "_valued",
        lambda pairs, place, rows, name: real(
            pairs, place, rows.where("_lakejoin_image = 'new'") if "_lakejoin_image" in rows.columns else rows, name
        ),
    )


def each_change_twice(lake: Pairs, patch: pytest.MonkeyPatch) -> None:
    real = pairing._Pairs.changes
    patch.setattr(pairing._Pairs, "changes", lambda pairs: real(pairs).unionAll(real(pairs)))


MOVES = "UPDATE {b} SET city = 'elsewhere' WHERE bid = 60"
FIRST = "INSERT INTO {b} VALUES (62, 'lonely', 5, 5)"
SECOND = "INSERT INTO {b} VALUES (62, 'pair', 5, 5)"


@cases(
    "fault, changes, told",
    (no_look_up_of_others, [SECOND], "a delete removes an existing row"),
    (partners_never_unmatched, [FIRST], "the result changes wherever"),
    (without_partners, [MOVES], "the result changes wherever"),
    (without_old_values, [MOVES], "the result changes wherever"),
    (each_change_twice, [FIRST], "one change per key"),
)
def test_the_gate_finds_planted_faults(loaded, tmp_path, monkeypatch, fault, changes, told):
    lake = loaded.copy(tmp_path / "lake")
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    for change in changes:
        lake.sql(change, "b")
    version = lake.version()
    with monkeypatch.context() as patch:
        fault(lake, patch)
        with pytest.raises(GateFailed, match=told):
            full(lake).run(lake.spark)
    assert lake.version() == version


@pytest.mark.slow
def test_the_gate_finds_a_pair_that_each_row_lacks_by_a_sample(loaded, tmp_path, monkeypatch):
    """Of a large change set it computes all pairs of some rows again, about as many pairs as the limit."""
    lake = loaded.copy(tmp_path / "lake")
    for name, others in (("a", "1"), ("b", "1, 1")):
        lake.sql(f"INSERT INTO {{{name}}} SELECT CAST(100 + id AS INT), 'hot', {others} FROM range(8)", name)
    monkeypatch.setattr(limits, "CHANGES_VIA_DRIVER", 9)
    monkeypatch.setattr(limits, "SEARCHED_ROWS", 9)
    made, checked = pairs_gate._Gate.computed, list[int]()

    def counted(gate: Any, keys: Any) -> DataFrame:
        checked.extend(side.count() for side in keys)
        return made(gate, keys)

    monkeypatch.setattr(pairs_gate._Gate, "computed", counted)
    changes = pairing._Pairs.changes
    with monkeypatch.context() as patch:
        patch.setattr(pairing._Pairs, "changes", lambda pairs: changes(pairs).where("key.aid <> key.bid"))
        with pytest.raises(GateFailed, match="the result changes wherever"):
            full(lake).run(lake.spark)
    assert checked == [1, 1]
    assert only(full(lake).run(lake.spark)).counts["inserted"] == 64


@pytest.mark.slow
def test_the_gate_follows_keys_with_parts_from_both_sides(spark, tmp_path, monkeypatch):
    """It finds that the rows of one side that refer to a changed row are forgotten."""
    lake, joins = Pairs(spark, tmp_path), {"result": JOINS["both_sides"]}
    lake.fill(random.Random(SEED))
    lake.sql("INSERT INTO {a} VALUES (50, 'pair', 1)", "a")
    lake.sql("INSERT INTO {b} VALUES (60, 'pair', 1, 1)", "b")
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    lake.joins(joins).run(spark)
    assert any(row[3] == "q" for row in lake.rows())
    lake.sql("UPDATE {p} SET p = 'other' WHERE p = 'q'", "p")
    with monkeypatch.context() as patch:
        patch.setattr(kernel, "_parts_of", lambda link, keys, *_: keys.selectExpr("named_struct('k0', 99) AS key"))
        with pytest.raises(GateFailed, match="the result changes wherever"):
            lake.joins(joins).run(spark)


@pytest.mark.slow
def test_the_gate_evaluates_no_row_that_is_gone_within_the_epoch(spark, tmp_path, monkeypatch):
    """A value that ON cannot convert is corrected before the next run, which never needs it."""
    joins = {"result": "SELECT a.aid, b.bid FROM a LEFT JOIN b ON a.v = CAST(b.city AS INT) WHERE b.bid IS NULL"}
    lake = Pairs(spark, tmp_path)
    lake.create("a", A, "(50, 'a', 2), (51, 'a', 1)")
    lake.create("b", B, "(60, '1', 1, 1), (61, '3', 1, 1)")
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    lake.joins(joins).run(spark)
    lake.sql("UPDATE {b} SET city = 'two' WHERE bid = 60", "b")
    lake.sql("UPDATE {b} SET city = '2' WHERE bid = 60", "b")
    assert only(lake.joins(joins).run(spark)).changed == 2
    assert lake.rows() == [(51, None)]


def no_row_refers(lake: Pairs, patch: pytest.MonkeyPatch) -> None:
    """Forget the rows of the left side that look up a row with the value of a touched row."""
    patch.setattr(pairing, "referring_keys", lambda place, keys, *_: keys.where("false"))


WITHOUT = {
    "sql": "SELECT a.aid, b.bid, a.v FROM a LEFT JOIN b ON a.city = b.city WHERE b.bid IS NULL",
    "a": "(50, 'lonely', 2), (51, 'pair', 1)",
    "b": "(60, 'pair', 1, 1), (61, 'nobody', 1, 1)",
}
"""Only rows without a match are in the result: one that loses its only match appears."""
THROUGH = {
    "sql": "SELECT a.aid, b.bid, g.g, b.w FROM a LEFT JOIN g ON a.v = g.gid FULL JOIN b ON g.g = b.city",
    "a": "(1, 'x', 1), (2, 'y', 1), (3, 'x', 2), (4, 'x', NULL)",
    "b": "(1, 'q', 1, 1), (2, 'q', 2, 1), (3, 'r', 3, 1)",
    "g": "(1, 'q'), (2, 's')",
}


@cases(
    "join, fault, change, name",
    (WITHOUT, without_old_values, "DELETE FROM {b} WHERE bid = 60", "b"),
    (WITHOUT, without_old_values, "UPDATE {b} SET city = 'x' WHERE bid = 60", "b"),
    (THROUGH, no_row_refers, "UPDATE {b} SET w = 9", "b"),
    (THROUGH, without_old_values, "UPDATE {g} SET g = 'new' WHERE gid = 1", "g"),
)
@pytest.mark.slow
def test_the_gate_finds_rows_by_their_old_matches_and_by_what_they_look_up(
    spark, tmp_path, monkeypatch, join, fault, change, name
):
    lake, joins = Pairs(spark, tmp_path), {"result": join["sql"]}
    for table, columns in (("a", A), ("b", B), ("g", G)):
        lake.create(table, columns, join.get(table, ""))
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    lake.joins(joins).run(spark)
    lake.sql(change, name)
    with monkeypatch.context() as patch:
        fault(lake, patch)
        with pytest.raises(GateFailed, match="the result changes wherever"):
            lake.joins(joins).run(spark)
    report = only(lake.joins(joins).run(spark))
    assert report.outcome == "done"
    assert join is THROUGH or report.changed == 1
    only(lake.joins(joins).verify(spark))


@pytest.mark.deep
def test_a_pattern_of_nulls_that_merge_leaves_out_breaks_the_epoch(loaded, tmp_path, monkeypatch):
    lake = loaded.copy(tmp_path / "lake")
    lake.sql(FIRST, "b")

    def without_nulls(keys: DataFrame, columns: Any, prefix: str, ranges: int) -> str:
        return " AND ".join(f"{prefix}`{column}` IS NOT NULL" for column in columns)

    monkeypatch.setattr("lakehouse.publish.merge.null_safe_predicate", without_nulls)
    with pytest.raises(BrokenEpoch, match="epoch 2 is broken"):
        full(lake).run(lake.spark)


@pytest.mark.deep
def test_the_gate_of_a_load_finds_a_wrong_row(loaded: Pairs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = loaded.copy(tmp_path / "lake")
    joins = {"again": MANY.format("left")}

    def wrong(rows: DataFrame) -> DataFrame:
        return rows.where("NOT (aid = 52 AND bid = 60)")

    rows_in_order = load.rows_in_order
    monkeypatch.setattr(load, "rows_in_order", lambda *given, **how: wrong(rows_in_order(*given, **how)))
    with pytest.raises(GateFailed, match="every row that the join computes"):
        lake.joins(joins).run(lake.spark)
    assert not lake.is_there("again")


@cases(
    "sql, told",
    ("SELECT a.aid, a.v, b.w FROM a JOIN b ON a.city = b.city", r"without `b\.bid`"),
    ("SELECT a.*, b.bid FROM a JOIN b ON a.v > b.w", "no equality compares"),
    (
        "SELECT a.aid, b.bid, c.aid AS cid FROM a JOIN b ON a.city = b.city JOIN a c ON c.city = b.city",
        "write two joins",
    ),
    ("SELECT coalesce(a.aid, 0) AS aid, b.bid FROM a LEFT JOIN b ON a.city = b.city", "as a column of its own"),
    ("SELECT x.aid, y.aid FROM a x JOIN a y ON x.city = y.city", "two outputs are called"),
    ("SELECT x.v, y.v AS w FROM a x JOIN a y ON x.city = y.city", r"x\.aid AS x_aid"),
)
def test_messages_say_what_to_write(lake: Lake, sql: str, told: str) -> None:
    with pytest.raises(PipelineFileError, match=told):
        lake.pipeline(sql, SOURCES)


@pytest.mark.slow
def test_columns_may_have_the_names_of_working_columns(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, tmp_path)
    for name in ("left", "right"):
        lake.create(name, "id INT, value STRING, wanted INT, key INT", "(1, 'a', 1, 1), (2, 'b', 2, 2)")
    sql = "SELECT l.id, r.id AS other, l.value, r.wanted, r.key FROM left l FULL JOIN right r ON l.value = r.value"
    pipeline = lake.pipeline(sql, {"left": "id", "right": "id"}, changelog=True)
    pipeline.run(spark)
    lake.sql("UPDATE {right} SET value = 'a', wanted = 7 WHERE id = 2")
    assert only(pipeline.run(spark)).counts["deleted"] == 1
    assert lake.rows() == [(1, 1, "a", 1, 1), (1, 2, "a", 7, 2), (2, None, "b", None, None)]
