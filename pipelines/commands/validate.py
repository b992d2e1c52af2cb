"""Validate published tables against their suites; write these as JSON and the results as pages, but no table."""

import json
from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple

from expectations.catalogue import Declared, each, of_whole
from expectations.validation import as_json, judge
from lakehouse.errors.conditions import as_known, reading
from lakehouse.errors.errors import FilesExist, GateFailed, LakejoinError, NotLoaded
from lakehouse.ledger.entries import JoinHistory
from lakehouse.tables.table import commits_since, get
from lakehouse.values.sqltext import Address
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.commands.docs import write_docs
from pipelines.commands.published import (
    RequestedRange,
    RowsWithSuite,
    find_range,
    published_between,
    reading_range,
    suites,
    whole_tables,
)
from pipelines.commands.side_by_side import number_of_threads, own_workspace, side_by_side
from pipelines.commands.site import PartFacts, TableFacts, quality_pages, write_files
from pipelines.commands.site.pages import QUALITY
from pipelines.epochs.kind import Kind
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.targets import check_tables
from pipelines.report import JoinReport
from pipelines.report.facts import number_of
from pipelines.report.progress import Stopwatch

AT_NEWEST = "choose a later range, or run `lakejoin validate` without a range to validate the newest versions"
SUITES = "expectations"
"""The folder of the suites, beside the pipeline file."""


class Validation(NamedTuple):
    """The report of a join, the suites of its whole tables, and the results by table, in parts."""

    report: JoinReport
    suites: tuple[tuple[Address, Declared], ...] = ()
    parts: Mapping[str, Sequence[PartFacts]] = {}


def validate_joins(
    workspace: Workspace,
    select: Collection[str] | None = None,
    requested: RequestedRange | None = None,
    *,
    docs: Path | None = None,
    write_suites: bool = False,
    threads: int | None = None,
) -> list[JoinReport]:
    """
    Validate joins, or what they published in a range, in `threads`; None for the number by the pipeline file.

    An error of one join goes into its report, and the others follow.

    Args:
        docs: If given, write the site of `docs` into this folder, with pages about data quality.
        write_suites: Whether to write the suite of each table into `expectations` beside the pipeline file.

    Raises:
        FilesExist: A file that lakejoin did not write has the path of one that it would write.
    """
    names = workspace.joins(select)
    number = number_of_threads(workspace, threads, names)

    def validate(name: str) -> Validation:
        try:
            with own_workspace(workspace, number) as own:
                return _validate(own, name, requested, with_results=docs is not None)
        except Exception as error:  # whatever it is, the other joins are validated
            return Validation(JoinReport(join=name, outcome="failed", error=as_known(error, name)))

    validations = side_by_side(names, number, validate, interrupt=workspace.engine.interrupt_others)
    if docs is not None:
        tables = [table for validation in validations for table in _tables(validation)]
        write_files(docs, quality_pages(workspace.file.pipeline, tables, datetime.now(UTC)), own_folder=QUALITY)
        write_docs(workspace, docs)
    folder = workspace.folder / SUITES if write_suites else None
    return [_with_written(validation, folder, docs) for validation in validations]


def _validate(workspace: Workspace, name: str, requested: RequestedRange | None, *, with_results: bool) -> Validation:
    """
    Validate the tables of a join at their newest versions, or what was published in a range.

    The report has a GateFailed if a table does not meet its expectations; `counts` has rows (of the result, or of its
    changes for a range) and expectations (of all tables). `with_results` adds the results of expectations that are met.
    """
    watch, history = Stopwatch(), workspace.ledger.of(name)
    last = history.committed
    if last is None:
        hint = f"run `lakejoin run --select {name}`"
        raise NotLoaded(name, "the result does not exist yet: the join has not run", hint=hint)
    with watch.step("validate"), reading(name) if requested is None else reading_range(name, AT_NEWEST):
        bound, kind = bind_join(workspace, name), kind_of(workspace, name)
        parts = [*_parts(kind, bound, history, requested)]
        of_result = next((part for part in parts if part.table == bound.result), None)
        rows = 0 if of_result is None else of_result.rows.count()
        verdicts = [(part, judge(name, part.rows, part.suite, with_results=with_results)) for part in parts]
    validated = "; ".join(part.what for part in parts) or "nothing was published"
    reason = f"{validated}; the last epoch is {last.epoch}" if requested is None else f"{requested}: {validated}"
    results: dict[str, list[PartFacts]] = {}
    for part, verdict in verdicts:
        results.setdefault(part.table.label, []).append(PartFacts(part.what, verdict.results))
    findings = [f"{part.table.label}: {finding}" for part, verdict in verdicts for finding in verdict.findings]
    error = None
    if findings:
        problem = f"the published rows do not meet their expectations: {reason}"
        hint = "correct the sources and run again; `lakejoin verify` finds out whether the result itself is wrong"
        error = GateFailed(name, problem, found="; ".join(findings), hint=hint)
    elif requested is None:
        check_tables(workspace, name, history)
    counts = {"rows": rows, "expectations": sum(len(part.suite) for part in parts)}
    report = JoinReport(
        join=name,
        outcome="failed" if error else "done",
        epoch=last.epoch,
        strategy="validate",
        reason=reason,
        counts=counts,
        seconds=dict(watch.seconds),
        error=error,
        details=_details(workspace, name, counts, requested),
    )
    return Validation(report, tuple(suites(kind, bound)), results)


def _parts(
    kind: Kind[Any], bound: BoundJoin, history: JoinHistory, requested: RequestedRange | None
) -> Iterator[RowsWithSuite]:
    if requested is None:
        yield from whole_tables(kind, bound)
        return
    result = get(kind.workspace.engine, bound.result)
    published = find_range(bound.join.name, requested, history, result)
    if not kind.only_appends:  # the change feed would silently skip a commit that is missing
        commits_since(kind.workspace.engine, result, published.after)
    yield from published_between(kind, bound, published)


def _details(
    workspace: Workspace, name: str, counts: dict[str, int], requested: RequestedRange | None
) -> tuple[str, ...]:
    rows = "rows of the result" if requested is None else "changes of the result"
    details = [f"{rows}: {counts['rows']:,}, expectations: {counts['expectations']}"]
    left_out = 0 if requested is None else len([*each(of_whole(workspace.file.joins[name].expectations))])
    if left_out:
        were = number_of(left_out, "expectation about the whole result was", "expectations about the whole result were")
        details.append(f"{were} left out: they do not apply to a range")
    return tuple(details)


def _tables(validation: Validation) -> Iterator[TableFacts]:
    """Convert the validation of a join into facts for the pages: one for each table, or the error."""
    report = validation.report
    if report.error is not None and not validation.parts:
        yield TableFacts(report.join, error=report.error.message)
    for name, parts in validation.parts.items():
        yield TableFacts(report.join, name, tuple(parts))


def _with_written(validation: Validation, suites: Path | None, docs: Path | None) -> JoinReport:
    report = validation.report
    written = [] if suites is None else [_write_suite(suites, *suite) for suite in validation.suites]
    if docs is not None:
        written += [f"page: {docs / QUALITY / table}.html" for table in validation.parts]
    return report.model_copy(update={"details": (*report.details, *written)})


def _write_suite(folder: Path, table: Address, suite: Declared) -> str:
    """Write the suite of a table, unless the file is unchanged, and return a line for the report."""
    name = table.label
    path, text = folder / f"{name}.json", as_json(name, suite)
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else None
        if before == text:
            return f"suite: {path}, unchanged"
        if before is not None and not _is_suite(before, name):
            hint = "move it away: lakejoin writes the suite of this table to this path"
            raise FilesExist("validate", f"{path} exists already and is not a suite of {name}", hint=hint)
        folder.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise LakejoinError("validate", f"cannot write {error.filename or path}: {error.strerror or error}") from error
    return f"suite: {path}"


def _is_suite(text: str, name: str) -> bool:
    try:
        content = json.loads(text)
    except ValueError:
        return False
    return isinstance(content, dict) and content.get("name") == name and "expectations" in content
