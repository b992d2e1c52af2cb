"""A pipeline file with a session: the addresses of its tables, its ledger and its stages."""

import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from lakehouse.errors.address import Address
from lakehouse.ledger.ledger import NAME as LEDGER
from lakehouse.ledger.ledger import Ledger
from lakehouse.publish.stage import Stage
from lakehouse.session.engine import Engine
from lakehouse.session.session import is_embedded, own_session
from lakehouse.values.recorded import CHANGELOG
from pipelines.binding.shared_feeds import Feeds
from pipelines.language import PipelineFile, changelogs, keeps_changelog, selected

DRY_RUNS = "rehearsals"
"""The folder for the stages of dry runs, beside the folders for the stages of each ledger."""


@dataclass(frozen=True)
class Workspace:
    """
    The pipeline file and session that a command works with.

    Args:
        folder: The folder to which the relative paths of the file are relative.
    """

    engine: Engine
    file: PipelineFile
    folder: Path

    @staticmethod
    def open(spark: SparkSession, file: PipelineFile, folder: Path) -> "Workspace":
        """Create a workspace with a session of its own beside the caller's."""
        return Workspace(Engine.beside(spark, file.timezone), file, folder.resolve())

    @staticmethod
    def on_demand(start: Callable[[], SparkSession], file: PipelineFile, folder: Path) -> "Workspace":
        """Create a workspace that starts Spark when something needs it; `start` returns the session to start from."""
        engine = Engine(lambda: own_session(start(), file.timezone), is_embedded=is_embedded())
        return Workspace(engine, file, folder.resolve())

    @property
    def spark(self) -> SparkSession:
        """The session of lakejoin."""
        return self.engine.spark

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger, which is stored beside the results."""
        return Ledger(self.engine, self.table(LEDGER))

    @cached_property
    def feeds(self) -> Feeds:
        """The change feeds of the sources."""
        return Feeds(self.engine)

    @property
    def deviations(self) -> dict[str, str]:
        """The settings that the runtime does not let lakejoin fix, with their values; part of every definition."""
        return self.engine.deviations

    @property
    def stages(self) -> str:
        """The folder of all stages; several lakes, each with its own ledger, may share it."""
        storage = self.file.storage
        return self.path(storage.stage) if storage.stage else f"{self.path(storage.path or '.')}/lakejoin_stage"

    def stage(self, join: str, epoch: int, run_id: str) -> Stage:
        """Return the stage of one attempt at an epoch, below the id of the ledger; create the ledger if needed."""
        return Stage.of(f"{self.stages}/{self.ledger.id}", join, epoch, run_id)

    def dry_run_stage(self, join: str, epoch: int, run_id: str) -> Stage:
        """Return the stage of a dry run, which writes nothing else, not even a ledger."""
        return Stage.of(f"{self.stages}/{DRY_RUNS}", join, epoch, run_id)

    def table(self, name: str) -> Address:
        """Return the address of a table in the storage: a result, the ledger, a source without `table` or `path`."""
        storage = self.file.storage
        if storage.schema_name is not None:
            return Address.by_name(name, f"{storage.schema_name}.`{name.replace('`', '``')}`")
        return Address(name, path=f"{self.path(storage.path or '.')}/{name}")

    def source(self, name: str) -> Address:
        """Return the address of a source."""
        source = self.file.sources[name]
        if source.table is not None:
            return Address.by_name(name, source.table)
        if source.path is not None:
            return Address(name, path=self.path(source.path))
        return self.table(name)

    def changelog(self, join: str) -> Address | None:
        """Return the address of the changelog of a join; None if it keeps none."""
        return self.table(join + CHANGELOG) if keeps_changelog(self.file, join) else None

    def joins(self, select: Collection[str] | None = None) -> list[str]:
        """Return the names of the selected joins, in the order of the file, as `selected` does."""
        return selected(self.file, select)

    def nodes(self, select: Collection[str] | None = None) -> list[str]:
        """List the nodes that have epochs: the changelog sources that the selected joins read, then the joins."""
        joins = self.joins(select)
        return [*changelogs(self.file, joins), *joins]

    def path(self, path: str) -> str:
        """Resolve a path of the pipeline file against the file's folder; URIs and absolute paths are unchanged."""
        is_whole = path.startswith("/") or re.match(r"[a-z][a-z0-9+.-]+:/", path)
        return path if is_whole else str((self.folder / path).resolve())
