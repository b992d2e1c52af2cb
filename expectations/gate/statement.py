"""The statement of a join, which the gate evaluates as one plain query over whole or filtered tables."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.values.sqltext import quote


@dataclass(frozen=True)
class PlainStatement:
    """
    A join in Spark SQL, its columns qualified by the aliases of the inputs and quoted.

    Args:
        aliases: The aliases of the inputs, in the order of FROM.
        steps: For each input except the first the type of join and the condition of ON.
        where: The condition of WHERE, or None.
        outputs: The columns of SELECT: the name in the result and the expression.
    """

    aliases: tuple[str, ...]
    steps: tuple[tuple[str, str], ...]
    where: str | None
    outputs: tuple[tuple[str, str], ...]

    def up_to(self, index: int, key: str) -> "PlainStatement":
        """Return the part of the statement before an input, without WHERE, which selects a `key` given as SQL."""
        steps = self.steps[: index - 1]
        return replace(self, aliases=self.aliases[:index], steps=steps, where=None, outputs=(("key", key),))

    def over(self, tables: Sequence[DataFrame]) -> DataFrame:
        """Evaluate the statement over the rows of the inputs; return the columns of SELECT."""
        first, *others = (table.alias(alias) for table, alias in zip(tables, self.aliases, strict=True))
        joined = first
        for table, (how, on) in zip(others, self.steps, strict=True):
            joined = joined.join(table, on=F.expr(on), how=how)
        if self.where is not None:
            joined = joined.where(self.where)
        return joined.selectExpr(*(f"{sql} AS {quote(name)}" for name, sql in self.outputs))
