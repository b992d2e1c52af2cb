"""A small pipeline of each kind over Spark Connect: SPARK_REMOTE names the server, the argument an empty folder."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path

from pyspark.sql import SparkSession

from lakehouse.session.engine import RunningTasks
from lakehouse.session.session import local_session
from pipelines import Pipeline
from pipelines.report import JoinReport
from tests.lake import JOIN, Lake

KINDS = {
    "foreign_key": "SELECT o.id, o.v, l.v AS of FROM orders o JOIN left l ON o.k = l.k",
    "stream_table": "SELECT c.id, r.w FROM clicks c LEFT JOIN right r ON c.k = r.k",
    "two_streams": "SELECT c.id, s.id AS sale FROM clicks c LEFT JOIN sales s ON c.k = s.k "
    "AND s.t BETWEEN c.t AND c.t + INTERVAL 10 MINUTES",
}


def stream() -> dict[str, object]:
    return {"key": "id", "kind": "stream", "watermarks": {"t": "5 minutes"}}


def prepare(lake: Lake) -> Pipeline:
    lake.create("left", "k INT, v STRING", "(1, 'a'), (2, 'b'), (3, 'c')")
    lake.create("right", "k INT, w STRING", "(2, 'x'), (3, 'y')")
    lake.create("orders", "id INT, k INT, v STRING", "(10, 1, 'o'), (11, 2, 'p'), (12, 9, 'q')")
    for name, row in (("clicks", f"(1, 2, {at(0)})"), ("sales", f"(5, 2, {at(3)})")):
        lake.create(name, "id INT, k INT, t TIMESTAMP", row)
    sources = {"left": "k", "right": "k", "orders": "id", "clicks": stream(), "sales": stream()}
    return lake.pipeline(JOIN, sources, "logged", further=KINDS, changelog=True)


def at(minute: int) -> str:
    return f"TIMESTAMP'{datetime(2026, 3, 1, 12, minute, tzinfo=UTC).isoformat(' ')}'"


def tell(reports: list[JoinReport], *outcomes: str) -> None:
    for report in reports:
        print(report.text())
    assert {report.outcome for report in reports} <= set(outcomes), outcomes


def seen(spark: SparkSession, tasks: RunningTasks) -> set[tuple[int, int]]:
    """Look at the running tasks while a query with three tasks of a second each runs, two of them at once."""
    query = spark.range(0, 3, 1, 3).selectExpr("java_method('java.lang.Thread', 'sleep', 1000 + 0 * id)")
    found = set()
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(query.collect)
        while not running.done():
            found.add(tasks.now())
            time.sleep(0.02)
    return found


def follow_tasks(spark: SparkSession) -> None:
    tasks = RunningTasks(spark)
    found = seen(spark, tasks)
    assert {(0, 0), (0, 3), (2, 3)} <= found <= {(done, 3) for done in range(4)} | {(0, 0)}, found
    assert tasks.now() == (0, 0)
    tasks.stop()
    assert seen(spark, tasks) == {(0, 0)}


def main() -> None:
    spark = local_session()
    assert "connect" in type(spark).__module__, type(spark)
    follow_tasks(spark)
    lake = Lake(spark, Path(sys.argv[1]))
    pipeline = prepare(lake)
    tell(pipeline.run(spark), "done")
    lake.sql("INSERT INTO {left} VALUES (7, 'n')")
    lake.sql("DELETE FROM {right} WHERE k = 2", "right")
    lake.sql("UPDATE {orders} SET k = 1 WHERE id = 12", "orders")
    lake.sql(f"INSERT INTO {{clicks}} VALUES (2, 3, {at(30)})", "clicks")
    lake.sql(f"INSERT INTO {{sales}} VALUES (6, 4, {at(31)})", "sales")
    tell(pipeline.run(spark), "done")
    expected = [(1, "a", None), (2, "b", None), (3, "c", "y"), (7, "n", None)]
    assert lake.rows("logged") == expected
    assert lake.rows("foreign_key") == [(10, "o", "a"), (11, "p", "b"), (12, "q", "a")]
    assert [row[:2] for row in lake.rows("stream_table")] == [(1, "x"), (2, "y")]
    assert [row[:2] for row in lake.rows("two_streams")] == [(1, 5)]
    tell(pipeline.verify(spark), "done")
    lake.sql("DELETE FROM {logged} WHERE k = 1", "logged")
    tell(pipeline.backfill(spark, ["logged"]), "done")
    assert lake.rows("logged") == expected


if __name__ == "__main__":
    main()
