"""The table of rows that wait in a join of two streams: its columns, and how it is created."""

from dataclasses import replace

from pyspark.sql.types import BooleanType, IntegerType, LongType, StructField, StructType

from lakehouse.tables import create, drop, find, get
from lakehouse.values import plain_schema
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.plan.values import EpochPlan
from pipelines.spec.statement.added_columns import HASH, IDENTITY, MATCHED, NUMBER, SIDE, VERSION

STATE_ROWS = ("left_row", "right_row")
"""The columns of the state with the rows of the left and of the right stream, one of them null."""


KNOWN_COLUMNS = (*IDENTITY, MATCHED)
"""The columns of the state that tell what a row is known by, and whether it has met another."""


BOTH = 2
"""The side of a row that waits once for both sides of a stream that is joined with itself."""


def state_schema(bound: BoundJoin) -> StructType:
    """Give the columns of the table of rows that wait: identity, whether a row has met another, and the two rows."""
    identity = [
        StructField(SIDE, IntegerType()),
        StructField(VERSION, LongType()),
        StructField(HASH, LongType()),
        StructField(NUMBER, IntegerType()),
        StructField(MATCHED, BooleanType()),
    ]
    rows = []
    for place, name in enumerate(STATE_ROWS):
        kinds = bound.table(place).schema
        rows.append(StructField(name, StructType([kinds[column] for column in bound.join.inputs[place].columns])))
    return StructType([*identity, *rows])


def create_state(workspace: Workspace, bound: BoundJoin, plan: EpochPlan) -> EpochPlan:
    """
    Create the table of rows that wait, empty, and name it in the plan.

    One that is there is what an earlier result has left: a load takes the place of it, and a reset, which writes all of
    it anew, where its columns are others.
    """
    assert bound.state is not None
    spark, schema = workspace.spark, state_schema(bound)
    table = find(spark, bound.state)
    if table is not None:
        differs = plain_schema(table.schema.fields) != plain_schema(schema.fields)
        has_rows = any(commit.changes_data for commit in table.commits) or table.size > 0
        if differs or (plan.strategy == "load" and has_rows):
            drop(spark, bound.state)
    create(spark, bound.state, schema, IDENTITY, feed=False)
    made = get(spark, bound.state)
    return replace(plan, state_id=made.id, state_version=made.version)
