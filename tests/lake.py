"""A small lake for tests: source tables on disk, a pipeline file, and the questions that tests ask of them."""

import re
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

from lakehouse.ledger.entries import REFUSED
from lakehouse.ledger.ledger import NAME as LEDGER
from lakehouse.values.sqltext import quote
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.commands.plan import preview
from pipelines.report import JoinReport, PlanReport
from tests.pipeline_files import write

JOIN = "SELECT l.k, l.v, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
KEYED = {"left": "k", "right": "k"}


class Lake:
    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark = spark
        self.folder = folder
        self.file = folder / "lakejoin.yml"
        self.storage: dict[str, Any] = {}

    def pipeline(
        self,
        sql: str = JOIN,
        sources: Mapping[str, Any] = KEYED,
        name: str = "result",
        further: Mapping[str, str | Mapping[str, Any]] | None = None,
        beside: Mapping[str, Any] | None = None,
        **options: Any,
    ) -> Pipeline:
        """
        Write the pipeline file and load it. Sources are given by their keys, or by all their options; options go to the
        join, `further` are more joins by their statements or options, `beside` are options of the whole file.
        """
        joins = {name: {"sql": sql, **options}, **(further or {})}
        return Pipeline.load(write(self.file, sources, joins, **{**self.storage, **(beside or {})}))

    def create(self, name: str, columns: str, rows: str = "", **properties: str) -> None:
        """Create a table with its change feed on; `rows` is what stands after VALUES."""
        given = {"enableChangeDataFeed": "true", **properties}
        listed = ", ".join(f"'delta.{key}' = '{value}'" for key, value in given.items())
        self.spark.sql(f"CREATE TABLE {self.at(name)} ({columns}) USING delta TBLPROPERTIES ({listed})")
        if rows:
            self.sql(f"INSERT INTO {{{name}}} VALUES {rows}", name)

    def copy(self, folder: Path) -> Self:
        """Copy everything to another folder; Delta tables keep their ids."""
        shutil.copytree(self.folder, folder)
        return type(self)(self.spark, folder)

    def path(self, name: str) -> str:
        return str(self.folder / "lake" / name)

    def is_there(self, name: str) -> bool:
        return (self.folder / "lake" / name / "_delta_log").exists()

    def at(self, name: str) -> str:
        return f"delta.{quote(self.path(name))}"

    def sql(self, statement: str, *names: str) -> list[Row]:
        """Run a statement in which {left} or {right} stands for a table; further names are given as arguments."""
        for name in ("left", "right", "result", *names):
            statement = statement.replace(f"{{{name}}}", self.at(name))
        return self.spark.sql(statement).collect()

    def rows(self, name: str = "result", version: int | None = None) -> list[tuple[Any, ...]]:
        """Give a table's rows, sorted by their text."""
        at = "" if version is None else f" VERSION AS OF {version}"
        return sorted((tuple(row) for row in self.spark.sql(f"SELECT * FROM {self.at(name)}{at}").collect()), key=repr)

    def version(self, name: str = "result") -> int:
        return max(int(commit.stem) for commit in (Path(self.path(name)) / "_delta_log").glob("*.json"))

    def versions(self) -> dict[str, int]:
        """Give the newest version of every table in the lake; for the ledger without the commits about refused runs."""
        tables = sorted(log.parent.name for log in (self.folder / "lake").glob("*/_delta_log"))
        versions = {name: self.version(name) for name in tables}
        if LEDGER in versions:
            commits = Path(self.path(LEDGER), "_delta_log").glob("*.json")
            about_refused = re.compile(rf'"userMetadata":"\w+ {REFUSED} ')
            versions[LEDGER] -= sum(bool(about_refused.search(commit.read_text())) for commit in commits)
        return versions

    def feed(self, after: int, name: str = "result") -> list[tuple[str, tuple[Any, ...]]]:
        """Give a table's change feed after a version: change type and row, sorted by their text."""
        if self.version(name) <= after:
            return []
        frame = self._feed(after, name)
        columns = [c for c in frame.columns if not c.startswith("_")]
        rows = frame.select("_change_type", F.struct(*(F.col(quote(c)) for c in columns)).alias("row")).collect()
        return sorted(((row[0], tuple(row[1])) for row in rows), key=repr)

    def feed_counts(self, name: str, version: int) -> dict[str, int]:
        """Count the rows of a table's change feed in one version by their change type."""
        counted = self._feed(version - 1, name).where(f"_commit_version = {version}").groupBy("_change_type").count()
        return {row[0]: row[1] for row in counted.collect()}

    def _feed(self, after: int, name: str) -> DataFrame:
        reader = self.spark.read.format("delta").option("readChangeFeed", "true")
        return reader.option("startingVersion", after + 1).load(self.path(name))

    def ledger(self) -> list[Row]:
        """Give the rows about epochs in the order in which they were written, without those about refused runs."""
        rows = self.spark.sql(f"SELECT * FROM {self.at(LEDGER)} WHERE epoch IS NOT NULL ORDER BY epoch, at").collect()
        return [row for row in rows if row["step"] != REFUSED]

    def runs(self) -> list[Row]:
        """Give the ledger's rows about whole runs in the order in which they were written."""
        return self.spark.sql(f"SELECT * FROM {self.at(LEDGER)} WHERE epoch IS NULL ORDER BY at").collect()


def planned(lake: Lake, pipeline: Pipeline, name: str = "result") -> PlanReport:
    """Give what `plan` reports of a join."""
    report = preview(Workspace.open(lake.spark, pipeline.file, lake.folder), name, ())
    assert isinstance(report, PlanReport)
    return report


def only(reports: Sequence[JoinReport]) -> JoinReport:
    """Give the one report that there is."""
    (report,) = reports
    return report
