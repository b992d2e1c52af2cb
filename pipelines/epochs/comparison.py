"""The differences between what a result holds and what it should hold, as counts and examples."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import FeedUnavailable
from lakehouse.ledger.entries import Entry

EXAMPLES = 5


def counted(different: DataFrame) -> tuple[dict[str, int], list[Row]]:
    """Count the rows of a `bag_difference`: return the numbers missing and surplus, and examples of both."""
    totals = different.agg(
        F.sum(F.expr("IF(surplus < 0, -surplus, 0)")).alias("missing"),
        F.sum(F.expr("IF(surplus > 0, surplus, 0)")).alias("surplus"),
    ).collect()[0]
    counts = {"missing": totals["missing"] or 0, "surplus": totals["surplus"] or 0}
    return counts, different.limit(EXAMPLES).collect() if any(counts.values()) else []


@dataclass(frozen=True)
class Published:
    """A version of a result to compare, with the *committed* row of the last epoch that it holds."""

    version: int
    entry: Entry


@dataclass(frozen=True)
class Difference:
    """
    What a result, or a part of it, holds and should hold.

    Args:
        rows: The `bag_difference` of the expected rows and the rows found; None if they are known to be equal.
        entries: The *committed* rows of the epochs that made the part, newest first; empty if no epoch made it.
    """

    rows: DataFrame | None
    entries: tuple[Entry, ...] = ()


@dataclass(frozen=True)
class Total:
    """
    The sum of differences; `missing` and `surplus` are numbers of rows.

    Args:
        epochs: The epochs that were compared, newest first.
        unreadable: Why earlier epochs cannot be compared; None if all could be.
    """

    missing: int
    surplus: int
    examples: tuple[str, ...]
    epochs: tuple[Entry, ...] = ()
    unreadable: FeedUnavailable | None = None


def add_up(
    join: str,
    differences: Iterable[Difference],
    keep: Callable[[Difference], None] = lambda _: None,
) -> Total:
    """
    Add up differences, up to the first epoch whose sources are no longer readable.

    Each difference is evaluated before the next is requested; `keep` is called with each that has missing rows.
    """
    total = {"missing": 0, "surplus": 0}
    examples: list[Row] = []
    epochs: list[Entry] = []
    unreadable = None
    try:
        with reading(join):
            for each in differences:
                if each.rows is not None:
                    found, more = counted(each.rows)
                    total = {name: total[name] + found[name] for name in total}
                    examples += more
                    if found["missing"]:
                        keep(each)
                epochs += each.entries
    except FeedUnavailable as error:
        unreadable = error
    return Total(total["missing"], total["surplus"], tuple(examples_of(examples)), tuple(epochs), unreadable)


def compare(join: str, rows: DataFrame) -> Total:
    """
    Add up one difference.

    Raises:
        FeedUnavailable: A table is no longer readable at its version.
    """
    total = add_up(join, [Difference(rows)])
    if total.unreadable is not None:
        raise total.unreadable
    return total


def examples_of(rows: Sequence[Row]) -> list[str]:
    """Format the first few rows of a `bag_difference`."""
    return [_example(row) for row in rows[:EXAMPLES]]


def _example(row: Row) -> str:
    values = ", ".join(f"{name}={value!r}" for name, value in row["row"].asDict().items())
    return f"{'missing' if row['surplus'] < 0 else 'surplus'} ({values})"
