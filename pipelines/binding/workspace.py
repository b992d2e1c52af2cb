"""A pipeline file with a session: the addresses of its tables, its ledger, its stages and its change feeds."""

import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, reduce
from pathlib import Path
from threading import Lock
from typing import Literal

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.feed.feed import Repair, distortion, feed_ranges
from lakehouse.ledger.ledger import NAME as LEDGER
from lakehouse.ledger.ledger import Ledger
from lakehouse.publish.stage import Stage
from lakehouse.session.engine import Engine
from lakehouse.session.session import is_embedded, own_session, persisted, unpersist
from lakehouse.tables.table import FEED_COLUMNS, Table, logged_size, read_changes
from lakehouse.values.locations import is_absolute, local_path
from lakehouse.values.recorded import CHANGELOG, STATE
from lakehouse.values.sqltext import Address, quote
from pipelines.language import PipelineFile, changelogs, keeps_changelog, selected

Rows = Literal["netted", "commit by commit", "inserted"]
"""How the rows of a feed are used."""

_GLOBAL = "global_temp"
"""The database of global views, which all sessions of an application see."""

Wanted = Mapping[str, frozenset[str] | None]
"""The columns that joins may use of each source that several of them read, in lower case; None for all columns."""


class Distorted(Exception):
    """Rows of a feed may differ from the rows of its table; results computed from them must be computed again."""


_Range = tuple[str, int, int]
"""A source by its name, and the versions (after, to] of its feed."""


@dataclass
class _Cached:
    """
    A feed that is cached.

    Args:
        session: The session that reads it.
        users: The feeds, one for each join that runs, that read it last.
        view: The global view by which other sessions read it; None if none has asked yet, empty if they cannot.
    """

    frame: DataFrame
    session: SparkSession
    users: list["Feeds"] = field(default_factory=list)
    view: str | None = None


@dataclass
class _Shared:
    """What the joins of a run share: the feeds that several of them read, and those that are cached."""

    wanted: Wanted = field(default_factory=dict)
    cached: dict[_Range, _Cached] = field(default_factory=dict)
    lock: Lock = field(default_factory=Lock)


class Feeds:
    """The feeds of a run, as one session reads them."""

    def __init__(self, engine: Engine, shared: _Shared | None = None) -> None:
        self._engine, self._shared = engine, shared or _Shared()
        self._distorted: set[tuple[Address, int, int]] = set()

    def beside(self, engine: Engine) -> "Feeds":
        """Return the same feeds for another session."""
        return Feeds(engine, self._shared)

    @contextmanager
    def shared(self, wanted: Wanted) -> Iterator[None]:
        """Cache the feeds of the wanted sources while joins run, so they are read only once."""
        self._shared.wanted = wanted
        try:
            yield
        finally:
            for at in [*self._shared.cached]:
                self._forget(at)
            self._shared.wanted = {}

    def read(
        self, source: str, table: Table, after: int, to: int, columns: Sequence[str], rows: Rows = "netted"
    ) -> DataFrame:
        """
        Read the feed of versions (after, to], as `read_changes` does, and repair it if it is known to be distorted.

        The source is empty for a table that only one join reads.
        """
        feed = self._read(source, table, after, to, columns)
        if (table.address, after, to) not in self._distorted:
            return feed
        repair = Repair(self._engine.spark, table, feed, after, to)
        if rows == "inserted":
            return repair.inserted()
        return repair.netted() if rows == "netted" else repair.commit_by_commit()

    def refuse_distorted(self, table: Table, after: int, to: int, number: int) -> None:
        """
        Raise `Distorted` if rows of the feed of versions (after, to], `number` of them, may differ from the table's.

        The next `read` repairs the feed; one that is repaired already is not refused.
        """
        if number and (table.address, after, to) not in self._distorted:
            self._distorted.add((table.address, after, to))
            raise Distorted

    @property
    def repairs(self) -> int:
        """The number of feeds found to be distorted so far."""
        return len(self._distorted)

    def inspect(self, source: str, table: Table, after: int, to: int, columns: Sequence[str]) -> None:
        """Check a feed for distorted rows if its readers do not, so that the next `read` repairs it if needed."""
        if (table.address, after, to) in self._distorted:
            return
        feed = self._read(source, table, after, to, columns)
        types = {name: table.schema[name].dataType for name in columns}
        # Count with an aggregate: Spark would evaluate a filter on the values of the table, too.
        if feed.agg(F.count_if(F.expr(distortion(types)))).collect()[0][0]:
            self._distorted.add((table.address, after, to))

    def _read(self, source: str, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame:
        if source not in self._shared.wanted:
            return self._changes(table, after, to, columns)
        with self._shared.lock:  # joins side by side, or an epoch and the prefetch of its gate, read at the same time
            cached = self._cached((source, after, to), table, columns)
        if cached is None or not set(columns) <= set(cached.columns):
            return self._changes(table, after, to, columns)
        return cached.selectExpr(*map(quote, (*columns, *FEED_COLUMNS)))

    def _cached(self, at: _Range, table: Table, columns: Sequence[str]) -> DataFrame | None:
        """Return the cached feed, which is cached now if it is not; None if another session has it for itself."""
        source, after, to = at
        cached = self._shared.cached
        for other in [other for other in cached if other[0] == source and other != at and self in cached[other].users]:
            cached[other].users.remove(self)  # a join does not read earlier ranges again
            if not cached[other].users:
                self._forget(other)
        if at not in cached:
            wanted = self._shared.wanted[source]
            common = [name for name in table.schema.fieldNames() if wanted is None or name.lower() in wanted]
            frame = persisted(self._changes(table, after, to, list(dict.fromkeys((*columns, *common)))))
            cached[at] = _Cached(frame, self._engine.spark)
        if self not in cached[at].users:
            cached[at].users.append(self)
        return cached[at].frame if cached[at].session is self._engine.spark else self._of_other_session(cached[at])

    def _of_other_session(self, cached: _Cached) -> DataFrame | None:
        """Return a frame of another session as this one reads it: by a global view, which not every platform allows."""
        try:
            if cached.view is None:
                cached.view = f"lakejoin_feed_{uuid.uuid4().hex}"
                cached.frame.createOrReplaceGlobalTempView(cached.view)
            frame = self._engine.spark.table(f"{_GLOBAL}.{cached.view}") if cached.view else None
            return None if frame is None or not frame.columns else frame
        except PySparkException:
            cached.view = ""
            return None

    def _changes(self, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame:
        """Read the feed of versions (after, to], one readable range at a time."""
        ranges = feed_ranges(self._engine, table, after, to)
        return reduce(DataFrame.unionAll, (read_changes(self._engine.spark, table, *part, columns) for part in ranges))

    def _forget(self, at: _Range) -> None:
        cached = self._shared.cached.pop(at)
        unpersist(cached.frame)
        if cached.view:
            self._engine.spark.catalog.dropGlobalTempView(cached.view)


DRY_RUNS = "rehearsals"
"""The folder for the stages of dry runs, beside the folders for the stages of each ledger."""


@dataclass(frozen=True)
class RunVersions:
    """
    The versions that the joins of a run read; what is not pinned is read as it is.

    Args:
        sources: The sources of the pipeline file, by name.
        results: The versions of the results of joins and of the KTables of changelog sources, by name.
    """

    sources: Mapping[str, Table] = field(default_factory=dict)
    results: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Workspace:
    """The pipeline file and session that a command works with; relative paths of the file are relative to `folder`."""

    engine: Engine
    file: PipelineFile
    folder: Path
    versions: RunVersions = RunVersions()

    @staticmethod
    def open(spark: SparkSession, file: PipelineFile, folder: Path) -> "Workspace":
        """Create a workspace with a session of its own beside the caller's."""
        return Workspace(Engine.beside(spark, file.timezone), file, folder.resolve())

    @staticmethod
    def on_demand(start: Callable[[], SparkSession], file: PipelineFile, folder: Path) -> "Workspace":
        """Create a workspace that starts Spark when something needs it; `start` returns the session to start from."""
        engine = Engine(lambda: own_session(start(), file.timezone), is_embedded=is_embedded(file.spark))
        return Workspace(engine, file, folder.resolve())

    @property
    def spark(self) -> SparkSession:
        """The session of lakejoin."""
        return self.engine.spark

    @property
    def is_small(self) -> bool:
        """Whether sources, results and what is kept beside them are known to be small, from their logs alone."""
        if not self.engine.is_embedded:
            return False
        kept = [self.table(f"{name}{suffix}") for name in self.file.joins for suffix in ("", CHANGELOG, STATE)]
        kept += [self.table(name + STATE) for name in self.file.sources]  # of changelog sources
        tables = (*map(self.source, self.file.sources), *kept)
        if any(local_path(table.path) is None for table in tables):  # an object store needs the settings of Spark
            return False
        try:
            with ThreadPoolExecutor() as executor:
                sizes = [*executor.map(partial(logged_size, self.engine), tables)]
        except Exception:  # the command itself reports it
            return False
        return None not in sizes and sum(size or 0 for size in sizes) <= limits.QUICKLY_COMPILED_BYTES

    @contextmanager
    def beside(self) -> Iterator["Workspace"]:
        """Provide the workspace with a session that nobody else uses meanwhile, and with the same feeds."""
        with self.engine.another(self.file.timezone) as engine:
            other = replace(self, engine=engine)
            vars(other).update(feeds=self.feeds.beside(engine))
            yield other

    def at(self, versions: RunVersions) -> "Workspace":
        """Return the workspace with other pinned versions, and with the same ledger and feeds."""
        pinned = replace(self, versions=versions)
        vars(pinned).update(ledger=self.ledger, feeds=self.feeds)
        return pinned

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
        return Stage.of(f"{self.stages}/{self.ledger.id}", self.engine.files, join, epoch, run_id)

    def dry_run_stage(self, join: str, epoch: int, run_id: str) -> Stage:
        """Return the stage of a dry run, which writes nothing else, not even a ledger."""
        return Stage.of(f"{self.stages}/{DRY_RUNS}", self.engine.files, join, epoch, run_id)

    def stage_at(self, path: str) -> Stage:
        """Return the stage that an epoch, perhaps of another run, has in a folder."""
        return Stage(path, self.engine.files)

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
        return path.rstrip("/") or "/" if is_absolute(path) else str((self.folder / path).resolve())
