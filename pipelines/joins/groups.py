"""The changes of an input that groups rows by its key, as semi joins look them up: one row for each value."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from lakehouse.values.net_changes import key_struct, null_key
from lakehouse.values.sqltext import combinations, quote, struct
from pipelines.joins.difference import IMAGE, NEW, OLD
from pipelines.joins.kernel import images
from pipelines.language import Grouping, Input
from pipelines.language.names import MATCHES


def changed_groups(
    changes: DataFrame,
    rows: DataFrame,
    side: Input,
    grouping: Grouping,
    types: Sequence[DataType],
    types_of_rows: Sequence[DataType],
) -> DataFrame:
    """
    Return the net changes of an input that groups rows: `key`, `old`, `new`, for each group that differs.

    Args:
        changes: The net changes of the rows: `key`, `old`, `new`.
        rows: The rows at the end of the epoch of each group that a changed row leaves or enters, and maybe others.
        types: The types in which the key of the input is compared; `types_of_rows`, those of the key of a row.
    """
    own = null_key(grouping.rows.key, may_be_absent=grouping.rows.may_be_absent)  # such rows are in no group
    both = images(changes, rows, grouping.rows, types_of_rows)
    keyed = both.where(f"NOT {own} AND NOT {null_key(side.key)}")
    found = [f"bool_or({_is(image)}) AS is_{image}" for image in (OLD, NEW)]
    if grouping.collected:
        found += [f"{combinations(grouping.collected, _is(image))} AS matches_{image}" for image in (OLD, NEW)]
    groups = keyed.groupBy(*(F.col(quote(name)) for name in side.key)).agg(*map(F.expr, found))
    changed = groups.selectExpr(
        f"{key_struct(side.key, types)} AS key", *(f"{_image(side, image)} AS {image}" for image in (OLD, NEW))
    )
    return changed.where("NOT old <=> new")


def _is(image: str) -> str:
    return f"{IMAGE} = '{image}'"


def _image(side: Input, image: str) -> str:
    row = {name: f"matches_{image}" if name == MATCHES else quote(name) for name in side.columns}
    return f"IF(is_{image}, {struct(row)}, NULL)"
