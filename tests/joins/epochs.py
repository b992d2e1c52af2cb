"""Many epochs of a join as one Spark job: the functions of the product, put together as the driver does."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from lakehouse.changes import key_struct, net
from lakehouse.sqltext import quote
from lakehouse.values import common_type
from pipelines.joins.kernel import change_set, images
from pipelines.joins.table_table import touched_keys
from pipelines.spec import Input, Source, TableJoin, bind, parse


class Sided(NamedTuple):
    """The same thing of the left and of the right source."""

    left: DataFrame
    right: DataFrame


def bound(sql: str, keys: Sequence[Sequence[str]], schemas: Sequence[StructType]) -> TableJoin:
    """Take a statement over the sources `left` and `right` through the product's own reading of pipeline files."""
    sources = {name: Source(key=key) for name, key in zip(("left", "right"), keys, strict=True)}
    columns = {name: schema.fieldNames() for name, schema in zip(("left", "right"), schemas, strict=True)}
    return bind(parse("joined", sql, sources), columns)


def key_types(join: TableJoin, schemas: Sequence[StructType]) -> tuple[DataType, ...]:
    """Give the types in which both sides' keys are compared."""
    left, right = schemas
    pairs = zip(join.left.key, join.right.key, strict=True)
    types = tuple(common_type(left[here].dataType, right[there].dataType) for here, there in pairs)
    assert None not in types
    return types


def change_sets(
    join: TableJoin, types: Sequence[DataType], feeds: Sided, rows: Sided, scope: Sequence[str]
) -> DataFrame:
    """
    Compute what each epoch changes in the result, all epochs at once.

    Net changes are kept as they are, for they are used five times; the driver puts them into its stage.

    Args:
        join: The join.
        types: The types in which key parts are compared.
        feeds: The change feeds: the columns of the source, `_change_type` and the scope columns, which name the epoch.
        rows: The sources' rows as they are at the end of each epoch, with the scope columns.
        scope: The names of the scope columns.

    Returns:
        As `kernel.change_set`.
    """
    sides = (join.left, join.right)
    changes = [net(feed, side.key, types, _kinds(feed, side), scope) for feed, side in zip(feeds, sides, strict=True)]
    touched = touched_keys(changes[0], changes[1], scope)
    state = [
        images(change, look_up(source, side, types, touched, scope), side, types, scope)
        for change, source, side in zip(changes, rows, sides, strict=True)
    ]
    return change_set(state[0], state[1], join, scope)


def look_up(
    rows: DataFrame, side: Input, types: Sequence[DataType], touched: DataFrame, scope: Sequence[str]
) -> DataFrame:
    """Read the rows with a touched key, with the columns that the join uses."""
    wanted = rows.select(*(F.col(quote(name)) for name in (*scope, *side.columns)))
    condition = [f"{quote('source', name)} = {quote('touched', name)}" for name in scope]
    condition.append(f"{key_struct(side.key, types, 'source.')} = touched.key")
    return wanted.alias("source").join(touched.alias("touched"), on=F.expr(" AND ".join(condition)), how="left_semi")


def _kinds(feed: DataFrame, side: Input) -> Mapping[str, DataType]:
    return {name: feed.schema[name].dataType for name in side.columns}
