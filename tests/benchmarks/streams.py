"""A stream that looks up a table, beside Spark's own join of the same stream with the same table."""

import statistics
from typing import Any

from lakehouse import limits
from tests.benchmarks.compare import account
from tests.benchmarks.cost import Meter
from tests.benchmarks.workload import Shape
from tests.lake import Lake, only

USERS = 100_000
COMMITS = 4
"""The rows come in so many commits, and after each of them but the last a part of the table changes."""

JOIN = "SELECT c.id, c.user, c.amount, c.page, u.name, u.country FROM clicks c LEFT JOIN users u ON c.user = u.id"
CLICKS = "id BIGINT, user BIGINT, amount DECIMAL(12, 2), page STRING, at TIMESTAMP"
SHUFFLED = {"spark.sql.autoBroadcastJoinThreshold": "-1", "spark.sql.shuffle.partitions": "16"}
"""Settings under which rows of both sides are shuffled, as they are where a table is large."""


def stream_table(meter: Meter, lake: Lake, rows: int, shape: Shape, repeat: int) -> dict[str, Any]:
    """
    Take rows into the result in one epoch while the table changes, and by Spark's stream-static join. That one reads
    the table as it is when it runs, and keeps nothing but what it has read. Of shape `skewed` half of the keys are
    null, and both sides are shuffled.
    """
    key = "IF(id % 2 = 0, NULL, pmod(id * 7919, {users}))" if shape == "skewed" else "pmod(id * 7919, {users})"
    lake.create("clicks", CLICKS)
    lake.create("users", "id BIGINT, name STRING, country STRING")
    user = "SELECT id, concat('user ', id), concat('country ', pmod(id, 200))"
    lake.sql(f"INSERT INTO {{users}} {user} FROM range(0, {USERS}, 1, 1)", "users")
    sources = {"clicks": {"key": "id", "kind": "stream"}, "users": "id"}
    pipeline = lake.pipeline(JOIN, sources)
    only(pipeline.run(lake.spark))
    seconds: dict[str, list[float]] = {"spark": [], "lakejoin": []}
    tasks: list[tuple[int, float]] = []
    for turn in range(repeat + 1):
        start = lake.version("clicks") + 1
        each = rows // COMMITS if turn else 1_000
        for commit in range(COMMITS):
            first = (turn * COMMITS + commit) * rows
            click = (
                f"SELECT id, {key.format(users=USERS)}, CAST(id % 1000 AS DECIMAL(12, 2)), concat('page ', id % 500)"
            )
            lake.sql(f"INSERT INTO {{clicks}} {click}, NULL FROM range({first}, {first + each}, 1, 4)", "clicks")
            if commit < COMMITS - 1:
                lake.sql(f"UPDATE {{users}} SET country = 'moved {turn}' WHERE id % 100 = {commit}", "users")
        if shape == "skewed":
            limits.BROADCAST_BYTES = 0
        cost, report = meter.measure(lake.spark, lambda: only(pipeline.run(lake.spark)))
        assert report.counts["appended"] == each * COMMITS
        by_spark, _ = meter.measure(lake.spark, lambda: _by_spark(lake, start, turn))  # noqa: B023
        if turn:
            seconds["lakejoin"].append(cost.seconds)
            seconds["spark"].append(by_spark.seconds)
            tasks.append((max(cost.shuffled, default=0), statistics.median(cost.shuffled or [1])))
    taken = {f"{name}_s": round(statistics.median(values), 2) for name, values in seconds.items()}
    return {
        **taken,
        "rows_per_second": round(rows / taken["lakejoin_s"]),
        "spark_rows_per_second": round(rows / taken["spark_s"]),
        "ratio_spark": round(taken["spark_s"] / taken["lakejoin_s"], 2),
        "largest_task": max(task for task, _ in tasks),
        "largest_task_of_median": round(max(task / middle for task, middle in tasks if middle), 2),
        **account(cost, report),
    }


def _by_spark(lake: Lake, start: int, turn: int) -> None:
    """Join what came to the stream with the table, by a streaming query that ends when it is through."""
    spark = lake.spark
    came = spark.readStream.format("delta").option("startingVersion", start).load(lake.path("clicks"))
    users = spark.read.format("delta").load(lake.path("users"))
    joined = came.join(users, on=came["user"] == users["id"], how="left")
    columns = (came["id"], came["user"], came["amount"], came["page"], users["name"], users["country"])
    writer = joined.select(*columns).writeStream.format("delta").trigger(availableNow=True)
    query = writer.option("checkpointLocation", f"{lake.path('checkpoint')}_{turn}").start(lake.path("by_spark"))
    query.awaitTermination()
