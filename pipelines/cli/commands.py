"""The commands."""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lakehouse.errors import LakejoinError
from pipelines.cli.logs import log_to_stderr, tell
from pipelines.cli.options import FILE, SELECT, VAR, FileOptions, in_one_line, names, reporting, seconds
from pipelines.cli.progress import shown, spinner
from pipelines.cli.signals import stopped_by_signals

if TYPE_CHECKING:
    from pipelines.binding.workspace import Workspace
    from pipelines.plan.request import Backfill, Remedy
    from pipelines.report import Command, Part, Report


class InOrder(click.Group):
    """A group that lists its commands in the order in which one comes to need them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Name the commands as they are defined."""
        return list(self.commands)


@click.group(cls=InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lakejoin")
@click.option("-v", "--verbose", is_flag=True, help="Log each write to stderr.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Form of all that goes to stderr; as JSON an object a line.",
)
def cli(verbose: bool, log_format: str) -> None:
    """Keep joins between Delta tables up to date from their change feeds."""
    log_to_stderr(verbose=verbose, as_json=log_format == "json")


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path, file_okay=False), default=Path())
def init(folder: Path) -> None:
    """
    Write a first pipeline, ready to run.

    It goes into FOLDER, made if need be, or into this one; no file is overwritten.
    """
    from pipelines.commands.init import write_example

    click.echo(write_example(folder))


@cli.command()
@reporting("check")
def check(chosen: FileOptions) -> "Report":
    """Check the pipeline file alone, without Spark."""
    from pipelines.commands.explain import explain
    from pipelines.report import Report

    file, _ = chosen.load()
    return Report(command="check", pipeline=file.pipeline, joins=tuple(explain(file, name) for name in file.joins))


@cli.command()
@SELECT
@reporting("explain")
def explain(chosen: FileOptions, select: str | None) -> "Report":
    """Say what kind each join is and why, and what it reads and keeps, without Spark."""
    from pipelines.commands.explain import explain
    from pipelines.report import Report
    from pipelines.spec import selected

    file, _ = chosen.load()
    joins = tuple(explain(file, name) for name in selected(file, names(select)))
    return Report(command="explain", pipeline=file.pipeline, joins=joins)


@cli.command()
@SELECT
@reporting("plan")
def plan(chosen: FileOptions, select: str | None) -> "Report":
    """Say what `run` would do and why; write nothing."""
    from pipelines.commands.plan import preview

    return _each(
        "plan", chosen, select, lambda workspace, name: preview(workspace, name, workspace.joins(names(select)))
    )


@cli.command()
@SELECT
@click.option(
    "--watch",
    "every",
    metavar="TIME",
    callback=lambda _context, _option, chosen: seconds(chosen),
    help="Run again and again, so far apart (30s, 5m), until SIGTERM or Ctrl+C; a line for each run.",
)
@reporting("run")
def run(chosen: FileOptions, select: str | None, every: float | None) -> "Report":
    """Bring the results up to date; the first time, load them."""
    return _run("run", chosen, select) if every is None else _watch(chosen, select, every)


@cli.command()
@SELECT
@click.option(
    "--accept", "remedy", flag_value="accept", default="", help="Of a join with a stream: take its result as it is."
)
@click.option("--reset", "remedy", flag_value="reset", help="Of a join with a stream: begin its result anew.")
@click.option(
    "--where",
    metavar="CONDITION",
    help="Mend only rows that meet it, with the sources as the last epoch read them; for one join of tables.",
)
@click.option(
    "--slices",
    type=click.IntRange(1, 1_000),
    default=None,
    help="Cut the key space of a result into so many; without it by size.",
)
@click.option("--dry-run", is_flag=True, help="Say how many rows would change; write nothing.")
@reporting("backfill")
def backfill(
    chosen: FileOptions, select: str | None, remedy: "Remedy", where: str | None, slices: int | None, dry_run: bool
) -> "Report":
    """
    Load results, or reconcile them with their sources.

    The sources are read as they are now, and only rows that differ are written. A large result is reconciled slice by
    slice of its key space; a backfill that was stopped goes on where it was. The result of a join with a stream gets
    the rows that its recorded epochs lack; where it holds others, or an epoch can no longer be read, you decide by
    `--accept` or `--reset`.
    """
    from pipelines.plan.request import Backfill

    asked = Backfill(remedy, where, dry_run, slices or 0)
    return _rehearse(chosen, select, asked) if asked.dry_run else _run("backfill", chosen, select, asked)


@cli.command()
@SELECT
@reporting("flush")
def flush(chosen: FileOptions, select: str | None) -> "Report":
    """
    Let the rows go that wait in joins of two streams.

    Each leaves once and for all, null-padded where its stream is kept and it has met none, as an epoch of its own.
    Watermarks stay: later rows are taken as ever, and meet none of these.
    """
    workspace = chosen.open()
    from pipelines.commands.flush import flush_joins
    from pipelines.report import Report

    with shown() as progress:
        reports = flush_joins(workspace, names(select), progress=progress)
    return Report(command="flush", pipeline=workspace.file.pipeline, joins=tuple(reports))


@cli.command()
@SELECT
@click.option(
    "--against",
    default="",
    metavar="TABLE",
    help="Compare this table, not the result: a name, or a path with a slash, relative to the pipeline file.",
)
@reporting("verify")
def verify(chosen: FileOptions, select: str | None, against: str) -> "Report":
    """
    Recompute the joins and compare them with the results.

    Rows that are missing and rows too many are counted, with examples; either makes the exit code 1.
    """
    from pipelines.commands.verify import verify_join

    return _each("verify", chosen, select, lambda workspace, name: verify_join(workspace, name, against))


@cli.command()
@SELECT
@click.option(
    "--epochs",
    default="",
    metavar="RANGE",
    help="Look at what these epochs published: 3..7, or 3.. up to the newest, or 3 alone.",
)
@click.option("--versions", default="", metavar="RANGE", help="The same by versions of the result: 10..20.")
@click.option(
    "--write-suites",
    is_flag=True,
    help="Write what each table is held to into `expectations` beside the file.",
)
@click.option(
    "--docs",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="FOLDER",
    help="Write the site of `lakejoin docs` into this folder, with pages about what was found.",
)
@reporting("validate")
def validate(
    chosen: FileOptions, select: str | None, epochs: str, versions: str, write_suites: bool, docs: Path | None
) -> "Report":
    """
    Hold what is published to its gates, and to your expectations about the whole result.

    Without a range the tables are looked at as they are. If they do not meet what is expected the exit code is 3; no
    table is written.
    """
    from pipelines.commands.version_ranges import read_range

    requested = read_range(epochs, versions)
    workspace = chosen.open()
    from pipelines.commands.data_docs import validate_joins
    from pipelines.report import Report

    reports = validate_joins(
        workspace,
        names(select),
        requested,
        docs=docs,
        write_suites=write_suites,
        looking_at=lambda name: spinner(f"looking at {name}"),
    )
    return Report(command="validate", pipeline=workspace.file.pipeline, joins=tuple(reports))


@cli.command()
@SELECT
@reporting("status")
def status(chosen: FileOptions, select: str | None) -> "Report":
    """
    Say where each join stands.

    How far its sources have moved on, in commits and time, how long these can be read, and the last gate.
    """
    from pipelines.commands.status import status_of

    return _each("status", chosen, select, status_of)


@cli.command()
@SELECT
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=10, show_default=True, help="Epochs of each join.")
@reporting("history")
def history(chosen: FileOptions, select: str | None, limit: int) -> "Report":
    """List the newest epochs with their counts and seconds."""
    from pipelines.commands.history import history_of

    return _each("history", chosen, select, lambda workspace, name: history_of(workspace, name, limit))


@cli.command()
@SELECT
@reporting("maintain")
def maintain(chosen: FileOptions, select: str | None) -> "Report":
    """
    Keep the tables of joins, the ledger and the stages in shape.

    Small files become few clustered ones, and files that no readable version needs are deleted, but for those of
    changes that a join has yet to read. Stages of runs that came to nothing are deleted after a day. No row changes.
    """
    workspace = chosen.open()
    from pipelines.commands.maintain import maintain_joins
    from pipelines.report import Report

    with spinner("maintaining"):
        reports = maintain_joins(workspace, names(select))
    return Report(command="maintain", pipeline=workspace.file.pipeline, joins=tuple(reports))


@cli.command()
@FILE
@VAR
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    help="Folder for the pages; without it `docs` beside the pipeline file.",
)
def docs(path: Path | None, variables: dict[str, str], folder: Path | None) -> None:
    """
    Write a static site about the joins and their epochs.

    It needs no server and no network: open the page that is printed. Of the tables only the ledger is read.
    """
    workspace = FileOptions(path, variables).open()
    from pipelines.commands.docs import write_docs

    with spinner("writing the pages"):
        index = write_docs(workspace, folder)
    click.echo(index)


@cli.command()
@click.argument("query")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="Rows to print.")
@reporting("sql")
def sql(chosen: FileOptions, query: str, limit: int) -> "Report":
    """
    Answer a query over the pipeline's tables.

    QUERY names sources, results and lakejoin_ledger as the pipeline file does; each is read at its newest version.
    """
    from pipelines.commands.query import answer
    from pipelines.report import Report

    workspace = chosen.open()
    with spinner("reading"):
        found = answer(workspace, query, limit)
    return Report(command="sql", pipeline=workspace.file.pipeline, query=found)


@cli.command()
@click.option("--report", is_flag=True, help="Print the schema of what `--output json` prints instead.")
def schema(report: bool) -> None:
    """Print the JSON schema of the pipeline file, for editors."""
    from pipelines.report import report_schema
    from pipelines.spec import schema

    click.echo(report_schema() if report else schema(), nl=False)


@cli.command()
@click.option(
    "--folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("lakejoin-demo"),
    show_default=True,
    help="Folder for the tables of the demo; replaced if an earlier demo created it.",
)
@click.option("--tour", is_flag=True, help="Show all kinds of joins with all flights of 2013, in several minutes.")
def demo(folder: Path, tour: bool) -> None:
    """Load a join of real flights, follow three rounds of changes and verify the result."""
    from lakehouse.session import local_session
    from pipelines.commands.demo import run_demo, run_tour

    (run_tour if tour else run_demo)(local_session, folder, click.echo)


def _run(command: "Command", chosen: FileOptions, select: str | None, backfill: "Backfill | None" = None) -> "Report":
    workspace = chosen.open()
    from pipelines.commands.run import run_joins
    from pipelines.report import Report

    with shown() as progress:
        reports = run_joins(workspace, names(select), backfill=backfill, progress=progress)
    return Report(command=command, pipeline=workspace.file.pipeline, joins=tuple(reports))


def _rehearse(chosen: FileOptions, select: str | None, asked: "Backfill") -> "Report":
    workspace = chosen.open()
    from pipelines.commands.dry_run import rehearse_joins
    from pipelines.report import Report

    with spinner("computing what would change"):
        reports = rehearse_joins(workspace, names(select), asked.where)
    return Report(command="backfill", pipeline=workspace.file.pipeline, joins=tuple(reports))


def _watch(chosen: FileOptions, select: str | None, every: float) -> "Report":
    """Run until a signal or an error ends it, and print a line for each run."""
    workspace, context = chosen.open(), click.get_current_context()
    from pipelines.commands.watch import watch_joins
    from pipelines.report import Report

    rounds, code = 0, 0
    with stopped_by_signals() as stop:
        try:
            for reports in watch_joins(workspace, every, names(select), stop=stop):
                rounds += 1
                report = Report(command="run", pipeline=workspace.file.pipeline, joins=tuple(reports))
                click.echo(in_one_line(report, context.params["output"]))
        except LakejoinError as error:
            if not rounds:
                raise
            tell(error.message, logging.ERROR, code=error.code, exit_code=error.exit_code)
            code = error.exit_code
    context.exit(code)


def _each(
    command: "Command", chosen: FileOptions, select: str | None, report: Callable[["Workspace", str], "Part"]
) -> "Report":
    """Report on each join and KTable; the error of one does not keep the others from being looked at."""
    workspace = chosen.open()
    from pipelines.report import JoinReport, Report

    parts: list[Part] = []
    for name in workspace.joins(names(select)) if command == "verify" else workspace.nodes(names(select)):
        try:
            with spinner(f"looking at {name}"):
                parts.append(report(workspace, name))
        except LakejoinError as error:
            parts.append(JoinReport(join=name, outcome="failed", error=error))
    return Report(command=command, pipeline=workspace.file.pipeline, joins=tuple(parts))
