"""Hold what is published to the suites of its kind, and to what the file expects of it; write no table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from expectations.catalogue import each, of_whole
from expectations.declared import judge
from expectations.results import ExpectationResult
from lakehouse.conditions import reading
from lakehouse.entries import JoinHistory
from lakehouse.errors import FeedUnavailable, GateFailed, NotLoaded
from lakehouse.tables import commits_since, get
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.commands.published_tables import Part, TableSuite, between, suites, whole
from pipelines.commands.version_ranges import RequestedRange, VersionRange, find_range
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch
from pipelines.report.wording import number_of


class Judged(NamedTuple):
    """
    Rows of a table that were held to a suite.

    Args:
        table: The table's name.
        what: Which of its rows.
        results: What was found, expectation by expectation.
    """

    table: str
    what: str
    results: tuple[ExpectationResult, ...]


class Validation(NamedTuple):
    """
    What came of validating a join.

    Args:
        report: The report, with the error if something was not met.
        suites: The suites of its tables as wholes.
        judged: What was found, where that is told.
    """

    report: JoinReport
    suites: tuple[TableSuite, ...] = ()
    judged: tuple[Judged, ...] = ()


def validate_join(
    workspace: Workspace, name: str, requested: RequestedRange | None = None, *, with_results: bool = False
) -> Validation:
    """
    Validate the tables of a join as their readers see them, or what was published in a range; whoever wrote it.

    Args:
        workspace: Where to work.
        name: The join.
        requested: The range; without it the tables as they are at their newest versions.
        with_results: Whether to tell what was found of expectations that were met, too.

    Returns:
        The report, with a GateFailed if a table does not meet them; `counts` has rows (of the result, in a range its
        changes) and expectations (of all tables).

    Raises:
        GateErrored: An expectation could not be evaluated.
        NotLoaded: The join has no committed epoch.
        BadRange: There is no such range.
        FeedUnavailable: What was published in the range is no longer readable.
        LakejoinError: A table is missing.
    """
    watch, history = Stopwatch(), workspace.ledger.of(name)
    last = history.committed
    if last is None:
        raise NotLoaded(name, "nothing is published: it has not run yet", hint=f"run `lakejoin run --select {name}`")
    with watch.step("validate"), reading(name) if requested is None else _reading_back(name):
        bound = bind_join(workspace, name)
        parts = [*_parts(workspace, bound, history, requested)]
        of_result = next((part for part in parts if part.table == bound.result), None)
        rows = 0 if of_result is None else of_result.rows.count()
        verdicts = [judge(name, part.rows, part.suite, with_results=with_results) for part in parts]
    counts = {"rows": rows, "expectations": sum(len(part.suite) for part in parts)}
    looked_at = "; ".join(part.what for part in parts) or "nothing was published"
    reason = f"{looked_at}; the last epoch is {last.epoch}" if requested is None else f"{requested}: {looked_at}"
    judged = tuple(
        Judged(part.table.label, part.what, found.results) for part, found in zip(parts, verdicts, strict=True)
    )
    findings = [
        f"{part.table.label}: {finding}"
        for part, verdict in zip(parts, verdicts, strict=True)
        for finding in verdict.findings
    ]
    error = _failed(name, reason, findings) if findings else None
    details = _details(workspace, name, counts, requested)
    report = JoinReport(
        join=name,
        outcome="failed" if error else "done",
        epoch=last.epoch,
        strategy="validate",
        reason=reason,
        counts=counts,
        seconds=dict(watch.seconds),
        error=error,
        details=details,
    )
    return Validation(report, tuple(suites(workspace, bound)), judged)


def _parts(
    workspace: Workspace, bound: BoundJoin, history: JoinHistory, requested: RequestedRange | None
) -> Iterator[Part]:
    if requested is None:
        yield from whole(workspace, bound)
    else:
        yield from between(workspace, bound, _stretch(workspace, bound, history, requested))


def _stretch(workspace: Workspace, bound: BoundJoin, history: JoinHistory, requested: RequestedRange) -> VersionRange:
    """Find the range, and see that no commit of it is missing: a feed would pass over it in silence."""
    result = get(workspace.spark, bound.result)
    published = find_range(bound.join.name, requested, history, result)
    if not bound.streams:
        commits_since(workspace.spark, result, published.after)
    return published


@contextmanager
def _reading_back(name: str) -> Iterator[None]:
    """Say of earlier versions that are gone what can still be looked at."""
    try:
        with reading(name):
            yield
    except FeedUnavailable as error:
        hint = "give a later range; without one `lakejoin validate` looks at what is there now"
        raise FeedUnavailable(name, error.problem, expected=error.expected, found=error.found, hint=hint) from error


def _failed(name: str, reason: str, findings: Sequence[str]) -> GateFailed:
    return GateFailed(
        name,
        f"what is published does not meet its expectations: {reason}",
        found="; ".join(findings),
        hint="correct the sources and run; of a result that is wrong itself `lakejoin verify` says more",
    )


def _details(
    workspace: Workspace, name: str, counts: dict[str, int], requested: RequestedRange | None
) -> tuple[str, ...]:
    rows = "rows of the result" if requested is None else "changes of the result"
    details = [f"{rows}: {counts['rows']:,}, expectations: {counts['expectations']}"]
    left_out = 0 if requested is None else len([*each(of_whole(workspace.file.joins[name].expectations))])
    if left_out:
        one = number_of(left_out, "expectation about the whole result was", "expectations about the whole result were")
        details.append(f"{one} left out: a range says nothing about it")
    return tuple(details)
