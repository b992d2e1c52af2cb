"""The Python face of lakejoin: load a pipeline file, run it with your own session."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from threading import Event

from pyspark.sql import SparkSession

from pipelines.binding.workspace import Workspace
from pipelines.commands.data_docs import validate_joins
from pipelines.commands.docs import write_docs
from pipelines.commands.dry_run import rehearse_joins
from pipelines.commands.flush import flush_joins
from pipelines.commands.maintain import maintain_joins
from pipelines.commands.run import run_joins
from pipelines.commands.verify import verify_join
from pipelines.commands.version_ranges import read_range
from pipelines.commands.watch import PATIENCE, watch_joins
from pipelines.plan.request import Backfill, Remedy
from pipelines.report import JoinReport
from pipelines.spec import PipelineFile, load


@dataclass(frozen=True)
class Pipeline:
    """
    A pipeline file, ready to run.

    Args:
        file: What the file says.
        folder: The folder that its relative paths are relative to.
    """

    file: PipelineFile
    folder: Path

    @staticmethod
    def load(path: str | Path, variables: Mapping[str, str] | None = None) -> "Pipeline":
        """
        Read a pipeline file.

        Args:
            path: The file.
            variables: The values of `${var.name}` in it.

        Raises:
            PipelineFileError: With all faults of the file.
        """
        path = Path(path)
        return Pipeline(load(path, variables), path.resolve().parent)

    def run(self, spark: SparkSession, select: Collection[str] | None = None) -> list[JoinReport]:
        """
        Bring the joins up to date with the caller's session, whose settings are not touched.

        Returns:
            A report for each join.

        Raises:
            LakejoinError: The error of the first join that failed, after all of them were tried.
        """
        return _or_raise(run_joins(self._open(spark), select))

    def watch(
        self,
        spark: SparkSession,
        every: float,
        select: Collection[str] | None = None,
        *,
        stop: Event | None = None,
        patience: int = PATIENCE,
    ) -> Iterator[list[JoinReport]]:
        """
        Bring the joins up to date again and again: `for reports in pipeline.watch(spark, 30): ...`.

        Args:
            spark: The caller's session, whose settings are not touched.
            every: Seconds from the beginning of a round to that of the next.
            select: The joins; all without it.
            stop: Ends the loop once the round at work is through.
            patience: How many rounds in a row may fail with an error that may pass, such as AnotherRun.

        Yields:
            The reports of each round, with its errors.

        Raises:
            LakejoinError: An error that does not pass by itself, or one too many, after the reports of its round.
        """
        return watch_joins(self._open(spark), every, select, stop=stop, patience=patience)

    def backfill(
        self,
        spark: SparkSession,
        select: Collection[str] | None = None,
        *,
        remedy: Remedy = "",
        dry_run: bool = False,
        where: str | None = None,
        slices: int = 0,
    ) -> list[JoinReport]:
        """
        Load results that are not there and reconcile those that are with the sources as they are now.

        The result of a join with a stream gets the rows that its recorded epochs lack; with `remedy` `accept` it is
        taken as it is, with `reset` begun anew. A dry run writes nothing, and reports what would be written.
        With `where`, a condition on the columns of one result, only rows that meet it are mended, and the sources are
        read as the last epoch read them. A large result is reconciled slice by slice of its key space, each as one
        commit, and a backfill that was stopped goes on with the slices that are left; `slices` says into how many.

        Raises:
            WrongOptions: They do not go together.
            LakejoinError: As `run`.
        """
        asked = Backfill(remedy, where, dry_run, slices)
        if asked.dry_run:
            return _or_raise(rehearse_joins(self._open(spark), select, asked.where))
        return _or_raise(run_joins(self._open(spark), select, backfill=asked))

    def flush(self, spark: SparkSession, select: Collection[str] | None = None) -> list[JoinReport]:
        """
        Let all rows go that wait in joins of two streams, null-padded where they are kept; no row meets them any more.

        Raises:
            LakejoinError: As `run`.
        """
        return _or_raise(flush_joins(self._open(spark), select))

    def verify(self, spark: SparkSession, select: Collection[str] | None = None) -> list[JoinReport]:
        """
        Recompute the joins at the recorded versions and compare, both ways.

        Raises:
            Drifted: A result differs from its join.
        """
        workspace = self._open(spark)
        return [verify_join(workspace, name) for name in workspace.joins(select)]

    def validate(
        self,
        spark: SparkSession,
        select: Collection[str] | None = None,
        *,
        epochs: str = "",
        versions: str = "",
        docs: str | Path | None = None,
        write_suites: bool = False,
    ) -> list[JoinReport]:
        """
        Hold what is published to its gates, and to the expectations of the file, also those about a whole result.

        Args:
            spark: The caller's session.
            select: The joins; all without it.
            epochs: Look at what these epochs published, `3..7`, `3..` or `3`, and not at the tables as they are.
            versions: The same by versions of the result.
            docs: Write the site of `docs` into this folder, with pages about what was found.
            write_suites: Write what each table is held to into `expectations` beside the pipeline file, as JSON.

        Raises:
            LakejoinError: The error of the first join that failed, after all were looked at; GateFailed if a result
                does not meet them.
        """
        requested = read_range(epochs, versions)
        folder = None if docs is None else Path(docs)
        return _or_raise(validate_joins(self._open(spark), select, requested, docs=folder, write_suites=write_suites))

    def maintain(self, spark: SparkSession, select: Collection[str] | None = None) -> list[JoinReport]:
        """
        Make the files of what lakejoin keeps few and clustered, and delete those and the stages that nothing needs.

        Raises:
            LakejoinError: The error of the first join that failed, after all were maintained.
        """
        return _or_raise(maintain_joins(self._open(spark), select))

    def docs(self, spark: SparkSession, folder: str | Path | None = None) -> Path:
        """
        Write a static site about the joins and their epochs; of the tables only the ledger is read.

        Args:
            spark: The caller's session.
            folder: Where to; without it `docs` beside the pipeline file.

        Returns:
            Its first page.

        Raises:
            FilesExist: A file that is not of such a site is in the way; nothing was written.
        """
        return write_docs(self._open(spark), None if folder is None else Path(folder))

    def _open(self, spark: SparkSession) -> Workspace:
        return Workspace.open(spark, self.file, self.folder)


def _or_raise(reports: list[JoinReport]) -> list[JoinReport]:
    for report in reports:
        if report.error is not None:
            raise report.error
    return reports
