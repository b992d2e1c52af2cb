"""The report about whole runs."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from lakehouse.ledger.runs import RunStep
from pipelines.report.facts import Facts, moment, table

ID = 8
"""The number of characters by which a text names a run; `--run` takes the beginning of an id."""


class RunReport(Facts):
    """One run: the versions of the sources to which it brought its joins, and the results that it published there."""

    run_id: str
    """The id of the run."""
    step: RunStep
    """begun (it was killed, or still runs), complete (every result is at the cut) or incomplete."""
    at: datetime
    """The time of the step."""
    cut: Mapping[str, int]
    """The version of each source."""
    results: Mapping[str, int | None]
    """The version of the result of each join and of the table of each changelog source; null if not at the cut."""
    seconds: float
    """How long the run took; 0 if it has not ended."""
    reason: str = ""
    """Why it is incomplete: a clause for each join that is not at the cut; else empty."""

    def line(self) -> str:
        """Render as one line."""
        return f"last run: {self.step}, {moment(self.at)}, {self.run_id[:ID]}{_because(self.reason)}"


def _because(reason: str) -> str:
    return f" ({reason})" if reason else ""


def runs_as_text(runs: Sequence[RunReport]) -> list[str]:
    """Render runs as a table, with the reason of an incomplete one below its row."""
    if not runs:
        return ["no runs yet; `lakejoin run` makes the first"]
    cells = [
        (run.run_id[:ID], moment(run.at), run.step, f"{run.seconds:.1f} s", _versions(run.cut), _versions(run.results))
        for run in runs
    ]
    head, rule, *rows = table(
        ("run", "when", "step", "took", "sources", "results"), cells, [False, False, False, True, False, False]
    )
    lines = [head, rule]
    for row, run in zip(rows, runs, strict=True):
        lines += [row, *([f"{'':{ID}}  {run.reason}"] if run.reason else [])]
    return lines


def _versions(of: Mapping[str, int | None]) -> str:
    return ", ".join(f"{name} {'-' if version is None else version}" for name, version in of.items())
