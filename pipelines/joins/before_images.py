"""What was published in a range as rows that can be judged: each with what its key had before."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.changes import each_change
from lakehouse.sqltext import quote
from pipelines.joins.changelog import last_rows


class Before(NamedTuple):
    """
    The columns that say what there was before.

    Args:
        values: For each column of a row the one that has its value before.
        known: The column that says whether the key was there.
    """

    values: Mapping[str, str]
    known: str


def before_of(names: Sequence[str], taken: Sequence[str]) -> Before:
    """
    Name the columns that say what there was before; none is called as one that is there.

    Args:
        names: The columns of a row whose values before are wanted.
        taken: The columns that are there.
    """
    used = {name.lower() for name in taken}

    def free(name: str) -> str:
        while name.lower() in used:
            name += "_"
        return name

    return Before({name: free(f"{name} before") for name in names}, free("there before"))


def changes_of(feed: DataFrame, key: Sequence[str], columns: StructType, before: Before) -> DataFrame:
    """
    Give the changes of a result with a key, each with what its key had before.

    Args:
        feed: The result's change feed: its columns, `_change_type` and `_commit_version`.
        key: The key columns.
        columns: The result's columns.
        before: What the columns of the time before are called.

    Returns:
        The result's columns, those of a delete null but for its key; `_change_type` (insert, update or delete),
        `_commit_version`, and the columns of the time before.
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
    Give the rows of some epochs of a changelog, each with what its key had before the first of these epochs.

    Args:
        changelog: The changelog.
        epochs: The first and the last of the epochs.
        key: The key columns.
        columns: The result's columns.
        before: What the columns of the time before are called.

    Returns:
        The changelog's columns, and those of the time before.
    """
    first, last = epochs
    rows = changelog.where(f"_epoch BETWEEN {first} AND {last}").alias("logged")
    same_key = " AND ".join(f"logged.{quote(name)} <=> earlier.{quote(name)}" for name in key)
    keys = rows.select(*(F.col(quote(name)) for name in key)).distinct().alias("logged")
    earlier = changelog.where(f"_epoch < {first}").alias("earlier").join(keys, on=F.expr(same_key), how="left_semi")
    held = last_rows(earlier, columns, key).select(F.struct("*").alias("held"))
    is_held = " AND ".join(f"logged.{quote(name)} <=> held.{quote(name)}" for name in key)
    return rows.join(held, on=F.expr(is_held), how="left").select("logged.*", *_values(before, "held"))


def _values(before: Before, row: str) -> list[Column]:
    """Take the columns of the time before out of a row, which is null where there was none."""
    values = [F.col(f"{row}.{quote(name)}").alias(earlier) for name, earlier in before.values.items()]
    return [*values, F.col(row).isNotNull().alias(before.known)]
