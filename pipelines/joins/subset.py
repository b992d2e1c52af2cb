"""A part of a result, by a condition on its columns."""

from dataclasses import dataclass

from pyspark.sql import DataFrame

from pipelines.spec import Condition, of_struct


@dataclass(frozen=True)
class Subset:
    """
    Those keys of a result whose row meets a condition, as it is or as it is to be.

    Args:
        condition: The condition, over the columns of the result.
        key: The result's key columns.
    """

    condition: Condition
    key: tuple[str, ...]

    def rows(self, rows: DataFrame) -> DataFrame:
        """Leave out those rows of a state of the result that by their key cannot matter."""
        return rows.where(self.condition.sql) if set(self.condition.columns) <= set(self.key) else rows

    def changes(self, changes: DataFrame) -> DataFrame:
        """Pick the rows of a change set: `before` or `after` meets the condition."""
        return changes.where(" OR ".join(f"({of_struct(self.condition, image)})" for image in ("before", "after")))
