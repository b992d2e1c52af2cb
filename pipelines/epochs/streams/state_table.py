"""The table of buffered rows of a join of two streams: its columns, and how it is created."""

from pyspark.sql.types import BooleanType, IntegerType, LongType, StructField, StructType

from lakehouse.publish.writes import TargetVersions
from lakehouse.tables.creation import create, drop
from lakehouse.tables.table import find, get
from lakehouse.values.compare import plain_schema
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.language.names import HASH, IDENTITY, MATCHED, NUMBER, SIDE, VERSION

STATE_ROWS = ("left_row", "right_row")
"""The columns of the state that hold the row of the left or of the right stream; the other one is null."""


KNOWN_COLUMNS = (*IDENTITY, MATCHED)
"""The columns of the state that identify a row and record whether it has met another row."""


BOTH = 2
"""The side of a row that is buffered once for both sides of a stream that is joined with itself."""


def state_schema(bound: BoundJoin) -> StructType:
    """Return the columns of the table of buffered rows: identity, whether a row has met another, and the two rows."""
    identity = [
        StructField(SIDE, IntegerType()),
        StructField(VERSION, LongType()),
        StructField(HASH, LongType()),
        StructField(NUMBER, IntegerType()),
        StructField(MATCHED, BooleanType()),
    ]
    rows = []
    for index, name in enumerate(STATE_ROWS):
        schema = bound.table(index).schema
        rows.append(StructField(name, StructType([schema[column] for column in bound.join.inputs[index].columns])))
    return StructType([*identity, *rows])


def create_state(workspace: Workspace, bound: BoundJoin, *, must_be_empty: bool) -> TargetVersions:
    """
    Create the empty table of buffered rows, and return it.

    An existing table is left over from an earlier result. It is dropped if its columns differ or, if it must be empty,
    if it has rows; a reset overwrites its rows anyway.
    """
    assert bound.state is not None
    spark, schema = workspace.spark, state_schema(bound)
    table = find(workspace.engine, bound.state)
    if table is not None:
        differs = plain_schema(table.schema.fields) != plain_schema(schema.fields)
        has_rows = any(commit.changes_data for commit in table.commits) or table.size > 0
        if differs or (must_be_empty and has_rows):
            drop(workspace.engine, bound.state)
    create(spark, bound.state, schema, IDENTITY, feed=False)
    made = get(workspace.engine, bound.state)
    return TargetVersions(made.address, made.id, made.version)
