"""
Read GROUP BY over one input: an input with a row for each group, of which the result has a row each.

    SELECT city, count(*) AS orders, sum(amount) AS amount FROM orders WHERE city IS NOT NULL GROUP BY city

A statement that groups is a selection from a subquery that does. The key of a group is what it is by, and no row of a
table has a key with a null, so that nulls are to be left out, or replaced.
"""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from pipelines.language.names import PREFIX
from pipelines.language.sql.dialect import as_written, render
from pipelines.language.sql.objection import Objection
from pipelines.language.sql.syntax import GROUPING, group_clauses
from pipelines.language.sql.vocabulary import AGGREGATES, grouping_calls
from pipelines.language.statement.columns import column_of_key, conjuncts, fields_of, not_null_of, qualified
from pipelines.language.statement.outputs import bad_names, is_star
from pipelines.language.statement.queries import InputText, grouping, rows_of_groups
from pipelines.language.statement.statement import Groups, Query, Side

SUMS, AVERAGES = frozenset({"sum"}), frozenset({"avg", "mean"})
"""Aggregates of which the value for some types depends on the order of the rows."""

REPLACING = frozenset({"coalesce", "ifnull", "nvl"})
"""Functions of which the value is that of the last argument where the others are null."""


def over_groups(select: exp.Select) -> exp.Select:
    """Return a statement that groups its one input as a selection from a subquery; any other statement as it is."""
    joins, from_ = select.args.get("joins"), select.args.get("from_")
    if joins or from_ is None or not any(select.args.get(clause) for clause in GROUPING):
        return select
    inner = select.copy()
    with_, alias = inner.args.get("with_"), from_.this.alias_or_name
    inner.set("with_", None)
    named = exp.Subquery(this=inner, alias=exp.TableAlias(this=exp.to_identifier(alias, quoted=True)))
    columns = [qualified(alias, item.alias_or_name) for item in inner.expressions if item.alias_or_name]
    return exp.Select(expressions=columns, from_=exp.From(this=named), with_=with_)


def through_groups(side: Side, text: InputText) -> tuple[Side, list[Objection]]:
    """Return the input that groups the rows of a source as a query says, and the objections to that query."""
    assert text.grouped is not None, f"{text.alias} groups no rows"
    return _Reader(side, text, text.grouped).read()


class _Reader:
    """Reads a query that groups the rows of an input."""

    def __init__(self, side: Side, text: InputText, query: exp.Select) -> None:
        self._side, self._text, self._query = side, text, query
        self._alias = query.args["from_"].this.alias_or_name
        self._items = query.expressions
        self._columns: dict[str, tuple[str, exp.Expr]] = {}
        self._summed: dict[str, None] = {}
        self._averaged: dict[str, None] = {}
        self._objections: list[Objection] = []

    def read(self) -> tuple[Side, list[Objection]]:
        unnamed = [item for item in self._items if not isinstance(item, exp.Alias | exp.Column) or is_star(item)]
        for item in unnamed:
            what = "*" if is_star(item) else as_written(item)
            self._object(f"SELECT: `{what}` beside groups has no name", "name each column, with AS where needed", item)
        self._objections += bad_names(((item.alias_or_name, item) for item in self._items), ())
        self._objections += group_clauses(self._query)
        each = [] if self._objections else list(self._by())
        by = list({self._plain(one): one for one in each}.values())
        if self._objections:
            return self._side, self._objections
        self._keys = {self._plain(one): self._name_of(one) for one in by}
        where = self._query.args.get("where")
        filters = [] if where is None else list(conjuncts(where.this))
        for one in by:
            self._check(one, filters)
        keys = tuple(dict.fromkeys(self._keys.values()))
        others = [item for item in self._items if item.alias_or_name not in keys]
        values = tuple((item.alias_or_name, self._of_group(item.unalias(), {})) for item in others)
        having, named = self._query.args.get("having"), {name.lower(): value for name, value in values}
        named |= {name.lower(): exp.column(exp.to_identifier(name, quoted=True)) for name in keys}
        stays = None if having is None else self._of_group(having.this, named)
        if self._objections:
            return self._side, self._objections
        columns = [(one, self._keys[self._plain(one)]) for one in by]
        columns += [(one, name) for name, one in self._columns.values()]
        select = tuple(exp.Alias(this=one.copy(), alias=exp.to_identifier(name, quoted=True)) for one, name in columns)
        own = Query(self._alias, select, None if where is None else where.this)
        rows = rows_of_groups(self._side, self._text, self._text.alias, own)
        groups = Groups(
            rows=rows,
            by=tuple(by),
            values=values,
            having=stays,
            summed=tuple(self._summed),
            averaged=tuple(self._averaged),
        )
        return grouping(groups, keys), []

    def _object(self, problem: str, hint: str, about: exp.Expr) -> None:
        self._objections.append(Objection(problem, hint, about))

    def _by(self) -> Iterator[exp.Expr]:
        """Yield the expressions by which rows are grouped; a number or a name may stand for an item of SELECT."""
        group = self._query.args.get("group")
        having = self._query.args.get("having")
        if group is None and having is not None:
            self._object("HAVING without GROUP BY is not supported", "write GROUP BY with a column", having)
        elif group is None:
            yield from (item.unalias() for item in self._items)
        elif group.args.get("all"):
            yield from (item.unalias() for item in self._items if not list(grouping_calls(item)))
        for one in group.expressions if group is not None else ():
            if isinstance(one, exp.Literal) and not one.is_string:
                if one.name.isdigit() and 0 < int(one.name) <= len(self._items):
                    yield self._items[int(one.name) - 1].unalias()
                else:
                    self._object(f"GROUP BY {one.name}: SELECT has {len(self._items)} items", "", one)
                continue
            aliased = [item for item in self._items if isinstance(item, exp.Alias)]
            named = [item for item in aliased if item.alias.lower() == one.name.lower()]
            if (
                isinstance(one, exp.Column)
                and not one.table
                and named
                and self._plain(named[0].this) != self._plain(one)
            ):
                problem = f"GROUP BY: `{one.name}` may be a column of {self._side.source} or the item of SELECT"
                self._object(problem, "repeat the expression of the item, or write its number", one)
                continue
            yield one

    def _name_of(self, one: exp.Expr) -> str:
        """Return the name under which SELECT has what groups are by."""
        found = [item.alias_or_name for item in self._items if self._plain(item.unalias()) == self._plain(one)]
        if not found:
            written = as_written(one)
            self._object(f"SELECT: the result has no key without `{written}`", "add it to the SELECT list", one)
        return found[0] if found else ""

    def _check(self, one: exp.Expr, filters: Sequence[exp.Expr]) -> None:
        """Object to what groups are by if it may be null."""
        written = as_written(one)
        if list(grouping_calls(one)):
            self._object(f"GROUP BY: `{written}` is an aggregate", "group by columns", one)
            return
        is_plain = not self._side.may_be_absent and not self._text.queries
        present = {self._plain(value) for part in filters if (value := not_null_of(part)) is not None}
        is_replacing = isinstance(one, exp.Anonymous) and one.name.lower() in REPLACING and bool(one.expressions)
        is_key = is_plain and column_of_key(one, self._side, self._alias) is not None
        if is_key or _is_constant(one.expressions[-1] if is_replacing else one) or self._plain(one) in present:
            return
        if self._query.args.get("group") is None:
            problem = f"DISTINCT: rows without `{written}` would be one row, whose key is null"
            hint = f"add `{written} IS NOT NULL` to WHERE, or leave DISTINCT out if SELECT has the key of the table"
        else:
            problem = f"GROUP BY: rows without `{written}` would be a group of their own, whose key is null"
            hint = f"add `{written} IS NOT NULL` to WHERE, or group by coalesce({written}, <value>)"
        self._object(problem, hint, one)

    def _of_group(self, expression: exp.Expr, values: dict[str, exp.Expr]) -> exp.Expr:
        """Return an expression over groups: over what they are by, and aggregates of columns of their rows."""

        def of_group(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Identifier | exp.DataType | exp.DataTypeParam | exp.ColumnDef) or (
                _is_constant(node) and node.parent is not None
            ):
                return node
            name = self._keys.get(self._plain(node))
            if name is not None:
                return exp.column(exp.to_identifier(name, quoted=True))
            if node in calls:
                return self._aggregate(node)
            is_refused = isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES
            if is_refused or isinstance(node, exp.Exists | exp.Query) or node.args.get("query"):
                return exp.Null()
            if isinstance(node, exp.Column):
                first, *fields = (part.name for part in node.parts)
                value = values.get(first.lower())
                if value is not None and (not fields or first.lower() != self._alias.lower()):
                    return fields_of(exp.Paren(this=value.copy()), fields)
                problem = f"`{as_written(node)}` is neither grouped nor in an aggregate"
                self._object(problem, "add it to GROUP BY, or take max(...) of it", node)
            return node

        calls = list(grouping_calls(expression))
        return expression.copy().transform(of_group)

    def _aggregate(self, node: exp.Expr) -> exp.Expr:
        """Return an aggregate over columns of the rows."""
        call = node.this if isinstance(node, exp.Filter) else node
        over = [
            part for one in call.expressions for part in (one.expressions if isinstance(one, exp.Distinct) else [one])
        ]
        is_sum = call.name.lower() in SUMS | AVERAGES
        if isinstance(node, exp.Filter):  # the value of a row that the filter leaves out may raise
            where = node.expression.this
            over = [
                part if isinstance(part, exp.Star) else exp.Anonymous(this="if", expressions=[where, part, exp.Null()])
                for part in over
            ]
        names = [self._column(part) if is_sum or part.find(exp.Column) else part for part in over]
        for added, functions in ((self._summed, SUMS), (self._averaged, AVERAGES)):
            if call.name.lower() in functions:
                added |= dict.fromkeys(name.name for name in names)
        if isinstance(call.expressions[0] if call.expressions else None, exp.Distinct):
            names = [exp.Distinct(expressions=names)]
        found: exp.Expr = exp.Anonymous(this=call.name, expressions=[name.copy() for name in names])
        if isinstance(node, exp.Filter):
            found = exp.Filter(this=found, expression=exp.Where(this=self._column(node.expression.this)))
        return found

    def _column(self, over: exp.Expr) -> exp.Expr:
        """Return the column of the rows that has a value."""
        name, _ = self._columns.setdefault(self._plain(over), (f"{PREFIX}column_{len(self._columns)}", over))
        return exp.column(exp.to_identifier(name, quoted=True))

    def _plain(self, expression: exp.Expr) -> str:
        """Return an expression in one form, however its columns are written."""

        def written(node: exp.Expr) -> exp.Expr:
            if not isinstance(node, exp.Column):
                return node
            parts = [part.name.lower() for part in node.parts]
            own = parts[1:] if len(parts) > 1 and parts[0] == self._alias.lower() else parts
            return exp.column(exp.to_identifier(".".join(own), quoted=True))

        return render(expression.unnest().copy().transform(written))


def _is_constant(node: exp.Expr) -> bool:
    """Return whether an expression is a constant that is not null."""
    value = node.this if isinstance(node, exp.Neg | exp.Cast) else node
    return isinstance(value, exp.Literal | exp.RawString | exp.Boolean)
