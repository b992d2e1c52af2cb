"""The commands that a kind of join has for what a user can do about an error; see `lakehouse.errors.remedies`."""

from collections.abc import Iterator
from contextlib import contextmanager

from lakehouse.errors.errors import LakejoinError
from lakehouse.errors.remedies import OF_TABLES, TAKING_SUCH_ROWS, Commands

RECONCILE_KTABLE = (
    "run `lakejoin backfill`, which reconciles the KTable of this source with the current source, "
    "and the joins that read it"
)

_MEND = f"{TAKING_SUCH_ROWS}, then run `lakejoin backfill --accept{{select}}`, which keeps the rows of the result"

OF_STREAMS: Commands = {
    **OF_TABLES,
    "reconcile": "run `lakejoin backfill --reset{select}` to recreate the result from the sources as they are now",
    "take over": "run `lakejoin backfill{select}` to append missing rows, `--accept` to accept the result as it is, or "
    "`--reset` to recreate it",
    "adopt": "run `lakejoin backfill --reset{select}` to adopt and recreate it",
    "abandon": "run `lakejoin backfill{select}`, which abandons the epoch and appends the rows that the result lacks",
    "mend": _MEND,
    "mend past row": _MEND,
    "redefine": "run `lakejoin backfill --reset{select}` to recreate the result by the new definition, or `--accept` "
    "to keep its rows and to go on by the new definition",
}
"""The commands for a join with a stream: nothing reconciles it with its current sources, but a reset recreates it."""

OF_KTABLES: Commands = {
    **dict.fromkeys(OF_TABLES, RECONCILE_KTABLE),
    "run": "run `lakejoin run`",
    "mend": "correct the row in its source, or let the `tombstone` condition take such rows, by `try_cast` or NULLIF; "
    "then run `lakejoin backfill`",
}
"""The commands for the KTable of a changelog source, which cannot be selected."""


@contextmanager
def naming_commands(join: str, commands: Commands) -> Iterator[None]:
    """Name the commands of a kind of join in the hints of errors."""
    try:
        yield
    except LakejoinError as error:
        error.name_commands(join, commands)
        raise
