"""The commands that read what joins have published, and those about lakejoin itself."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from pipelines.cli.commands import cli
from pipelines.cli.options import CONF, FILE, FOLDER, KEY, SELECT, VAR, FileOptions, reporting

if TYPE_CHECKING:
    from pipelines.cli.options import Answer


@cli.command()
@click.argument("join")
@click.option("--epochs", default="", metavar="RANGE", help="Epochs: 7..9, 7.. (to the newest) or 7.")
@click.option("--versions", default="", metavar="RANGE", help="Versions of the result instead: 3..5.")
@KEY
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=100, show_default=True, help="Changes to print.")
@reporting("changes")
def changes(chosen: FileOptions, join: str, epochs: str, versions: str, key: dict[str, str], limit: int) -> "Answer":
    """
    Show the rows that epochs of JOIN changed.

    An updated row is shown with both values of each column that differs, and under `changelog: true` a change with
    the sources that caused it. Default: the newest epoch that changed a row.
    """
    from pipelines.cli.progress import spinner
    from pipelines.commands.published import read_range

    requested = read_range(epochs, versions, "changes")
    workspace = chosen.open()
    from pipelines.commands.changes import report_changes

    with spinner("reading"):
        return [report_changes(workspace, join, requested, key, limit)]


@cli.command()
@click.argument("files", type=click.Path(path_type=Path, dir_okay=False), nargs=-1)
@SELECT
@click.option("--junit", type=click.Path(path_type=Path, dir_okay=False), help="Also write the report as JUnit XML.")
@reporting("test")
def test(chosen: FileOptions, files: tuple[Path, ...], select: list[str] | None, junit: Path | None) -> "Answer":
    """
    Run the cases of joins, each on a lake of its own.

    FILES have the cases. Default: `*.test.yml` beside the pipeline file whose names begin with its name. If rows differ
    from those that a case expects, the exit code is 1.
    """
    from pipelines.cli.testing import run_files

    report = run_files(chosen, files, select)
    if junit is not None:
        junit.write_text(report.junit(chosen.pipeline), encoding="utf-8")
    return report


@cli.command()
@FILE
@VAR
@CONF
@click.option("--folder", type=FOLDER, help="Folder for the pages. Default: `docs` beside the pipeline file.")
def docs(path: Path | None, variables: dict[str, str], conf: dict[str, str], folder: Path | None) -> None:
    """
    Write a static site about the joins and their epochs.

    The site needs no server and no network: open the page that is printed. Only the ledger and the logs of
    the results are read.
    """
    workspace = FileOptions(path, variables, conf).open_without_spark()
    from pipelines.cli.progress import spinner
    from pipelines.commands.docs import write_docs

    with spinner("writing the pages"):
        index = write_docs(workspace, folder)
    click.echo(index)


@cli.command()
@click.argument("query")
@click.option("--limit", type=click.IntRange(1, 1_000_000), default=20, show_default=True, help="Rows to print.")
@click.option(
    "--run",
    default="",
    metavar="RUN",
    help="Read the tables as this run left them: the beginning of its id, or `last complete`.",
)
@reporting("sql")
def sql(chosen: FileOptions, query: str, limit: int, run: str) -> "Answer":
    """
    Answer a query over the pipeline's tables.

    QUERY names sources, results and lakejoin_ledger as the pipeline file does; each is read at its newest version, or
    with `--run` all at the versions of one run.
    """
    from pipelines.cli.progress import spinner
    from pipelines.commands.query import answer

    workspace = chosen.open()
    with spinner("reading"):
        return answer(workspace, query, limit, run)


@cli.command()
@click.option("--report", is_flag=True, help="Print the schema of the reports of `--output json` instead.")
def schema(report: bool) -> None:
    """Print the JSON schema of the pipeline file, for editors."""
    from pipelines.language import schema
    from pipelines.report import report_schema

    click.echo(report_schema() if report else schema(), nl=False)


@cli.command()
@click.option(
    "--folder",
    type=FOLDER,
    default="lakejoin-demo",
    show_default=True,
    help="Folder for the tables of the demo; replaced if an earlier demo created it.",
)
@click.option("--tour", is_flag=True, help="Show all kinds of joins with all flights of 2013, in several minutes.")
def demo(folder: Path, tour: bool) -> None:
    """Load a join of real flights, follow three rounds of changes and verify the result."""
    from lakehouse.session.session import local_session
    from pipelines.commands.demo import run_demo, run_tour

    (run_tour if tour else run_demo)(local_session, folder, click.echo)
