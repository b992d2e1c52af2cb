"""The command line. No module of it imports Spark before a command needs it."""

import logging
import os
import sys

import click

from lakehouse.errors.errors import LakejoinError
from pipelines.cli import reading  # noqa: F401  (adds its commands)
from pipelines.cli.commands import cli
from pipelines.cli.logs import tell
from pipelines.cli.options import misused

__all__ = ["cli", "job", "main"]


def main(argv: list[str] | None = None) -> int:
    """
    Run a command, and return its exit code.

    0 done, 1 failed, 2 wrong usage or bad pipeline file, 3 gate failed, 4 cannot continue from the recorded versions, 5
    another run is active. The arguments are those of the process if `argv` is None.
    """
    try:
        code = cli.main(argv, prog_name="lakejoin", standalone_mode=False)
    except LakejoinError as error:
        tell(error.message, logging.ERROR, code=error.code, exit_code=error.exit_code)
        return error.exit_code
    except click.ClickException as error:
        if document := misused(error, sys.argv[1:] if argv is None else argv):
            click.echo(document)
        else:
            error.show()
        return error.exit_code
    except click.Abort:
        click.echo("stopped", err=True)
        return 1
    except BrokenPipeError:  # the reader of stdout has closed it
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except Exception as error:
        logging.getLogger("pipelines").debug("unexpected", exc_info=True)
        from lakehouse.errors.conditions import as_known

        known = as_known(error, "lakejoin")
        tell(known.message, logging.ERROR, code=known.code, exit_code=1)
        return 1
    return code if isinstance(code, int) else 0


def job() -> None:
    """Run a command for a scheduler that ignores return values; a failure raises SystemExit with its exit code."""
    if code := main():
        raise SystemExit(code)
