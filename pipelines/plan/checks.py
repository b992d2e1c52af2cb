"""What must be as the last epoch left it, before the next one is planned."""

from lakehouse.errors import DefinitionChanged, ForeignWriter
from pipelines.plan.facts import Redefined


def check_is_still(join: str, what: str, found: str | None, recorded: str, hint: str) -> None:
    """
    See that a table that epochs write is the one that the last epoch wrote.

    Args:
        join: The join.
        what: What the table is to it.
        found: The id of the table that is there; None where there is none.
        recorded: The id of the one that the last epoch wrote.
        hint: What helps.

    Raises:
        ForeignWriter: It is not.
    """
    if found != recorded:
        raise ForeignWriter(
            join,
            f"{what} was dropped" if found is None else f"{what} was replaced by another one",
            expected=f"the table with id {recorded}",
            found="no table" if found is None else f"id {found}",
            hint=hint,
        )


def check_definition(join: str, definition: str, recorded: str, hint: str, redefined: Redefined | None = None) -> None:
    """
    See that a join is defined as when its last epoch ran.

    Args:
        join: The join's name.
        definition: Fingerprint of its definition in the pipeline file.
        recorded: That of its last epoch.
        hint: What to do if they differ.
        redefined: What shows of the changes, where somebody has looked.

    Raises:
        DefinitionChanged: They differ.
    """
    if definition != recorded:
        raise DefinitionChanged(
            join,
            "the join is defined otherwise than when its last epoch ran",
            expected=f"the definition with fingerprint {recorded}",
            found=f"fingerprint {definition}" + ("" if redefined is None else f": {redefined}"),
            hint=redefined.way if redefined is not None and redefined.way else hint,
        )
