"""The difference of two states of a result, or of a part of it: as a change set by key, or as a bag of rows."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.values.compare import comparable, same
from lakehouse.values.sqltext import quote, row_struct, struct
from pipelines.language import Condition, of_struct

IMAGE = "_lakejoin_image"
OLD, NEW = "old", "new"


def as_image(frame: DataFrame, image: str) -> DataFrame:
    """Mark the rows of a state as the old or the new image."""
    return frame.withColumn(IMAGE, F.lit(image))


def difference(images: DataFrame, key: Sequence[str]) -> DataFrame:
    """
    Compare the old and the new image of result rows null-safely, key by key.

    Args:
        images: The result's columns and `_lakejoin_image` ('old' or 'new').

    Returns:
        One row for each key that differs: `op` (insert, update, delete), `key` (struct of the key columns), `before`
        and `after` (struct of all columns; null if absent) and `copies` (bigint; more than 1 if an image contains the
        key more than once).
    """
    columns = [field for field in images.schema if field.name != IMAGE]
    keys = [F.expr(comparable(quote(name), images.schema[name].dataType)).alias(f"k{n}") for n, name in enumerate(key)]
    row = row_struct(field.name for field in columns)
    grouped = (
        images.select(*keys, F.col(IMAGE), F.expr(row).alias("row"))
        .groupBy(*(f"k{n}" for n in range(len(key))))
        .agg(
            F.first(F.expr(f"IF({IMAGE} = '{OLD}', row, NULL)"), ignorenulls=True).alias("before"),
            F.first(F.expr(f"IF({IMAGE} = '{NEW}', row, NULL)"), ignorenulls=True).alias("after"),
            F.greatest(
                F.count(F.expr(f"IF({IMAGE} = '{OLD}', 1, NULL)")), F.count(F.expr(f"IF({IMAGE} = '{NEW}', 1, NULL)"))
            ).alias("copies"),
        )
    )
    unchanged = same("before", "after", StructType(columns))
    present = "IF(after IS NULL, before, after)"
    op = "CASE WHEN before IS NULL THEN 'insert' WHEN after IS NULL THEN 'delete' ELSE 'update' END"
    key_of_row = F.expr(row_struct(key, f"{present}.")).alias("key")
    differing_rows = grouped.where(f"NOT {unchanged} OR copies > 1")
    return differing_rows.select(F.expr(op).alias("op"), key_of_row, "before", "after", "copies")


def bag_difference(expected: DataFrame, found: DataFrame) -> DataFrame:
    """
    Compare two tables as bags of rows, in both directions.

    Return `row` (struct of the columns of `expected`) and `surplus` (bigint): how many more copies of the row `found`
    has than `expected`; negative if rows are missing, never 0.
    """
    fields = expected.schema.fields
    row = row_struct(field.name for field in fields)
    # Group by one struct: Spark's planner enumerates the combinations of separate grouping columns.
    grouped = struct({field.name: comparable(quote(field.name), field.dataType) for field in fields})
    sides = [
        frame.selectExpr(f"{grouped} AS _lakejoin_grouped", f"{row} AS row", f"{weight} AS weight")
        for frame, weight in ((expected, -1), (found, 1))
    ]
    surplus = F.sum("weight").alias("surplus")
    rows = sides[0].unionAll(sides[1]).groupBy("_lakejoin_grouped").agg(F.first("row").alias("row"), surplus)
    return rows.where("surplus <> 0").select("row", "surplus")


@dataclass(frozen=True)
class Subset:
    """The keys of a result whose old or new row meets some conditions on columns of the result."""

    conditions: tuple[Condition, ...]
    key: tuple[str, ...]

    def rows(self, rows: DataFrame) -> DataFrame:
        """Return the rows of a state of the result that meet the conditions on key columns."""
        for condition in self.conditions:
            rows = rows.where(condition.sql) if self._is_of_keys(condition) else rows
        return rows

    def changes(self, changes: DataFrame) -> DataFrame:
        """Return the changes, computed from `rows`, whose `before` or `after` meets all other conditions."""
        others = [condition for condition in self.conditions if not self._is_of_keys(condition)]
        if not others:
            return changes
        images = (" AND ".join(f"({of_struct(one, image)})" for one in others) for image in ("before", "after"))
        return changes.where(" OR ".join(f"({image})" for image in images))

    def _is_of_keys(self, condition: Condition) -> bool:
        return set(condition.columns) <= set(self.key)


def differing(old: DataFrame, new: DataFrame, key: Sequence[str], subset: Subset | None) -> DataFrame:
    """Return the `difference` of two states of a result, or of a part of them."""
    if subset is not None:
        old, new = subset.rows(old), subset.rows(new)
    changes = difference(as_image(old, OLD).unionAll(as_image(new, NEW)), key)
    return changes if subset is None else subset.changes(changes)
