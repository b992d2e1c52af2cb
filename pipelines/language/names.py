"""Allowed names of sources, joins and pipelines, and suggestions for misspelled names."""

import difflib
from collections.abc import Iterable

from lakehouse.errors.errors import printable
from lakehouse.values.recorded import CHANGELOG, STATE

RESERVED = frozenset({"lakejoin_ledger", "lakejoin_stage"})
RESERVED_ENDINGS = (CHANGELOG, STATE)
DELETED, ORDER = "_deleted", "_order"
"""The columns that the KTable of a changelog source has in addition to those of the source."""


def nearest(name: str, known: Iterable[str], at_least: float = 0.6) -> str:
    """Return the hint "did you mean `x`?" for a misspelled name; empty if none is `at_least` (0 to 1) similar."""
    spelled = {candidate.lower(): candidate for candidate in known}
    matches = difflib.get_close_matches(name.lower(), spelled, n=1, cutoff=at_least)
    return f"did you mean `{spelled[matches[0]]}`?" if matches else ""


def checked_name(name: str) -> str:
    """
    Return a name unchanged if it can be a folder below the storage, and lakejoin does not use it itself.

    Raises:
        ValueError: If the name is not allowed, with the reason.
    """
    if not name.strip():
        raise ValueError("a name must not be empty")
    if name == "." or ".." in name or any(letter in "/\\" or not letter.isprintable() for letter in name):
        shown = printable(name)
        raise ValueError(f"the name `{shown}` contains `/`, `\\`, `..` or a control character: it is part of a path")
    if name.lower() in RESERVED:
        raise ValueError(f"the name `{name}` is reserved for a table or folder of lakejoin")
    if name.lower().endswith(RESERVED_ENDINGS):
        raise ValueError(f"the name `{name}` ends with `__changelog` or `__state`, which lakejoin reserves")
    return name
