"""The commands that run joins and report on them; `reading` has those that read what is published, and the demo."""

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli.logs import log_to_stderr
from pipelines.cli.options import (
    FOLDER,
    SELECT,
    THREADS,
    FileOptions,
    WithRuns,
    add_keys_to,
    report_on_each,
    reporting,
    run_command,
    seconds,
    watch_command,
)

if TYPE_CHECKING:
    from pipelines.cli.options import Answer
    from pipelines.plan.request import Decision


class _InOrder(click.Group):
    """Lists the commands in the order of their definition, which is that of their typical use."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.commands]


@click.group(cls=_InOrder, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="lakejoin")
@click.option("-v", "--verbose", is_flag=True, help="Log each write to stderr.")
@click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    default="text",
    show_default=True,
    help="Format of stderr; json writes one object per line.",
)
def cli(verbose: bool, log_format: str) -> None:
    """Keep joins between Delta tables up to date from their change feeds."""
    log_to_stderr(verbose=verbose, as_json=log_format == "json")


@cli.command()
@click.argument("folder", type=FOLDER, default=Path())
def init(folder: Path) -> None:
    """
    Write a first pipeline, ready to run.

    The files go into FOLDER, which is created if needed. Default: the current folder. No file is overwritten.
    """
    from pipelines.commands.init import write_example

    click.echo(write_example(folder))


@cli.command()
@click.option(
    "--add-keys",
    "adds_keys",
    is_flag=True,
    help="First add the key columns that SELECT lists lack to the file, and show the changes.",
)
@reporting("check")
def check(chosen: FileOptions, adds_keys: bool) -> "Answer":
    """Check the pipeline file, without Spark."""
    from pipelines.commands.explain import explain

    if adds_keys:
        add_keys_to(chosen)
    file, _ = chosen.load()
    return [explain(file, name) for name in file.joins]


@cli.command()
@SELECT
@reporting("explain")
def explain(chosen: FileOptions, select: list[str] | None) -> "Answer":
    """Explain what each join is, reads and stores, without Spark."""
    from pipelines.commands.explain import explain
    from pipelines.language import selected

    file, _ = chosen.load()
    return [explain(file, name) for name in selected(file, select)]


@cli.command()
@SELECT
@reporting("plan")
def plan(chosen: FileOptions, select: list[str] | None) -> "Answer":
    """Show what `run` would do and why; write nothing."""
    from pipelines.commands.plan import preview

    return report_on_each(chosen.open(), select, lambda opened, name: preview(opened, name, opened.joins(select)))


@cli.command()
@SELECT
@THREADS
@click.option(
    "--watch",
    "every",
    metavar="TIME",
    callback=lambda _context, _option, chosen: seconds(chosen),
    help="Run repeatedly at this interval (30s, 5m) until SIGTERM or Ctrl+C, and print a line for each run.",
)
@reporting("run")
def run(chosen: FileOptions, select: list[str] | None, threads: int | None, every: float | None) -> "Answer":
    """
    Apply source changes to the results; load missing results.

    All joins are brought to the versions of the sources that the run finds at its start.
    """
    if every is None:
        return run_command(chosen, select, threads)
    return watch_command(chosen, select, threads, every)


@cli.command()
@SELECT
@THREADS
@click.option(
    "--accept", "remedy", flag_value="accept", default="", help="For a join with a stream: accept its result as it is."
)
@click.option("--reset", "remedy", flag_value="reset", help="For a join with a stream: recreate its result.")
@click.option(
    "--where",
    metavar="CONDITION",
    help="Reconcile only rows that meet it, at the source versions of the last epoch; for one join of tables.",
)
@click.option(
    "--slices",
    type=click.IntRange(1, 1_000),
    default=None,
    help="Number of slices of the key space of a result. Default: by its size.",
)
@click.option("--dry-run", is_flag=True, help="Count the rows that would change; write nothing.")
@reporting("backfill")
def backfill(
    chosen: FileOptions,
    select: list[str] | None,
    threads: int | None,
    remedy: "Decision",
    where: str | None,
    slices: int | None,
    dry_run: bool,
) -> "Answer":
    """
    Load results, or reconcile them with their sources.

    The sources are read at their newest versions, and only rows that differ are written. A large result is reconciled
    slice by slice of its key space; a stopped backfill resumes where it stopped. For a join with a stream, the backfill
    replays the recorded epochs and appends the missing rows. If the result holds other rows, or an epoch is no longer
    readable, choose `--accept` or `--reset`.
    """
    from pipelines.plan.request import Backfill

    asked = Backfill(remedy, where, dry_run, slices or 0)
    if not asked.dry_run:
        return run_command(chosen, select, threads, asked)
    workspace = chosen.open()
    from pipelines.cli.progress import spinner
    from pipelines.commands.verify import dry_run_joins

    with spinner("computing what would change"):
        return dry_run_joins(workspace, select, asked.where)


@cli.command()
@SELECT
@reporting("flush")
def flush(chosen: FileOptions, select: list[str] | None) -> "Answer":
    """
    Flush the buffered rows of joins of two streams.

    An epoch of its own removes all buffered rows; an unmatched row of an outer side is added to the result with nulls.
    Watermarks do not change: later rows are processed as before, and do not meet the flushed rows.
    """
    workspace = chosen.open()
    from pipelines.cli.progress import shown
    from pipelines.commands.run import flush_joins

    with shown(workspace.spark) as progress:
        return flush_joins(workspace, select, progress=progress)


@cli.command()
@SELECT
@THREADS
@click.option(
    "--against",
    default="",
    metavar="TABLE",
    help="Table to compare instead of the result: a name, or a path with a slash, relative to the pipeline file.",
)
@click.option("--version", type=click.IntRange(0), metavar="VERSION", help="Compare an earlier version of the result.")
@click.option(
    "--quick",
    is_flag=True,
    help="Compare the checksum of each result with the one in the ledger, without reading a source.",
)
@reporting("verify")
def verify(
    chosen: FileOptions,
    select: list[str] | None,
    threads: int | None,
    against: str,
    version: int | None,
    quick: bool,
) -> "Answer":
    """
    Recompute the joins and compare them with the results.

    The report counts missing and surplus rows, with examples; either makes the exit code 1. With `--quick` nothing is
    recomputed: a result with the recorded checksum holds the rows that lakejoin wrote.
    """
    workspace = chosen.open()
    from pipelines.cli.progress import spinner
    from pipelines.commands.verify import verify_joins

    with spinner("verifying", workspace.spark):
        return verify_joins(workspace, select, against, version=version, quick=quick, threads=threads)


@cli.command()
@SELECT
@THREADS
@click.option(
    "--epochs",
    default="",
    metavar="RANGE",
    help="Validate what these epochs published: 3..7, 3.. (to the newest) or 3.",
)
@click.option("--versions", default="", metavar="RANGE", help="Validate these versions of the result: 10..20.")
@click.option(
    "--write-suites", is_flag=True, help="Write the suite of each table into `expectations` beside the pipeline file."
)
@click.option(
    "--docs",
    type=FOLDER,
    metavar="FOLDER",
    help="Write the site of `lakejoin docs` into this folder, with data quality.",
)
@reporting("validate")
def validate(
    chosen: FileOptions,
    select: list[str] | None,
    threads: int | None,
    epochs: str,
    versions: str,
    write_suites: bool,
    docs: Path | None,
) -> "Answer":
    """
    Validate published tables against their expectations.

    These are the gates, and your expectations about rows and the whole result. Without a range the tables are validated
    at their newest versions. If they do not meet their expectations, the exit code is 3. No table is written.
    """
    from pipelines.commands.published import read_range

    requested = read_range(epochs, versions)
    workspace = chosen.open()
    from pipelines.cli.progress import spinner
    from pipelines.commands.validate import validate_joins

    with spinner("validating"):
        return validate_joins(workspace, select, requested, docs=docs, write_suites=write_suites, threads=threads)


@cli.command()
@SELECT
@reporting("status")
def status(chosen: FileOptions, select: list[str] | None) -> "Answer":
    """
    Show the state of each join.

    The report has how far the result is behind its sources, in commits and time, how long these commits stay readable,
    and the last gate.
    """
    from pipelines.commands.runs import last_run
    from pipelines.commands.status import status_of

    workspace = chosen.open_without_spark()
    return WithRuns(report_on_each(workspace, select, status_of), last_run(workspace))


@cli.command()
@SELECT
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=10, show_default=True, help="Epochs of each join.")
@click.option("--runs", "of_runs", is_flag=True, help="List whole runs instead, with the versions that each published.")
@reporting("history")
def history(chosen: FileOptions, select: list[str] | None, limit: int, of_runs: bool) -> "Answer":
    """List the newest epochs with their counts and seconds."""
    from pipelines.commands.history import history_of
    from pipelines.commands.runs import runs_of

    workspace = chosen.open_without_spark()
    if of_runs:
        return WithRuns((), runs_of(workspace, limit))
    return report_on_each(workspace, select, partial(history_of, limit=limit))


@cli.command()
@SELECT
@reporting("maintain")
def maintain(chosen: FileOptions, select: list[str] | None) -> "Answer":
    """
    Optimize and vacuum tables of lakejoin; delete old stages.

    Small files are compacted and clustered. Files that no readable version needs are deleted, unless a join has yet to
    read the changes of the table. Stages of unfinished attempts are deleted after a day. No row changes.
    """
    workspace = chosen.open()
    from pipelines.cli.progress import spinner
    from pipelines.commands.maintain import maintain_joins

    with spinner("maintaining"):
        return maintain_joins(workspace, select)
