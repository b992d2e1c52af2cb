"""Resolve the inputs of a statement against the columns of their sources, through the queries that stand between."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from sqlglot import exp

from pipelines.language.names import CHANGELOG_COLUMNS, nearest
from pipelines.language.sql.dialect import render
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.columns import NamedTable, Scope
from pipelines.language.statement.definition import Grouping, Input, InputQuery
from pipelines.language.statement.outputs import bad_names
from pipelines.language.statement.statement import Groups, Side

Outputs = Callable[[exp.Expr, Scope], list[tuple[str, exp.Expr]]]
"""Returns the outputs of an item of a SELECT list in a scope, each with its name and resolved expression."""

ATOMS = (exp.Column, exp.Literal, exp.Boolean, exp.Null, exp.Anonymous, exp.Paren, exp.Cast, exp.Case)
"""Expressions that need no parentheses within another one."""


@dataclass(frozen=True)
class NamedInput:
    """
    An input with its real columns.

    Args:
        values: For a subquery its columns, as expressions over columns of the source; None for a source that is read as
            it is.
        where: The filter of a subquery over columns of the source.
        source_columns: The columns of the source, in the order of its table.
    """

    table: NamedTable
    values: Mapping[str, exp.Expr] | None
    where: exp.Expr | None
    source_columns: Sequence[str]

    def resolved(self) -> Input:
        """Return the input with the columns that the statement has used so far."""
        table, side = self.table, self.table.side
        key = () if side.kind == "stream" else tuple(table.real(name) for name in side.key)
        others = tuple(column for column in table.columns if column in table.used and column not in key)
        columns = key + others
        query = None if self.values is None else self._query(columns, self.values)
        return Input(side.source, side.alias, key, columns, may_be_absent=side.may_be_absent, query=query)

    def _query(self, columns: Sequence[str], values: Mapping[str, exp.Expr]) -> InputQuery:
        real = {column.lower(): column for column in self.source_columns}
        key = tuple(real[name.lower()] for name in self.table.side.source_key)
        expressions = [values[column] for column in columns]
        needed = [*expressions, *([] if self.where is None else [self.where])]
        used = {column.name for expression in needed for column in expression.find_all(exp.Column)}
        return InputQuery(
            key=key,
            columns=key + tuple(column for column in self.source_columns if column in used and column not in key),
            values=tuple(map(render, expressions)),
            where=None if self.where is None else render(self.where),
        )


@dataclass(frozen=True)
class GroupedInput:
    """An input that groups rows, with its real columns."""

    table: NamedTable
    rows: NamedInput
    groups: Groups

    def resolved(self) -> Input:
        """Return the input with the columns that the statement has used so far."""
        side, groups, used = self.table.side, self.groups, self.rows.table.used
        values = [(name, value) for name, value in groups.values if name in self.table.used]
        needed = [*(value for _, value in values), *([] if groups.having is None else [groups.having])]
        named = {column.name for value in needed for column in value.find_all(exp.Column)}
        used.update(name for name in self.rows.table.columns if name in named or name in side.key)
        grouping = Grouping(
            self.rows.resolved(),
            tuple((name, render(value)) for name, value in values),
            None if groups.having is None else render(groups.having),
            groups.collected,
            tuple(name for name in groups.summed if name in named),
            tuple(name for name in groups.averaged if name in named),
        )
        columns = side.key + tuple(name for name, _ in values)
        return Input(side.source, side.alias, side.key, columns, grouping=grouping)


def bound_input(
    side: Side, columns: Sequence[str], outputs: Outputs
) -> tuple[NamedInput | GroupedInput, list[Objection]]:
    """Name the columns of an input over the columns of its source, and list the objections to its queries."""
    if side.groups is None:
        return named_input(side, columns, outputs)
    rows, objections = named_input(side.groups.rows, columns, outputs)
    names = (*side.key, *(name for name, _ in side.groups.values))
    return GroupedInput(NamedTable(side, names), rows, side.groups), objections


def named_input(side: Side, columns: Sequence[str], outputs: Outputs) -> tuple[NamedInput, list[Objection]]:
    """Name the columns of an input over the columns of its source, and list the objections to its queries."""
    source_columns = [column for column in columns if column not in side.added]
    if not side.queries:
        table = NamedTable(side, source_columns)
        return NamedInput(table, None, None, source_columns), list(_missing(side, table, side.key))
    source = NamedTable(side, source_columns)
    objections = list(_missing(side, source, side.source_key))
    values = {name: source.column(name) for name in source_columns}
    filters: list[exp.Expr] = []
    for query in side.queries:
        scope = Scope([NamedTable(side.through(query.alias, (), ()), list(values))])
        items = [(item, output) for item in query.select for output in outputs(item, scope)]
        where = None if query.where is None else scope.resolve(query.where)
        objections += [*scope.objections, *bad_names(((name, item) for item, (name, _) in items), ())]
        if side.kind == "join":  # its changelog, read through the query, has these columns too
            taken = ((name, item) for item, (name, _) in items if name.lower() in CHANGELOG_COLUMNS)
            problem = "SELECT: `{}` is a column of the changelog"
            objections += [Objection(problem.format(name), "give it another name", item) for name, item in taken]
        if objections:
            break
        filters += [] if where is None else [_over(where, values)]
        values = {name: _over(value, values) for _, (name, value) in items}
    where = exp.and_(*filters, copy=False) if filters else None
    return NamedInput(NamedTable(side, list(values)), values, where, source_columns), objections


def _over(expression: exp.Expr, values: Mapping[str, exp.Expr]) -> exp.Expr:
    """Replace the columns of a query by their values over the columns of the source."""

    def value(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        found = values[node.name].copy()
        return found if isinstance(found, ATOMS) else exp.Paren(this=found)

    return expression.transform(value)


def _missing(side: Side, table: NamedTable, key: Collection[str]) -> Iterator[Objection]:
    for name in key:
        if not table.has(name):
            problem = f"the key of {side.source} names `{name}`, which is not one of its columns"
            yield Objection(problem, nearest(name, table.columns))
