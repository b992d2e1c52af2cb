"""The Python API of lakejoin: load a pipeline file, and run it with your own Spark session."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from pipelines.binding.workspace import Workspace
from pipelines.commands.changes import changes_frame
from pipelines.commands.docs import write_docs
from pipelines.commands.maintain import maintain_joins
from pipelines.commands.published import read_range
from pipelines.commands.run import MAX_FAILED_ROUNDS, flush_joins, run_joins, watch_joins
from pipelines.commands.runs import read_table
from pipelines.commands.validate import validate_joins
from pipelines.commands.verify import dry_run_joins, verify_joins
from pipelines.language import PipelineFile, load
from pipelines.plan.request import Backfill, Decision
from pipelines.report import JoinReport


@dataclass(frozen=True)
class Pipeline:
    """
    A pipeline file, ready to run; its relative paths start at `folder`.

    The methods use the caller's session, whose settings are not changed. They work on the joins whose names `select`
    has, and on all joins of the file if it is None; where they take `threads`, on so many joins at the same time, each
    in a session of its own beside the caller's. By default the pipeline file says how many.
    """

    file: PipelineFile
    folder: Path

    @staticmethod
    def load(path: str | Path, variables: Mapping[str, str] | None = None) -> "Pipeline":
        """Read a pipeline file, with the values of `${var.name}` in it; a PipelineFileError lists all its faults."""
        path = Path(path)
        return Pipeline(load(path, variables), path.resolve().parent)

    def run(
        self, spark: SparkSession, select: Collection[str] | None = None, *, threads: int | None = None
    ) -> list[JoinReport]:
        """
        Update the joins, and return a report for each.

        Raises:
            LakejoinError: The error of the first join that failed, after all were tried; it has all `reports`.
        """
        return _or_raise(run_joins(self._open(spark), select, threads=threads))

    def read(self, spark: SparkSession, name: str, run: str = "") -> DataFrame:
        """
        Read a source, a result or a changelog by its name: as it is, or as a run left it or read it.

        Tables that are read of one run belong together: every result describes the same versions of the sources.

        Args:
            run: The id of a run, or the beginning of one, from `lakejoin history --runs`; or `last complete`, the
                newest run that is complete and has the result.

        Raises:
            UnknownRun: The run is unknown, or does not have the table.
            LakejoinError: The pipeline file has no such table.
        """
        return read_table(self._open(spark), spark, name, run)

    def changes(
        self,
        spark: SparkSession,
        name: str,
        *,
        epochs: str = "",
        versions: str = "",
        key: Mapping[str, Any] | None = None,
    ) -> DataFrame:
        """
        Return the rows that epochs of a join changed, from the change feed of its result, commit by commit.

        Args:
            epochs: The epochs, `7..9`, `7..` or `7`; by default the newest one that changed a row.
            versions: The versions of the result instead.
            key: Values of columns of the key, to return the changes of these rows only.

        Returns:
            A frame of lakejoin's own session, in the order of the versions and the key: `change` (insert, update or
            delete), `epoch` (bigint; null for a change by another writer), `version` (bigint, of the result), `cause`
            (array of the inputs whose changes caused it, empty without a changelog), `key` (struct; not for a stream),
            `differing` (array of the columns that an update changed), `old` and `new` (struct of the columns; null if
            the row did or does not exist).

        Raises:
            UnknownJoin, BadRange, BadKey: The join, the range or the key does not exist.
            NotLoaded: The join has not run.
            FeedUnavailable: Versions of the range are no longer readable.
        """
        return changes_frame(self._open(spark), name, read_range(epochs, versions, "changes"), key)

    def watch(
        self,
        spark: SparkSession,
        every: float,
        select: Collection[str] | None = None,
        *,
        threads: int | None = None,
        stop: Event | None = None,
        patience: int = MAX_FAILED_ROUNDS,
    ) -> Iterator[list[JoinReport]]:
        """
        Update the joins repeatedly: `for reports in pipeline.watch(spark, 30): ...`.

        Args:
            every: The seconds from the beginning of one round to the beginning of the next.
            stop: Ends the loop after the current round.
            patience: The number of rounds in a row that may fail with a retryable error, such as AnotherRun.

        Yields:
            The reports of each round, including errors; then the error that is not retryable, or that exceeds
            `patience`, is raised.
        """
        return watch_joins(self._open(spark), every, select, threads=threads, stop=stop, patience=patience)

    def backfill(
        self,
        spark: SparkSession,
        select: Collection[str] | None = None,
        *,
        remedy: Decision = "",
        dry_run: bool = False,
        where: str | None = None,
        slices: int = 0,
        threads: int | None = None,
    ) -> list[JoinReport]:
        """
        Load results that do not exist, and reconcile existing ones with the newest versions of their sources.

        For a join with a stream, the backfill replays the recorded epochs and appends the missing rows. A large result
        is reconciled slice by slice of its key space, with one commit for each; a stopped backfill resumes.

        Args:
            remedy: For a join with a stream: `accept` accepts its result as it is, `reset` recreates it.
            dry_run: Whether to write nothing, and count what would change.
            where: A condition on the columns of one result; only rows that meet it are reconciled, at the source
                versions of the last epoch.
            slices: The number of slices; 0 chooses it by the size of the result.

        Raises:
            WrongOptions: The options cannot be combined; other errors as `run`.
        """
        asked = Backfill(remedy, where, dry_run, slices)
        if asked.dry_run:
            return _or_raise(dry_run_joins(self._open(spark), select, asked.where))
        return _or_raise(run_joins(self._open(spark), select, backfill=asked, threads=threads))

    def flush(self, spark: SparkSession, select: Collection[str] | None = None) -> list[JoinReport]:
        """Flush all buffered rows of joins of two streams, adding unmatched rows of outer sides; raise as `run`."""
        return _or_raise(flush_joins(self._open(spark), select))

    def verify(
        self,
        spark: SparkSession,
        select: Collection[str] | None = None,
        *,
        version: int | None = None,
        quick: bool = False,
        threads: int | None = None,
    ) -> list[JoinReport]:
        """
        Recompute the joins at the recorded versions, and compare them with the newest results, or with a `version`.

        With `quick` only the checksum of each result is compared with the ledger.

        Raises:
            Drifted: A result differs; other errors as `run`.
        """
        return _or_raise(verify_joins(self._open(spark), select, version=version, quick=quick, threads=threads))

    def validate(
        self,
        spark: SparkSession,
        select: Collection[str] | None = None,
        *,
        epochs: str = "",
        versions: str = "",
        docs: str | Path | None = None,
        write_suites: bool = False,
        threads: int | None = None,
    ) -> list[JoinReport]:
        """
        Validate published tables against their gates and the expectations of the file, also those about a whole result.

        Args:
            epochs: Validate what these epochs published, `3..7`, `3..` or `3`, instead of the whole tables.
            versions: Validate the changes of these versions of the result instead of the whole tables.
            docs: If given, write the site of `docs` into this folder, with pages about data quality.
            write_suites: Whether to write the suite of each table into `expectations` beside the pipeline file.

        Raises:
            GateFailed: A table does not meet its expectations; other errors as `run`.
        """
        requested = read_range(epochs, versions)
        folder = None if docs is None else Path(docs)
        return _or_raise(
            validate_joins(
                self._open(spark), select, requested, docs=folder, write_suites=write_suites, threads=threads
            )
        )

    def maintain(self, spark: SparkSession, select: Collection[str] | None = None) -> list[JoinReport]:
        """Compact and cluster the tables of joins and the ledger, delete unneeded files and stages; raise as `run`."""
        return _or_raise(maintain_joins(self._open(spark), select))

    def docs(self, spark: SparkSession, folder: str | Path | None = None) -> Path:
        """
        Write a static site about the joins and their epochs, by default to `docs` beside the pipeline file.

        Return the path of its first page. Only the ledger and the logs of the results are read.

        Raises:
            FilesExist: A file that lakejoin did not write has the path of a page; nothing was written.
        """
        return write_docs(self._open(spark), None if folder is None else Path(folder))

    def _open(self, spark: SparkSession) -> Workspace:
        return Workspace.open(spark, self.file, self.folder)


def _or_raise(reports: list[JoinReport]) -> list[JoinReport]:
    error = next((report.error for report in reports if report.error is not None), None)
    if error is not None:
        error.reports = tuple(reports)
        raise error
    return reports
