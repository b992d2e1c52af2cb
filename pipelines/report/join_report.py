"""What happened to one join, and what would."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal

from lakehouse.errors import printable
from pipelines.plan.values import EpochPlan, SourceRange, Strategy
from pipelines.report.facts import Facts, Failure
from pipelines.report.wording import number_of

Outcome = Literal["done", "nothing", "failed", "skipped"]
COUNTED = ("inserted", "updated", "deleted")
APPENDED, BUFFERED = "appended", "buffered"
LOOKS = {"verify": "verified", "validate": "validated", "maintain": "maintained"}
"""What commands did that change no row, by their strategy."""
SKIPPED_ROWS = {
    "null_values": (
        "row of the stream has no value and took no part",
        "rows of the stream have no value and took no part",
    ),
    "ignored_changes": (
        "row of the stream was updated or deleted, and passed over",
        "rows of the stream were updated or deleted, and passed over",
    ),
    "behind_cut": (
        "row or change came later than its time, behind what an earlier epoch had read",
        "rows or changes came later than their time, behind what an earlier epoch had read",
    ),
}


class JoinReport(Facts):
    """
    What run, backfill or verify did with one join, or the error that any command met with it.

    The table that lakejoin keeps of a changelog source has epochs like a join and is reported like one.
    """

    join: str
    """The join, or the changelog source."""
    outcome: Outcome
    """done, nothing (there was nothing to do), failed, or skipped: what it reads failed or was skipped, or, of plan,
    has to run first."""
    epoch: int = 0
    """The epoch's number; of a join without news the number that the next will have."""
    strategy: str = ""
    """nothing, resume, load, incremental, reconcile, verify, validate or maintain, of a join with a stream also replay,
    accept, reset or flush; empty for an error."""
    reason: str = ""
    """Why this strategy, or why it was skipped: a stable code, a colon, and words. Of verify and validate: what was
    looked at."""
    counts: Mapping[str, int] = {}
    """Rows read, looked_up, touched, inserted, updated, deleted, unchanged, null_keys and files read for look-ups; of a
    changelog source also late, ties and tombstones; of a join with a stream appended, null_values, ignored_changes and
    behind_cut; of a join of two streams also late, buffered (rows that wait after the epoch), buffered_inserted,
    buffered_updated and buffered_deleted; of verify the rows expected, missing and surplus, and the epochs replayed; of
    validate rows and expectations; of maintain files_removed, files_added, files_deleted and stages_deleted."""
    seconds: Mapping[str, float] = {}
    """Seconds of each step."""
    error: Failure | None = None
    """What went wrong."""
    warnings: tuple[str, ...] = ()
    """Which of your own expectations rows did not meet, where `on_failed_gate: warn` lets them be published."""
    details: tuple[str, ...] = ()
    """Further lines for a reader."""
    dry_run: bool = False
    """Whether this is what would be done: nothing was written."""

    @property
    def changed(self) -> int:
        """How many rows of the result changed."""
        return sum(self.counts.get(name, 0) for name in (*COUNTED, APPENDED))

    def text(self) -> str:
        """Render for a person."""
        if self.error is not None:
            told = self.error.message.removeprefix(f"{self.join}: ")
            return "\n".join([f"{self.join}: FAILED  {told}", *(f"  {line}" for line in self.details)])
        lines = [f"{self.join}: {self._headline()}"]
        if BUFFERED in self.counts:
            lines += list(self._waiting())
        elif self.counts.get("null_keys"):
            lines.append(f"  warning: {self._skipped(self.counts['null_keys'])}")
        if self.counts.get("ties"):
            one = "source row has the order of another one of its commit"
            many = "source rows have the order of another one of their commit"
            lines.append(f"  warning: {number_of(self.counts['ties'], one, many)}")
        if self.counts.get("late") and BUFFERED not in self.counts:
            one = "source row came late and is older than what is held"
            many = "source rows came late and are older than what is held"
            lines.append(f"  {number_of(self.counts['late'], one, many)}")
        passed_over = ((self.counts.get(name), words) for name, words in SKIPPED_ROWS.items())
        lines += [f"  {number_of(number, *words)}" for number, words in passed_over if number]
        lines += [f"  warning: {finding}" for finding in self.warnings]
        return "\n".join([*lines, *(f"  {line}" for line in self.details)])

    def line(self) -> str:
        """Render in one line."""
        if self.error is not None:
            return f"{self.join} FAILED, {self.error.code}: {printable(self.error.problem)}"
        return f"{self.join} {self._headline()}"

    def _skipped(self, number: int) -> str:
        """Say which rows were skipped for a null: of an inner join of a stream also those that look up by a null."""
        if APPENDED in self.counts:
            rows = number_of(number, "row was", "rows were")
            return f"{rows} skipped: of the stream with a null where it looks up a table, or of a table without a key"
        return (
            f"{number_of(number, 'source row', 'source rows')} without a key {'was' if number == 1 else 'were'} skipped"
        )

    def _waiting(self) -> Iterator[str]:
        """Say what a join of two streams holds, and which rows had no part in it."""
        waiting = number_of(self.counts[BUFFERED], "row waits", "rows wait")
        yield f"  {waiting} for rows of the other stream"
        if self.counts.get("late"):
            one, many = "row came later than its watermark", "rows came later than their watermark"
            yield f"  warning: {number_of(self.counts['late'], f'{one} and was dropped', f'{many} and were dropped')}"
        if self.counts.get("null_keys"):
            one, many = "row has a null key or time and meets nothing", "rows have a null key or time and meet nothing"
            yield f"  {number_of(self.counts['null_keys'], one, many)}"

    def _headline(self) -> str:
        if self.strategy in LOOKS and self.outcome != "nothing":
            return f"{LOOKS[self.strategy]} ({self.reason}); {sum(self.seconds.values()):.1f} s"
        if self.outcome == "skipped":
            return f"skipped ({self.reason})"
        if self.outcome == "nothing":
            return f"nothing to do ({self.reason})"
        counted = (APPENDED,) if APPENDED in self.counts else COUNTED
        changes = ", ".join(f"{self.counts.get(name, 0):,} {name}" for name in counted)
        took = f"{sum(self.seconds.values()):.1f} s"
        told = f"epoch {self.epoch} ({self.strategy}): {changes}; {took}"
        return f"would be {told}; nothing was written" if self.dry_run else told


def joined_reports(reports: Sequence[JoinReport]) -> JoinReport:
    """Report the epochs that a run took for one join as one: the last, with the counts of all."""
    last = reports[-1]
    if len(reports) == 1:
        return last
    names = dict.fromkeys(name for report in reports for name in report.counts)
    counts = {name: sum(report.counts.get(name, 0) for report in reports) for name in names}
    counts |= {name: last.counts[name] for name in (BUFFERED,) if name in last.counts}
    steps = dict.fromkeys(name for report in reports for name in report.seconds)
    seconds = {name: round(sum(report.seconds.get(name, 0.0) for report in reports), 3) for name in steps}
    took = f"{len(reports)} epochs, from {reports[0].epoch} on, for the bounds that the pipeline file gives"
    warnings = tuple(warning for report in reports for warning in report.warnings)
    told = {"counts": counts, "seconds": seconds, "warnings": warnings, "details": (*last.details, took)}
    return last.model_copy(update=told)


class PlanReport(Facts):
    """What `run` would do for one join: the very plan that it would execute."""

    join: str
    """The join."""
    epoch: int
    """The number of the epoch."""
    strategy: Strategy
    """nothing, resume, load, incremental or reconcile; of a join with a stream also replay, accept or reset."""
    reason: str
    """Why: a stable code, a colon, and words."""
    sources: tuple[SourceRange, ...]
    """What is read of each source, left before right."""
    base_version: int
    """The version of the result that the epoch is computed against; -1 before the load."""
    after: tuple[str, ...] = ()
    """The joins that it reads and that run first: the plan is made from what they have committed so far."""
    details: tuple[str, ...] = ()
    """Further lines for a reader."""

    @staticmethod
    def of(plan: EpochPlan, after: tuple[str, ...] = (), details: tuple[str, ...] = ()) -> "PlanReport":
        """Report a plan, with the joins that run first, and further lines."""
        return PlanReport(
            join=plan.join,
            epoch=plan.epoch,
            strategy=plan.strategy,
            reason=plan.reason,
            sources=plan.sources,
            base_version=plan.base_version,
            after=after,
            details=details,
        )

    def text(self) -> str:
        """Render for a person."""
        lines = [f"{self.join}: {self.strategy}, epoch {self.epoch} ({self.reason})"]
        lines += [f"  {source.name}: {self._reads(source)}" for source in self.sources]
        lines += [f"  {name} runs first; this is planned from what it has committed so far" for name in self.after]
        return "\n".join([*lines, *(f"  {line}" for line in self.details)])

    def _reads(self, source: SourceRange) -> str:
        if self.strategy in ("load", "reconcile"):
            return f"all of version {source.to_version}"
        after, until = source.epochs
        positions = f", positions of its epochs {after + 1} to {until}" if after < until else ""
        if source.has_changes:
            return f"changes of versions {source.read_after + 1} to {source.to_version}{positions}"
        return f"no changes up to version {source.to_version}{positions}"
