"""Resolve names to columns of the tables, as Spark does, ignoring case."""

from collections.abc import Collection, Iterable, Sequence

from sqlglot import exp

from pipelines.language.names import nearest
from pipelines.language.sql.dialect import as_written
from pipelines.language.sql.functions import UNSTABLE, objection
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.statement import Side, Statement


class NamedTable:
    """One input with its real columns; records the columns that are used."""

    def __init__(self, side: Side, columns: Sequence[str]) -> None:
        self.side = side
        self.columns = tuple(columns)
        self.used: set[str] = set()
        self._real = {column.lower(): column for column in columns}

    def has(self, name: str) -> bool:
        """Return whether the table has a column of this name, ignoring case."""
        return name.lower() in self._real

    def real(self, name: str) -> str:
        """Return the real name of a column of the table."""
        return self._real[name.lower()]

    def column(self, name: str) -> exp.Expr:
        """Return the qualified and quoted column, and record its use."""
        self.used.add(self.real(name))
        return exp.column(exp.to_identifier(self.real(name), quoted=True), table=self._alias())

    def _alias(self) -> exp.Identifier:
        return exp.to_identifier(self.side.alias, quoted=True)


class Scope:
    """
    The names that the expressions of one statement may use.

    Stars select the columns `of_stars`, in lower case, or if it is None all columns of the tables.
    """

    def __init__(
        self, statement: Statement, tables: Sequence[NamedTable], of_stars: Collection[str] | None = None
    ) -> None:
        self.how = statement.steps[0].how
        self.tables = tuple(tables)
        self.using = tuple(name for name in statement.using if all(table.has(name) for table in tables))
        self._merged = {name.lower() for name in self.using}
        self._of_stars = of_stars
        self.objections: list[Objection] = []
        self.left_out: list[tuple[str, str]] = []

    def stands_for(self, table: NamedTable, column: str) -> bool:
        """Return whether a star selects a column of a table; if not, add the column to `left_out`."""
        if self._of_stars is None or column.lower() in self._of_stars:
            return True
        self.left_out.append((table.side.source, column))
        return False

    def resolve(self, expression: exp.Expr) -> exp.Expr:
        """
        Return a copy of an expression in which every column has its alias and real name.

        Unknown and ambiguous names stay unchanged and are added to `objections`.
        """
        return expression.transform(lambda node: self._column(node) if isinstance(node, exp.Column) else node)

    def merged(self, name: str) -> exp.Expr:
        """
        Return the value of a column of USING: the column of the outer side, or the coalesce of both in a FULL JOIN.
        """
        left, right = self.tables
        if self.how == "full":
            return exp.Anonymous(this="COALESCE", expressions=[left.column(name), right.column(name)])
        return (right if self.how == "right" else left).column(name)

    def table(self, alias: str) -> NamedTable | None:
        """Return the input with an alias, ignoring case; None if no input has it."""
        return next((table for table in self.tables if table.side.alias.lower() == alias.lower()), None)

    def place(self, column: exp.Column) -> int | None:
        """Return the place in FROM of the input of a resolved column; None for an unresolved column."""
        return next((n for n, table in enumerate(self.tables) if table.side.alias == column.table), None)

    def is_merged(self, name: str) -> bool:
        """Return whether USING names a column."""
        return name.lower() in self._merged

    def _column(self, column: exp.Column) -> exp.Expr:
        parts = [part.name for part in column.parts]
        table = self.table(parts[0]) if len(parts) > 1 else None
        if table and table.has(parts[1]):
            return fields_of(table.column(parts[1]), parts[2:])
        if self.is_merged(parts[0]):
            return fields_of(self.merged(parts[0]), parts[1:])
        owners = [owner for owner in self.tables if owner.has(parts[0])]
        if len(owners) == 1:
            return fields_of(owners[0].column(parts[0]), parts[1:])
        found = self._ambiguous(parts[0]) if owners else self._unknown(column, parts, table)
        self.objections.append(found._replace(about=column))
        return column

    def _ambiguous(self, name: str) -> Objection:
        owners = [table for table in self.tables if table.has(name)]
        choices = [f"`{table.side.alias}.{table.real(name)}`" for table in owners]
        sides = "both sides" if len(self.tables) == 2 else "several inputs"
        return Objection(f"`{name}` is a column of {sides}", f"write {' or '.join(choices)}")

    def _unknown(self, column: exp.Column, parts: list[str], table: NamedTable | None) -> Objection:
        if table:
            return Objection(f"{table.side.source} has no column `{parts[1]}`", nearest(parts[1], table.columns))
        if len(parts) == 1 and parts[0].lower() in UNSTABLE:
            return objection(parts[0], 0) or Objection("")
        if len(parts) > 1:
            aliases = " and ".join(f"`{table.side.alias}`" for table in self.tables)
            return Objection(f"`{as_written(column)}`: unknown input `{parts[0]}`", f"the inputs are {aliases}")
        sources = list(dict.fromkeys(table.side.source for table in self.tables))
        columns = [column for table in self.tables for column in table.columns]
        none = f"neither {' nor '.join(sources)} has a column" if len(sources) > 1 else f"{sources[0]} has no column"
        return Objection(f"{none} `{parts[0]}`", nearest(parts[0], columns))


def fields_of(column: exp.Expr, fields: Iterable[str]) -> exp.Expr:
    """Return the expression of a nested field of a column."""
    for field in fields:
        column = exp.Dot(this=column, expression=exp.to_identifier(field, quoted=True))
    return column
