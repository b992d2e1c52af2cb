"""What is known of a join from its statement and the keys of its sources, before any schema is."""

from dataclasses import dataclass

from sqlglot import exp

from pipelines.spec.definition import How


@dataclass(frozen=True)
class Side:
    """
    An input as FROM and the file describe it.

    Args:
        source: Its name in the `sources` of the file.
        alias: What the statement calls it.
        key: The key as the file writes it; of the right side in the order of the left's.
    """

    source: str
    alias: str
    key: tuple[str, ...]


@dataclass(frozen=True)
class Statement:
    """
    A statement that was taken apart; `bind` makes a definition of it.

    Args:
        name: The join's name in the file.
        sql: Its text.
        how: The type of join.
        left: The side in FROM.
        right: The side after JOIN.
        using: The columns of USING, empty with ON.
        select: The items of the SELECT list.
        on: The whole condition; for USING the equalities that it stands for.
        where: The WHERE condition, or None.
    """

    name: str
    sql: str
    how: How
    left: Side
    right: Side
    using: tuple[str, ...]
    select: tuple[exp.Expr, ...]
    on: exp.Expr
    where: exp.Expr | None

    @property
    def sources(self) -> tuple[str, ...]:
        """The names of the sources whose columns `bind` needs, left before right."""
        return (self.left.source, self.right.source)
