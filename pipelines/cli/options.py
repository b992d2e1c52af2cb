"""What the commands share: options, the pipeline file, running joins, and printing the report."""

import functools
import json
import logging
import re
import signal
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from threading import Event
from types import FrameType
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import click

from lakehouse.errors.errors import LakejoinError
from lakehouse.values.locations import uri_of
from pipelines.cli.logs import tell

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from pipelines.binding.workspace import Workspace
    from pipelines.language import PipelineFile
    from pipelines.plan.request import Backfill
    from pipelines.report import CasesReport, Command, Part, QueryReport, Report, RunReport

    Answer: TypeAlias = "Iterable[Part] | QueryReport | CasesReport | WithRuns"


class Folder(click.Path):
    """A folder of this machine, as a `Path`; a URI would name a folder in the working folder instead."""

    def __init__(self) -> None:
        super().__init__(path_type=Path, file_okay=False)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Refuse a URI."""
        if uri_of(str(value)) is not None:
            self.fail(f"`{value}` is a URI; name a folder of this machine, and copy it from there", param, ctx)
        return super().convert(value, param, ctx)


FOLDER = Folder()

FILE = click.option(
    "-f",
    "--file",
    "path",
    type=click.Path(path_type=Path, dir_okay=False),
    callback=lambda _context, _option, value: _named(value),
    help="Pipeline file. Default: lakejoin.yml in the current folder or one above it.",
)
VAR = click.option(
    "--var",
    "variables",
    multiple=True,
    metavar="NAME=VALUE",
    callback=lambda _context, _option, value: _variables(value),
    help="Value of ${var.NAME} in the pipeline file. Repeatable.",
)
CONF = click.option(
    "--conf",
    "conf",
    multiple=True,
    metavar="KEY=VALUE",
    callback=lambda _context, _option, value: _settings(value),
    help="Setting of the Spark that the command starts, such as spark.driver.memory=8g. Repeatable.",
)
KEY = click.option(
    "--key",
    multiple=True,
    metavar="COLUMN=VALUE",
    callback=lambda _context, _option, value: dict(_pairs(value, "--key")),
    help="Only the row with this value in a column of the key. Repeatable, for a key of several columns.",
)
SELECT = click.option(
    "--select",
    metavar="NAMES",
    callback=lambda _context, _option, value: _names(value),
    help="Joins to work on, separated by commas. Default: all. `+name` also selects the joins that it reads.",
)
THREADS = click.option(
    "--threads",
    type=click.IntRange(1, 64),
    help="Joins to work on at the same time. Default: as the pipeline file says, else one for each core, at most 4.",
)
OUTPUT = click.option(
    "--output", type=click.Choice(["text", "json"]), default="text", show_default=True, help="Format of the report."
)

LENGTHS = {"ms": 0.001, "s": 1.0, "": 1.0, "m": 60.0, "h": 3600.0}
"""Units of time, in seconds."""


@dataclass
class WithRuns:
    """Parts about joins, and the newest runs."""

    parts: "Iterable[Part]"
    runs: "tuple[RunReport, ...]"


class WrongUse(LakejoinError):
    """A command was called with wrong arguments or options."""

    exit_code = 2
    code = "USAGE"


@dataclass
class FileOptions:
    """The pipeline file that a command was given; `pipeline` is its name, empty until the file is loaded."""

    path: Path | None
    variables: dict[str, str]
    conf: dict[str, str] = field(default_factory=dict)
    pipeline: str = ""

    def load(self) -> tuple["PipelineFile", Path]:
        """Read the file, and return it with the folder that its relative paths are relative to."""
        from lakehouse.session.configured import merged
        from pipelines.language import find, load

        path = self.path or find(Path.cwd())
        file = load(path, self.variables)
        self.pipeline = file.pipeline
        file = file.model_copy(update={"spark": merged(file.spark, self.conf)})
        return file, path.resolve().parent

    def open(self, *, goes_on: bool = False) -> "Workspace":
        """Read the file, then start Spark and open a workspace, as `open_without_spark` does."""
        workspace = self.open_without_spark(goes_on=goes_on)
        _ = workspace.spark
        return workspace

    def open_without_spark(self, *, goes_on: bool = False, is_small: bool = False) -> "Workspace":
        """
        Open a workspace of the file; Spark starts if something needs it, to last if the command `goes_on`, to read few
        rows if the tables of the file have few or if the command `is_small`.
        """
        file, folder = self.load()
        from lakehouse.session.session import local_session
        from pipelines.binding.workspace import Workspace
        from pipelines.cli.progress import announce

        def start() -> "SparkSession":
            announce("Starting Spark takes some seconds ...")
            return local_session(
                file.spark, is_command=not goes_on, is_small=is_small or (not goes_on and workspace.is_small)
            )

        workspace = Workspace.on_demand(start, file, folder)
        return workspace


def reporting(command: "Command") -> Callable[[Callable[..., "Answer"]], Callable[..., None]]:
    """
    Add -f, --var, --conf and --output to a command, and print its report: the parts of joins or the answer that it
    returns.

    An error becomes a report too, so that with `--output json` stdout is always one document.
    """

    def decorate(function: Callable[..., "Answer"]) -> Callable[..., None]:
        @FILE
        @VAR
        @CONF
        @OUTPUT
        @functools.wraps(function)
        def invoke(
            path: Path | None, variables: dict[str, str], conf: dict[str, str], output: str, **options: Any
        ) -> None:
            chosen = FileOptions(path, variables, conf)
            try:
                answer = function(chosen, **options)
                report = _report(command, chosen.pipeline, answer)
                shown = _shown(report, output)
            except (click.ClickException, click.exceptions.Exit):
                raise
            except (Exception, KeyboardInterrupt) as error:
                logging.getLogger("pipelines").debug("%s failed", command, exc_info=True)
                report = _report(command, chosen.pipeline, error=_known(error))
                shown = _shown(report, output)
            if shown and output == "text" and report.error is not None:
                tell(shown, logging.ERROR, code=report.error.code, exit_code=report.exit_code)
            elif shown:
                _print(report, shown, output)
            click.get_current_context().exit(report.exit_code)

        return invoke

    return decorate


def add_keys_to(chosen: FileOptions) -> None:
    """Add the missing key columns to the pipeline file, and show the changes on stderr."""
    from pipelines.commands.keys import add_keys
    from pipelines.language import find

    added = add_keys(chosen.path or find(Path.cwd()), chosen.variables)
    if added.diff:
        tell(added.diff)
    for name in added.left:
        tell(f"joins.{name}.sql: not changed, because of how YAML writes it; begin the statement with `sql: |`")


def run_command(
    chosen: FileOptions, select: list[str] | None, threads: int | None, backfill: "Backfill | None" = None
) -> "Answer":
    """Run joins, or backfill them; a run with nothing to do starts no Spark."""
    workspace = chosen.open_without_spark()
    from pipelines.cli.progress import shown
    from pipelines.commands.idle import reports_of_idle
    from pipelines.commands.run import run_joins

    if backfill is None and (idle := reports_of_idle(workspace, select)) is not None:
        return idle
    with shown(workspace.spark) as progress:
        return run_joins(workspace, select, backfill=backfill, threads=threads, progress=progress)


def watch_command(chosen: FileOptions, select: list[str] | None, threads: int | None, every: float) -> "Answer":
    """Run joins repeatedly until a signal or an error, and print a line for each run."""
    workspace, context = chosen.open(goes_on=True), click.get_current_context()
    from pipelines.commands.run import watch_joins

    rounds, code = 0, 0
    with stopped_by_signals() as stop:
        try:
            for reports in watch_joins(workspace, every, select, threads=threads, stop=stop):
                rounds += 1
                click.echo(_line(_report("run", chosen.pipeline, reports), context.params["output"]))
        except LakejoinError as error:
            if not rounds:
                raise
            tell(error.message, logging.ERROR, code=error.code, exit_code=error.exit_code)
            code = error.exit_code
    context.exit(code)


def report_on_each(
    workspace: "Workspace", select: list[str] | None, report: Callable[["Workspace", str], "Part"]
) -> "list[Part]":
    """Report on each join and KTable; an error of one goes into its report, and the others follow."""
    from lakehouse.errors.conditions import as_known
    from pipelines.cli.progress import spinner
    from pipelines.report import JoinReport

    parts: list[Part] = []
    for name in workspace.nodes(select):
        try:
            with spinner(f"reading {name}"):
                parts.append(report(workspace, name))
        except Exception as error:  # whatever it is, the other joins follow
            parts.append(JoinReport(join=name, outcome="failed", error=as_known(error, name)))
    return parts


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """Yield an event that SIGTERM and SIGINT set while the block runs; a second SIGINT raises KeyboardInterrupt."""
    stop = Event()

    def asked(number: int, _frame: FrameType | None) -> None:
        if stop.is_set() and number == signal.SIGINT:
            raise KeyboardInterrupt
        stop.set()
        tell(f"{signal.Signals(number).name}: stopping after this run")

    before = {number: signal.signal(number, asked) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def seconds(text: str | None) -> float | None:
    """Parse a duration: `30s`, `5m`, `1h`, `500ms`. The default unit is seconds."""
    if text is None:
        return None
    parts = re.fullmatch(r"\s*(\d{1,9}(?:\.\d{1,9})?)\s*(ms|s|m|h|)\s*", text)
    length = float(parts[1]) * LENGTHS[parts[2]] if parts else 0.0
    if not length:
        raise click.BadParameter(f"`{text}` is not a duration, such as `30s`, `5m` or `1h`")
    return length


def misused(error: click.ClickException, argv: Sequence[str]) -> str:
    """Return a usage error as a JSON report; empty if the command has none, or without `--output json`."""
    context = error.ctx if isinstance(error, click.UsageError) else None
    asked = "--output=json" in argv or ("--output", "json") in pairwise(argv)
    if not asked or context is None or not any(option.name == "output" for option in context.command.params):
        return ""
    hint = f"`{context.command_path} --help` lists the options"
    wrong = WrongUse(context.command_path, error.format_message().rstrip("."), hint=hint)
    return _shown(_report(cast("Command", context.info_name), "", error=wrong), "json")


def _known(error: BaseException) -> LakejoinError:
    if isinstance(error, KeyboardInterrupt):
        return LakejoinError("lakejoin", "stopped")
    if isinstance(error, LakejoinError):
        return error
    from lakehouse.errors.conditions import as_known

    return as_known(error, "lakejoin")


def _report(
    command: "Command", pipeline: str, answer: "Answer" = (), *, error: LakejoinError | None = None
) -> "Report":
    from pipelines.report import CasesReport, QueryReport, Report

    if isinstance(answer, CasesReport):
        return Report(command=command, pipeline=pipeline, cases=answer)
    if isinstance(answer, QueryReport):
        return Report(command=command, pipeline=pipeline, query=answer)
    if isinstance(answer, WithRuns):
        return Report(command=command, pipeline=pipeline, joins=tuple(answer.parts), runs=answer.runs)
    return Report(command=command, pipeline=pipeline, joins=tuple(answer), error=error)


def _shown(report: "Report", output: str) -> str:
    if output == "json":
        return json.dumps(report.machine(), indent=2, allow_nan=False)
    return report.text() if report.error is None else report.error.message


def _print(report: "Report", shown: str, output: str) -> None:
    """Print a report on stdout, with colours on a terminal."""
    styled = report.styled() if output == "text" and sys.stdout.isatty() else None
    if styled is None:
        click.echo(shown)
    else:
        from rich.console import Console

        Console(highlight=False).print(styled, soft_wrap=True)


def _line(report: "Report", output: str) -> str:
    """Format the report of one run of a watch as a line: as text with the current time, or as JSON."""
    if output == "json":
        return json.dumps(report.machine(), allow_nan=False)
    return f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC  {report.line()}"


def _names(select: str | None) -> list[str] | None:
    return None if select is None else [name.strip() for name in select.split(",") if name.strip()]


def _named(path: Path | None) -> Path | None:
    if path == Path():
        raise click.BadParameter("the file name is empty")
    return path


def _variables(texts: tuple[str, ...]) -> dict[str, str]:
    variables: dict[str, str] = {}
    for name, value in _pairs(texts, "--var"):
        if not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name):
            hint = "a name consists of letters, digits and `_`, and does not begin with a digit"
            raise click.BadParameter(f"`{name}={value}` is not NAME=VALUE; {hint}", param_hint="'--var'")
        variables[name] = value
    return variables


def _settings(texts: tuple[str, ...]) -> dict[str, str]:
    from pipelines.language.file.options import unfit_setting

    settings: dict[str, str] = {}
    for name, value in _pairs(texts, "--conf"):
        if misfit := unfit_setting(name):
            raise click.BadParameter(f"{misfit.problem}; {misfit.hint}", param_hint="'--conf'")
        settings[name] = value
    return settings


def _pairs(texts: tuple[str, ...], option: str) -> Iterator[tuple[str, str]]:
    names = set[str]()
    for item in texts:
        name, equals, value = item.partition("=")
        if not equals:
            metavar = {"--var": "NAME=VALUE", "--key": "COLUMN=VALUE"}.get(option, "KEY=VALUE")
            raise click.BadParameter(f"`{item}` is not {metavar}", param_hint=f"'{option}'")
        if name in names:
            raise click.BadParameter(f"`{name}` is set twice", param_hint=f"'{option}'")
        names.add(name)
        yield name, value
