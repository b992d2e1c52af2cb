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

from lakehouse.session import writing
from lakehouse.session.session import local_session
from pipelines import Pipeline
from tests.epochs.lookup.clicks import commit_at
from tests.epochs.window.test_windows import JOIN, Streams, never_alone_and_joined, oracle_of
from tests.lake import only

KEYS = ("a", "b", "c", "d", "e", None)


class Killed(BaseException):
    """What stops a run at a write: nothing may catch it."""


def soak(
    lake: Streams, seed: int, commits: int, seconds: float, backfills: float = 0.05, burst: int = 12
) -> dict[str, Any]:
    """
    Let commits come to both streams, and run now and then.

    Args:
        lake: Two empty streams.
        seed: Of the random draw.
        commits: So many commits at most.
        seconds: For so long at most.
        backfills: The share of epochs after which the recorded ones are replayed.
        burst: So many commits at most come between two runs.

    Returns:
        Counts of what was done, the largest number of rows that waited, and that of the oracle.

    Raises:
        AssertionError: What waits, or the result, is not the oracle's.
    """
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
            done["kills"] += _killed(lake, random)
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


def _killed(lake: Streams, random: Random) -> int:
    """Stop a run before some write of it; give whether it got that far."""
    left = random.randint(1, 9)

    def stop(when: str, what: str) -> None:
        nonlocal left
        left -= when == "before"
        if left == 0:
            raise Killed(what)

    writing.observers.append(stop)
    try:
        Pipeline.load(lake.file).run(lake.spark)
    except Killed:
        return 1
    finally:
        writing.observers.clear()
    return 0


def main() -> None:
    """Run one soak."""
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
