"""A run killed before or after any of its writes, and started again, ends in the same tables as one that was not."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Collection, Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import Row, SparkSession

from pipelines import Pipeline
from tests.cases import cases
from tests.killing import recorded_writes
from tests.lake import JOIN, Lake
from tests.log_readers import without_delta_rs
from tests.printed import PRINTED

LEFT_OUT = {"lakejoin_ledger": ("run_id", "at", "stage", "seconds", "targets"), "__changelog": ("_at",)}
"""
Columns that two equal lakes do not have in common, by how the names of tables end: who wrote, when, and into which
folder. The versions of the targets are compared as those of the tables; that of the ledger is not: Delta compacts it
when this JVM has written so many files of it, and all copies count as one table.
"""


def before_the_load(standard: Lake, loaded: Lake) -> Lake:
    return standard


def before_an_epoch(standard: Lake, loaded: Lake) -> Lake:
    loaded.sql(
        "MERGE INTO {left} t USING (SELECT * FROM VALUES (1, 'n'), (2, NULL), (4, 'd') AS s(k, v)) s ON t.k = s.k "
        "WHEN MATCHED AND s.v IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET v = s.v "
        "WHEN NOT MATCHED THEN INSERT (k, v) VALUES (s.k, s.v)"
    )
    loaded.sql("UPDATE {right} SET w = 'n' WHERE k = 3")
    return loaded


def pipeline_of(lake: Lake) -> Pipeline:
    return Pipeline.load(lake.file)


def outcome(lake: Lake) -> dict[str, Any]:
    """Say what two equal lakes have in common: the rows of all tables, sorted, but for columns that are left out."""
    versions = lake.versions()
    rows = {name: compared(lake, name) for name in versions}
    del versions["lakejoin_ledger"]
    return {"rows": rows, "feed": lake.feed(0), "versions": versions}


def compared(lake: Lake, name: str) -> list[Any]:
    """Give the rows of a table, sorted, without the columns that are left out."""
    without = [column for ending, columns in LEFT_OUT.items() if name.endswith(ending) for column in columns]
    rows = lake.spark.read.format("delta").load(lake.path(name)).drop(*without).collect()
    return sorted((tuple(without_own_commits(lake, row)) for row in rows), key=repr)


def without_own_commits(lake: Lake, row: Row) -> Iterator[Any]:
    """Leave out which commits of tables of ours an epoch read: another run makes them anew."""
    ours = {*pipeline_of(lake).file.joins} | {
        n for n, s in pipeline_of(lake).file.sources.items() if s.kind == "changelog"
    }
    for name, value in row.asDict().items():
        if name == "sources":
            yield [tuple(s)[:-1] if s["name"].removesuffix("__changelog") in ours else s for s in value]
        else:
            yield value


class Dying:
    """Runs in processes of their own, on the JVM of the test session, each of which dies at a write."""

    def __init__(self, spark: SparkSession, log: Path) -> None:
        self._spark, self._log = spark, log
        self._gateway: Any = spark.sparkContext._gateway

    def __enter__(self) -> "Dying":
        parameters = self._gateway.gateway_parameters
        environment = {
            **os.environ,
            "PYSPARK_GATEWAY_PORT": str(parameters.port),
            "PYSPARK_GATEWAY_SECRET": str(parameters.auth_token),
        }
        child = [sys.executable, "-m", "tests.crash_child"]
        with self._log.open("w") as log:
            self._process = subprocess.Popen(
                child, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, text=True
            )
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()

    def die_at(self, lake: Lake, number: int, moment: str) -> None:
        """Run the pipeline of the lake, in a process that dies before or after a write."""
        first = self._next_object()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(lake.file), number, moment]), file=self._process.stdin, flush=True)
        ended = self._process.stdout.readline().strip()
        # What the JVM kept for a process that is no more: its heap would fill up with plans.
        for of_the_dead in range(first, self._next_object()):
            self._gateway._gateway_client.garbage_collect_object(f"o{of_the_dead}", enqueue=False)
        self._spark.catalog.clearCache()
        assert ended == "-9", f"the process was to die at write {number}: {self._log.read_text()[-2000:]}"

    def _next_object(self) -> int:
        """Tell the number of the next object that the JVM hands out, which is that of this one."""
        return int(self._gateway.jvm.java.lang.Object()._target_id.removeprefix("o"))


def before_an_epoch_with_a_changelog(standard: Lake, loaded: Lake) -> Lake:
    standard.pipeline(changelog=True).run(standard.spark)
    return before_an_epoch(loaded, standard)


def before_an_epoch_by_a_foreign_key(standard: Lake, loaded: Lake) -> Lake:
    """All rows of the left table refer to one of the right one, which changes as well."""
    standard.pipeline("SELECT l.k, l.v, r.w FROM left l LEFT JOIN right r ON length(l.v) + 1 = r.k").run(standard.spark)
    standard.sql("UPDATE {right} SET w = 'm' WHERE k = 2")
    return before_an_epoch(loaded, standard)


def before_an_epoch_of_many_to_many(standard: Lake, loaded: Lake) -> Lake:
    """Keys of the result have nulls: rows of either side without a match are in it."""
    standard.pipeline("SELECT l.k, r.k AS other, l.v, r.w FROM left l FULL JOIN right r ON length(l.v) + 1 = r.k").run(
        standard.spark
    )
    standard.sql("UPDATE {right} SET w = 'm' WHERE k = 2")
    return before_an_epoch(loaded, standard)


def before_an_epoch_of_a_star(standard: Lake, loaded: Lake) -> Lake:
    """By the key, and by a reference: the right table is there twice."""
    standard.pipeline(
        "SELECT l.k, l.v, r.w, p.w AS of_parent FROM left l LEFT JOIN right r ON l.k = r.k "
        "LEFT JOIN right p ON length(l.v) + 1 = p.k"
    ).run(standard.spark)
    standard.sql("UPDATE {right} SET w = 'm' WHERE k = 2")
    return before_an_epoch(loaded, standard)


def before_an_epoch_of_a_chain(standard: Lake, loaded: Lake) -> Lake:
    """The result reads another join, which has an epoch as well."""
    standard.pipeline(
        "SELECT m.k, m.v, r.w FROM middle m JOIN right r ON m.k = r.k", further={"middle": JOIN}, changelog=True
    ).run(standard.spark)
    return before_an_epoch(loaded, standard)


def before_an_epoch_of_a_changelog_source(standard: Lake, loaded: Lake) -> Lake:
    """Upserts and a tombstone come, one of them late; the KTable and the join that reads it have an epoch each."""
    standard.create("raw", "k INT, v STRING, n INT", "(1, 'a', 1), (2, 'b', 2), (3, 'c', 3)")
    raw = {"key": "k", "kind": "changelog", "order_by": "n", "tombstone": "v IS NULL"}
    standard.pipeline(JOIN.replace("FROM left", "FROM raw"), {"raw": raw, "right": "k"}).run(standard.spark)
    standard.sql("INSERT INTO {raw} VALUES (1, 'n', 4), (2, NULL, 5), (3, 'late', 0), (4, 'd', 6)", "raw")
    standard.sql("UPDATE {right} SET w = 'n' WHERE k = 3")
    return standard


def before_an_epoch_of_a_stream(standard: Lake, loaded: Lake, kind: str = "table") -> Lake:
    """Rows come to the left table, which is a stream here, and the right one changes."""
    sources = {"left": {"key": "k", "kind": "stream"}, "right": {"key": "k", "kind": kind}}
    standard.pipeline(sources=sources).run(standard.spark)
    standard.sql("INSERT INTO {left} VALUES (2, 'n'), (3, 'o')")
    standard.sql("UPDATE {right} SET w = 'n' WHERE k = 3")
    standard.sql("INSERT INTO {left} VALUES (3, 'p')")
    return standard


def before_an_epoch_of_a_stream_and_a_global_table(standard: Lake, loaded: Lake) -> Lake:
    return before_an_epoch_of_a_stream(standard, loaded, "global_table")


def before_the_load_of_a_stream(standard: Lake, loaded: Lake) -> Lake:
    standard.pipeline(sources={"left": {"key": "k", "kind": "stream"}, "right": "k"})
    return standard


TWO_STREAMS = {name: {"key": "k", "kind": "stream", "watermarks": {"k": 1}} for name in ("left", "right")}
WITHIN = "SELECT l.k, l.v, r.w FROM left l FULL JOIN right r ON l.k BETWEEN r.k - 1 AND r.k + 1"


def before_an_epoch_of_two_streams(standard: Lake, loaded: Lake) -> Lake:
    """Rows come that meet some that wait, others leave alone, and one is late."""
    standard.pipeline(WITHIN, TWO_STREAMS).run(standard.spark)
    come(standard)
    return standard


def come(standard: Lake) -> None:
    standard.sql("INSERT INTO {left} VALUES (5, 'n'), (9, 'o'), (1, 'late')")
    standard.sql("INSERT INTO {right} VALUES (6, 'n'), (12, NULL)")


def before_an_epoch_of_a_chain_of_streams(standard: Lake, loaded: Lake) -> Lake:
    """A stream looks up a table, and what leaves it meets another stream: two joins, an epoch each."""
    standard.create("names", "k INT, name STRING", "(1, 'one'), (2, 'two'), (5, 'five')")
    standard.pipeline(
        WITHIN.replace("FROM left l", "FROM middle l").replace("FULL", "LEFT"),
        {**TWO_STREAMS, "names": "k"},
        further={"middle": "SELECT l.k, l.v, n.name FROM left l LEFT JOIN names n ON l.k = n.k"},
    ).run(standard.spark)
    standard.sql("UPDATE {names} SET name = 'FIVE' WHERE k = 5", "names")
    come(standard)
    return standard


def before_the_load_of_two_streams(standard: Lake, loaded: Lake) -> Lake:
    standard.pipeline(WITHIN, TWO_STREAMS)
    return standard


def is_slow(prepare: Callable[[Lake, Lake], Lake]) -> Any:
    return pytest.param(prepare, marks=pytest.mark.slow)


@pytest.mark.deep
@cases(
    "prepare",
    is_slow(before_the_load),
    is_slow(before_an_epoch),
    before_an_epoch_with_a_changelog,
    is_slow(before_an_epoch_by_a_foreign_key),
    is_slow(before_an_epoch_of_many_to_many),
    is_slow(before_an_epoch_of_a_star),
    is_slow(before_an_epoch_of_a_chain),
    is_slow(before_an_epoch_of_a_changelog_source),
    is_slow(before_the_load_of_a_stream),
    is_slow(before_an_epoch_of_a_stream),
    is_slow(before_an_epoch_of_a_stream_and_a_global_table),
    is_slow(before_the_load_of_two_streams),
    is_slow(before_an_epoch_of_a_chain_of_streams),
    is_slow(before_an_epoch_of_two_streams),
)
def test_killed_at_every_write(standard, loaded, tmp_path, prepare, record_property):
    """SIGKILL before and after each write that there is: the test finds the writes itself."""
    record_property(PRINTED, killed_at_every_write(standard, loaded, tmp_path, prepare))


@pytest.mark.slow
@pytest.mark.parametrize("prepare", [before_the_load, before_an_epoch_with_a_changelog, before_an_epoch_of_two_streams])
def test_killed_at_every_write_with_spark_as_the_only_reader(standard, loaded, tmp_path, prepare, monkeypatch):
    without_delta_rs(monkeypatch, tmp_path)
    killed_at_every_write(standard, loaded, tmp_path, prepare)


def killed_at_every_write(standard: Lake, loaded: Lake, tmp_path: Path, prepare: Callable[[Lake, Lake], Lake]) -> str:
    """Kill a run at each of its writes, resume it, compare the tables, and give the summary."""
    start = prepare(standard, loaded)
    straight = start.copy(tmp_path / "straight")
    with recorded_writes() as writes:
        pipeline_of(straight).run(straight.spark)
    expected = outcome(straight)
    assert len(writes) >= 5
    points = [("before", number) for number in range(1, len(writes) + 1)] + [("after", len(writes))]
    with Dying(start.spark, tmp_path / "log") as dying:
        for moment, number in points:  # between two writes nothing happens: after one is before the next
            lake = start.copy(tmp_path / f"{number}-{moment}")
            dying.die_at(lake, number, moment)
            resumed = pipeline_of(lake).run(lake.spark)
            told = "; ".join(report.text() for report in resumed)
            assert outcome(lake) == expected, f"killed {moment} write {number} ({writes[number - 1]}), then {told}"
            shutil.rmtree(lake.folder)
    return summary(prepare.__name__, len(writes), len(points), expected["rows"])


def summary(kind: str, writes: int, points: int, tables: Collection[str]) -> str:
    """Tell how many points there were, and in which columns the tables were not compared."""
    without = [
        f"{name}.{column}" for name in tables for end, cs in LEFT_OUT.items() if name.endswith(end) for column in cs
    ]
    return (
        f"crash matrix, {kind.replace('_', ' ')}: {points} points, before each of {writes} writes and after the last; "
        f"{len(tables)} tables equal, left out: {', '.join(without)}"
    )
