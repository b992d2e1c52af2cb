"""Checks that the targets and the definition are unchanged since the last epoch, before the next epoch is planned."""

from lakehouse.errors.errors import DefinitionChanged, ForeignWriter
from lakehouse.errors.remedies import Remedy
from pipelines.plan.facts import Redefined


def check_is_still(join: str, what: str, found: str | None, recorded: str, hint: str | Remedy) -> None:
    """
    Raise `ForeignWriter` if a target table, `what` in messages, was dropped or replaced since the last epoch.

    The ids are `found`, None if no table exists, and `recorded`, that of the table that the last epoch wrote.
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
    Raise `DefinitionChanged` if the fingerprint of a definition is not the one that the last epoch recorded.

    The known changes are `redefined`; None if they were not examined.
    """
    if definition != recorded:
        raise DefinitionChanged(
            join,
            "the definition of the join has changed since its last epoch",
            expected=f"the definition with fingerprint {recorded}",
            found=f"fingerprint {definition}" + ("" if redefined is None else f": {redefined}"),
            hint=hint if redefined is None or redefined.remedy is None else redefined.remedy,
        )
