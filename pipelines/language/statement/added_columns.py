"""The names of the columns that lakejoin adds to its tables."""

from collections.abc import Sequence

from pipelines.language.statement.statement import Side

PREFIX = "_lakejoin_"
"""The prefix of the names of internal columns."""

SIDE, VERSION, HASH, NUMBER = (f"{PREFIX}{name}" for name in ("side", "version", "hash", "number"))
IDENTITY = (SIDE, VERSION, HASH, NUMBER)
"""The columns that identify a stored row: side, source version, hash of the columns, number among equal rows."""

MATCHED = f"{PREFIX}matched"
"""Whether a row has had a match."""

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


def added_columns(sides: Sequence[Side]) -> tuple[str, ...]:
    """Return the columns that lakejoin adds to the result of a statement with these inputs."""
    if sides[0].kind != "stream":
        return ()
    return STREAM_COLUMNS + (ROW_COLUMNS if sides[1].kind == "stream" else ())
