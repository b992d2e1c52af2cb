"""A join as the rest of lakejoin sees it: names, keys and Spark SQL, and nothing of the parser."""

from dataclasses import dataclass
from typing import Literal

How = Literal["inner", "left", "right", "full"]


@dataclass(frozen=True)
class Input:
    """
    One side of a join.

    Args:
        source: Its name in the `sources` of the file.
        alias: Its alias in the statement; the name in FROM when there is none.
        key: The key columns under their real names, ordered so that the left's first equals the right's first.
        columns: Real names of all columns that the statement uses, the key first, then in the order of the table.
    """

    source: str
    alias: str
    key: tuple[str, ...]
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Output:
    """
    One column of the result.

    Args:
        name: What the result calls it.
        expression: Spark SQL over `alias`.`column`, every column in backticks.
    """

    name: str
    expression: str


@dataclass(frozen=True)
class TableJoin:
    """
    A join of two tables on their keys.

    Args:
        name: The join's name in the file.
        how: The type of join.
        left: The side in FROM.
        right: The side after JOIN.
        on: The whole ON condition as Spark SQL, all columns qualified and quoted.
        where: The WHERE condition, likewise, or None.
        outputs: The columns of the result, in the order of the SELECT.
        key: Names of the outputs that hold the result's key, in the order of the left key.
    """

    name: str
    how: How
    left: Input
    right: Input
    on: str
    where: str | None
    outputs: tuple[Output, ...]
    key: tuple[str, ...]
