"""Validate joins, and write down what they are held to and what was found: suites as JSON, Data Docs as pages."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from expectations.written import as_json
from lakehouse.errors import FilesExist, LakejoinError
from pipelines.binding.workspace import Workspace
from pipelines.commands.docs import write_docs
from pipelines.commands.published_tables import TableSuite
from pipelines.commands.site import PartFacts, TableFacts, quality_pages, write_files
from pipelines.commands.site.quality import FOLDER
from pipelines.commands.validate import Judged, Validation, validate_join
from pipelines.commands.version_ranges import RequestedRange
from pipelines.report import JoinReport

SUITES = "expectations"
"""Where suites go, beside the pipeline file."""


def validate_joins(
    workspace: Workspace,
    select: Collection[str] | None = None,
    requested: RequestedRange | None = None,
    *,
    docs: Path | None = None,
    write_suites: bool = False,
    looking_at: Callable[[str], AbstractContextManager[None]] = lambda _: nullcontext(),
) -> list[JoinReport]:
    """
    Validate joins; the error of one does not keep the others from being looked at.

    Args:
        workspace: Where to work.
        select: The joins; all without it.
        requested: The range of what was published; without it the tables as they are.
        docs: Write the site of `docs` into this folder, with pages about what was found.
        write_suites: Write what each table is held to into `expectations` beside the pipeline file.
        looking_at: Shows that a join is being looked at.

    Returns:
        A report for each join, with its error.

    Raises:
        FilesExist: A file that is not ours is where one of ours belongs.
        LakejoinError: A folder cannot be written to.
    """
    found = []
    for name in workspace.joins(select):
        try:
            with looking_at(name):
                found.append(validate_join(workspace, name, requested, with_results=docs is not None))
        except LakejoinError as error:
            found.append(Validation(JoinReport(join=name, outcome="failed", error=error)))
    if docs is not None:
        tables = [table for one in found for table in _tables(one)]
        write_files(docs, quality_pages(workspace.file.pipeline, tables, datetime.now(UTC)), own_folder=FOLDER)
        write_docs(workspace, docs)
    return [_with(one, workspace.folder / SUITES if write_suites else None, docs) for one in found]


def _with(validation: Validation, suites: Path | None, docs: Path | None) -> JoinReport:
    """Add to a report what was written."""
    report = validation.report
    written = [] if suites is None else [_suite_written(suites, held) for held in validation.suites]
    if docs is not None and validation.judged:
        written += [f"page: {docs / FOLDER / table}.html" for table in _by_table(validation.judged)]
    return report.model_copy(update={"details": (*report.details, *written)})


def _suite_written(folder: Path, held: TableSuite) -> str:
    """Write the suite of a table, unless it is there as it is, and say so."""
    path, text = folder / f"{held.table.label}.json", as_json(held.table.label, held.suite)
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else None
        if before == text:
            return f"suite: {path}, as it was"
        if before is not None and not _is_suite(before, held.table.label):
            hint = "move it away: the suite of this table goes there"
            raise FilesExist("validate", f"{path} is there already, and not a suite of {held.table.label}", hint=hint)
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


def _tables(validation: Validation) -> Iterator[TableFacts]:
    """Tell what was found of the tables of a join, or why none was looked at."""
    report = validation.report
    if report.error is not None and not validation.judged:
        yield TableFacts(report.join, error=report.error.message)
    for name, parts in _by_table(validation.judged).items():
        yield TableFacts(report.join, name, tuple(PartFacts(part.what, part.results) for part in parts))


def _by_table(judged: Iterable[Judged]) -> dict[str, Sequence[Judged]]:
    found: dict[str, list[Judged]] = {}
    for one in judged:
        found.setdefault(one.table, []).append(one)
    return dict(found)
