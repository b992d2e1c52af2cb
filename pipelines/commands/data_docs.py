"""Validate joins, and write their suites as JSON and the results as pages (Data Docs)."""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from datetime import UTC, datetime
from pathlib import Path

from expectations.declared import as_json
from lakehouse.errors.conditions import as_known
from lakehouse.errors.errors import FilesExist, LakejoinError
from pipelines.binding.workspace import Workspace
from pipelines.commands.docs import write_docs
from pipelines.commands.published_tables import TableSuite
from pipelines.commands.site import PartFacts, TableFacts, quality_pages, write_files
from pipelines.commands.site.quality import FOLDER
from pipelines.commands.validate import Judged, Validation, validate_join
from pipelines.commands.version_ranges import RequestedRange
from pipelines.report import JoinReport

SUITES = "expectations"
"""The folder of the suites, beside the pipeline file."""


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
    Validate joins, or what they published in a range; an error of one goes into its report, and the others follow.

    Args:
        docs: If given, write the site of `docs` into this folder, with pages about data quality.
        write_suites: Whether to write the suite of each table into `expectations` beside the pipeline file.
        looking_at: Returns a context manager that shows which join is being validated.

    Raises:
        FilesExist: A file that lakejoin did not write has the path of one that it would write.
        LakejoinError: A folder is not writable.
    """
    found = []
    for name in workspace.joins(select):
        try:
            with looking_at(name):
                found.append(validate_join(workspace, name, requested, with_results=docs is not None))
        except Exception as error:  # whatever it is, the other joins are validated
            found.append(Validation(JoinReport(join=name, outcome="failed", error=as_known(error, name))))
    if docs is not None:
        tables = [table for one in found for table in _tables(one)]
        write_files(docs, quality_pages(workspace.file.pipeline, tables, datetime.now(UTC)), own_folder=FOLDER)
        write_docs(workspace, docs)
    return [_with_written(one, workspace.folder / SUITES if write_suites else None, docs) for one in found]


def _with_written(validation: Validation, suites: Path | None, docs: Path | None) -> JoinReport:
    report = validation.report
    written = [] if suites is None else [_write_suite(suites, published) for published in validation.suites]
    if docs is not None and validation.judged:
        written += [f"page: {docs / FOLDER / table}.html" for table in _by_table(validation.judged)]
    return report.model_copy(update={"details": (*report.details, *written)})


def _write_suite(folder: Path, published: TableSuite) -> str:
    """Write the suite of a table, unless the file is unchanged, and return a line for the report."""
    path, text = folder / f"{published.table.label}.json", as_json(published.table.label, published.suite)
    try:
        before = path.read_text(encoding="utf-8") if path.exists() else None
        if before == text:
            return f"suite: {path}, unchanged"
        if before is not None and not _is_suite(before, published.table.label):
            hint = "move it away: lakejoin writes the suite of this table to this path"
            raise FilesExist(
                "validate", f"{path} exists already and is not a suite of {published.table.label}", hint=hint
            )
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
    """Convert the validation of a join into facts for the pages: one for each table, or the error."""
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
