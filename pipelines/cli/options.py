"""What the commands share: their options, the pipeline file that these name, and the printing of a report."""

import functools
import json
import logging
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import click

from lakehouse.errors import LakejoinError
from pipelines.cli.logs import tell
from pipelines.cli.progress import announce

if TYPE_CHECKING:
    from pipelines.binding.workspace import Workspace
    from pipelines.report import Command, Report
    from pipelines.spec import PipelineFile

FILE = click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=lambda _context, _option, value: _named(value),
    help="Pipeline file; without it lakejoin.yml in this folder or one above.",
)
VAR = click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _context, _option, value: _variables(value),
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


LENGTHS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
"""Units of time, in seconds."""


class Unexpected(LakejoinError):
    """An error that lakejoin did not foresee."""

    code = "UNEXPECTED"

    def __init__(self, error: BaseException) -> None:
        lines = str(error).strip().splitlines() or [""]
        super().__init__(
            f"unexpected {type(error).__name__}",
            lines[0],
            hint="`lakejoin -v` before the command prints where it came from",
        )


class WrongUse(LakejoinError):
    """A command was called in a way that it does not know."""

    exit_code = 2
    code = "USAGE"


@dataclass
class FileOptions:
    """
    The pipeline file that a command was given.

    Args:
        path: The file, if it was named.
        variables: The values for its variables.
        pipeline: The pipeline's name, once the file was read.
    """

    path: Path | None
    variables: dict[str, str]
    pipeline: str = ""

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
        file = load(path, self.variables)
        self.pipeline = file.pipeline
        return file, path.resolve().parent

    def open(self) -> "Workspace":
        """Read the file, then start Spark."""
        file, folder = self.load()
        announce("Starting Spark takes some seconds ...")
        from lakehouse.session import local_session
        from pipelines.binding.workspace import Workspace

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
            chosen = FileOptions(path, variables)
            try:
                report = function(chosen, **options)
                shown = _shown(report, output)
            except (click.ClickException, click.exceptions.Exit):
                raise
            except (Exception, KeyboardInterrupt) as error:
                logging.getLogger("pipelines").debug("%s failed", command, exc_info=True)
                report = _failed(command, _known(error), chosen.pipeline)
                shown = _shown(report, output)
            if shown and output == "text" and report.error is not None:
                tell(shown, logging.ERROR, code=report.error.code, exit_code=report.exit_code)
            elif shown:
                click.echo(shown)
            click.get_current_context().exit(report.exit_code)

        return invoke

    return decorate


def seconds(text: str | None) -> float | None:
    """Read a length of time: `30s`, `5m`, `1h`, `500ms`; without a unit seconds."""
    if text is None:
        return None
    parts = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h|)\s*", text)
    length = float(parts[1]) * LENGTHS[parts[2]] if parts else 0.0
    if not length:
        raise click.BadParameter(f"`{text}` is no length of time; `30s`, `5m` and `1h` are")
    return length


def in_one_line(report: "Report", output: str) -> str:
    """Write the report of one run of many as a line: for a person with the time, or as JSON."""
    if output == "json":
        return json.dumps(report.machine(), allow_nan=False)
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC  {report.line()}"


def names(select: str | None) -> list[str] | None:
    """Take the value of --select apart."""
    return None if select is None else [name.strip() for name in select.split(",") if name.strip()]


def misused(error: click.ClickException, argv: Sequence[str]) -> str:
    """
    Put wrong use into a report, where one was asked for as JSON.

    Args:
        error: What click found, before the command ran.
        argv: The arguments.

    Returns:
        The document; empty if the command reports nothing, or as text.
    """
    context = error.ctx if isinstance(error, click.UsageError) else None
    asked = "--output=json" in argv or ("--output", "json") in pairwise(argv)
    if not asked or context is None or not any(option.name == "output" for option in context.command.params):
        return ""
    hint = f"`{context.command_path} --help` lists the options"
    wrong = WrongUse(context.command_path, error.format_message().rstrip("."), hint=hint)
    return _shown(_failed(cast("Command", context.info_name), wrong, ""), "json")


def _known(error: BaseException) -> LakejoinError:
    if isinstance(error, KeyboardInterrupt):
        return LakejoinError("lakejoin", "stopped")
    return error if isinstance(error, LakejoinError) else Unexpected(error)


def _failed(command: "Command", error: LakejoinError, pipeline: str) -> "Report":
    from pipelines.report import Report

    return Report(command=command, pipeline=pipeline, error=error)


def _shown(report: "Report", output: str) -> str:
    if output == "json":
        return json.dumps(report.machine(), indent=2, allow_nan=False)
    return report.text() if report.error is None else report.error.message


def _named(path: Path | None) -> Path | None:
    if path == Path():
        raise click.BadParameter("the name of the file is empty")
    return path


def _variables(texts: tuple[str, ...]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for item in texts:
        name, equals, value = item.partition("=")
        if not equals or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            hint = "a name has letters, digits and `_`, and begins with no digit"
            raise click.BadParameter(f"`{item}` is not NAME=VALUE; {hint}", param_hint="'--var'")
        if name in variables:
            raise click.BadParameter(f"`{name}` is given twice", param_hint="'--var'")
        variables[name] = value
    return variables
