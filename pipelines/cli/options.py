"""What the commands share: their options, the pipeline file that these name, and the printing of a report."""

import functools
import json
import logging
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lakehouse.errors import LakejoinError
from pipelines.cli.progress import announce

if TYPE_CHECKING:
    from pipelines.report import Command, Report
    from pipelines.spec import PipelineFile
    from pipelines.workspace import Workspace

FILE = click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    help="Pipeline file; without it lakejoin.yml in this folder or one above.",
)
VAR = click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _context, _option, given: _variables(given),
    help="Value of ${var.NAME} in the pipeline file; may be given several times.",
)
SELECT = click.option(
    "--select",
    metavar="NAMES",
    help="Joins to work on, separated by commas, without it all; `+name` also takes the joins that it reads.",
)
OUTPUT = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Form of the report."
)


class Unexpected(LakejoinError):
    """An error that lakejoin did not foresee."""

    code = "UNEXPECTED"

    def __init__(self, error: Exception) -> None:
        lines = str(error).strip().splitlines() or [""]
        super().__init__(
            f"unexpected {type(error).__name__}",
            lines[0],
            hint="`lakejoin -v` before the command prints where it came from",
        )


@dataclass(frozen=True)
class Given:
    """The pipeline file that a command was given, and the values for its variables."""

    path: Path | None
    variables: dict[str, str]

    def load(self) -> tuple["PipelineFile", Path]:
        """
        Read the file.

        Returns:
            It, and the folder that its relative paths are relative to.

        Raises:
            PipelineFileError: With all its faults.
        """
        from pipelines.spec import find, load

        path = self.path or find(Path.cwd())
        return load(path, self.variables), path.resolve().parent

    def open(self) -> "Workspace":
        """Read the file, then start Spark."""
        file, folder = self.load()
        announce("Starting Spark takes some seconds ...")
        from lakehouse.session import local_session
        from pipelines.workspace import Workspace

        return Workspace.open(local_session(), file, folder)


def reporting(command: "Command") -> Callable[[Callable[..., "Report"]], Callable[..., None]]:
    """
    Give a command -f, --var and --output, and print the report that it returns.

    An error becomes a report too, so that with `--output json` stdout is one document whatever happens.
    """

    def decorate(function: Callable[..., "Report"]) -> Callable[..., None]:
        @FILE
        @VAR
        @OUTPUT
        @functools.wraps(function)
        def invoke(path: Path | None, variables: dict[str, str], output: str, **options: Any) -> None:
            try:
                report = function(Given(path, variables), **options)
            except click.ClickException:
                raise
            except Exception as error:
                logging.getLogger("pipelines").debug("%s failed", command, exc_info=True)
                report = _failed(command, error if isinstance(error, LakejoinError) else Unexpected(error))
            _print(report, output)
            click.get_current_context().exit(report.exit_code)

        return invoke

    return decorate


def names(select: str | None) -> list[str] | None:
    """Take the value of --select apart."""
    return None if select is None else [name.strip() for name in select.split(",") if name.strip()]


def _failed(command: "Command", error: LakejoinError) -> "Report":
    from pipelines.report import Report

    return Report(command=command, error=error)


def _print(report: "Report", output: str) -> None:
    if output == "json":
        click.echo(json.dumps(report.machine(), indent=2, ensure_ascii=False))
        return
    if report.error is not None:
        click.echo(report.error.message, err=True)
    elif text := report.text():
        click.echo(text)


def _variables(given: tuple[str, ...]) -> dict[str, str]:
    variables = {}
    for item in given:
        name, equals, value = item.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"`{item}` is not NAME=VALUE", param_hint="'--var'")
        variables[name] = value
    return variables
