"""Recorded cases through real Delta tables and the driver: several records an epoch, commits of several records."""

import random
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from lakehouse.errors.errors import LakejoinError
from pipelines import Pipeline
from tests.conformance import SOURCE, FileReport, Outcome
from tests.joins.statements import SIDES, statement
from tests.joins.vectors import Case, Record, result_after
from tests.pipeline_files import write

SEED = 20
CUTS = 3


def run_sample(spark: SparkSession, reports: Sequence[FileReport]) -> None:
    """Run the first case of each file, print where it is cut, and put the outcomes into the reports."""
    for report in reports:
        for case in report.runnable[:1]:
            start = time.monotonic()
            cuts = cuts_of(case)
            print(f"{case.id}: seed {SEED}, epochs end after {', '.join(map(str, cuts))}")
            with tempfile.TemporaryDirectory(prefix="conformance-") as folder:
                problems = run_case(spark, case, cuts, Path(folder))
            report.outcomes.append(Outcome(case, [], [], problems, time.monotonic() - start))


def cuts_of(case: Case) -> list[int]:
    """Cut a case at random into four epochs, and always the same way."""
    inner = [record.seq for record in case.input[:-1]]
    chosen = random.Random(f"{SEED} {case.id}").sample(inner, min(CUTS, len(inner)))
    return [*sorted(chosen), case.input[-1].seq]


def run_case(spark: SparkSession, case: Case, cuts: Sequence[int], folder: Path) -> list[str]:
    """Write the records of each epoch, run the pipeline, and compare the result and its change feed."""
    pipeline = Pipeline.load(_pipeline_file(case, folder))
    columns = ", ".join(f"{field.name} {field.dataType.simpleString()}" for field in SOURCE)
    for side in SIDES[case.join]:
        properties = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true')"
        spark.sql(f"CREATE TABLE {_at(folder, side)} ({columns}) USING delta {properties}").collect()
    problems, before, seen = [], {}, -1
    for start, cut in zip([0, *cuts], cuts, strict=False):
        _write(spark, folder, [record for record in case.input if start < record.seq <= cut])
        try:
            pipeline.run(spark)
        except LakejoinError as error:
            return [*problems, f"after {cut}: {error.message}"]
        expected = result_after(case.output, cut)
        found = Counter(
            (row["key"], row["value"]) for row in spark.sql(f"SELECT * FROM {_at(folder, 'joined')}").collect()
        )
        if found != Counter(expected.items()):
            problems.append(f"after {cut}: expected {expected}, the result holds {dict(found)}")
        newest = spark.sql(f"DESCRIBE HISTORY {_at(folder, 'joined')} LIMIT 1").head()["version"]
        rows = _feed(spark, folder, seen + 1, newest)
        if rows != _difference(before, expected):
            problems.append(f"after {cut}: expected changes {dict(_difference(before, expected))}, found {dict(rows)}")
        before, seen = expected, newest
    return problems


def _pipeline_file(case: Case, folder: Path) -> Path:
    sources = dict.fromkeys(SIDES[case.join], "key")
    return write(folder / "lakejoin.yml", sources, {"joined": statement(case.join, case.type)})


def _at(folder: Path, name: str) -> str:
    return f"delta.`{folder}/lake/{name}`"


def _write(spark: SparkSession, folder: Path, records: Sequence[Record]) -> None:
    """Write records in their order, each commit as many of one side as have different keys."""
    for batch in _batches(records):
        rows = spark.createDataFrame([(record.key, record.value) for record in batch], SOURCE)
        rows.createOrReplaceTempView("conformance_records")
        spark.sql(
            f"MERGE INTO {_at(folder, batch[0].side)} t USING conformance_records s ON t.key <=> s.key"
            " WHEN MATCHED AND s.value IS NULL THEN DELETE"
            " WHEN MATCHED THEN UPDATE SET value = s.value"
            " WHEN NOT MATCHED AND s.value IS NOT NULL THEN INSERT (key, value) VALUES (s.key, s.value)"
        ).collect()
    spark.catalog.dropTempView("conformance_records")


def _batches(records: Sequence[Record]) -> Iterator[list[Record]]:
    for side in dict.fromkeys(record.side for record in records):
        batch: list[Record] = []
        for record in (record for record in records if record.side == side):
            if any(record.key == other.key for other in batch):
                yield batch
                batch = []
            batch.append(record)
        if batch:
            yield batch


def _feed(spark: SparkSession, folder: Path, first: int, last: int) -> Counter[tuple[str, str, str]]:
    if first > last:
        return Counter()
    reader = spark.read.format("delta").option("readChangeFeed", "true")
    rows = reader.option("startingVersion", first).option("endingVersion", last).load(f"{folder}/lake/joined")
    return Counter((row["_change_type"], row["key"], row["value"]) for row in rows.collect())


def _difference(before: dict[str, str], after: dict[str, str]) -> Counter[tuple[str, str, str]]:
    rows: Counter[tuple[str, str, str]] = Counter()
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old == new:
            continue
        if old is not None:
            rows["delete" if new is None else "update_preimage", key, old] += 1
        if new is not None:
            rows["insert" if old is None else "update_postimage", key, new] += 1
    return rows
