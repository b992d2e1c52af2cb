"""Published changes of a result as rows that can be checked: each with the previous row of its key."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.values.net_changes import each_change
from lakehouse.values.sqltext import quote
from pipelines.joins.changelog import last_rows
from pipelines.language.statement.added_columns import PREFIX

PREVIOUS = f"{PREFIX}previous"
"""The struct of the previous row; a result may have a column of any other name."""


class Before(NamedTuple):
    """
    The names of the columns that hold the previous row of a key.

    Args:
        values: For each column of a row, the column with its previous value.
        known: The boolean column that is true if the key existed before.
    """

    values: Mapping[str, str]
    known: str


def before_of(names: Sequence[str], taken: Sequence[str]) -> Before:
    """Choose names for the previous values of `names` that differ from the existing columns `taken`."""
    used = {name.lower() for name in taken}

    def free(name: str) -> str:
        while name.lower() in used:
            name += "_"
        return name

    return Before({name: free(f"{name} before") for name in names}, free("existed before"))


def changes_of(feed: DataFrame, key: Sequence[str], columns: StructType, before: Before) -> DataFrame:
    """
    Return the changes of a result with a key, each with the previous row of its key.

    Args:
        feed: The result's columns, `_change_type` and `_commit_version`.
        columns: The result's columns.

    Returns:
        The result's columns (in a delete all are null except the key), `_change_type` (insert, update or delete),
        `_commit_version`, and the columns of the previous row.
    """
    changes = each_change(feed, key, {field.name: field.dataType for field in columns})
    now = (
        F.expr(f"coalesce(new.{quote(name)}, old.{quote(name)})" if name in key else f"new.{quote(name)}").alias(name)
        for name in columns.fieldNames()
    )
    return changes.select(*now, "_change_type", "_commit_version", *_values(before, "old"))


def logged_between(
    changelog: DataFrame, epochs: tuple[int, int], key: Sequence[str], columns: StructType, before: Before
) -> DataFrame:
    """
    Return the changelog rows of a range of epochs, first and last, each with its key's row before the first of them.

    The previous row is in the columns that `before` names.
    """
    first, last = epochs
    rows = changelog.where(f"_epoch BETWEEN {first} AND {last}").alias("logged")
    same_key = " AND ".join(f"logged.{quote(name)} <=> earlier.{quote(name)}" for name in key)
    keys = rows.select(*(F.col(quote(name)) for name in key)).distinct().alias("logged")
    earlier = changelog.where(f"_epoch < {first}").alias("earlier").join(keys, on=F.expr(same_key), how="left_semi")
    previous = last_rows(earlier, columns, key).select(F.struct("*").alias(PREVIOUS))
    is_previous = " AND ".join(f"logged.{quote(name)} <=> {PREVIOUS}.{quote(name)}" for name in key)
    return rows.join(previous, on=F.expr(is_previous), how="left").select("logged.*", *_values(before, PREVIOUS))


def _values(before: Before, row: str) -> list[Column]:
    """Select the columns of the previous row from a struct that is null if the key did not exist before."""
    values = [F.col(f"{row}.{quote(name)}").alias(earlier) for name, earlier in before.values.items()]
    return [*values, F.col(row).isNotNull().alias(before.known)]
