"""The two inputs of a join in which rows match in any number, as the gate knows them."""

from dataclasses import dataclass

from pyspark.sql.types import DataType

from lakehouse.values.net_changes import all_or_any_null, wrong_key


@dataclass(frozen=True)
class Paired:
    """
    The two inputs whose rows match in any number.

    Args:
        places: The indexes in FROM of the left and of the right input.
        over: For each of them the index in FROM of the input whose columns give its rows their values: itself, or for
            the left input one that it looks up before.
        values: For each of them the Spark SQL of what the equalities of ON compare, over the aliases.
        types: The types in which these are compared.
        keys: For each of them the names of its key in the result.
        outer: For each of them whether its unmatched rows are in the result, with nulls for the key of the other one.
        may_be_absent: For each of them whether parts of the key of a row may be null, but not all of them.
    """

    places: tuple[int, int]
    over: tuple[int, int]
    values: tuple[tuple[str, ...], tuple[str, ...]]
    types: tuple[DataType, ...]
    keys: tuple[tuple[str, ...], tuple[str, ...]]
    outer: tuple[bool, bool]
    may_be_absent: tuple[bool, bool] = (False, False)

    @property
    def key(self) -> tuple[str, ...]:
        """The names of the key of the result."""
        return self.keys[0] + self.keys[1]

    @property
    def keyless(self) -> str:
        """The SQL condition of a line with a wrong key: half of one side, neither side, or a side that may not lack."""
        parts = [f"key.k{place}" for place in range(len(self.key))]
        first = len(self.keys[0])
        sides = [parts[:first], parts[first:]]
        lacking = [
            all_or_any_null(side, are_all=True)
            for side, may_lack in zip(sides, self.outer[::-1], strict=True)
            if not may_lack
        ]
        return " OR ".join([wrong_key(sides, self.may_be_absent), *lacking])
