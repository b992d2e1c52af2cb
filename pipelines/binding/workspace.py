"""A pipeline file with a session: where its tables, its ledger and its stages lie."""

import re
from collections.abc import Collection
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from pyspark.sql import SparkSession

from lakehouse.address import Address
from lakehouse.entries import CHANGELOG
from lakehouse.ledger import NAME as LEDGER
from lakehouse.ledger import Ledger
from lakehouse.session import deviations, own_session
from lakehouse.stage import Stage
from pipelines.binding.shared_feeds import Feeds
from pipelines.spec import PipelineFile, changelogs, keeps_changelog, selected

REHEARSALS = "rehearsals"
"""The folder of the stages of rehearsals, beside those of ledgers."""


@dataclass(frozen=True)
class Workspace:
    """
    What every command works in.

    Args:
        spark: Our own session.
        file: The pipeline file.
        folder: The folder that the file's relative paths are relative to.
    """

    spark: SparkSession
    file: PipelineFile
    folder: Path

    @staticmethod
    def open(spark: SparkSession, file: PipelineFile, folder: Path) -> "Workspace":
        """Make a workspace with a session of its own beside the caller's."""
        return Workspace(own_session(spark, file.timezone), file, folder.resolve())

    @cached_property
    def ledger(self) -> Ledger:
        """The ledger beside the results."""
        return Ledger(self.spark, self.table(LEDGER))

    @cached_property
    def feeds(self) -> Feeds:
        """The change feeds of the sources."""
        return Feeds(self.spark)

    @cached_property
    def deviations(self) -> dict[str, str]:
        """The settings that the runtime keeps at other values than lakejoin fixes; part of each join's definition."""
        return deviations(self.spark)

    @property
    def stages(self) -> str:
        """The folder of all stages, which lakes with ledgers of their own may share."""
        storage = self.file.storage
        return self.path(storage.stage) if storage.stage else f"{self.path(storage.path or '.')}/lakejoin_stage"

    def stage(self, join: str, epoch: int, run_id: str) -> Stage:
        """Name the stage of one attempt at an epoch, below the id of the ledger, which is created if need be."""
        return Stage.of(f"{self.stages}/{self.ledger.id}", join, epoch, run_id)

    def rehearsal(self, join: str, epoch: int, run_id: str) -> Stage:
        """Name the stage of what is computed and thrown away; nothing else is written, no ledger either."""
        return Stage.of(f"{self.stages}/{REHEARSALS}", join, epoch, run_id)

    def table(self, name: str) -> Address:
        """Address a table that lies in the storage under its name: a result, the ledger, a source without address."""
        storage = self.file.storage
        if storage.schema_name is not None:
            return Address.by_name(name, f"{storage.schema_name}.`{name.replace('`', '``')}`")
        return Address(name, path=f"{self.path(storage.path or '.')}/{name}")

    def source(self, name: str) -> Address:
        """Address a source where the file says it lies."""
        source = self.file.sources[name]
        if source.table is not None:
            return Address.by_name(name, source.table)
        if source.path is not None:
            return Address(name, path=self.path(source.path))
        return self.table(name)

    def changelog(self, join: str) -> Address | None:
        """Address the changelog of a join, if it keeps one."""
        return self.table(join + CHANGELOG) if keeps_changelog(self.file, join) else None

    def joins(self, select: Collection[str] | None = None) -> list[str]:
        """Name the joins to work on, in the order of the file; `selected` says how."""
        return selected(self.file, select)

    def nodes(self, select: Collection[str] | None = None) -> list[str]:
        """Name all that has epochs of its own: the changelog sources that the joins read, then the joins."""
        joins = self.joins(select)
        return [*changelogs(self.file, joins), *joins]

    def path(self, path: str) -> str:
        """Give a path of the pipeline file as Spark is to see it: a URI as it is, a path from the file's folder on."""
        is_whole = path.startswith("/") or re.match(r"[a-z][a-z0-9+.-]+:/", path)
        return path if is_whole else str((self.folder / path).resolve())
