"""The report of `test`: which cases hold, and where the others differ, as text, as JSON and as JUnit XML."""

from collections.abc import Iterator
from typing import Literal
from xml.etree import ElementTree

from rich.text import Text

from pipelines.report.facts import Facts, Failure, table

Verdict = Literal["passed", "failed", "error"]
STYLES = {"passed": "green", "failed": "red", "error": "red"}


class Difference(Facts):
    """One difference between the rows that a case expects and those of the result, or of its feed."""

    what: str
    """The rows that were compared: `result`, or `insert`, `update` or `delete` for those of its feed."""
    row: str
    """The row: its key if a column of it differs, else the columns that are compared."""
    column: str = ""
    """The column that differs; empty if the whole row is missing or surplus."""
    expected: str
    """The expected value; of a whole row `present` or `absent`."""
    found: str
    """The value found; of a whole row `present` or `absent`."""


class CaseReport(Facts):
    """How one case ended."""

    file: str
    """The name of its file."""
    line: int
    """The line of the file where the case begins."""
    name: str
    """Its name."""
    join: str
    """The join that it is about."""
    verdict: Verdict
    """passed, failed (rows differ), or error (the join or the case itself failed)."""
    seconds: float
    """The seconds that it took."""
    differences: tuple[Difference, ...] = ()
    """Where the rows differ."""
    error: Failure | None = None
    """The error that stopped the case."""

    def line_of_text(self) -> Text:
        """Render in one line."""
        line = Text(f"{self.file}::{self.name} ")
        return line.append(self.verdict.upper(), STYLES[self.verdict]).append(f"  {self.seconds:.1f} s", "dim")

    def explanation(self) -> str:
        """Explain why the case did not pass."""
        if self.error is not None:
            return self.error.message
        rows = [(each.what, each.column, each.expected, each.found, each.row) for each in self.differences]
        return "\n".join(table(("rows", "column", "expected", "found", "row"), rows, [False] * 5))


class CasesReport(Facts):
    """How all cases ended."""

    cases: tuple[CaseReport, ...]
    """The cases, in the order of their files."""
    seconds: float
    """The seconds that they took together, without the start of Spark."""

    @property
    def are_met(self) -> bool:
        """Whether all cases passed."""
        return all(case.verdict == "passed" for case in self.cases)

    def styled(self) -> Text:
        """Render as text with colours."""
        return Text("\n").join(self._lines())

    def _lines(self) -> Iterator[Text]:
        yield from (case.line_of_text() for case in self.cases)
        for case in self.cases:
            if case.verdict != "passed":
                yield Text(f"\n{case.name} ({case.file}, line {case.line}), join {case.join}", "bold")
                yield Text(case.explanation())
        numbers = [(each, sum(case.verdict == each for case in self.cases)) for each in STYLES]
        summary = ", ".join(f"{number} {each}" for each, number in reversed(numbers) if number)
        yield Text(f"\n{summary} in {self.seconds:.1f} s", STYLES["passed" if self.are_met else "failed"])

    def junit(self, pipeline: str) -> str:
        """Render as JUnit XML."""
        counts = {
            "tests": str(len(self.cases)),
            "failures": str(sum(case.verdict == "failed" for case in self.cases)),
            "errors": str(sum(case.verdict == "error" for case in self.cases)),
            "time": f"{self.seconds:.3f}",
        }
        root = ElementTree.Element("testsuites", counts)
        suite = ElementTree.SubElement(root, "testsuite", {"name": pipeline, **counts})
        for case in self.cases:
            place = {"classname": f"{case.file}.{case.join}", "file": case.file, "line": str(case.line)}
            one = ElementTree.SubElement(suite, "testcase", {"name": case.name, **place, "time": f"{case.seconds:.3f}"})
            if case.verdict != "passed":
                tag = "failure" if case.verdict == "failed" else "error"
                why = "rows differ" if case.error is None else case.error.problem
                ElementTree.SubElement(one, tag, {"message": why}).text = case.explanation()
        ElementTree.indent(root)
        return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"
