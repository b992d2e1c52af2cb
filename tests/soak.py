"""
A join of two streams left running: many commits with random lateness, runs, runs that are killed, and backfills.

    python -m tests.soak [--commits N --minutes M --seed S --burst B --backfills SHARE]

At every epoch the rows that wait are those that the oracle holds, never more than it ever held; at the end the result
is the oracle's. Prints one JSON line.
"""

import argparse
import json
import tempfile
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

from lakehouse.session.session import local_session
from pipelines import Pipeline
from tests.epochs.lookup.clicks import commit_at
from tests.epochs.window.test_windows import JOIN, Streams, never_alone_and_joined, oracle_of
from tests.killing import is_killed
from tests.lake import only

KEYS = ("a", "b", "c", "d", "e", None)


def soak(
    lake: Streams, seed: int, commits: int, seconds: float, backfills: float = 0.05, burst: int = 12
) -> dict[str, Any]:
    random, spark, oracle = Random(seed), lake.spark, oracle_of("full")
    lake.join(JOIN.replace("LEFT", "FULL"))
    Pipeline.load(lake.file).run(spark)
    expected: Counter[tuple[Any, Any]] = Counter()
    done: Counter[str] = Counter()
    most, now, number, second = 0, 0, 0, 0
    end = time.monotonic() + seconds
    while done["commits"] < commits and time.monotonic() < end:
        for _ in range(random.randint(1, burst)):
            second += 1
            now += random.choice((0, 1, 1, 2, 9))
            name, came = random.choice(("left", "right")), []
            for _ in range(random.randint(1, 6)):
                number += 1
                late = random.choice((0, 2, 5, 12))
                minute = None if random.random() < 0.02 else now - random.randint(0, late)
                came.append((number, random.choice(KEYS), minute))
            lake.come(name, *came, second=second)
            named = [(one[0], dict(zip(("id", "k", "t"), one, strict=True))) for one in came]
            for emitted in oracle.rows("l" if name == "left" else "r", named):
                expected[emitted.left and emitted.left[0], emitted.right and emitted.right[0]] += 1
            done["commits"] += 1
        if random.random() < 0.2:
            done["kills"] += is_killed(lambda: Pipeline.load(lake.file).run(lake.spark), number=random.randint(1, 9))
        report = only(Pipeline.load(lake.file).run(spark))
        done["epochs"] += report.outcome == "done"
        waits = lake.waits()
        most = max(most, len(waits))
        assert waits == sorted(held.row[0] for held in oracle.buffered), f"after {done}"
        if random.random() < backfills:
            assert only(Pipeline.load(lake.file).backfill(spark)).counts["appended"] == 0
            done["backfills"] += 1
    assert Counter(lake.found()) == expected
    assert never_alone_and_joined(lake)
    assert most <= oracle.largest
    return {**done, "rows": number, "result": expected.total(), "most_buffered": most, "oracle_largest": oracle.largest}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("--commits", type=int, default=2_000)
    parser.add_argument("--minutes", type=float, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--burst", type=int, default=12)
    parser.add_argument("--backfills", type=float, default=0.05)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-") as folder:
        spark = local_session({"spark.driver.memory": "4g"})
        lake = Streams(spark, Path(folder))
        for name in ("left", "right"):
            lake.create(name, "id INT, k STRING, t TIMESTAMP")
            commit_at(lake, name, 0)  # before all others, whose times Delta would change
        start = time.monotonic()
        seconds = options.minutes * 60
        found = soak(lake, options.seed, options.commits, seconds, options.backfills, options.burst)
        print(json.dumps({"seed": options.seed, "seconds": round(time.monotonic() - start), **found}), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
