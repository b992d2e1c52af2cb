"""Joins one after the other: what a join that fails holds up, without Spark."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

from lakehouse.errors.errors import GateFailed, LakejoinError, NotLoaded
from pipelines.commands.run import run_in_order
from pipelines.report import JoinReport
from pipelines.report.progress import Progress
from tests.cases import cases
from tests.lake import JOIN, Lake


class Heard(Progress):
    def __init__(self) -> None:
        self.ended: list[tuple[str, str]] = []

    def finished(self, join: str, outcome: str) -> None:
        self.ended.append((join, outcome))


NAMES = ("result", "reader", "readers_reader", "alone")


def ran(tmp_path: Path, error: LakejoinError) -> list[JoinReport]:
    """Run four joins of which the first fails; give the reports."""
    further = {
        "reader": "SELECT r.k, p.w FROM result r JOIN right p ON r.k = p.k",
        "readers_reader": "SELECT r.k, p.w FROM reader r JOIN right p ON r.k = p.k",
        "alone": "SELECT r.k, l.v FROM right r JOIN left l ON r.k = l.k",
    }
    nowhere: Any = None
    workspace: Any = SimpleNamespace(file=Lake(nowhere, tmp_path).pipeline(JOIN, further=further).file)
    heard = Heard()

    def run(name: str) -> JoinReport:
        if name == "result":
            raise error
        return JoinReport(join=name, outcome="done")

    reports = run_in_order(workspace, NAMES, run, heard)
    assert heard.ended == [(report.join, report.outcome) for report in reports]
    assert reports[0].error is error
    return reports


@cases(
    "error, reason",
    (NotLoaded("left", "there is no table"), "upstream-failed: result failed: left: there is no table"),
    (GateFailed("result", "two rows"), "upstream-rejected: result did not pass its gate"),
)
def test_what_fails_holds_up_those_that_read_it_and_no_others(tmp_path, error, reason):
    reports = ran(tmp_path, error)
    assert [report.outcome for report in reports] == ["failed", "skipped", "skipped", "done"]
    assert reports[1].reason == reason
    assert reports[2].reason == f"upstream-skipped: reader was skipped ({reason})"
