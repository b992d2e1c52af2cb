"""The command line. Nothing of Spark is imported before a command needs it."""

import json
import logging
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import click

from lakehouse.errors import LakejoinError, PipelineFileError

if TYPE_CHECKING:
    from pipelines.spec import PipelineFile
    from pipelines.workspace import Workspace

FILE = click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Pipeline file; without it lakejoin.yml in this folder or one above.",
)
SELECT = click.option("--select", help="Joins to work on, separated by commas; all of the file without it.")
OUTPUT = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of the report."
)


class Reported(Protocol):
    """A report that a person and a machine can read."""

    def text(self) -> str:
        """Render for a person."""

    def json(self) -> dict[str, Any]:
        """Render for a machine."""


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="lakejoin")
@click.option("-v", "--verbose", is_flag=True, help="Log each write to stderr.")
def cli(verbose: bool) -> None:
    """Keep joins between Delta tables up to date from their change feeds."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    for package in ("lakehouse", "pipelines", "expectations"):
        logger = logging.getLogger(package)
        logger.setLevel(logging.DEBUG if verbose else logging.WARNING)
        logger.handlers = [handler]
        logger.propagate = False


@cli.command()
@FILE
@OUTPUT
def check(path: Path | None, output: str) -> None:
    """Check the pipeline file alone; starts no Spark."""
    file, _ = _load(path)
    joins = ", ".join(file.joins)
    _print(
        output, {"pipeline": file.pipeline, "joins": list(file.joins)}, f"{file.pipeline}: no faults; joins: {joins}"
    )


@cli.command()
@FILE
@SELECT
@OUTPUT
def plan(path: Path | None, select: str | None, output: str) -> None:
    """Say what `run` would do and why; writes nothing."""
    from pipelines.prepare import prepare
    from pipelines.report import PlanReport

    def report(workspace: "Workspace", name: str) -> Reported:
        return PlanReport(prepare(workspace, name).plan)

    _for_each(path, select, output, report)


@cli.command()
@FILE
@SELECT
@OUTPUT
def run(path: Path | None, select: str | None, output: str) -> None:
    """Bring the results up to date; the first time, load them."""
    _run(path, select, output, backfill=False)


@cli.command()
@FILE
@SELECT
@OUTPUT
def backfill(path: Path | None, select: str | None, output: str) -> None:
    """Load results or reconcile them with the sources as they are now; writes only rows that differ."""
    _run(path, select, output, backfill=True)


@cli.command()
@FILE
@SELECT
@click.option("--against", default="", help="Compare this table (name, or path with a slash) instead of the result.")
@OUTPUT
def verify(path: Path | None, select: str | None, against: str, output: str) -> None:
    """Recompute the joins and compare, both ways; exit 1 if rows differ."""
    from pipelines.verify import verify_join

    _for_each(path, select, output, lambda workspace, name: verify_join(workspace, name, against))


@cli.command()
@FILE
@SELECT
@OUTPUT
def status(path: Path | None, select: str | None, output: str) -> None:
    """Say where each join stands and how far its sources have moved on."""
    from pipelines.status import status_of

    _for_each(path, select, output, status_of)


@cli.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("lakejoin-demo"),
    show_default=True,
    help="Where the demo's lake goes; one from an earlier demo is replaced.",
)
def demo(folder: Path) -> None:
    """Watch lakejoin keep a join of real flights up to date."""
    from lakehouse.session import local_session
    from pipelines.demo import run_demo

    run_demo(local_session, folder, click.echo)


def main(argv: list[str] | None = None) -> int:
    """
    Run a command.

    Args:
        argv: The arguments; those of the process if None.

    Returns:
        The exit code: 0 done, 1 failed, 2 usage or bad pipeline file, 3 gate failed, 4 cannot go on from the recorded
        versions, 5 another run is active.
    """
    try:
        code = cli.main(argv, standalone_mode=False)
    except LakejoinError as error:
        click.echo(error.message, err=True)
        return error.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        click.echo("stopped", err=True)
        return 1
    except Exception as error:
        logging.getLogger("pipelines").debug("unexpected", exc_info=True)
        lines = str(error).strip().splitlines() or [""]
        click.echo(f"unexpected {type(error).__name__}: {lines[0]}", err=True)
        click.echo("  next: `lakejoin -v` before the command prints where it came from", err=True)
        return 1
    return code if isinstance(code, int) else 0


def _load(path: Path | None) -> tuple["PipelineFile", Path]:
    from pipelines.spec import find, load

    path = path or find(Path.cwd())
    return load(path), path.resolve().parent


def _open(path: Path | None) -> "Workspace":
    file, folder = _load(path)
    from lakehouse.session import local_session
    from pipelines.workspace import Workspace

    return Workspace.open(local_session(), file, folder)


def _names(select: str | None) -> list[str] | None:
    return None if select is None else [name.strip() for name in select.split(",") if name.strip()]


def _run(path: Path | None, select: str | None, output: str, *, backfill: bool) -> None:
    workspace = _open(path)
    from pipelines.run import run_joins

    def progress(line: str) -> None:
        click.echo(line, err=True)

    _finish(output, run_joins(workspace, _names(select), backfill=backfill, progress=progress))


def _for_each(
    path: Path | None, select: str | None, output: str, report: Callable[["Workspace", str], Reported]
) -> None:
    """Report on each join; the error of one does not keep the others from being looked at."""
    workspace = _open(path)
    from pipelines.report import JoinReport

    reports: list[Reported] = []
    for name in workspace.joins(_names(select)):
        try:
            reports.append(report(workspace, name))
        except PipelineFileError:
            raise
        except LakejoinError as error:
            reports.append(JoinReport(name, "failed", error=error))
    _finish(output, reports)


def _finish(output: str, reports: Sequence[Reported]) -> None:
    from pipelines.report import JoinReport

    _print(output, {"joins": [report.json() for report in reports]}, "\n".join(report.text() for report in reports))
    errors = [report.error for report in reports if isinstance(report, JoinReport) and report.error is not None]
    if errors:
        click.get_current_context().exit(errors[0].exit_code)


def _print(output: str, machine: dict[str, Any], person: str) -> None:
    click.echo(json.dumps(machine, indent=2, default=str) if output == "json" else person)


if __name__ == "__main__":
    sys.exit(main())
