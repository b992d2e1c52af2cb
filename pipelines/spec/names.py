"""What sources, joins and pipelines may be called, and the nearest name where somebody wrote another."""

import difflib
from collections.abc import Iterable

from lakehouse.entries import CHANGELOG, STATE
from lakehouse.errors import printable

RESERVED = frozenset({"lakejoin_ledger", "lakejoin_stage"})
RESERVED_ENDINGS = (CHANGELOG, STATE)
DELETED, ORDER = "_deleted", "_order"
"""The columns that the KTable of a changelog source has beside those of the source."""


def nearest(name: str, known: Iterable[str], at_least: float = 0.6) -> str:
    """
    Find the known name that somebody who wrote `name` most likely meant.

    Args:
        name: What was written.
        known: The names that would be right.
        at_least: How alike they must be, from 0 to 1.

    Returns:
        A hint to show, "did you mean `x`?", or nothing if no name is near.
    """
    spelled = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=at_least)
    return f"did you mean `{spelled[matches[0]]}`?" if matches else ""


def checked_name(name: str) -> str:
    """
    Refuse a name that cannot be a folder below the storage, or that lakejoin needs for itself.

    Args:
        name: The name of a pipeline, a source or a join.

    Returns:
        The name as it was given.

    Raises:
        ValueError: If the name is not allowed; the text says why.
    """
    if not name.strip():
        raise ValueError("a name must not be empty")
    if name == "." or ".." in name or any(letter in "/\\" or not letter.isprintable() for letter in name):
        shown = printable(name)
        raise ValueError(f"the name `{shown}` holds `/`, `\\`, `..` or a control character; it becomes part of a path")
    if name.lower() in RESERVED:
        raise ValueError(f"the name `{name}` is reserved for a table or folder of lakejoin's own")
    if name.lower().endswith(RESERVED_ENDINGS):
        raise ValueError(f"the name `{name}` ends as the tables that lakejoin keeps beside a result do")
    return name
