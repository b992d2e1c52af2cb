"""Tables that do not take what is written, or would forget that it was: errors that name the table and the way on."""

import re
from collections.abc import Mapping

from lakehouse.address import Address
from lakehouse.conditions import first_line, is_conflict
from lakehouse.errors import AnotherRun, CannotContinue, LakejoinError, WriteRefused

CONDITION = re.compile(r"\[(DELTA_[A-Z0-9_.]+)\]\s*(.+?)(?:\s*SQLSTATE\b|\n\s*at |\n\nJVM|$)", re.DOTALL)
"""A condition of Delta with its text, wherever it stands in a message."""

TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"

LONGEST = 400
"""So much of Delta's text is shown."""


def refusal(error: Exception, address: Address, epoch: int, join: str) -> LakejoinError:
    """
    Say why a table that lakejoin keeps could not be written.

    Args:
        error: What Spark raised.
        address: The table.
        epoch: The epoch that was to be written.
        join: The join, or the changelog source, that keeps the table.

    Returns:
        WriteRefused for a constraint or a property of the table, AnotherRun where others wrote to it at the same time;
        else an error that tries again or lets the epoch go.
    """
    if is_conflict(error):
        return AnotherRun(
            address.label,
            f"others wrote to the table each time that epoch {epoch} of {join} was to be written",
            found=first_line(error),
            hint=f"run `lakejoin run --select {join}`, which tries again",
        )
    backfill = f"`lakejoin backfill --select {join}`, which lets the epoch go and reconciles"
    found = CONDITION.search(str(error))
    text = " ".join((found[2] if found else first_line(error)).split())[:LONGEST]
    condition = found[1] if found else ""
    if "CONSTRAINT" in condition:
        name = re.search(r"CHECK constraint (\S+)", text)
        drop = f"ALTER TABLE {address.sql} DROP CONSTRAINT {name[1]}" if name else "make the column nullable"
        return WriteRefused(
            address.label,
            f"a constraint of the table is violated by epoch {epoch} of {join}",
            expected="rows that the table takes",
            found=text,
            hint=f"{drop}, or correct the sources; then run {backfill}",
        )
    if "APPEND_ONLY" in condition:
        return WriteRefused(
            address.label,
            f"epoch {epoch} of {join} changes rows, and delta.appendOnly is set on the table",
            found=text,
            hint=f"ALTER TABLE {address.sql} SET TBLPROPERTIES ('delta.appendOnly' = 'false'), "
            f"then run `lakejoin run --select {join}`, which finishes the epoch",
        )
    if condition:
        return WriteRefused(
            address.label,
            f"the table does not take epoch {epoch} of {join}",
            found=f"{condition}: {text}",
            hint=f"undo what was changed of the table, then run `lakejoin run --select {join}`; or run {backfill}",
        )
    return LakejoinError(
        address.label,
        f"epoch {epoch} of {join} could not be written",
        found=text,
        hint=f"run `lakejoin run --select {join}`, which tries again, or {backfill}",
    )


def refuse_forgetting(name: str, address: Address, properties: Mapping[str, str]) -> None:
    """
    See that Delta remembers which epochs were written to a table.

    Args:
        name: What the error is about.
        address: The table.
        properties: Its properties.

    Raises:
        CannotContinue: It is set to forget them after a time.
    """
    if TRANSACTION_RETENTION in properties:
        raise CannotContinue(
            name,
            f"{TRANSACTION_RETENTION} is set on {address.label}",
            expected="no such property: Delta would forget which epochs were written, and write one again",
            found=properties[TRANSACTION_RETENTION],
            hint=f"ALTER TABLE {address.sql} UNSET TBLPROPERTIES ('{TRANSACTION_RETENTION}')",
        )
