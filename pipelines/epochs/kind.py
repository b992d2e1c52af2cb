"""
What the kinds of join have in common, and where they differ: tables, pairs, look-ups, two streams, and KTables.

`kinds.kind_of` alone chooses. What stands in `run` and `publish` runs what a kind returns, and asks no kind what it is.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import ClassVar, Generic

from expectations.gate import GateSources, PrefetchedRows
from expectations.suites import KeyOfResult, Suite
from expectations.validation import Verdict
from lakehouse.errors.conditions import is_about_a_row, value_error
from lakehouse.errors.errors import (
    OF_TABLES,
    CannotContinue,
    Commands,
    DefinitionChanged,
    LakejoinError,
    Remedy,
    RowFailed,
)
from lakehouse.ledger.entries import Entry
from lakehouse.publish.stage import Stage
from lakehouse.values.recorded import Checksum, Slice
from pipelines.binding.workspace import Workspace
from pipelines.epochs.comparison import Published
from pipelines.epochs.epoch import B, Epoch, Prepared
from pipelines.plan.decide import naming_commands
from pipelines.plan.request import Request
from pipelines.plan.values import Computed
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch


@dataclass(frozen=True)
class Prefetched:
    """What the gate of a join of tables reads before the change set is known, at the versions that the epoch pinned."""

    sources: GateSources
    rows: PrefetchedRows | None = None


@dataclass(frozen=True)
class Kind(ABC, Generic[B]):
    """One join, or the KTable of a changelog source, as its kind runs it."""

    workspace: Workspace
    name: str

    commands: ClassVar[Commands] = OF_TABLES
    """What the hints of errors name for the actions of `OF_TABLES`."""

    only_appends: ClassVar[bool] = False
    """Whether epochs add rows to the result and never change one, so that its rows have no key."""

    @contextmanager
    def explaining_errors(self) -> Iterator[None]:
        """
        Name the commands of this kind in the hints of errors, and the row of a source for which the statement raises.

        Raises:
            RowFailed, PastRowFailed: The statement raises for a row.
        """
        with naming_commands(self.name, self.commands):
            try:
                yield
            except Exception as error:
                if not is_about_a_row(error):
                    raise
                raise self.row_failed(error) from error

    def row_failed(self, error: Exception) -> LakejoinError:
        """Return the error for a row for which an expression raises, from Spark's error."""
        return RowFailed(
            self.name, "an expression raises for a row", found=value_error(error), hint=Remedy("{mend}", self.name)
        )

    @abstractmethod
    def prepare(self, request: Request) -> Prepared[B]:
        """
        Read the state of the tables and the ledger, and plan the next epoch; nothing is written.

        Raises:
            CannotContinue: The next epoch cannot continue from the recorded versions.
            LakejoinError: A table is missing, a column unknown, or the kind cannot do what is asked.
        """

    def prepare_around(self, epoch: Epoch[B], request: Request, error: CannotContinue) -> Prepared[B]:
        """
        Plan an epoch that replaces one that could not be computed.

        Raises:
            CannotContinue: The error itself, if nothing may replace the epoch.
        """
        raise error

    def verify(self, against: str = "", published: Published | None = None) -> JoinReport:
        """
        Compare the result, or the table `against` (see `commands.verify`), with what the result should be.

        Args:
            published: An earlier version of the result to compare; the newest if None.

        Raises:
            Drifted: Rows differ.
            LakejoinError: The result of this kind cannot be compared, or versions are no longer readable.
        """
        raise LakejoinError(self.name, "no table of this kind can be compared with its sources")

    def verify_quickly(self) -> JoinReport:
        """
        Compare the result with the checksum that its last epoch recorded, without reading a source.

        The outcome of the report is nothing if results of this kind have no checksum.

        Raises:
            Drifted: The result has another checksum.
            LakejoinError: No checksum is recorded.
        """
        reason = f"no-checksum: results of this kind have none; run `lakejoin verify --select {self.name}`"
        return JoinReport(join=self.name, outcome="nothing", strategy="verify", reason=reason)

    def suite(self, bound: B) -> Suite:
        """Return the expectations that every result of this kind meets."""
        return []

    def sides(self, bound: B) -> KeyOfResult:
        """Return the key of the rows of a result, as its expectations take it."""
        raise NotImplementedError(f"rows of {type(self).__name__} have no key")

    @abstractmethod
    def create_targets(self, epoch: Epoch[B]) -> Epoch[B]:
        """Create the tables that the epoch writes and that do not exist; they are empty, so a crash is harmless."""

    @abstractmethod
    def compute(self, epoch: Epoch[B], stage: Stage) -> Computed:
        """
        Compute an epoch into its stage.

        Raises:
            FeedUnavailable, SchemaBroken: A feed cannot be read; `conditions.reading`, which wraps this call, raises.
        """

    def count(self, epoch: Epoch[B], stage: Stage) -> dict[str, int]:
        """Count what an epoch would write; the stage is discarded."""
        return dict(self.compute(epoch, stage).counts)

    def load(self, epoch: Epoch[B], watch: Stopwatch) -> Entry:
        """Run an epoch that is planned in place, without a stage, and return its committed row."""
        raise NotImplementedError(f"{type(self).__name__} plans no epoch in place")

    def resume_load(self, entry: Entry, watch: Stopwatch) -> Entry | None:
        """
        Finish an interrupted `load` from its row of the ledger; return None if the load was abandoned.

        Raises:
            DefinitionChanged: The join was of another kind when the load began.
        """
        raise self._of_another_kind(entry)

    def at_recorded(self, entry: Entry) -> B:
        """
        Bind the join again at the versions of an open backfill in slices.

        Raises:
            CannotContinue: The definition has changed, or a version is gone.
        """
        raise self._of_another_kind(entry)

    def _of_another_kind(self, entry: Entry) -> DefinitionChanged:
        return DefinitionChanged(
            self.name,
            f"the join was of another kind when epoch {entry.epoch} began",
            expected=f"the definition with fingerprint {entry.definition}",
            hint=Remedy("{reconcile}", self.name),
        )

    def check_whole(self, epoch: Epoch[B]) -> dict[str, int]:
        """Refuse rows of whole sources and of the result that cannot be compared; return counts for the ledger."""
        raise NotImplementedError(f"{type(self).__name__} plans no slices")

    def compute_slice(self, epoch: Epoch[B], part: Slice, stage: Stage) -> Computed:
        """Compute where one slice of the result differs from the sources into a stage."""
        raise NotImplementedError(f"{type(self).__name__} plans no slices")

    def checksum(self, bound: B, version: int) -> Checksum | None:
        """Compute the checksum of a version of the result; None if results of this kind have none."""
        return None

    def prefetch(self, epoch: Epoch[B]) -> Prefetched | None:
        """Read what the gate needs while the epoch is computed; None if the gate reads everything itself."""
        return None

    @abstractmethod
    def gate(self, epoch: Epoch[B], stage: Stage, entry: Entry, prefetched: Prefetched | None) -> Verdict:
        """
        Validate what an epoch has staged against its result and its sources.

        Args:
            entry: Its row for the ledger, with what it writes.
            prefetched: What `prefetch` returned; None to read everything.
        """
