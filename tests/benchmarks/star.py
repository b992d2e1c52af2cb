"""
A star of a fact table with five dimensions: changes in all six, then one parent with very many children.

    python -m tests.benchmarks.star [--rows 2000000] [--changes 2000] [--children 500000]

Prints one JSON line for each epoch: what changed, rows of the result altered, seconds with the steps, rows and files
that look-ups read, and whether any table but result and ledger was written; the last line is the verification.
"""

import argparse
import json
import tempfile
import time
from pathlib import Path

from lakehouse.session import local_session
from tests.lake import Lake, only

MEMORY = "3g"
DIMENSIONS = {"d1": 200_000, "d2": 50_000, "d3": 10_000, "d4": 1_000, "d5": 100}
"""Rows of each dimension."""


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.star", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--changes", type=int, default=2_000)
    parser.add_argument("--children", type=int, default=500_000)
    options = parser.parse_args()
    spark = local_session({"spark.driver.memory": MEMORY})
    with tempfile.TemporaryDirectory(prefix="star-") as folder:
        lake = Lake(spark, Path(folder))
        fill(lake, options.rows, options.children)
        outputs = ", ".join(f"{name}.v AS {name}_v" for name in DIMENSIONS)
        joins = " ".join(f"LEFT JOIN {name} ON f.r_{name} = {name}.id" for name in DIMENSIONS)
        pipeline = lake.pipeline(
            f"SELECT f.id, f.amount, big.v AS big_v, {outputs} FROM facts f {joins} LEFT JOIN big ON f.r_big = big.id",
            {"facts": "id", "big": "id", **dict.fromkeys(DIMENSIONS, "id")},
        )
        epoch(lake, "load", lambda: only(pipeline.run(spark)))
        step = max(options.rows // options.changes, 1)
        lake.sql(f"UPDATE {{facts}} SET amount = amount + 1 WHERE id % {step} = 0", "facts")
        for name, rows in DIMENSIONS.items():
            lake.sql(f"UPDATE {{{name}}} SET v = v + 1 WHERE id = {rows // 2}", name)
        epoch(lake, "all six tables", lambda: only(pipeline.run(spark)))
        lake.sql("UPDATE {big} SET v = v + 1 WHERE id = 1", "big")
        epoch(lake, f"one parent with {options.children:,} children", lambda: only(pipeline.run(spark)))
        feed = lake.feed_counts("result", lake.version())
        print(json.dumps({"feed of the last epoch": feed}), flush=True)
        epoch(lake, "verify", lambda: only(pipeline.verify(spark)))


def fill(lake: Lake, rows: int, children: int) -> None:
    """Write the tables; the first `children` facts refer to row 1 of `big`."""
    references = ", ".join(f"r_{name} BIGINT" for name in (*DIMENSIONS, "big"))
    lake.create("facts", f"id BIGINT, amount BIGINT, {references}")
    drawn = ", ".join(f"(id * 7919 + {place}) % {size}" for place, size in enumerate(DIMENSIONS.values()))
    big = f"IF(id < {children}, 1, 2 + id % 1000)"
    lake.sql(f"INSERT INTO {{facts}} SELECT id, id % 100, {drawn}, {big} FROM range({rows})", "facts")
    for name, size in {**DIMENSIONS, "big": 2_000}.items():
        lake.create(name, "id BIGINT, v BIGINT, text STRING")
        lake.sql(f"INSERT INTO {{{name}}} SELECT id, id, repeat('x', 40) FROM range({size})", name)


def epoch(lake: Lake, what: str, action) -> None:  # type: ignore[no-untyped-def]
    """Time an action and print what it did."""
    before = lake.versions()
    start = time.monotonic()
    report = action()
    took = round(time.monotonic() - start, 1)
    written = sorted(name for name, version in lake.versions().items() if version != before.get(name))
    counts = {name: report.counts[name] for name in ("read", "touched", "looked_up", "files") if name in report.counts}
    print(
        json.dumps(
            {"epoch": what, "seconds": took, "altered": report.changed, **counts, "written": written}
            | {"steps": {name: round(value, 1) for name, value in report.seconds.items()}}
        ),
        flush=True,
    )


if __name__ == "__main__":
    main()
