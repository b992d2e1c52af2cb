"""Checks that the targets and the definition are unchanged since the last epoch, before the next epoch is planned."""

from lakehouse.errors.errors import DefinitionChanged, ForeignWriter
from lakehouse.errors.remedies import Remedy
from pipelines.plan.facts import Redefined


def check_is_still(join: str, what: str, found: str | None, recorded: str, hint: str | Remedy) -> None:
    """
    Check that a target table is the table that the last epoch wrote.

    Args:
        what: The name of the table in messages, as "the result table".
        found: The id of the existing table; None if no table exists.
        recorded: The id of the table that the last epoch wrote.

    Raises:
        ForeignWriter: The table was dropped or replaced.
    """
    if found != recorded:
        raise ForeignWriter(
            join,
            f"{what} was dropped" if found is None else f"{what} was replaced by another one",
            expected=f"the table with id {recorded}",
            found="no table" if found is None else f"id {found}",
            hint=hint,
        )


def check_definition(
    join: str, definition: str, recorded: str, hint: str | Remedy, redefined: Redefined | None = None
) -> None:
    """
    Check that the fingerprint of a join's definition is the one that the last epoch recorded.

    Args:
        hint: The remedy if they differ.
        redefined: The known changes of the definition; None if they were not examined.

    Raises:
        DefinitionChanged: The fingerprints differ.
    """
    if definition != recorded:
        raise DefinitionChanged(
            join,
            "the definition of the join has changed since its last epoch",
            expected=f"the definition with fingerprint {recorded}",
            found=f"fingerprint {definition}" + ("" if redefined is None else f": {redefined}"),
            hint=hint if redefined is None or redefined.remedy is None else redefined.remedy,
        )
