"""Validate published tables against the suites of their kind and the expectations of the file; write no table."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from expectations.catalogue import each, of_whole
from expectations.declared import judge
from expectations.results import ExpectationResult
from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import FeedUnavailable, GateFailed, NotLoaded
from lakehouse.ledger.entries import JoinHistory
from lakehouse.tables.table import commits_since, get
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.commands.published_tables import RowsWithSuite, TableSuite, published_between, suites, whole_tables
from pipelines.commands.version_ranges import RequestedRange, VersionRange, find_range
from pipelines.epochs.kind import Kind
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.targets import check_tables
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch
from pipelines.report.wording import number_of


class Judged(NamedTuple):
    """Rows of a table, what they are in words, and the result of each expectation about them."""

    table: str
    what: str
    results: tuple[ExpectationResult, ...]


class Validation(NamedTuple):
    """
    The outcome of validating a join.

    Args:
        report: The report, with the error if an expectation is not met.
        suites: The suites of its whole tables.
        judged: The results, one for each part of a table that was validated.
    """

    report: JoinReport
    suites: tuple[TableSuite, ...] = ()
    judged: tuple[Judged, ...] = ()


def validate_join(
    workspace: Workspace, name: str, requested: RequestedRange | None = None, *, with_results: bool = False
) -> Validation:
    """
    Validate the tables of a join at their newest versions, or what was published in a range.

    The report has a GateFailed if a table does not meet its expectations; `counts` has rows (of the result, or of its
    changes for a range) and expectations (of all tables). `with_results` adds the results of expectations that are met.

    Raises:
        GateErrored: An expectation could not be evaluated.
        NotLoaded: The join has no committed epoch.
        ForeignWriter: A table is not as the last epoch left it, so that its rows are nobody's.
        BadRange: The range does not exist.
        FeedUnavailable: What was published in the range is no longer readable.
        LakejoinError: A table is missing.
    """
    watch, history = Stopwatch(), workspace.ledger.of(name)
    last = history.committed
    if last is None:
        raise NotLoaded(
            name, "the result does not exist yet: the join has not run", hint=f"run `lakejoin run --select {name}`"
        )
    with watch.step("validate"), reading(name) if requested is None else _reading_back(name):
        bound = bind_join(workspace, name)
        kind = kind_of(workspace, name)
        parts = [*_parts(kind, bound, history, requested)]
        of_result = next((part for part in parts if part.table == bound.result), None)
        rows = 0 if of_result is None else of_result.rows.count()
        found = [(part, judge(name, part.rows, part.suite, with_results=with_results)) for part in parts]
    counts = {"rows": rows, "expectations": sum(len(part.suite) for part in parts)}
    looked_at = "; ".join(part.what for part in parts) or "nothing was published"
    reason = f"{looked_at}; the last epoch is {last.epoch}" if requested is None else f"{requested}: {looked_at}"
    judged = tuple(Judged(part.table.label, part.what, verdict.results) for part, verdict in found)
    findings = [f"{part.table.label}: {finding}" for part, verdict in found for finding in verdict.findings]
    error = _failed(name, reason, findings) if findings else None
    if error is None and requested is None:
        check_tables(workspace, name, history)
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
    return Validation(report, tuple(suites(kind, bound)), judged)


def _parts(
    kind: Kind[Any], bound: BoundJoin, history: JoinHistory, requested: RequestedRange | None
) -> Iterator[RowsWithSuite]:
    if requested is None:
        yield from whole_tables(kind, bound)
    else:
        yield from published_between(kind, bound, _published_range(kind, bound, history, requested))


def _published_range(
    kind: Kind[Any], bound: BoundJoin, history: JoinHistory, requested: RequestedRange
) -> VersionRange:
    """Resolve the range, and check that no commit of it is missing: the change feed would silently skip it."""
    engine = kind.workspace.engine
    result = get(engine, bound.result)
    published = find_range(bound.join.name, requested, history, result)
    if not kind.only_appends:
        commits_since(engine, result, published.after)
    return published


@contextmanager
def _reading_back(name: str) -> Iterator[None]:
    """Add to errors about versions that are gone a hint about what is still readable."""
    try:
        with reading(name):
            yield
    except FeedUnavailable as error:
        hint = "choose a later range, or run `lakejoin validate` without a range to validate the newest versions"
        raise FeedUnavailable(name, error.problem, expected=error.expected, found=error.found, hint=hint) from error


def _failed(name: str, reason: str, findings: Sequence[str]) -> GateFailed:
    return GateFailed(
        name,
        f"the published rows do not meet their expectations: {reason}",
        found="; ".join(findings),
        hint="correct the sources and run again; `lakejoin verify` finds out whether the result itself is wrong",
    )


def _details(
    workspace: Workspace, name: str, counts: dict[str, int], requested: RequestedRange | None
) -> tuple[str, ...]:
    rows = "rows of the result" if requested is None else "changes of the result"
    details = [f"{rows}: {counts['rows']:,}, expectations: {counts['expectations']}"]
    left_out = 0 if requested is None else len([*each(of_whole(workspace.file.joins[name].expectations))])
    if left_out:
        one = number_of(left_out, "expectation about the whole result was", "expectations about the whole result were")
        details.append(f"{one} left out: they do not apply to a range")
    return tuple(details)
