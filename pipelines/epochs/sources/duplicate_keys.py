"""Find keys that a table holds more than once, and raise the error that names them."""

from collections.abc import Sequence
from typing import NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.errors.errors import DuplicateKey
from lakehouse.values.net_changes import has_repeated_keys, null_key
from lakehouse.values.sqltext import quote

EXAMPLES = 5


REMOVE = "remove the surplus rows from the source; nothing was published"


class Duplicate(NamedTuple):
    """A key that a table holds more than once: its values, and the number of its rows in words."""

    key: Sequence[object]
    rows: str


def duplicates_in_changes(changes: DataFrame) -> list[Duplicate]:
    """Return examples of keys that have several rows after the changes; the table may hold more rows of them."""
    rows = changes.select("key", "copies").limit(EXAMPLES).collect()
    return [Duplicate(tuple(row["key"]), f"{row['copies']} rows or more") for row in rows]


def duplicates_in_table(rows: DataFrame, key: Sequence[str], *, may_be_absent: bool = False) -> list[Duplicate]:
    """Return examples of keys that several rows of a table have; rows without a key do not count."""
    if not has_repeated_keys(rows, key, may_be_absent=may_be_absent):
        return []
    parts = [F.col(quote(name)).alias(f"k{place}") for place, name in enumerate(key)]
    keyed = rows.where(f"NOT {null_key(key, may_be_absent=may_be_absent)}")
    twice = keyed.groupBy(*parts).count().where("count > 1")
    return [Duplicate(tuple(row)[:-1], f"{row['count']} rows") for row in twice.limit(EXAMPLES).collect()]


def refuse_keys(label: str, key: Sequence[str], examples: Sequence[Duplicate], hint: str = REMOVE) -> None:
    """Raise DuplicateKey if a table, named by its label, holds keys more than once; without examples it does not."""
    if examples:
        raise DuplicateKey(
            label,
            "a key occurs more than once",
            expected="at most one row for each key",
            found=listed(key, examples),
            hint=hint,
        )


def listed(key: Sequence[str], examples: Sequence[Duplicate]) -> str:
    """Format keys for a message, each with its column names and its number of rows: `k=3 (2 rows)`."""
    named = (
        ", ".join(f"{name}={value}" for name, value in zip(key, one.key, strict=True)) + f" ({one.rows})"
        for one in examples
    )
    return "; ".join(named)
