"""The part of a result that meets conditions on its columns."""

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from pipelines.joins.difference import NEW, OLD, as_image, difference
from pipelines.language import Condition, of_struct


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
