"""A lake with a join of each kind after two epochs, and ways to damage its tables."""

import shutil
from pathlib import Path
from typing import Any, ClassVar

import yaml
from pyspark.sql import SparkSession

from pipelines import Pipeline
from tests.epochs.lookup.clicks import begin, commit_at
from tests.lake import Lake

LEDGER = "lakejoin_ledger"


class Everything(Lake):
    """A join of tables with a changelog, a look-up of a stream, a join of two streams, and a changelog source."""

    CONTENT: ClassVar[dict[str, Any]] = {
        "pipeline": "test",
        "storage": {"path": "./lake"},
        "sources": {
            "orders": {"key": "id"},
            "customers": {"key": "id"},
            "clicks": {"key": "id", "kind": "stream", "watermarks": {"t": "5 minutes"}},
            "views": {"key": "id", "kind": "stream", "watermarks": {"t": "5 minutes"}},
            "moves": {"key": "id", "kind": "changelog", "order_by": "seq", "tombstone": "op = 'd'"},
        },
        "joins": {
            "result": {
                "sql": "SELECT o.id, o.amount, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id",
                "changelog": True,
            },
            "seen": {"sql": "SELECT k.id, c.name FROM clicks k LEFT JOIN customers c ON k.customer = c.id"},
            "met": {
                "sql": "SELECT k.id AS click, v.id AS view FROM clicks k LEFT JOIN views v ON k.customer = v.customer "
                "AND v.t BETWEEN k.t - INTERVAL 10 MINUTES AND k.t + INTERVAL 20 MINUTES"
            },
            "kept": {"sql": "SELECT m.id, m.place, c.name FROM moves m LEFT JOIN customers c ON m.customer = c.id"},
        },
    }

    JOIN_OF: ClassVar[dict[str, str]] = {
        "result": "result",
        "result__changelog": "result",
        "seen": "seen",
        "met": "met",
        "met__state": "met",
        "moves__state": "kept",
        "kept": "kept",
    }
    """The join that maintains each table, or that reads it."""

    def joins(self, schema: str = "") -> Pipeline:
        """Write the pipeline file and load it; with a schema, everything but the sources is in a catalog."""
        content = dict(self.CONTENT)
        if schema:
            content["storage"] = {"schema": schema, "stage": str(self.folder / "stage")}
            content["sources"] = {name: {**of, "path": f"./lake/{name}"} for name, of in content["sources"].items()}
        self.file.write_text(yaml.safe_dump(content, sort_keys=False))
        return Pipeline.load(self.file)

    @staticmethod
    def new(spark: SparkSession, folder: Path) -> "Everything":
        lake = Everything(spark, folder)
        lake.create("orders", "id INT, customer INT, amount INT", "(1, 1, 10), (2, 2, 20)")
        lake.create("customers", "id INT, name STRING", "(1, 'Ann'), (2, 'Bo')")
        lake.create("clicks", "id INT, customer INT, t TIMESTAMP")
        lake.create("views", "id INT, customer INT, t TIMESTAMP")
        lake.create("moves", "id INT, customer INT, place STRING, op STRING, seq INT", "(1, 1, 'A', 'i', 1)")
        begin(lake)
        lake.change(0)
        return lake

    def change(self, number: int) -> None:
        minute = f"TIMESTAMP'2026-01-01 12:00:00' + INTERVAL {10 * number} MINUTES"
        self.sql(f"INSERT INTO {{orders}} VALUES ({10 + number}, 1, {number})", "orders")
        self.sql(f"INSERT INTO {{clicks}} VALUES ({number}, {number}, {minute})", "clicks")
        commit_at(self, "clicks", 60 * number + 1)
        self.sql(f"INSERT INTO {{views}} VALUES ({number}, {number - 1}, {minute})", "views")
        commit_at(self, "views", 60 * number + 2)
        self.sql(f"INSERT INTO {{moves}} VALUES ({number}, 1, 'P{number}', 'i', {10 + number})", "moves")


def after_two_epochs(spark: SparkSession, folder: Path, copy: Path) -> Everything:
    """Give a lake after two epochs of each join; copy its folder after the first one."""
    lake = Everything.new(spark, folder)
    lake.joins().run(spark)
    shutil.copytree(lake.folder, copy)
    lake.change(1)
    lake.joins().run(spark)
    return lake


def put_back(lake: Lake, name: str, copy: Path) -> None:
    """Replace a table by the one in a copy of the lake's folder."""
    shutil.rmtree(lake.path(name))
    shutil.copytree(copy / "lake" / name, lake.path(name))
