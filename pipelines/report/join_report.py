"""The report of a run for one join, and the report of a plan."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Literal

from lakehouse.errors.errors import printable
from lakehouse.ledger.entries import Entry
from lakehouse.publish.writes import Write
from lakehouse.values.recorded import SourceVersions
from pipelines.plan.values import EpochPlan, Idle, Resume, SourceRange, Strategy
from pipelines.report.facts import Facts, Failure, estimated, in_seconds, number_of

Outcome = Literal["done", "nothing", "failed", "skipped"]
COUNTED = ("inserted", "updated", "deleted")
APPENDED, BUFFERED = "appended", "buffered"
LOOKS = {"verify": "verified", "validate": "validated", "maintain": "maintained"}
"""For each strategy of a command that changes no row, the word that reports it."""
NONE: Mapping[str, str] = {}
SKIPPED_ROWS = {
    "null_values": (
        "row of the stream has a null value and was ignored",
        "rows of the stream have a null value and were ignored",
    ),
    "ignored_changes": (
        "row of the stream was updated or deleted and was ignored",
        "rows of the stream were updated or deleted and were ignored",
    ),
    "ignored_deletes": (
        "row of the changelog was deleted and was ignored",
        "rows of the changelog were deleted and were ignored",
    ),
    "behind_cut": (
        "row or change arrived after an earlier epoch had read past its time",
        "rows or changes arrived after an earlier epoch had read past their time",
    ),
}


class JoinReport(Facts):
    """
    The report of run, backfill, verify, validate or maintain for one join, or the error that any command met with it.

    The table that lakejoin maintains for a changelog source has epochs like a join and is reported like one.
    """

    join: str
    """The name of the join or of the changelog source."""
    outcome: Outcome
    """done, nothing (no work was necessary), failed or skipped. A join is skipped if an input of it failed or was
    skipped; `plan` skips a join if an input of it has to run first."""
    epoch: int = 0
    """The number of the epoch; the number of the next epoch if the strategy is nothing."""
    strategy: str = ""
    """nothing, resume, load, incremental, reconcile, overwrite, verify, validate or maintain; for a join with a stream
    also replay, accept, reset or flush; empty for an error."""
    reason: str = ""
    """The reason for this strategy, or for skipping the join: a stable code, a colon, and a description. For verify and
    validate: what was examined."""
    counts: Mapping[str, int] = {}
    """Rows read, looked_up, touched, inserted, updated, deleted, unchanged, null_keys, and files read for look-ups. For
    a changelog source also late, ties, tombstones and ignored_deletes. For a join with a stream appended, null_values,
    ignored_changes and behind_cut. For a join of two streams also late, buffered (the buffered rows after the epoch),
    buffered_inserted, buffered_updated and buffered_deleted. For verify the rows expected, missing and surplus, and the
    epochs replayed; for `verify --quick` rows. For validate rows and expectations. For maintain files_removed,
    files_added, files_deleted and stages_deleted."""
    seconds: Mapping[str, float] = {}
    """The seconds that each step took."""
    estimates: Mapping[str, float] = {}
    """For an epoch of a join of tables: the estimated seconds of each way to compute it, by strategy."""
    error: Failure | None = None
    """The error of this join; null if none."""
    warnings: tuple[str, ...] = ()
    """Your own expectations that rows do not meet, if `on_failed_gate: warn` lets the rows be published."""
    details: tuple[str, ...] = ()
    """Further lines for the reader."""
    dry_run: bool = False
    """Whether this is the report of a dry run, which writes nothing."""
    sources: tuple[SourceVersions, ...] = ()
    """For run, backfill and flush: the versions of the sources that the result accounts for."""
    result_id: str | None = None
    """The table id of the result; null before its first epoch, and for other commands."""
    result_version: int | None = None
    """The version of the result that its last epoch made; null as `result_id`."""

    @property
    def changed(self) -> int:
        """The number of changed rows of the result."""
        return sum(self.counts.get(name, 0) for name in (*COUNTED, APPENDED))

    def text(self) -> str:
        """Render as text."""
        if self.error is not None:
            message = self.error.message.removeprefix(f"{self.join}: ")
            return "\n".join([f"{self.join}: FAILED  {message}", *(f"  {line}" for line in self.details)])
        lines = [f"{self.join}: {self._headline()}"]
        is_asked_for = self.reason.startswith("backfill") and "; " not in self.reason
        if self.strategy in ("reconcile", "overwrite") and not is_asked_for:
            lines.append(f"  {self.reason}")
        if BUFFERED in self.counts:
            lines += list(self._buffered())
        elif self.counts.get("null_keys"):
            lines.append(f"  warning: {self._skipped(self.counts['null_keys'])}")
        if self.counts.get("ties"):
            one = "source row has the same `order_by` value as another row of its commit"
            many = "source rows have the same `order_by` value as another row of their commit"
            lines.append(f"  warning: {number_of(self.counts['ties'], one, many)}")
        if self.counts.get("late") and BUFFERED not in self.counts:
            one = "source row arrived late: it is older than the stored row of its key"
            many = "source rows arrived late: they are older than the stored rows of their keys"
            lines.append(f"  {number_of(self.counts['late'], one, many)}")
        ignored = ((self.counts.get(name), words) for name, words in SKIPPED_ROWS.items())
        lines += [f"  {number_of(number, *words)}" for number, words in ignored if number]
        lines += [f"  warning: {finding}" for finding in self.warnings]
        return "\n".join([*lines, *(f"  {line}" for line in self.details)])

    def line(self) -> str:
        """Render in one line."""
        if self.error is not None:
            return f"{self.join} FAILED, {self.error.code}: {printable(self.error.problem)}"
        return f"{self.join} {self._headline()}"

    def _skipped(self, number: int) -> str:
        """Describe the rows skipped for a null key; an inner join with a stream also skips null look-up keys."""
        if APPENDED in self.counts:
            rows = number_of(number, "row was", "rows were")
            return f"{rows} skipped: rows of the stream with a null look-up key, or table rows with a null key"
        verb = "was" if number == 1 else "were"
        return f"{number_of(number, 'source row', 'source rows')} with a null key {verb} skipped"

    def _buffered(self) -> Iterator[str]:
        """Describe the buffered rows of a join of two streams, the late rows and the rows with a null key."""
        buffered = number_of(self.counts[BUFFERED], "row is", "rows are")
        yield f"  {buffered} buffered, waiting for matching rows of the other stream"
        if self.counts.get("late"):
            one, many = "row arrived behind its watermark", "rows arrived behind their watermark"
            yield f"  warning: {number_of(self.counts['late'], f'{one} and was dropped', f'{many} and were dropped')}"
        if self.counts.get("null_keys"):
            one, many = "row has a null key or time and has no match", "rows have a null key or time and have no match"
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
        headline = f"epoch {self.epoch} ({self.strategy}): {changes}; {took}"
        return f"would be {headline}; nothing was written" if self.dry_run else headline


def joined_reports(reports: Sequence[JoinReport], why: str = "by the limits in the pipeline file") -> JoinReport:
    """
    Return the report of a run for one join: that of its last epoch, with the counts, seconds and warnings of all.

    `why` says why the run had several epochs.
    """
    last = reports[-1]
    if len(reports) == 1:
        return last
    names = dict.fromkeys(name for report in reports for name in report.counts)
    counts = {name: sum(report.counts.get(name, 0) for report in reports) for name in names}
    counts |= {name: last.counts[name] for name in (BUFFERED,) if name in last.counts}
    steps = dict.fromkeys(name for report in reports for name in report.seconds)
    seconds = {name: round(sum(report.seconds.get(name, 0.0) for report in reports), 3) for name in steps}
    epochs = f"{len(reports)} epochs, starting at epoch {reports[0].epoch}, {why}"
    warnings = tuple(warning for report in reports for warning in report.warnings)
    combined = {"counts": counts, "seconds": seconds, "warnings": warnings, "details": (*last.details, epochs)}
    return last.model_copy(update=combined)


def versions_after(entry: Entry) -> dict[str, Any]:
    """Return the versions after a committed epoch, as fields of a report."""
    return {
        "sources": entry.sources,
        "result_id": entry.result.id,
        "result_version": entry.result.version,
    }


class PlanReport(Facts):
    """The plan that `run` would execute for one join."""

    join: str
    """The name of the join."""
    epoch: int
    """The number of the epoch."""
    strategy: Strategy
    """nothing, resume, load, incremental, reconcile or overwrite; for a join with a stream also replay, accept or
    reset."""
    reason: str
    """The reason for this strategy: a stable code, a colon, and a description."""
    sources: tuple[SourceRange, ...]
    """The versions that the epoch reads of each source, left before right."""
    base_version: int
    """The version of the result that the epoch is computed against; -1 before the load."""
    writes: Mapping[str, str] = {}
    """How the epoch changes each of its tables (merge, append, append in place or overwrite) and whether it creates
    the table; empty if it changes none."""
    after: tuple[str, ...] = ()
    """The joins that it reads and that run first. The plan is based on the epochs that they have committed so far."""
    readers: Mapping[str, str] = {}
    """What reads the log of each source: delta-rs, or spark with the reason; empty if no source is read."""
    estimates: Mapping[str, float] = {}
    """For a join of tables: the estimated seconds of each way to compute the epoch, by strategy; empty if its
    commits do not say how much they changed."""
    details: tuple[str, ...] = ()
    """Further lines for the reader."""

    @staticmethod
    def of(
        plan: EpochPlan, after: tuple[str, ...] = (), details: tuple[str, ...] = (), readers: Mapping[str, str] = NONE
    ) -> "PlanReport":
        """Build the report of a plan, with the joins that run first, further lines, and the readers of the logs."""
        return PlanReport(
            join=plan.join,
            epoch=plan.epoch,
            strategy=plan.strategy,
            reason=plan.reason,
            sources=plan.sources,
            base_version=plan.result.base_version if plan.writes else -1,
            writes={} if isinstance(plan.route, Idle | Resume) else dict(map(_written, plan.writes)),
            after=after,
            readers=readers,
            estimates=in_seconds(plan.estimates),
            details=details,
        )

    def text(self) -> str:
        """Render as text."""
        lines = [f"{self.join}: {self.strategy}, epoch {self.epoch} ({self.reason})"]
        lines += [f"  {source.name}: {self._reads(source)}{self._reader(source)}" for source in self.sources]
        if self.writes:
            lines.append(f"  writes {', '.join(f'{name} ({how})' for name, how in self.writes.items())}")
        if self.estimates:
            lines.append(f"  estimated: {estimated(self.estimates)}")
        lines += [f"  {name} runs first; this plan is based on its last committed epoch" for name in self.after]
        return "\n".join([*lines, *(f"  {line}" for line in self.details)])

    def _reader(self, source: SourceRange) -> str:
        """Name the reader of a source if it costs a query."""
        reader = self.readers.get(source.name, "")
        return f"; reader: {reader}" if "spark" in reader else ""

    def _reads(self, source: SourceRange) -> str:
        if self.strategy in ("load", "reconcile", "overwrite"):
            return f"all of version {source.to_version}"
        after, until = source.epochs
        positions = f", positions of its epochs {after + 1} to {until}" if after < until else ""
        if source.has_changes:
            return f"changes of versions {source.read_after + 1} to {source.to_version}{positions}"
        return f"no changes up to version {source.to_version}{positions}"


def _written(write: Write) -> tuple[str, str]:
    return write.target.address.label, f"{write.mode}, created" if write.target.is_new else write.mode
