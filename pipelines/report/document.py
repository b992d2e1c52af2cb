"""
The whole output of a command: one value that renders as text and as JSON.

Its schema is published as `conf/report.schema.json`. It is generated from these classes and from the descriptions of
their fields.
"""

import json
from typing import Any, Literal

from pydantic import computed_field
from rich.text import Text

from lakehouse.errors.errors import CannotContinue
from pipelines.report.cases import CasesReport
from pipelines.report.changes import ChangesReport
from pipelines.report.facts import Facts, Failure, cell, number_of, table
from pipelines.report.join_report import JoinReport, PlanReport
from pipelines.report.run_report import RunReport, runs_as_text
from pipelines.report.state import NEEDS_A_PERSON, JoinExplanation, JoinHistoryReport, JoinStatus

Command = Literal[
    "check",
    "explain",
    "plan",
    "run",
    "backfill",
    "flush",
    "verify",
    "validate",
    "status",
    "history",
    "maintain",
    "changes",
    "test",
    "sql",
]
Part = JoinReport | PlanReport | JoinExplanation | JoinStatus | JoinHistoryReport | ChangesReport
NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


class ColumnReport(Facts):
    """One column of an answer."""

    name: str
    """The name of the column in the query."""
    type: str
    """Its type in Spark SQL."""

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers."""
        return self.type.split("(")[0] in NUMBERS


class QueryReport(Facts):
    """The first rows of the answer to a query."""

    columns: tuple[ColumnReport, ...]
    """The columns."""
    rows: tuple[tuple[Any, ...], ...]
    """The rows. Numbers, strings, lists and mappings keep their form, a variant is the JSON that it holds, a binary
    value is a string of hexadecimal digits. Any other value is Spark's conversion to a string."""
    more: bool
    """Whether the answer has further rows."""
    run_id: str = ""
    """The run whose tables were read; empty if the newest versions were."""

    def text(self) -> str:
        """Render as text."""
        header = [column.name for column in self.columns]
        right = [column.is_number for column in self.columns]
        rows = [[cell(value) for value in row] for row in self.rows]
        return "\n".join([*table(header, rows, right), self._count()])

    def _count(self) -> str:
        rows = number_of(len(self.rows), "row", "rows")
        rows = f"first {rows}; --limit N for more" if self.more else rows
        return f"{rows}; of run {self.run_id}" if self.run_id else rows


class Report(Facts):
    """The whole output of a command."""

    command: Command
    """The command."""
    pipeline: str = ""
    """The pipeline's name; empty if the pipeline file could not be read."""
    joins: tuple[Part, ...] = ()
    """One part for each join: the kind of part that the command reports, or the join's error. The parts are in the
    order of the file, except that a join comes after the joins that it reads."""
    query: QueryReport | None = None
    """The answer to the query of `sql`."""
    cases: CasesReport | None = None
    """How the cases of `test` ended; else null."""
    runs: tuple[RunReport, ...] | None = None
    """The newest runs, newest first: those of `history --runs`, and the last one of `status`; else null."""
    error: Failure | None = None
    """The error that stopped the whole command. The error of a single join is in that join's part."""

    @computed_field  # type: ignore[prop-decorator]
    @property
    def exit_code(self) -> int:
        """The exit code of the command's error, else of the first join that failed or needs a person, else 1 if a case
        did not pass, else 0."""
        parts = (part.error for part in self.joins if isinstance(part, JoinReport))
        failed = next((error.exit_code for error in (self.error, *parts) if error is not None), 0)
        waits = any(isinstance(part, JoinStatus) and part.state in NEEDS_A_PERSON for part in self.joins)
        is_wrong = self.cases is not None and not self.cases.are_met
        return failed or (CannotContinue.exit_code if waits else int(is_wrong))

    def text(self) -> str:
        """Render as text."""
        if self.command == "check" and self.error is None:
            return f"{self.pipeline}: no faults; joins: {', '.join(part.join for part in self.joins)}"
        if self.command == "history" and self.runs is not None:
            return "\n".join(runs_as_text(self.runs))
        if self.cases is not None:
            return self.cases.styled().plain
        parts = [part.text() for part in self.joins]
        parts += [run.line() for run in self.runs or ()]
        if not parts and self.query is None:
            return f"{self.pipeline}: nothing to {self.command}"
        return "\n".join([*parts, *([self.query.text()] if self.query else [])])

    def styled(self) -> Text | None:
        """Render as text with colours; None for reports without."""
        if self.cases is not None:
            return self.cases.styled()
        parts = [part.styled() for part in self.joins if isinstance(part, ChangesReport)]
        return Text("\n").join(parts) if parts else None

    def line(self) -> str:
        """Render the report of a run in one line."""
        parts = [part.line() for part in self.joins if isinstance(part, JoinReport)]
        return f"{self.pipeline}: {' | '.join(parts)}"

    def machine(self) -> dict[str, Any]:
        """Render as values for JSON."""
        return self.model_dump(mode="json")


def report_schema() -> str:
    """Return the JSON schema of a report, with a final line break."""
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Report.model_json_schema(mode="serialization"),
        "title": "lakejoin report",
    }
    return json.dumps(content, indent=2) + "\n"
