"""
A first load and a small run on a table of millions, in a driver of 2 GiB.

    python -m tests.benchmarks.scale [--rows 2000000] [--changes 2000]

Prints one JSON line: rows, changed rows of the result, the driver's memory, and seconds of load, of a first run in a
cold JVM and a second one, each of as many changes, of a run with nothing to do and of verify; beside them full_s, the
seconds of INSERT OVERWRITE with the same join in the same session, before and after the runs; and the steps of the
second run.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from lakehouse.session import local_session
from tests.lake import Lake, only

MEMORY = "2g"
JOIN = "SELECT o.*, p.method, p.paid FROM {orders} o LEFT JOIN {payments} p ON o.id = p.id"


def main() -> None:
    """Run the benchmark."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.scale", description=__doc__)
    parser.add_argument("--rows", type=int, default=2_000_000)
    parser.add_argument("--changes", type=int, default=2_000)
    options = parser.parse_args()
    spark = local_session({"spark.driver.memory": MEMORY})
    with tempfile.TemporaryDirectory(prefix="scale-") as folder:
        lake = Lake(spark, Path(folder))
        sources = {"orders": "id", "payments": "id"}
        lake.create("orders", "id BIGINT, customer STRING, amount DECIMAL(10, 2), placed DATE")
        lake.create("payments", "id BIGINT, method STRING, paid TIMESTAMP")
        days = "date_add(DATE'2020-01-01', CAST(id % 1500 AS INT))"
        order = f"id, concat('c', id % 99991), CAST(id % 100000 / 100.0 AS DECIMAL(10, 2)), {days}"
        lake.sql(f"INSERT INTO {{orders}} SELECT {order} FROM range({options.rows})", "orders")
        payment = "id, concat('m', id % 7), timestamp_seconds(1600000000 + id)"
        lake.sql(f"INSERT INTO {{payments}} SELECT {payment} FROM range({options.rows}) WHERE id % 10 <> 0", "payments")
        pipeline = lake.pipeline(
            JOIN.format(orders="orders", payments="payments"),
            sources,
            name="orders_paid",
        )
        load, _ = timed(lambda: only(pipeline.run(spark)))
        joined = JOIN.format(orders=lake.at("orders"), payments=lake.at("payments"))
        lake.sql(f"CREATE TABLE {{full}} USING delta AS {joined}", "full")
        full = [timed(lambda: lake.sql(f"INSERT OVERWRITE {{full}} {joined}", "full"))[0]]
        step = max(options.rows * 2 // max(options.changes, 1), 1)
        runs = []
        for turn in (0, 2):
            lake.sql(f"UPDATE {{orders}} SET amount = amount + 1 WHERE id % {step} = {turn}", "orders")
            lake.sql(f"DELETE FROM {{payments}} WHERE id % {step} = {turn + 1}", "payments")
            run, report = timed(lambda: only(pipeline.run(spark)))
            runs.append(run)
        full.append(timed(lambda: lake.sql(f"INSERT OVERWRITE {{full}} {joined}", "full"))[0])
        again, _ = timed(lambda: only(pipeline.run(spark)))
        verify, _ = timed(lambda: only(pipeline.verify(spark)))
    seconds = {"load_s": load, "run_s": runs, "full_s": full, "nothing_to_do_s": again, "verify_s": verify}
    steps = {name: round(value, 1) for name, value in report.seconds.items()}
    print(json.dumps({"rows": options.rows, "changed": report.changed, "memory": MEMORY, **seconds, "steps": steps}))


def timed(action: Callable[[], Any]) -> tuple[float, Any]:
    """Run an action and give its seconds and its result."""
    start = time.monotonic()
    result = action()
    return round(time.monotonic() - start, 1), result


if __name__ == "__main__":
    main()
