"""
The ledger: one Delta table with a row for each step of an epoch, never updated in place.

    publishing  ->  committed            the usual course of an epoch
    publishing  ->  broken  -> abandoned the commit changed other rows than were staged; the user decided
    publishing  ->  slice, slice, ...  ->  committed     a backfill in slices of the key space
    rejected                             a gate failed; uses up no number
    refused                              a run could not continue without a person; uses up no number
    verified                             the result of the committed epoch has its checksum

The *publishing* row decides which run publishes an epoch. It is appended under its own application id with the epoch as
its version, so only one of two concurrent runs has a row. Progress is read from the ledger only. "Last" means the
highest epoch, never the latest row.

The storage is the parent of the ledger's folder. Paths of targets and stages in the storage are relative to it, so that
a lake can be moved or copied.
"""

from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import takewhile
from typing import Any

from lakehouse import limits
from lakehouse.errors.address import Address
from lakehouse.errors.conditions import is_of_spark
from lakehouse.errors.errors import AnotherRun, LedgerForgot
from lakehouse.errors.refusals import refusal, refuse_forgetting
from lakehouse.errors.remedies import Remedy
from lakehouse.ledger.entries import ABANDONED, CLOSING, COMMITTED, PUBLISHING, SLICE, VERIFIED, Entry, JoinHistory
from lakehouse.ledger.ledger_rows import entry_of, row_of
from lakehouse.ledger.ledger_table import LedgerTable, is_of_delta_rs
from lakehouse.session.engine import Engine

NAME = "lakejoin_ledger"

OF_EPOCHS = f"step NOT IN ('{SLICE}', '{VERIFIED}')"
"""The condition for rows about whole epochs: neither about a slice nor about a verification."""

ENTRIES, SLICES = f"join_name = {{join}} AND {OF_EPOCHS}", f"join_name = {{join}} AND step = '{SLICE}'"
"""The conditions for the rows of a join about whole epochs, and for its rows about single slices."""


class Ledger:
    """The ledger of one storage."""

    def __init__(self, engine: Engine, address: Address) -> None:
        self._table = LedgerTable(engine, address)
        self._address = address
        self._storage = address.path.rpartition("/")[0]

    @cached_property
    def id(self) -> str:
        """
        The table id of the ledger, which every fence contains. The ledger is created if it does not exist.

        Raises:
            CannotContinue: A table property lets Delta forget which epochs were written to the ledger.
        """
        table_id, properties = self._table.get_or_create()
        refuse_forgetting(NAME, self._address, properties)
        return table_id

    def of(self, join: str) -> JoinHistory:
        """Read the history of a join, older rows on demand; it is empty if the ledger does not exist yet."""
        return self._history(join, self._rows(ENTRIES, join, limits.LEDGER_ROWS + 1))

    def of_all(self) -> dict[str, JoinHistory]:
        """Read the histories of all joins together, by the name of the join."""
        found: dict[str, list[Entry]] = {}
        for entry in self._rows(OF_EPOCHS, newest=limits.LEDGER_ROWS + 1, of_each=True):
            found.setdefault(entry.join, []).append(entry)
        return {join: self._history(join, entries) for join, entries in found.items()}

    def last_verified(self, join: str) -> Entry | None:
        """Return the newest row that says that the result of a join had its checksum; None if no row does."""
        rows = self._rows(f"join_name = {{join}} AND step = '{VERIFIED}'", join, 1)
        return rows[0] if rows else None

    def all_verified(self) -> dict[str, Entry]:
        """Return the rows of `last_verified` for all joins, by the name of the join."""
        return {entry.join: entry for entry in self._rows(f"step = '{VERIFIED}'", newest=1, of_each=True)}

    def slices_done(self, entry: Entry) -> set[int]:
        """Return the numbers of the slices that are written, for an epoch in slices."""
        rows = self._rows(f"{SLICES} AND epoch = {entry.epoch}", entry.join)
        return {row.slice for row in rows if row.run_id == entry.run_id and row.slice is not None}

    def _history(self, join: str, newest: list[Entry]) -> JoinHistory:
        """Build a history from the newest rows of a join; read all rows if these contain no committed epoch."""
        if len(newest) <= limits.LEDGER_ROWS:
            return JoinHistory(tuple(newest))
        oldest = newest[0].epoch  # `newest` may lack rows of this epoch
        recent = tuple(entry for entry in newest if entry.epoch > oldest)
        if not any(entry.step == COMMITTED for entry in recent):
            return JoinHistory(tuple(self._rows(ENTRIES, join)))
        return JoinHistory(recent, lambda: tuple(self._rows(f"{ENTRIES} AND epoch <= {oldest}", join)))

    def _rows(self, condition: str, join: str = "", newest: int | None = None, *, of_each: bool = False) -> list[Entry]:
        """Read rows, ordered by epoch and by the time at which they were written."""
        found = self._table.rows(condition, {"join": join}, newest, of_each=of_each)
        return sorted((entry_of(row, self._storage) for row in found), key=lambda entry: (entry.epoch, entry.at))

    def append(self, entry: Entry) -> Entry:
        """
        Append one step and check that it is the step that takes effect.

        Raises:
            AnotherRun: The row of another run takes effect for this epoch.
            LedgerForgot: A row existed but is gone; the next epoch gets a number that was never used.
        """
        entry, is_written = self._write(entry)
        if not is_written and not self._exists(entry):
            self._refuse(entry)
        return entry

    def _write(self, entry: Entry) -> tuple[Entry, bool]:
        """Append a step; return it with its time, and whether its row is known to have been written."""
        entry = replace(entry, at=datetime.now(UTC))
        transaction = None
        if entry.step in (PUBLISHING, *CLOSING):
            application = f"{self.id}/{entry.join}" + ("/closed" if entry.step in CLOSING else "")
            transaction = application, entry.epoch
        what = f"ledger: {entry.step} epoch {entry.epoch} of {entry.join}"
        row: dict[str, Any] = row_of(entry, self._storage)
        try:
            return entry, self._table.append(what, row, transaction, _user_metadata(entry))
        except Exception as error:
            if is_of_spark(error) or is_of_delta_rs(error):
                raise refusal(error, self._address, entry.epoch, entry.join) from error
            raise

    def _exists(self, entry: Entry) -> bool:
        """
        Return whether a step is in the ledger, as an append under a used transaction id is skipped: by the newest
        commits, which are cheap to read, else by the rows.
        """
        # A commit before a RESTORE or DELETE proves nothing: its row may be gone.
        own = takewhile(lambda commit: commit.operation == "WRITE" or not commit.changes_data, self._table.commits())
        if any(commit.metadata == _user_metadata(entry) for commit in own):
            return True
        return any(known.run_id == entry.run_id and known.step == entry.step for known in self._rivals(entry))

    def _rivals(self, entry: Entry) -> list[Entry]:
        steps = CLOSING if entry.step in CLOSING else (entry.step,)
        listed = ", ".join(f"'{step}'" for step in steps)
        return self._rows(f"{ENTRIES} AND epoch = {entry.epoch} AND step IN ({listed})", entry.join)

    def _refuse(self, entry: Entry) -> None:
        """Raise AnotherRun, or LedgerForgot if RESTORE or DELETE removed a row whose transaction Delta still knows."""
        rivals = self._rivals(entry)
        if not rivals:
            above = self._skip_used(entry)
            raise LedgerForgot(
                entry.join,
                f"rows of epoch {entry.epoch} are missing from the ledger",
                expected=f"{entry.step} by run {entry.run_id}, or a row of another run",
                found=f"neither, although Delta recorded one; the next epoch is {above + 1}",
                hint=Remedy("{reconcile}", entry.join),
            )
        raise AnotherRun(
            entry.join,
            f"epoch {entry.epoch} belongs to another run",
            expected=f"{entry.step} by run {entry.run_id}",
            found=", ".join(f"{rival.step} by run {rival.run_id}" for rival in rivals),
            hint=Remedy("let that run finish, then {run}, which continues from the ledger", entry.join),
        )

    def _skip_used(self, entry: Entry) -> int:
        """Append an abandoned epoch with an unused number, to skip numbers that the ledger lost; return its number."""
        message = f"rows of epoch {entry.epoch} were missing from the ledger; numbers up to this one may have been used"
        above, step = entry.epoch, 1
        while True:
            above, step = above + step, 2 * step
            skipped, is_written = self._write(replace(entry, epoch=above, step=ABANDONED, message=message))
            if is_written or self._exists(skipped):
                return above


def _user_metadata(entry: Entry) -> str:
    return f"{entry.run_id} {entry.step} {entry.epoch} {entry.join}"
