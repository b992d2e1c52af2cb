"""
Joins of tables left to chance: writers on their sources, two runners beside them, runs that are killed, backfills.
The joins are six, some of which read two others of one source, and run in one to four threads.

    python -m tests.chaos [--rounds N --minutes M --seed S]

At the end `verify` is clean, and the change feed of each result is a history without a cause too many: an insert of a
row that was not there, an update that changes it, a delete of what was there. And the results of every complete run are
the plain joins of the sources at its cut. Prints one JSON line.
"""

import argparse
import json
import re
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from random import Random
from threading import Lock
from typing import Any

from lakehouse.errors.conditions import is_conflict
from lakehouse.errors.errors import AnotherRun
from lakehouse.session import writing
from lakehouse.session.session import local_session
from pipelines import Pipeline
from tests.killing import Killed
from tests.lake import Lake

TABLES = {"orders": "id INT, customer INT, v INT", "customers": "k INT, v INT", "kinds": "k INT, v INT"}
RESULT = "SELECT o.id, o.v, c.v AS w FROM orders o LEFT JOIN customers c ON o.customer = c.k"
FURTHER = {
    "both": "SELECT c.k, c.v, d.v AS w FROM customers c LEFT JOIN kinds d ON c.k = d.k",
    "chained": "SELECT r.id, r.w, d.v FROM result r JOIN kinds d ON r.v = d.k",
    "beside": "SELECT o.id, o.v AS ordered, d.v AS kind FROM orders o LEFT JOIN kinds d ON o.v = d.k",
    "diamond": "SELECT r.id, r.w, b.kind FROM result r JOIN beside b ON r.id = b.id",
    "top": "SELECT d.id, d.kind, c.w FROM diamond d LEFT JOIN chained c ON d.id = c.id",
}
OPTIONS = {"both": {"feed": "any"}, "top": {"max_versions": 2}}
"""One join is overwritten where that is cheaper, another takes its commits in several epochs."""

KEYS = 30


def prepare(lake: Lake) -> None:
    for name, columns in TABLES.items():
        width = columns.count(",")
        rows = (f"({key}{f', {key * 7 % KEYS}' * width})" for key in range(0, KEYS, 2))
        lake.create(name, columns, ", ".join(rows))
    sources = {"orders": "id", "customers": "k", "kinds": "k"}
    further = {name: {"sql": sql, **OPTIONS.get(name, {})} for name, sql in FURTHER.items()}
    lake.pipeline(RESULT, sources, further=further, changelog=True)


def _of_cuts(lake: Lake) -> int:
    """Hold the results of each complete run against plain SQL over its cut, and give their number."""
    checked = 0
    for row in lake.runs():
        for result in row["targets"] if row["step"] == "complete" else ():
            sql = _over({source["name"]: source["to_version"] for source in row["sources"]}, lake, result["name"])
            expected = sorted((tuple(row) for row in lake.spark.sql(sql).collect()), key=repr)
            assert lake.rows(result["name"], result["version"]) == expected, (row, result["name"])
            checked += 1
    return checked


def _over(cut: Mapping[str, int], lake: Lake, name: str) -> str:
    """Write the statement of a join over the sources of a cut, with those of other joins in it."""

    def read(found: re.Match[str]) -> str:
        words, name = found[1], found[2]
        if name in cut:
            return f"{words} (SELECT * FROM {lake.at(name)} VERSION AS OF {cut[name]})"
        return f"{words} ({_over(cut, lake, name)})"

    return re.sub(r"(FROM|JOIN) (\w+)", read, {"result": RESULT, **FURTHER}[name])


def chaos(lake: Lake, seed: int, rounds: int, seconds: float) -> dict[str, Any]:
    random, done = Random(seed), Counter[str]()
    end = time.monotonic() + seconds
    while done["rounds"] < rounds and time.monotonic() < end:
        done += _written(lake, Random(random.random()))
        if random.random() < 0.7:
            writing.observers.append(_killing(random.randint(1, 15)))
        with ThreadPoolExecutor(max_workers=3) as side_by_side:
            came = side_by_side.submit(_written, lake, Random(random.random()))
            done.update(side_by_side.map(partial(_run, lake), random.choices(range(1, 5), k=2)))
            done += came.result()
        writing.observers.clear()
        if random.random() < 0.2:
            done[_run(lake, random.randint(1, 4), slices=random.choice((0, 3)))] += 1
            done["backfills"] += 1
        done["rounds"] += 1
    pipeline = Pipeline.load(lake.file)
    assert {report.outcome for report in pipeline.run(lake.spark)} <= {"done", "nothing"}
    pipeline.verify(lake.spark)
    assert {report.outcome for report in pipeline.run(lake.spark)} == {"nothing"}
    done["results_of_cuts"] = _of_cuts(lake)
    for name in ("result", *FURTHER):
        done["feed_rows"] += _causes(lake, name)
        done["versions"] += lake.version(name)
    return dict(done)


def _written(lake: Lake, random: Random) -> Counter[str]:
    done = Counter[str]()
    for _ in range(random.randint(1, 5)):
        kind = random.choice(list(WRITERS))
        try:
            WRITERS[kind](lake, random, random.choice(list(TABLES)))
            done[kind] += 1
        except Exception as error:
            if not is_conflict(error):  # a MERGE into the result was quicker than OPTIMIZE
                raise
            done["conflicts"] += 1
    return done


def _run(lake: Lake, threads: int, slices: int | None = None) -> str:
    """Run, or backfill in slices, and tell how it went; only that another run is at work may stop it."""
    pipeline = Pipeline.load(lake.file)
    try:
        if slices is None:
            pipeline.run(lake.spark, threads=threads)
        else:
            pipeline.backfill(lake.spark, slices=slices, threads=threads)
    except Killed:
        return "killed"
    except AnotherRun:
        return "another_run"
    return "runs"


def _killing(number: int) -> writing.Observer:
    """Give an observer that stops the run which comes to a write, counted over all runs from 1."""
    left, lock = number, Lock()

    def stop(when: str, what: str) -> None:
        nonlocal left
        with lock:
            left -= when == "before"
            is_last = when == "before" and left == 0
        if is_last:
            raise Killed(what)

    return stop


def _causes(lake: Lake, name: str) -> int:
    """Follow the change feed of a result from its first version on, and give how many rows it has."""
    found = lake.spark.read.format("delta").option("readChangeFeed", "true").option("startingVersion", 0)
    rows = [row.asDict() for row in found.load(lake.path(name)).drop("_commit_timestamp").collect()]
    held: dict[Any, dict[str, Any]] = {}
    order = {"update_preimage": 0, "delete": 1, "update_postimage": 2, "insert": 3}
    for row in sorted(rows, key=lambda row: (row["_commit_version"], order[row["_change_type"]])):
        kind, version = row.pop("_change_type"), row.pop("_commit_version")
        key = next(iter(row.values()))
        where = f"{kind} of {key} in version {version} of {name}"
        if kind == "insert":
            assert key not in held, where
        elif kind == "update_postimage":
            assert held[key] != row, where
        else:
            assert held[key] == row, where
        if kind == "delete":
            del held[key]
        elif kind != "update_preimage":
            held[key] = row
    assert sorted(held) == [row[0] for row in sorted(lake.rows(name))]
    return len(rows)


def _values(random: Random, name: str) -> str:
    columns = len(TABLES[name].split(",")) - 1
    return ", ".join(str(random.randint(0, KEYS)) for _ in range(columns))


def _insert(lake: Lake, random: Random, name: str) -> None:
    there = {row[0] for row in lake.rows(name)}
    new = random.sample(sorted(set(range(KEYS)) - there), min(4, KEYS - len(there)))
    if new:
        lake.sql(f"INSERT INTO {{{name}}} VALUES " + ", ".join(f"({k}, {_values(random, name)})" for k in new), name)


def _merge(lake: Lake, random: Random, name: str) -> None:
    key, *others = (column.split()[0] for column in TABLES[name].split(", "))
    rows = ", ".join(f"({k}, {_values(random, name)})" for k in random.sample(range(KEYS), 6))
    assigned = ", ".join(f"t.{column} = s.{column}" for column in others)
    lake.sql(
        f"MERGE INTO {{{name}}} t USING (SELECT * FROM VALUES {rows} AS s({key}, {', '.join(others)})) s "
        f"ON t.{key} = s.{key} WHEN MATCHED AND s.{key} % 3 = 0 THEN DELETE "
        f"WHEN MATCHED THEN UPDATE SET {assigned} WHEN NOT MATCHED THEN INSERT *",
        name,
    )


def _update(lake: Lake, random: Random, name: str) -> None:
    lake.sql(f"UPDATE {{{name}}} SET v = {random.randint(0, KEYS)} WHERE v % 3 = {random.randint(0, 2)}", name)


def _rewrite(lake: Lake, random: Random, name: str) -> None:
    lake.sql(f"UPDATE {{{name}}} SET v = v WHERE v % 2 = {random.randint(0, 1)}", name)


def _delete(lake: Lake, random: Random, name: str) -> None:
    lake.sql(f"DELETE FROM {{{name}}} WHERE v % 4 = {random.randint(0, 3)}", name)


def _overwrite(lake: Lake, random: Random, name: str) -> None:
    lake.sql(f"INSERT OVERWRITE {{{name}}} SELECT * FROM {{{name}}} WHERE v % 5 <> {random.randint(0, 4)}", name)


def _restore(lake: Lake, random: Random, name: str) -> None:
    lake.sql(f"RESTORE TABLE {{{name}}} TO VERSION AS OF {random.randint(0, lake.version(name))}", name)


def _optimize(lake: Lake, random: Random, name: str) -> None:
    name = random.choice([other for other in (name, "result") if lake.is_there(other)])
    lake.sql(f"OPTIMIZE {{{name}}}", name)


WRITERS: dict[str, Callable[[Lake, Random, str], None]] = {
    "inserts": _insert,
    "merges": _merge,
    "updates": _update,
    "rewrites": _rewrite,
    "deletes": _delete,
    "overwrites": _overwrite,
    "restores": _restore,
    "optimizes": _optimize,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.chaos", description=__doc__)
    parser.add_argument("--rounds", type=int, default=1_000)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="chaos-") as folder:
        spark = local_session({"spark.driver.memory": "4g"})
        lake = Lake(spark, Path(folder))
        prepare(lake)
        start = time.monotonic()
        found = chaos(lake, options.seed, options.rounds, options.minutes * 60)
        print(json.dumps({"seed": options.seed, "seconds": round(time.monotonic() - start), **found}), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
