"""Errors for tables that refuse a write, or that would forget it; each names the table and the remedy."""

import re
from collections.abc import Mapping

from lakehouse.errors.address import Address
from lakehouse.errors.conditions import first_line, is_conflict
from lakehouse.errors.errors import AnotherRun, CannotContinue, LakejoinError, WriteRefused
from lakehouse.errors.remedies import Remedy

CONDITION = re.compile(r"\[(DELTA_[A-Z0-9_.]+)\]\s*(.+?)(?:\s*SQLSTATE\b|\n\s*at |\n\nJVM|$)", re.DOTALL)
"""A condition of Delta with its text, at any place in a message."""

TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"

LONGEST = 400
"""The maximum number of characters of Delta's text in a message."""


def refusal(error: Exception, address: Address, epoch: int, join: str) -> LakejoinError:
    """
    Return the error for a failed write of an epoch to a table that a join, or a changelog source, maintains:
    WriteRefused for a constraint or a property of the table, AnotherRun for concurrent writes, else one with the hint
    to retry or abandon.
    """
    if is_conflict(error):
        return AnotherRun(
            address.label,
            f"other writers changed the table during each attempt to write epoch {epoch} of {join}",
            found=first_line(error),
            hint=Remedy("{run}, which retries the write", join),
        )
    found = CONDITION.search(str(error))
    text = " ".join((found[2] if found else first_line(error)).split())[:LONGEST]
    condition = found[1] if found else ""
    if "CONSTRAINT" in condition:
        name = re.search(r"CHECK constraint (\S+)", text)
        drop = f"ALTER TABLE {address.sql} DROP CONSTRAINT {name[1]}" if name else "make the column nullable"
        return WriteRefused(
            address.label,
            f"epoch {epoch} of {join} violates a constraint of the table",
            expected="rows that meet the constraints of the table",
            found=text,
            hint=Remedy(f"{drop}, or correct the sources; then {{abandon}}", join),
        )
    if "APPEND_ONLY" in condition:
        return WriteRefused(
            address.label,
            f"epoch {epoch} of {join} changes rows, and delta.appendOnly is set on the table",
            found=text,
            hint=Remedy(
                f"ALTER TABLE {address.sql} SET TBLPROPERTIES ('delta.appendOnly' = 'false'), "
                "then {run}, which finishes the epoch",
                join,
            ),
        )
    if condition:
        return WriteRefused(
            address.label,
            f"the table refuses the write of epoch {epoch} of {join}",
            found=f"{condition}: {text}",
            hint=Remedy("undo the change to the table, then {run}; or {abandon}", join),
        )
    return LakejoinError(
        address.label,
        f"epoch {epoch} of {join} could not be written",
        found=text,
        hint=Remedy("{run}, which retries the write; or {abandon}", join),
    )


def refuse_forgetting(name: str, address: Address, properties: Mapping[str, str]) -> None:
    """Raise CannotContinue if a property of a table lets Delta forget after a time which epochs were written to it."""
    if TRANSACTION_RETENTION in properties:
        raise CannotContinue(
            name,
            f"{TRANSACTION_RETENTION} is set on {address.label}",
            expected="no such property: Delta would forget which epochs were written, and one could be written twice",
            found=properties[TRANSACTION_RETENTION],
            hint=f"ALTER TABLE {address.sql} UNSET TBLPROPERTIES ('{TRANSACTION_RETENTION}')",
        )
