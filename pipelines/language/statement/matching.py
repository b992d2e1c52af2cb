"""
Read one semi or anti join, EXISTS or IN: what it compares, and the input that it adds.

That input has one row for each value that the equalities compare, so that a row of the statement finds at most one. For
further conditions, which compare more of both, that row has the values that they need, of all rows with its value.
"""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from sqlglot import exp

from pipelines.language.names import MATCHES, PREFIX
from pipelines.language.sql.dialect import as_text, as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.columns import (
    column_of_key,
    conjuncts,
    index_of,
    is_null_of_nulls,
    not_null_of,
    qualified,
)
from pipelines.language.statement.queries import InputText, grouping, inputs_of, rows_of_groups
from pipelines.language.statement.statement import Groups, Matches, Query, Side
from pipelines.language.statement.subqueries import KEYED

MATCH = f"{PREFIX}match"
"""The name of a row with a value in a further condition."""

TOO_LARGE = "every row would match every row, and the work of an epoch would grow with their product"

SideOf = Callable[[exp.Table], Side | None]


class SemiJoin(NamedTuple):
    """
    A condition, or a JOIN, of a statement that is a look-up.

    Args:
        node: Where the statement has it.
        side: The input that it adds.
        on: What the statement compares with the parts of the key of that input.
        is_anti: Whether it is an anti join.
    """

    node: exp.Expr
    side: Side
    on: tuple[exp.Expr, ...]
    is_anti: bool = False


class Refused(NamedTuple):
    """A semi join that cannot be a look-up, with the objection; None if another one says why."""

    node: exp.Expr
    objection: Objection | None = None


def is_semi_join(join: exp.Join) -> bool:
    """Return whether a JOIN is a semi or anti join as Spark writes it."""
    return join.kind in ("SEMI", "ANTI") and join.side in ("", "LEFT") and not join.args.get("method")


class Written(NamedTuple):
    """
    A semi join as written.

    Args:
        text: The rows that it looks for.
        conditions: Their conditions; without `compared`, that is the ON of a JOIN.
        compared: For IN: the pairs that it compares.
    """

    node: exp.Expr
    text: InputText
    conditions: tuple[exp.Expr, ...]
    compared: tuple[tuple[exp.Expr, exp.Expr], ...] = ()


class _Compared(NamedTuple):
    """
    The conditions between a statement and the rows that it looks for.

    Args:
        pairs: The two sides of each equality: over the statement, and over the rows.
        filters: The conditions on the rows alone.
        rest: The other ones.
    """

    pairs: tuple[tuple[exp.Expr, exp.Expr], ...]
    filters: tuple[exp.Expr, ...]
    rest: tuple[exp.Expr, ...]


class Reader:
    """
    Reads one semi join.

    Args:
        aliases: The names of the inputs of FROM, in lower case.
    """

    def __init__(self, written: Written, select: exp.Select, side_of: SideOf, aliases: Collection[str]) -> None:
        self._written, self._select, self._side_of, self._aliases = written, select, side_of, aliases
        self._node, self._text = written.node, written.text

    def read(self, taken: Collection[str]) -> SemiJoin | Refused | None:
        """
        Return the semi join with the input that it adds; None for rows of a source that cannot be looked up.

        Args:
            taken: The names of all inputs so far, in lower case.
        """
        node, text = self._node, self._text
        side = self._side_of(text.table) if not text.table.db else None
        if side is None:
            return Refused(node)  # its name is unknown
        if side.kind not in KEYED:
            return None
        for outer, inner in self._written.compared:
            if not self._is_over_rows(inner) or not outer.find(exp.Column) or not inner.find(exp.Column):
                problem = (
                    f"IN: `{as_written(outer)}` and `{as_written(inner)}` are not columns of FROM and of the subquery"
                )
                return Refused(node, Objection(problem, "compare a column of one with a column of the other", node))
        compared = self._compared()
        if not compared.pairs:
            problem = f"{_named(node)}: no equality compares `{text.alias}` with the inputs of FROM: {TOO_LARGE}"
            hint = f"write one with an alias on both sides, such as {text.alias}.<column> = <input>.<column>"
            if text.alias.lower() in self._aliases:
                hint = f"give {side.source} an alias of its own, and write an equality with it"
            return Refused(node, Objection(problem, hint, node.this if isinstance(node, exp.Join) else node))
        if isinstance(node, exp.In) and (nullable := self._nullable(compared, side)) is not None:
            return Refused(node, nullable)
        alias = text.alias
        while alias.lower() in taken:
            alias += "_"
        names = [f"{PREFIX}value_{number}" for number in range(len(compared.pairs))]
        needed = {as_text(value): value for part in compared.rest for value in self._own_values(part)}
        columns = {written: f"{PREFIX}column_{number}" for number, written in enumerate(needed)}
        values = tuple(inner for _, inner in compared.pairs)
        items = [*zip(values, names, strict=True), *zip(needed.values(), columns.values(), strict=True)]
        select = tuple(exp.Alias(this=value.copy(), alias=exp.to_identifier(name)) for value, name in items)
        filters = exp.and_(*compared.filters) if compared.filters else None
        rows = rows_of_groups(side, text, alias, Query(text.alias, select, filters))
        collected = tuple(columns.values())
        groups = Groups(rows=rows, by=values, values=_combinations(collected), collected=collected)
        matches = Matches(node, self._holds(alias, names[0], compared.rest, columns))
        added = replace(grouping(groups, tuple(names)), matches=matches)
        is_anti = isinstance(node, exp.Join) and node.kind == "ANTI"
        return SemiJoin(node, added, tuple(outer for outer, _ in compared.pairs), is_anti)

    def _compared(self) -> _Compared:
        pairs, filters, rest = list(self._written.compared), list[exp.Expr](), list[exp.Expr]()
        found = [(part, self._pair(part)) for part in self._written.conditions]
        # A look-up goes by columns, and by other values of one input; beside it any other equality is a condition.
        is_plain = pairs or any(pair is not None and isinstance(pair[0], exp.Column) for _, pair in found)
        for part, pair in found:
            if pair is not None and (isinstance(pair[0], exp.Column) or not is_plain or self._is_over_one(pair[0])):
                pairs.append(pair)
            else:
                (filters if self._is_over_rows(part) else rest).append(part)
        return _Compared(tuple(pairs), tuple(filters), tuple(rest))

    @staticmethod
    def _is_over_one(outer: exp.Expr) -> bool:
        """Return whether an expression has columns of one input, and is null if they are."""
        return len({column.table.lower() for column in outer.find_all(exp.Column)}) == 1 and is_null_of_nulls(outer)

    def _pair(self, part: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
        """Return the two sides of an equality of the statement with the rows; None for any other condition."""
        if not isinstance(part, exp.EQ):
            return None
        ends = (part.this.unnest(), part.expression.unnest())
        for outer, inner in (ends, ends[::-1]):
            is_between = bool(outer.find(exp.Column)) and bool(inner.find(exp.Column))
            if is_between and not self._has_own(outer) and self._is_over_rows(inner):
                return outer, inner
        return None

    def _has_own(self, node: exp.Expr) -> bool:
        """Return whether an expression has columns of the rows; a name without an alias is one of theirs, as in SQL."""
        return not all(map(self._is_of_statement, node.find_all(exp.Column)))

    def _is_own_value(self, node: exp.Expr) -> bool:
        """Return whether a node is a value over the rows alone, which may not use the parameter of a lambda."""
        if not self._has_own(node) or not self._is_over_rows(node) or isinstance(node, exp.Lambda):
            return False
        is_branch = isinstance(node, exp.If) and isinstance(node.parent, exp.Case)
        return not is_branch and (isinstance(node, exp.Column) or node.find_ancestor(exp.Lambda) is None)

    def _own_values(self, node: exp.Expr) -> Iterator[exp.Expr]:
        """Yield the largest parts of an expression that are over the rows alone."""
        if self._is_own_value(node):
            yield node
        else:
            for part in node.iter_expressions():
                yield from self._own_values(part)

    def _is_over_rows(self, node: exp.Expr) -> bool:
        return not any(map(self._is_of_statement, node.find_all(exp.Column)))

    def _is_of_statement(self, column: exp.Column) -> bool:
        first = column.parts[0].name.lower()
        return len(column.parts) > 1 and first in self._aliases and first != self._text.alias.lower()

    def _holds(self, alias: str, value: str, rest: Sequence[exp.Expr], columns: Mapping[str, str]) -> exp.Expr:
        """
        Return the condition that a row of the statement finds a row with its value that meets the other ones.

        Args:
            columns: The names of the columns that have the parts over the rows, as these are written.
        """
        found = exp.Not(this=exp.Is(this=qualified(alias, value), expression=exp.Null()))
        if not rest:
            return found

        def of_match(node: exp.Expr) -> exp.Expr:
            if not self._is_own_value(node):
                return node
            name = exp.to_identifier(columns[as_text(node)], quoted=True)
            return exp.Dot(this=exp.to_identifier(MATCH), expression=name)

        conditions = [part.copy() for part in rest if not self._has_own(part)]
        of_rows = [part.transform(of_match) for part in rest if self._has_own(part)]
        if of_rows:
            of_any = exp.Lambda(this=exp.and_(*of_rows, copy=False), expressions=[exp.to_identifier(MATCH)])
            conditions.append(exp.Anonymous(this="exists", expressions=[qualified(alias, MATCHES), of_any]))
        both = exp.and_(found, *conditions, copy=False)
        return exp.Anonymous(this="coalesce", expressions=[both, exp.false()])

    def _nullable(self, compared: _Compared, side: Side) -> Objection | None:
        """Return the objection to an IN that a null may make unknown, where that is not the same as false."""
        if _is_plain_condition(self._node):
            return None
        where = self._select.args.get("where")
        conditions = [*conjuncts(where.this)] if where else []
        present, filtered = (
            {as_text(value) for part in parts if (value := not_null_of(part)) is not None}
            for parts in (conditions, compared.filters)
        )
        if all(
            (self._is_key(outer) or as_text(outer) in present)
            and (self._is_key_of(inner, side, self._text) or as_text(inner) in filtered)
            for outer, inner in self._written.compared
        ):
            return None
        is_negated, query = isinstance(self._node.parent, exp.Not), self._node.args["query"].unnest()
        if is_negated:
            problem = "NOT IN is true for no row once the subquery has a null, and what it compares may be null"
        else:
            problem = "IN is neither true nor false where a null is compared, and what it compares may be null"
        if query.args.get("with_"):
            return Objection(problem, "write EXISTS, with equalities in its WHERE", self._node)
        equal = (exp.EQ(this=inner.copy(), expression=outer.copy()) for outer, inner in self._written.compared)
        listed = " AND ".join(map(as_text, [*equal, *self._written.conditions]))
        exists = (
            f"{'NOT ' if is_negated else ''}EXISTS (SELECT 1 {as_text(query.args['from_']).strip()} WHERE {listed})"
        )
        return Objection(problem, f"write {exists}, with an alias before each column", self._node)

    def _is_key(self, node: exp.Expr) -> bool:
        """Return whether an expression is a column of a key that is never null: its input always has a row."""
        joins = [join for join in self._select.args.get("joins") or () if not is_semi_join(join)]
        texts = [text for text in inputs_of(self._select) or [] if text.alias.lower() in self._aliases]
        sides = [(self._side_of(text.table), text) for text in texts]
        named = [replace(side, alias=text.alias) for side, text in sides if side is not None]
        index = index_of(node, named) if len(named) == len(texts) else None
        is_outer = any(join.side in ("LEFT", "RIGHT", "FULL") for join in joins)
        if index is None or (is_outer and (index or any(join.side in ("RIGHT", "FULL") for join in joins))):
            return False
        return self._is_key_of(node, named[index], texts[index])

    @staticmethod
    def _is_key_of(node: exp.Expr, side: Side, text: InputText) -> bool:
        if side.may_be_absent or text.queries or text.grouped is not None:
            return False
        return column_of_key(node, side, text.alias) is not None


def _named(node: exp.Expr) -> str:
    return f"{node.kind} JOIN" if isinstance(node, exp.Join) else "EXISTS" if isinstance(node, exp.Exists) else "IN"


def _combinations(columns: Sequence[str]) -> tuple[tuple[str, exp.Expr], ...]:
    """Return what rows with a value have in columns, each combination once, in an order of its own."""
    if not columns:
        return ()
    fields = [part for name in columns for part in (exp.Literal.string(name), exp.column(exp.to_identifier(name)))]
    row = exp.Anonymous(this="named_struct", expressions=fields)
    each_once = exp.Anonymous(this="collect_set", expressions=[row])
    return ((MATCHES, exp.Anonymous(this="array_sort", expressions=[each_once])),)


def _is_plain_condition(node: exp.Expr) -> bool:
    """Return whether a null of a condition of WHERE is the same as false: only AND and OR are above it."""
    parent = node.parent
    while isinstance(parent, exp.Paren | exp.And | exp.Or):
        parent = parent.parent
    return isinstance(parent, exp.Where)
