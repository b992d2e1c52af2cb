"""Foreign keys and stars through real Delta tables: one change set, one MERGE, and nothing written besides."""

import pytest
from pyspark.sql import DataFrame

from lakehouse import limits
from lakehouse.errors.errors import DuplicateKey, PipelineFileError
from pipelines import Pipeline
from pipelines.epochs.sources.lookups import Found, LookUps
from pipelines.plan.values import EpochPlan
from tests.cases import cases
from tests.lake import KEYED, Lake, only

STAR = """
    SELECT f.id, f.tail, s.state, p.seats, m.country, a.city AS from_city, b.city AS to_city, g.tail AS previous_tail
    FROM flights f LEFT JOIN status s ON f.id = s.id LEFT JOIN planes p ON f.tail = p.tail
    LEFT JOIN makers m ON p.maker = m.maker
    LEFT JOIN ports a ON f.origin = a.code LEFT JOIN ports b ON f.dest = b.code
    LEFT JOIN flights g ON f.previous = g.id
"""
KEYS = {"flights": "id", "status": "id", "planes": "tail", "makers": "maker", "ports": "code"}
TABLES = {
    "flights": (
        "id BIGINT, tail STRING, origin STRING, dest STRING, previous BIGINT",
        "(1, 'N1', 'JFK', 'LAX', NULL), (2, 'N1', 'LAX', 'JFK', 1), (3, 'N2', 'JFK', 'BOS', 2), (4, NULL, 'X', 'X', 9)",
    ),
    "status": ("id BIGINT, state STRING", "(1, 'landed'), (7, 'nobody')"),
    "planes": ("tail STRING, maker STRING, seats INT", "('N1', 'b', 180), ('N2', 'b', 90), ('N3', 'a', 400)"),
    "makers": ("maker STRING, country STRING", "('b', 'US'), ('a', 'FR')"),
    "ports": ("code STRING, city STRING", "('JFK', 'New York'), ('LAX', 'Los Angeles')"),
}
WRITES = [
    "INSERT INTO {ports} VALUES ('BOS', 'Boston')",
    "DELETE FROM {planes} WHERE tail = 'N2'",
    "UPDATE {flights} SET tail = 'N3' WHERE id = 2",
    "UPDATE {flights} SET tail = 'N3' WHERE id = 4",
    "INSERT INTO {flights} VALUES (5, 'N1', 'BOS', 'JFK', 4), (6, 'N1', 'BOS', 'BOS', 1)",
    "DELETE FROM {flights} WHERE id = 1",
    "UPDATE {planes} SET seats = 401 WHERE tail = 'N3'",
    "UPDATE {makers} SET country = 'France' WHERE maker = 'a'",
    "UPDATE {makers} SET country = 'USA' WHERE maker = 'b'",
    "UPDATE {ports} SET city = 'NYC' WHERE code = 'JFK'",
    "INSERT INTO {status} VALUES (4, 'boarding')",
]
"""Moves to another parent, parents that come, change and go, and fan-out over one step and over two."""


@pytest.fixture
def star(lake: Lake) -> Lake:
    for name, (columns, rows) in TABLES.items():
        lake.create(name, columns, rows)
    return lake


@pytest.mark.fast
@cases(
    "most", pytest.param(limits.ROWS_ON_DRIVER, id="through the driver"), pytest.param(1, id="too much for the driver")
)
def test_a_star_moves_what_changed_in_all_of_its_tables(star: Lake, monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """The result is the join, its feed the difference, by one commit, and no other table is written."""
    monkeypatch.setattr(limits, "ROWS_ON_DRIVER", most)
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)  # rows are looked up as those of large tables are
    pipeline = star.pipeline(STAR, KEYS)
    assert only(pipeline.run(star.spark)).counts["inserted"] == 4
    for write in WRITES:
        star.sql(write, *TABLES)
    before, rows = star.versions(), star.rows()
    assert only(pipeline.run(star.spark)).changed == 6
    written = {name for name, version in star.versions().items() if version != before[name]}
    assert written == {"result", "lakejoin_ledger"}
    assert star.version() == before["result"] + 1
    after = set(star.rows())
    feed = star.feed(before["result"])
    gone = {row for kind, row in feed if kind in ("delete", "update_preimage")}
    come = {row for kind, row in feed if kind in ("insert", "update_postimage")}
    assert (gone, come) == (set(rows) - after, after - set(rows))
    only(pipeline.verify(star.spark))


@pytest.mark.parametrize("few", [True, False], ids=["through the driver", "through the stage"])
def test_a_parent_that_is_there_twice_stops_the_epoch(star: Lake, monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
    """Found among the rows that are looked up, before anything is published."""
    monkeypatch.setattr(EpochPlan, "via_driver", few)
    pipeline = star.pipeline("SELECT f.id, p.seats FROM flights f JOIN planes p ON f.tail = p.tail", KEYS)
    pipeline.run(star.spark)
    version = star.version()
    star.sql("INSERT INTO {planes} VALUES ('N1', 'b', 7)", "planes")
    with pytest.raises(DuplicateKey, match="N1"):
        pipeline.run(star.spark)
    assert star.version() == version


@pytest.mark.slow
@pytest.mark.parametrize(("changelog", "looked_up_again"), [(False, False), (True, True)])
def test_one_scan_reads_what_changed_and_what_refers_to_it(star, monkeypatch, changelog, looked_up_again):
    """A changed flight, one whose plane changed, one of both, null references and keys; a changelog needs more rows."""
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)  # so that rows are looked up as those of large tables are
    looked_up, real = list[int](), LookUps._with_keys

    def counted(self: LookUps, place: int, keys: DataFrame) -> Found:
        looked_up.append(place)
        return real(self, place, keys)

    monkeypatch.setattr(LookUps, "_with_keys", counted)
    sql = "SELECT f.id, f.dest, p.seats, a.city FROM flights f LEFT JOIN planes p ON f.tail = p.tail "
    sql += "LEFT JOIN ports a ON f.origin = a.code"
    star.sql("INSERT INTO {flights} VALUES (NULL, 'N2', 'JFK', 'X', NULL)", "flights")
    pipeline = star.pipeline(sql, KEYS, changelog=changelog)
    pipeline.run(star.spark)
    star.sql("UPDATE {planes} SET seats = 91 WHERE tail = 'N2'", "planes")
    star.sql("UPDATE {ports} SET city = 'L. A.' WHERE code = 'LAX'", "ports")
    star.sql("UPDATE {flights} SET dest = 'SFO' WHERE id IN (1, 2, 4)", "flights")
    assert only(pipeline.run(star.spark)).counts["updated"] == 4
    assert (0 in looked_up) == looked_up_again
    assert star.rows() == [
        (1, "SFO", 180, "New York"),
        (2, "SFO", 180, "L. A."),
        (3, "BOS", 91, "New York"),
        (4, "SFO", None, None),
    ]


@pytest.mark.parametrize("few", [True, False], ids=["through the driver", "through the stage"])
@pytest.mark.slow
def test_a_changed_parent_that_is_there_twice_is_found_though_nothing_refers_to_it(star, monkeypatch, few):
    """As design section 4 says: a key that is inserted or updated and that its source holds twice."""
    monkeypatch.setattr(EpochPlan, "via_driver", few)
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)
    pipeline = star.pipeline("SELECT f.id, f.tail, p.seats FROM flights f LEFT JOIN planes p ON f.tail = p.tail", KEYS)
    pipeline.run(star.spark)
    star.sql("INSERT INTO {planes} VALUES ('N3', 'b', 7)", "planes")
    star.sql("UPDATE {flights} SET tail = 'N2' WHERE id = 1", "flights")
    with pytest.raises(DuplicateKey, match="N3"):
        pipeline.run(star.spark)


def test_a_reference_of_another_type_than_the_key_is_a_fault(star: Lake) -> None:
    """Both are named, with what helps."""
    star.pipeline("SELECT f.id, p.seats FROM flights f JOIN planes p ON f.previous = p.tail", KEYS)
    with pytest.raises(PipelineFileError, match=r"f.previous is bigint and p.tail is string"):
        Pipeline.load(star.file).run(star.spark)


@pytest.mark.deep
def test_no_expression_is_evaluated_over_rows_that_never_were(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small table beside a large one is not read whole: its other rows would lack their partners, and divide by 0."""
    lake.create("left", "k INT, v INT", "(1, 10), (2, 20), (3, 30)")
    lake.create("right", "k INT, n INT, filler STRING")
    lake.sql("INSERT INTO {right} SELECT id, id + 1, repeat(uuid(), 20) FROM range(1000)")
    pipeline = lake.pipeline("SELECT l.k, l.v / coalesce(r.n, 0) AS share FROM left l LEFT JOIN right r ON l.k = r.k")
    only(pipeline.run(lake.spark))
    lake.sql("UPDATE {left} SET v = 40 WHERE k = 1")
    size = sum(file.stat().st_size for file in (lake.folder / "lake" / "left").glob("*.parquet"))
    monkeypatch.setattr(limits, "SMALL_BYTES", size)
    monkeypatch.setattr(EpochPlan, "via_driver", False)
    assert only(pipeline.run(lake.spark)).counts["updated"] == 1
    assert lake.rows()[0] == (1, 20.0)


@pytest.mark.slow
def test_a_table_with_too_many_rows_for_the_driver_is_read_by_key(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file may hold many rows; the epoch need not pass through the stage because of them."""
    lake.create("left", "k INT, f INT", "(1, 1), (2, 2)")
    lake.create("right", "k INT, w STRING", "(1, 'a'), (2, 'b'), (3, 'c'), (4, 'd'), (5, 'e'), (6, 'f'), (7, 'g')")
    pipeline = lake.pipeline("SELECT l.k, l.f, r.w FROM left l LEFT JOIN right r ON l.f = r.k", KEYED)
    pipeline.run(lake.spark)
    lake.sql("UPDATE {left} SET f = 3 WHERE k = 1")
    assert only(pipeline.run(lake.spark)).counts["looked_up"] >= 7
    monkeypatch.setattr(limits, "ROWS_ON_DRIVER", 5)
    lake.sql("UPDATE {left} SET f = 4 WHERE k = 1")
    assert only(pipeline.run(lake.spark)).counts["looked_up"] < 7
    assert lake.rows() == [(1, 4, "d"), (2, 2, "b")]
