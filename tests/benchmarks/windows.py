"""Two streams within an hour of each other, beside Spark's own join of the same streams."""

import sys
from typing import Any

from pyspark.sql import functions as F

from tests.benchmarks.compare import account
from tests.benchmarks.cost import Meter
from tests.lake import Lake, only

EPOCHS = 20
"""So many epochs follow the first load, which takes half of the rows."""

HOURS = 200
"""The time that the rows are spread over."""

COLUMNS = "id BIGINT, k BIGINT, amount DECIMAL(12, 2), page STRING, t TIMESTAMP"
JOIN = """
    SELECT l.id AS left_id, l.k, l.amount, l.t AS left_t, r.id AS right_id, r.page, r.t AS right_t
    FROM left l LEFT JOIN right r ON l.k = r.k AND r.t BETWEEN l.t AND l.t + INTERVAL 1 HOUR
"""
LATENESS = "10 minutes"


def stream_stream(meter: Meter, lake: Lake, rows: int) -> dict[str, Any]:
    """
    Load half of the rows of each side, then take the rest in epochs; and the same by a streaming query of Spark. That
    one is started for each epoch and ends when it is through, as a scheduled job does. A key comes once an hour on each
    side; rows come up to five minutes out of order.
    """
    for name in ("left", "right"):
        lake.create(name, COLUMNS)
    sources = {name: {"key": "id", "kind": "stream", "watermarks": {"t": LATENESS}} for name in ("left", "right")}
    pipeline = lake.pipeline(JOIN, sources)
    parts = [rows // 2] + [rows // 2 // EPOCHS] * EPOCHS
    taken: dict[str, list[float]] = {"lakejoin": [], "spark": []}
    appended, start, buffered, cost, report = 0, 0, 0, None, None
    for part in parts:
        for name, factor in (("left", 7919), ("right", 104_729)):
            _come(lake, name, start, part, rows, factor)
        start += part
        cost, report = meter.measure(lake.spark, lambda: only(pipeline.run(lake.spark)))
        by_spark, _ = meter.measure(lake.spark, lambda: _by_spark(lake))
        taken["lakejoin"].append(cost.seconds)
        taken["spark"].append(by_spark.seconds)
        print(f"{part:,} rows a side: lakejoin {cost.seconds:.1f} s, Spark {by_spark.seconds:.1f} s", file=sys.stderr)
        appended += report.counts["appended"]
        buffered = max(buffered, report.counts["buffered"])
    assert cost is not None
    assert report is not None
    ours, theirs = sum(taken["lakejoin"]), sum(taken["spark"])
    found = lake.spark.read.format("delta").load(lake.path("by_spark")).count()
    return {
        "lakejoin_s": round(ours, 2),
        "spark_s": round(theirs, 2),
        "load_s": round(taken["lakejoin"][0], 2),
        "spark_load_s": round(taken["spark"][0], 2),
        "epoch_s": round(sum(taken["lakejoin"][1:]) / EPOCHS, 2),
        "spark_epoch_s": round(sum(taken["spark"][1:]) / EPOCHS, 2),
        "rows_per_second": round(2 * rows / ours),
        "spark_rows_per_second": round(2 * rows / theirs),
        "ratio_spark": round(theirs / ours, 2),
        "rows_found": appended,
        "spark_rows_found": found,
        "most_buffered": buffered,
        **account(cost, report),
    }


def _come(lake: Lake, name: str, start: int, number: int, rows: int, factor: int) -> None:
    """Add rows to a stream as one commit; their times follow their ids, but for five minutes."""
    keys = max(rows // HOURS, 1)
    second = f"id * {HOURS * 3600 / rows} + pmod(id * {factor}, 600) - 300"
    lake.sql(
        f"INSERT INTO {{{name}}} SELECT id, pmod(id * {factor}, {keys}), CAST(id % 1000 AS DECIMAL(12, 2)), "
        f"concat('page ', id % 500), timestamp_micros(CAST((1767225600 + {second}) * 1000000 AS BIGINT)) "
        f"FROM range({start}, {start + number}, 1, 4)"
    )


def _by_spark(lake: Lake) -> None:
    """Join what came by a streaming query that ends when it is through."""
    left, right = (
        lake.spark.readStream.format("delta").load(lake.path(name)).withWatermark("t", LATENESS).alias(name[0])
        for name in ("left", "right")
    )
    within = F.expr("l.k = r.k AND r.t BETWEEN l.t AND l.t + INTERVAL 1 HOUR")
    joined = left.join(right, on=within, how="left_outer").selectExpr(
        "l.id AS left_id", "l.k", "l.amount", "l.t AS left_t", "r.id AS right_id", "r.page", "r.t AS right_t"
    )
    writer = joined.writeStream.format("delta").trigger(availableNow=True)
    query = writer.option("checkpointLocation", lake.path("checkpoint")).start(lake.path("by_spark"))
    query.awaitTermination()
