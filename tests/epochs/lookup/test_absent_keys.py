"""Streams that look up results whose rows may lack a side, through real Delta tables and the driver."""

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.errors.errors import DuplicateKey, GateFailed, PipelineFileError
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.commands.published import read_range
from pipelines.commands.validate import validate_joins
from pipelines.epochs.lookup import kind, reading
from pipelines.epochs.lookup.reading import StreamSources
from pipelines.epochs.sources import lookups
from pipelines.language import Link
from pipelines.plan.values import EpochPlan
from pipelines.report import JoinReport
from tests.cases import cases
from tests.epochs.lookup.clicks import begin, commit_at
from tests.lake import Lake
from tests.planted import planted

Row = tuple[Any, ...]
SOURCES = {"a": "aid", "b": "bid", "s": {"kind": "stream", "key": "sid"}}
EVERY = {"every": "SELECT a.aid, b.bid, a.v, b.w FROM a FULL JOIN b ON a.city = b.city"}
SELECT = "SELECT s.sid, r.v, r.w FROM s "
JOINS = {
    "by_both": SELECT + "LEFT JOIN every r ON s.aid = r.aid AND s.bid <=> r.bid",
    "by_null_safe": SELECT + "JOIN every r ON s.aid <=> r.aid AND r.bid <=> s.bid",
    "from_both": SELECT
    + "LEFT JOIN a ON s.aid = a.aid AND a.v > 0 JOIN every r ON r.aid <=> a.aid AND r.bid <=> s.bid",
    "by_equal": SELECT + "JOIN every r ON s.aid = r.aid AND r.bid = s.bid",
}
FEWER = ("by_both", "from_both")
OTHERS = ("by_both", "by_null_safe", "by_equal")


def equal(one: Any, other: Any) -> bool:
    return one is not None and one == other


class Readers(Lake):
    """Two tables, the result of a join of them, a stream that looks it up, and what all of these hold in Python."""

    def __init__(self, spark: SparkSession, folder: Path, joins: Sequence[str] = FEWER) -> None:
        super().__init__(spark, folder)
        self.joins, self.seconds = {name: JOINS[name] for name in joins}, 0
        self.a: dict[int, Row] = {}
        self.b: dict[int, Row] = {}
        self.made: dict[str, list[Row]] = {name: [] for name in joins}
        self.null_keys = dict.fromkeys(joins, 0)
        self.number = 0

    def fill(self, script: random.Random) -> None:
        """Create the tables with some rows; the rows of the stream meet these in a load."""
        self.create("a", "aid INT, city STRING, v INT")
        self.create("b", "bid INT, city STRING, w INT")
        self.create("s", "sid INT, aid INT, bid INT")
        for name in ("a", "b"):
            self.change(script, name, range(1, 6), [])
        begin(self)
        self.events(script)

    def change(self, script: random.Random, name: str, put: Sequence[int], gone: Sequence[int]) -> None:
        held = self.a if name == "a" else self.b
        rows = [(key, script.choice(["x", "y", "z", None]), script.choice([0, 1, 2, 3, None])) for key in put]
        held.update((row[0], row) for row in rows)
        for key in gone:
            held.pop(key, None)
        values = ", ".join(f"({key}, {_text(city)}, {_text(number)}, false)" for key, city, number in rows)
        keys = ", ".join(f"({key}, NULL, NULL, true)" for key in gone)
        key, column = ("aid", "v") if name == "a" else ("bid", "w")
        columns = f"{key}, city, {column}"
        self.sql(
            f"MERGE INTO {{{name}}} t USING (SELECT * FROM VALUES {', '.join(filter(None, (values, keys)))} "
            f"AS s({columns}, gone)) s ON t.{key} = s.{key} WHEN MATCHED AND s.gone THEN DELETE "
            f"WHEN MATCHED THEN UPDATE SET city = s.city, {column} = s.{column} "
            f"WHEN NOT MATCHED AND NOT s.gone THEN INSERT ({columns}) VALUES (s.{key}, s.city, s.{column})",
            name,
        )
        self._happened(name)

    def events(self, script: random.Random) -> None:
        """Add rows to the stream: most refer to rows of the result as it is."""
        rows = []
        known = [row[:2] for row in self.every()]
        for _ in range(8):
            self.number += 1
            parts = script.choice([*known, *known, (None, None), (script.randrange(9), None), (None, 9)])
            rows.append((self.number, *parts))
        self.sql(f"INSERT INTO {{s}} VALUES {', '.join(f'({s}, {_text(a)}, {_text(b)})' for s, a, b in rows)}", "s")
        self._happened("s")
        for name in self.joins:
            for row in rows:
                self._meet(name, row)

    def every(self) -> list[Row]:
        both = [(a[0], b[0], a[2], b[2]) for a in self.a.values() for b in self.b.values() if equal(a[1], b[1])]
        lefts, rights = {row[0] for row in both}, {row[1] for row in both}
        both += [(a[0], None, a[2], None) for a in self.a.values() if a[0] not in lefts]
        return both + [(None, b[0], None, b[2]) for b in self.b.values() if b[0] not in rights]

    def _meet(self, name: str, row: Row) -> None:
        """Add what a row of the stream makes of the tables as they are, and count its null keys."""
        sid, aid, bid = row
        is_inner, is_null = name != "by_both", {"by_both": aid is None, "by_equal": None in row}.get(name)
        if name == "from_both":
            own = self.a.get(aid, (None, None, None))
            aid, is_met = (aid, True) if own[2] is not None and own[2] > 0 else (None, False)
            is_null = aid is bid is None and is_met
        elif is_null is None:
            is_null = aid is bid is None
        refers = not (is_null or aid is bid is None)
        found = [one for one in self.every() if one[:2] == (aid, bid)] if refers else []
        self.null_keys[name] += is_null and is_inner
        if found or not is_inner:
            self.made[name].append((sid, *(found[0][2:] if found else (None, None))))

    def _happened(self, name: str) -> None:
        self.seconds += 10
        commit_at(self, name, self.seconds)

    def load(self) -> Pipeline:
        (first, sql), *others = self.joins.items()
        return self.pipeline(sql, SOURCES, first, EVERY | dict(others))

    def run(self) -> dict[str, JoinReport]:
        return {report.join: report for report in self.load().run(self.spark)}

    def found(self, name: str) -> list[Row]:
        """Return the rows of a result without epoch and position, in the order of the stream."""
        return sorted((row[:-2] for row in self.rows(name)), key=lambda row: row[0])


def _text(value: Any) -> str:
    return "NULL" if value is None else f"'{value}'" if isinstance(value, str) else str(value)


def through_stage(monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
    """Look up few rows as in large tables: by literals, by the joins as by their gate."""
    monkeypatch.setattr(EpochPlan, "via_driver", few)
    monkeypatch.setattr(StreamSources, "is_met_whole", lambda *_: False)
    for limit in ("SMALL_BYTES", "LITERAL_BYTES", "WHOLE_BYTES"):
        monkeypatch.setattr(limits, limit, -1)


def in_place(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "STAGED_STREAM_BYTES", -1)
    monkeypatch.setattr(limits, "CHANGES_VIA_DRIVER", -1)


@pytest.mark.slow
@cases(
    "joins, epochs, seed, way",
    pytest.param(FEWER[1:], 1, 1, lambda patch: through_stage(patch, True), id="through the driver"),
    pytest.param(tuple(JOINS), 2, 2, lambda patch: None, id="all of small tables"),
    pytest.param(OTHERS, 1, 3, lambda patch: through_stage(patch, True), id="others"),
    pytest.param(FEWER, 1, 4, lambda patch: through_stage(patch, False), id="by stage"),
    pytest.param(FEWER, 1, 5, in_place, id="in place"),
)
def test_random_histories(spark, tmp_path, monkeypatch, joins, epochs, seed, way):
    """Each row meets the result as it was at its time; in each other epoch the stream alone has changed."""
    way(monkeypatch)
    lake, script = Readers(spark, tmp_path, joins), random.Random(seed)
    lake.fill(script)
    counted = dict.fromkeys(joins, 0)
    for epoch in range(2 * epochs):
        reports = lake.run()
        for name in joins:
            story = f"seed {seed}, epoch {epoch}, {name}"
            assert lake.found(name) == lake.made[name], story
            counted[name] += reports[name].counts["null_keys"]
            assert (counted[name], reports[name].counts["behind_cut"]) == (lake.null_keys[name], 0), story
        for _ in range(2 * ((epoch + 1) % 2)):
            keys = script.sample(range(1, 9), 4)
            lake.change(script, script.choice("ab"), keys[:2], keys[2:])
            lake.events(script)
        lake.events(script)
    assert all(any(row[1:] != (None, None) for row in made) for made in lake.made.values())
    assert [report.outcome for report in lake.load().verify(spark)] == ["done"] * (1 + len(joins))


@pytest.fixture
def loaded(spark: SparkSession, tmp_path: Path) -> Readers:
    """Give a lake in which a row without each side and one with both have been looked up, and are looked up again."""
    lake = Readers(spark, tmp_path, ["by_both"])
    for name, columns in (("a", "aid INT, city STRING, v INT"), ("b", "bid INT, city STRING, w INT")):
        lake.create(name, columns, "(1, 'x', 5), (2, 'y', 6)" if name == "a" else "(1, 'x', 7), (3, 'z', 8)")
    lake.create("s", "sid INT, aid INT, bid INT", "(1, 1, 1), (2, 2, NULL), (3, NULL, 3)")
    begin(lake)
    lake.run()
    assert lake.found("by_both") == [(1, 5, 7), (2, 6, None), (3, None, None)]
    lake.sql("INSERT INTO {s} VALUES (4, 2, NULL), (5, 1, 1), (6, NULL, 3)", "s")
    commit_at(lake, "s", 10)
    return lake


def as_plain(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look up by `=` what `<=>` compares."""
    look_up = kind.look_up

    def plain(rows: DataFrame, link: Link, *given: Any, **options: Any) -> DataFrame:
        return look_up(rows, replace(link, null_safe=()), *given, **options)

    monkeypatch.setattr(kind, "look_up", plain)


@pytest.mark.parametrize("by_literals", [True, False])
@pytest.mark.slow
def test_the_gate_finds_what_a_look_up_of_nulls_misses(loaded, monkeypatch, by_literals):
    if by_literals:
        through_stage(monkeypatch, True)
    before = loaded.version("by_both")
    with monkeypatch.context() as context:
        as_plain(context)
        with pytest.raises(GateFailed, match="the partner that it had at its position"):
            loaded.load().run(loaded.spark, select=["by_both"])
    surplus = F.expr("IF(sid = 6, 8, w)")
    with planted(lambda rows: rows.withColumn("w", surplus)), pytest.raises(GateFailed, match="has a cause"):
        loaded.load().run(loaded.spark, select=["by_both"])
    assert loaded.version("by_both") == before
    loaded.run()
    assert loaded.found("by_both")[3:] == [(4, 6, None), (5, 5, 7), (6, None, None)]


def doubled(read: Callable[..., DataFrame]) -> Callable[..., DataFrame]:
    """Find the rows of the result that lack `b` twice, as after a write by somebody else."""

    def found(*given: Any) -> DataFrame:
        rows = read(*given)
        return rows.unionAll(rows.where("bid IS NULL"))

    return found


@pytest.mark.parametrize("few", [True, False])
@pytest.mark.slow
def test_a_key_with_a_null_that_a_result_holds_twice_stops_the_epoch(loaded, monkeypatch, few):
    """It is found by the rows that meet both, and, where versions of a changed key would hide one, by its key."""
    version = loaded.version("by_both")

    def is_refused() -> None:
        with monkeypatch.context() as patch:
            patch.setattr(EpochPlan, "via_driver", few)
            for module, name in ((lookups, "rows_of"), (reading, "rows_of"), (kind, "read_rows")):
                patch.setattr(module, name, doubled(getattr(module, name)))
            with pytest.raises(DuplicateKey) as told:
                loaded.load().run(loaded.spark, select=["by_both"])
            assert "aid=2, bid=None (2 rows)" in told.value.found

    is_refused()
    loaded.sql("UPDATE {a} SET v = 9 WHERE aid = 2", "a")
    loaded.load().run(loaded.spark, select=["every"])
    is_refused()
    assert loaded.version("by_both") == version


@pytest.mark.slow
def test_published_rows_meet_their_suites(loaded: Readers) -> None:
    loaded.run()
    workspace = Workspace.open(loaded.spark, loaded.load().file, loaded.folder)
    (report,) = validate_joins(workspace, ["by_both"], read_range("", ""))
    assert (report.outcome, report.error) == ("done", None)


@cases(
    "joins, told",
    ("LEFT JOIN every r ON s.aid <=> r.aid", r"looked up by its whole key, \(aid, bid\), but no equality has bid"),
    ("RIGHT JOIN every r ON s.aid <=> r.aid AND s.bid <=> r.bid", "RIGHT JOIN keeps unmatched rows of every"),
    (
        "LEFT JOIN a ON s.aid = a.aid LEFT JOIN every r ON coalesce(a.v, 1) <=> r.aid AND s.bid <=> r.bid",
        "may refer to a row of every although the input of its columns is absent",
    ),
    (
        "LEFT JOIN a ON s.aid = a.aid LEFT JOIN every r ON a.v <=> r.aid AND 1 <=> r.bid",
        "may refer to a row of every although the input of its columns is absent",
    ),
)
def test_what_is_still_refused(lake: Lake, joins: str, told: str) -> None:
    with pytest.raises(PipelineFileError, match=told):
        lake.pipeline(SELECT + joins, SOURCES, further=EVERY)
