"""Resolve names to columns, ignoring case: without a schema, by aliases and keys, or as Spark does, by all columns."""

from collections.abc import Collection, Iterable, Iterator, Sequence

from sqlglot import exp

from pipelines.language.names import nearest
from pipelines.language.sql.dialect import as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.sql.vocabulary import UNSTABLE, objection, words
from pipelines.language.statement.definition import How
from pipelines.language.statement.statement import ReferenceClause, Side

EQUAL = (exp.EQ, exp.NullSafeEQ)
NULL_IF_A_PART_IS = (exp.Cast, exp.Dot, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe)
NULL_OF_NULL = words(
    """
    abs btrim ceil concat date_add date_sub date_trunc day floor get_json_object hour initcap last_day lcase left length
    lower lpad ltrim md5 month quarter regexp_extract regexp_replace replace reverse right round rpad rtrim sha1 sha2
    split_part substr substring substring_index to_date to_timestamp translate trim trunc ucase unix_millis unix_seconds
    upper year
    """
)
"""Functions that return null if any argument is null."""


def condition(join: exp.Join, left: Side, right: Side) -> tuple[exp.Expr, tuple[str, ...]]:
    """Return the condition of a JOIN of two inputs, for USING the equivalent equalities, and the columns of USING."""
    using = {column.name: column for column in join.args.get("using") or ()}
    if not using:
        return join.args["on"], ()
    pairs = [exp.EQ(this=_column(column, left), expression=_column(column, right)) for column in using.values()]
    return exp.and_(*pairs, copy=False), tuple(using)


def index_of(node: exp.Expr, sides: Sequence[Side]) -> int | None:
    """Find the input of a column by its alias or because only one key has it; None if that takes a schema."""
    if not isinstance(node, exp.Column):
        return None
    name = node.parts[0].name
    if node.table:
        owners = [index for index, side in enumerate(sides) if name.lower() == side.alias.lower()]
    else:
        owners = [index for index, side in enumerate(sides) if in_key(name, side)]
    return owners[0] if len(owners) == 1 else None


def ambiguous(expression: exp.Expr, clause: str, sides: Sequence[Side]) -> Iterator[Objection]:
    """Yield an objection for each column without an alias that several keys have."""
    for column in expression.find_all(exp.Column):
        owners = [side for side in sides if not column.table and in_key(column.name, side)]
        if len(owners) > 1:
            first, last = (f"`{side.alias}.{column.name}`" for side in (owners[0], owners[-1]))
            several = "both sides" if len(sides) == 2 else "several inputs"
            yield Objection(f"{clause}: `{column.name}` is a column of {several}", f"write {first} or {last}", column)


def conjuncts(on: exp.Expr) -> Iterator[exp.Expr]:
    """Split a condition at its ANDs, in the order of the text."""
    pending = [on]
    while pending:
        node = pending.pop().unnest()
        if isinstance(node, exp.And):
            pending += [node.expression, node.this]
        else:
            yield node


def coalesced(node: exp.Expr) -> list[exp.Expr]:
    """Return the columns of an expression that is a column or a coalesce of columns; empty for any other expression."""
    node = node.unnest()
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("coalesce", "ifnull", "nvl"):
        parts = [coalesced(part) for part in node.expressions]
        return [column for part in parts for column in part] if all(parts) else []
    return [node] if isinstance(node, exp.Column) else []


def in_key(name: str, side: Side) -> str | None:
    """Return a column of a key as the file writes it, ignoring case; None if the key does not have it."""
    return next((column for column in side.key if column.lower() == name.lower()), None)


def qualified(alias: str, name: str) -> exp.Column:
    """Return a column of an input, both names quoted."""
    return exp.column(exp.to_identifier(name, quoted=True), table=exp.to_identifier(alias, quoted=True))


def not_null_of(condition: exp.Expr) -> exp.Expr | None:
    """Return what a condition IS NOT NULL is about; None for any other condition."""
    test = condition.this if isinstance(condition, exp.Not) else None
    return test.this if isinstance(test, exp.Is) and isinstance(test.expression, exp.Null) else None


def column_of_key(node: exp.Expr, side: Side, alias: str) -> str | None:
    """Return the column of a key that an expression is, as the file writes it; None for a field of a column, too."""
    if not isinstance(node, exp.Column) or len(node.parts) > 2 or node.table.lower() not in ("", alias.lower()):
        return None
    return in_key(node.name, side)


def _column(written: exp.Expr, side: Side) -> exp.Column:
    """Create the column of an input that USING refers to, with its position in the text."""
    name = exp.to_identifier(written.name, quoted=True)
    name.meta.update(next(written.find_all(exp.Identifier)).meta)
    return exp.column(name, table=exp.to_identifier(side.alias, quoted=True))


def is_null_of_nulls(node: exp.Expr) -> bool:
    """Return whether an expression is certainly null if all its columns are null; False also if it is unknown."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return True
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in NULL_OF_NULL and any(map(is_null_of_nulls, node.expressions))
    return isinstance(node, NULL_IF_A_PART_IS) and any(map(is_null_of_nulls, node.iter_expressions()))


def is_null_without(link: ReferenceClause, parts: Sequence[int]) -> bool:
    """Return whether a reference matches nothing, or has a null, without the input that has these parts of its key."""
    plain = (link.expressions[part] for part in parts if part not in link.null_safe)
    # No row has a key of nulls alone, so a reference that consists of nulls matches nothing, even by `<=>`.
    return any(map(is_null_of_nulls, plain)) or all(is_null_of_nulls(link.expressions[part]) for part in parts)


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

    Only expressions of lakejoin name columns of the inputs that semi joins add; `named` are the other ones.

    Args:
        how: The type of the JOIN that has USING.
        using: The columns of USING.
        of_stars: The columns that stars select, in lower case; None for all columns of the tables.
    """

    def __init__(
        self,
        tables: Sequence[NamedTable],
        how: How = "inner",
        using: Sequence[str] = (),
        of_stars: Collection[str] | None = None,
    ) -> None:
        self.how = how
        self.tables = tuple(tables)
        self.named = tuple(table for table in tables if table.side.matches is None)
        self.using = tuple(name for name in using if all(table.has(name) for table in tables))
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
        """Return a copy of an expression with the alias and real name of each column; `objections` get unknown ones."""
        return expression.transform(lambda node: self._column(node) if isinstance(node, exp.Column) else node)

    def merged(self, name: str) -> exp.Expr:
        """Return the value of a column of USING: that of the outer side, or the coalesce of both in a FULL JOIN."""
        left, right = self.tables
        if self.how == "full":
            return exp.Anonymous(this="COALESCE", expressions=[left.column(name), right.column(name)])
        return (right if self.how == "right" else left).column(name)

    def table(self, alias: str) -> NamedTable | None:
        """Return the input with an alias, ignoring case; None if no input has it."""
        return next((table for table in self.tables if table.side.alias.lower() == alias.lower()), None)

    def index(self, column: exp.Column) -> int | None:
        """Return the index in FROM of the input of a resolved column; None for an unresolved column."""
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
        sides = "both sides" if len(self.named) == 2 else "several inputs"
        return Objection(f"`{name}` is a column of {sides}", f"write {' or '.join(choices)}")

    def _unknown(self, column: exp.Column, parts: list[str], table: NamedTable | None) -> Objection:
        if table in self.named and table is not None:
            return Objection(f"{table.side.source} has no column `{parts[1]}`", nearest(parts[1], table.columns))
        if len(parts) == 1 and parts[0].lower() in UNSTABLE:
            return objection(parts[0], 0) or Objection("")
        if len(parts) > 1:
            aliases = " and ".join(f"`{table.side.alias}`" for table in self.named)
            return Objection(f"`{as_written(column)}`: unknown input `{parts[0]}`", f"the inputs are {aliases}")
        sources = list(dict.fromkeys(table.side.source for table in self.named))
        columns = [column for table in self.named for column in table.columns]
        none = f"neither {' nor '.join(sources)} has a column" if len(sources) > 1 else f"{sources[0]} has no column"
        return Objection(f"{none} `{parts[0]}`", nearest(parts[0], columns))


def fields_of(column: exp.Expr, fields: Iterable[str]) -> exp.Expr:
    """Return the expression of a nested field of a column."""
    for field in fields:
        column = exp.Dot(this=column, expression=exp.to_identifier(field, quoted=True))
    return column
