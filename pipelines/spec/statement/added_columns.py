"""The columns that lakejoin adds to its tables, each named in one place."""

from collections.abc import Sequence

from pipelines.spec.statement.statement import Side

PREFIX = "_lakejoin_"
"""What the names of working columns begin with."""

SIDE, VERSION, HASH, NUMBER = (f"{PREFIX}{name}" for name in ("side", "version", "hash", "number"))
IDENTITY = (SIDE, VERSION, HASH, NUMBER)
"""What tells stored rows apart: side, version of the source, hash of the columns, and the number among equal rows."""

MATCHED = f"{PREFIX}matched"
"""Whether a row has met another one."""

POSITION = f"{PREFIX}position"
"""The column with the position of a stream's row; beside it are the user's columns, whatever they are called."""

HAS_VALUE = f"{PREFIX}has_value"
"""Whether a row has a value: null among the records of Kafka is none."""

CHANGELOG_COLUMNS = ("_op", "_cause", "_position", "_epoch", "_at")
"""The columns that a changelog has beside those of its result."""

STREAM_COLUMNS = ("_epoch", "_position")
"""The columns that the result of a join with a stream has beside those of its SELECT list."""

ROW_COLUMNS = ("_left_row", "_right_row")
"""
The columns that the result of a join of two streams has besides: which rows a row is made of. Each is a struct of the
version of the stream that brought the row, a hash of its columns, and its number among equal rows.
"""


def added_columns(sides: Sequence[Side]) -> tuple[str, ...]:
    """Name the columns that lakejoin adds to the result of a statement with these inputs."""
    if sides[0].kind != "stream":
        return ()
    return STREAM_COLUMNS + (ROW_COLUMNS if sides[1].kind == "stream" else ())
