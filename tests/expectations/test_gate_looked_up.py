"""The gate of joins of a stream with tables: it refuses what the sources do not say, and nothing else."""

from collections.abc import Callable
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.errors.errors import GateFailed
from pipelines import Pipeline
from tests.cases import cases
from tests.epochs.lookup.clicks import JOIN, Clicks, begin, commit_at
from tests.lake import only
from tests.planted import planted

MISSING, SURPLUS = "the partner that it had at its position", "every row of the result has a cause"


def named(name: str) -> Callable[[DataFrame], DataFrame]:
    return lambda rows: rows.withColumn("name", F.expr(f"IF(id = 4, {name}, name)"))


FAULTS: dict[str, tuple[Callable[[DataFrame], DataFrame], tuple[str, ...]]] = {
    "extra row": (lambda rows: rows.unionAll(rows.limit(1).withColumn("id", F.lit(99))), (SURPLUS,)),
    "row twice": (lambda rows: rows.unionAll(rows.where("id = 4")), (SURPLUS,)),
    "no row": (lambda rows: rows.where("id <> 4"), (MISSING,)),
    "no rows": (lambda rows: rows.where("id < 0"), (MISSING,)),
    "no partner": (named("NULL"), (MISSING, SURPLUS)),
    "partner of another": (named("'cy'"), (MISSING, SURPLUS)),
    "partner of before": (named("'ann'"), (MISSING, SURPLUS)),
    "another position": (lambda rows: rows.withColumn("_position", F.col("_position") + 1), (MISSING, SURPLUS)),
}


@pytest.fixture
def clicks(spark: SparkSession, tmp_path: Path) -> Clicks:
    return Clicks.new(spark, tmp_path / "lake")


def as_many(monkeypatch: pytest.MonkeyPatch, rechecked: int = limits.RECOMPUTED_ROWS) -> None:
    monkeypatch.setattr(limits, "CHANGES_VIA_DRIVER", 0)
    monkeypatch.setattr(limits, "SMALL_BYTES", -1)
    monkeypatch.setattr(limits, "RECOMPUTED_ROWS", rechecked)


SOME = ("no row", "no rows", "partner of another", "partner of before")


@cases(
    "how, kind, faults",
    ("LEFT", "table", SOME),
    ("LEFT", "table", tuple(name for name in FAULTS if name not in SOME)),
    ("INNER", "table", SOME),
    ("LEFT", "global_table", SOME),
)
def test_a_planted_fault_is_found_before_anything_is_published(clicks, monkeypatch, how, kind, faults):
    users = {"key": "id", "kind": kind}
    pipeline = clicks.stream(JOIN.replace("LEFT", how), users=users)
    with planted(named("'x'")), planted(lambda rows: rows.withColumn("id", F.expr("id + 3"))):
        refused(clicks, pipeline, (MISSING, SURPLUS), is_load=True)
    pipeline.run(clicks.spark)
    clicks.rename(1, "Ann", 10)
    clicks.click("(4, 1, NULL), (5, 3, NULL)", 20)
    if how == "INNER":
        as_many(monkeypatch)
    for fault, findings in map(FAULTS.__getitem__, faults):
        with planted(fault):
            refused(clicks, pipeline, findings)
    pipeline.run(clicks.spark)
    assert clicks.found()[-2:] == [(4, 1, "Ann"), (5, 3, "cy")]


@pytest.mark.deep
def test_a_map_that_is_handed_on_in_another_order_is_found(spark: SparkSession, tmp_path: Path) -> None:
    lake = Clicks(spark, tmp_path / "lake")
    lake.create("clicks", "id INT, user INT, m MAP<STRING, INT>", "(1, 1, map('a', 1, 'b', 2))")
    lake.create("users", "id INT, name STRING", "(1, 'ann')")
    begin(lake)
    pipeline = lake.stream("SELECT c.id, c.m, u.name FROM clicks c LEFT JOIN users u ON c.user = u.id")
    pipeline.run(spark)
    lake.click("(2, 1, map('a', 1, 'b', 2))", 10)
    reordered = F.expr("map_from_entries(reverse(map_entries(m)))")
    with planted(lambda rows: rows.withColumn("m", reordered)):
        refused(lake, pipeline, (MISSING, SURPLUS))
    assert only(pipeline.run(spark)).counts["appended"] == 1


def refused(lake: Clicks, pipeline: Pipeline, findings: tuple[str, ...], *, is_load: bool = False) -> None:
    before = lake.versions()
    with pytest.raises(GateFailed) as caught:
        pipeline.run(lake.spark)
    for finding in (MISSING, SURPLUS):
        assert (finding in caught.value.found) == (finding in findings), caught.value.found
    after = lake.versions()
    assert lake.ledger()[-1]["step"] == "rejected"
    assert after.pop("lakejoin_ledger") == before.pop("lakejoin_ledger", -1) + (2 if is_load else 1)
    assert {name: version for name, version in after.items() if name in before} == before


@pytest.mark.slow
@cases("order, size", ("commits", "few"), ("column", "few"), ("commits", "many"), ("column", "sampled"))
def test_what_is_right_passes_and_where_all_is_wrong_a_sample_tells(spark, tmp_path, monkeypatch, order, size):
    """Rows and changes by turns: updates, deletes, keys that come back, what is only written anew, null keys."""
    lake = Clicks(spark, tmp_path / "lake")
    lake.create("clicks", "id INT, user INT, seq INT", "(1, 1, 1), (2, 2, 2), (3, NULL, 3)")
    columns = "id INT, name STRING, country STRING, seq INT, unused INT"
    lake.create("users", columns, "(1, 'ann', 'no', 1, 1), (3, 'cy', 'se', 1, 1), (NULL, 'nobody', 'no', 1, 1)")
    lake.create("countries", "code STRING, country STRING, seq INT", "('no', 'Norway', 1), ('se', 'Sweden', 2)")
    begin(lake)
    also = {"order_by": "seq"} if order == "column" else {}
    sources = {
        "clicks": {"key": "id", "kind": "stream", "null_value": "user = 0", **also},
        "users": {"key": "id", **also},
        "countries": {"key": "code", **also},
    }
    sql = (
        "SELECT c.id, u.name, upper(g.country) AS land, b.name AS other FROM clicks c LEFT JOIN users u "
        "ON c.user = u.id AND u.name <> 'hidden' LEFT JOIN countries g ON u.country = g.code "
        "LEFT JOIN users b ON c.id - 4 = b.id"
    )
    if size != "few":
        as_many(monkeypatch, 3 if size == "sampled" else limits.RECOMPUTED_ROWS)
    pipeline = lake.pipeline(sql, sources)
    pipeline.run(spark)
    steps = [
        ("users", "UPDATE {users} SET unused = 2"),
        ("clicks", "INSERT INTO {clicks} VALUES (4, 1, 5), (5, 3, 6), (6, 0, 7)"),
        ("users", "UPDATE {users} SET name = 'Ann', seq = 8 WHERE id = 1"),
        ("clicks", "INSERT INTO {clicks} VALUES (7, 1, 9), (7, 1, 9), (8, 2, 9), (9, NULL, 9)"),
        ("users", "INSERT OVERWRITE {users} SELECT * FROM {users}"),
        ("countries", "UPDATE {countries} SET country = 'Norge', seq = 10 WHERE code = 'no'"),
        ("users", "DELETE FROM {users} WHERE id = 1"),
        ("clicks", "INSERT INTO {clicks} VALUES (10, 1, 11), (11, 3, 61)"),
        ("users", "INSERT INTO {users} VALUES (1, 'anew', 'no', 12, 1), (2, 'hidden', 'se', 40, 1)"),
        ("clicks", "INSERT INTO {clicks} VALUES (12, 1, 13), (13, 2, 50), (14, 3, 51), (15, 1, 60)"),
    ]
    for number, (name, statement) in enumerate(steps):
        lake.sql(statement, "clicks", "users", "countries")
        commit_at(lake, name, number)
    if size == "sampled":
        with planted(lambda rows: rows.withColumn("name", F.lit("?"))), pytest.raises(GateFailed, match=MISSING):
            pipeline.run(spark)
    assert only(pipeline.run(spark)).counts["appended"] == 12
    names = {row[0]: row[1] for row in lake.found()[3:]}
    assert names[4] == "ann"
    # By commits row 7 came before the DELETE. By `seq` the DELETE has the time that the table had reached, which is 8.
    assert names[7] == ("Ann" if order == "commits" else None)
    assert names[12] == "anew"
    lake.sql("UPDATE {users} SET name = 'x', seq = 70", "users")
    assert only(pipeline.run(spark)).counts["appended"] == 0
