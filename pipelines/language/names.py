"""Names: those that users may choose, those of the columns that lakejoin adds, and suggestions for misspelled ones."""

import difflib
from collections.abc import Iterable, Sequence

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


def unknown_output(name: str, columns: Sequence[str]) -> tuple[str, str]:
    """Return the problem with a name that is not among the columns of a result, and a hint."""
    hint = nearest(name, columns) or f"the columns are {', '.join(columns)}"
    return f"`{name}` is not a column of the result", hint


def checked_name(name: str) -> str:
    """Return a name that can be a folder of the storage and that lakejoin does not use; else raise `ValueError`."""
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


PREFIX = "_lakejoin_"
"""The prefix of the names of internal columns."""

SIDE, VERSION, HASH, NUMBER = (f"{PREFIX}{name}" for name in ("side", "version", "hash", "number"))
IDENTITY = (SIDE, VERSION, HASH, NUMBER)
"""The columns that identify a stored row: side, source version, hash of the columns, number among equal rows."""

MATCHED = f"{PREFIX}matched"
"""Whether a row has had a match."""

MATCHES = f"{PREFIX}matches"
"""The column of an input of a semi join with what its further conditions compare, of all rows with a value."""

POSITION = f"{PREFIX}position"
"""The column with the position of a stream's row; the prefix avoids clashes with columns of the user."""

HAS_VALUE = f"{PREFIX}has_value"
"""Whether a row has a value; a Kafka record that is null has none."""

CHANGELOG_COLUMNS = ("_op", "_cause", "_position", "_epoch", "_at")
"""The columns that a changelog has in addition to the columns of its result."""

STREAM_COLUMNS = ("_epoch", "_position")
"""The columns that the result of a join with a stream has in addition to its SELECT list."""

ROW_COLUMNS = ("_left_row", "_right_row")
"""
The further columns of the result of a join of two streams, which identify the two input rows of a result row. Each is a
struct of the stream version that added the input row, a hash of its columns, and its number among equal rows.
"""

ALWAYS = -(2**63)
"""The position before all others, at which a version begins that no change made."""

UNORDERED = 0
"""The position of rows of an initial load without an order."""
