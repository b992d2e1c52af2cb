"""
Find the source or join that each input of a statement reads, also through subqueries and the names of WITH.

    JOIN (SELECT id, upper(name) AS name FROM customers WHERE active) c      an input over customers
    WITH c AS (SELECT ... FROM customers WHERE active) ... JOIN c            the same

Such an input is a table: the rows of its source for which the filter is true, with expressions as columns. Its filter
is never moved to ON or WHERE: for an outer side it means something else there.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import NamedTuple

from sqlglot import exp

from pipelines.language.names import PREFIX
from pipelines.language.sql.objection import Objection
from pipelines.language.sql.syntax import GROUPING
from pipelines.language.statement.statement import Groups, Query, Side

TAKEN = {"with_", "expressions", "from_", "where"}
"""The clauses that a subquery may have."""


class _Named(NamedTuple):
    """A query of WITH, and the queries that its own FROM may name."""

    query: exp.Expr
    known: "Known"


Known = Mapping[str, _Named]
"""The queries that a FROM may name, by their names in lower case."""

NOTHING: Known = MappingProxyType({})


class InputText(NamedTuple):
    """
    An input as FROM writes it.

    Args:
        table: The source or join that it reads.
        written: The table, the name of WITH, or the subquery, in FROM.
        queries: The queries through which it reads the source, the innermost first.
        grouped: The query that groups what these make of the source; None if none does.
        objection: What is wrong with it; None for nothing.
    """

    table: exp.Table
    written: exp.Expr
    queries: tuple[Query, ...] = ()
    grouped: exp.Select | None = None
    objection: Objection | None = None

    @property
    def alias(self) -> str:
        """The name of the input in the statement."""
        return self.written.alias_or_name


def inputs_of(select: exp.Select, known: Known = NOTHING) -> list[InputText] | None:
    """Return the inputs in the order of FROM; None if one is not a filtered and projected source or join."""
    names = named_in(select, known)
    from_ = select.args.get("from_")
    tables = [from_.this, *(join.this for join in select.args.get("joins") or ())] if from_ else []
    found = [input_of(table, names) for table in tables]
    return None if None in found or not found else [each for each in found if each is not None]


def named_in(select: exp.Select, known: Known = NOTHING) -> Known:
    """Return the queries that the FROM of a SELECT may name: those of its WITH, and those known where it stands."""
    names = dict(known)
    with_ = select.args.get("with_")
    for named in with_.expressions if with_ else ():
        names[named.alias.lower()] = _Named(named.this, dict(names))
    return names


def input_of(written: exp.Expr, names: Known) -> InputText | None:
    """Return an input of FROM; None if it is not a filtered and projected source or join."""
    if isinstance(written, exp.Subquery):
        named = _Named(written.unnest(), names)
    elif not isinstance(written, exp.Table) or not isinstance(written.this, exp.Identifier):
        return None
    elif written.db or written.name.lower() not in names:
        return InputText(written, written)
    else:
        named = names[written.name.lower()]
    query = named.query.unnest()
    clauses = {name for name, value in query.args.items() if value}
    if not isinstance(query, exp.Select) or clauses - TAKEN - GROUPING:
        return None
    inner = inputs_of(query, named.known)
    if inner is None or len(inner) > 1:
        return None
    (source,) = inner
    if source.grouped is not None:
        hint = "filter groups by HAVING, and write expressions over them where the groups are made"
        return source._replace(written=written, objection=Objection("FROM: a subquery over groups", hint, written))
    if clauses & GROUPING:
        return InputText(source.table, written, source.queries, query)
    where = query.args.get("where")
    own = Query(source.alias, tuple(query.expressions), where.this if where else None)
    return InputText(source.table, written, (*source.queries, own))


def through_queries(side: Side, text: InputText) -> tuple[Side, list[Objection]]:
    """Return the input of a statement over a source, with the key as its queries name it, and the objections to it."""
    if text.objection is not None:
        return side, [text.objection]
    key: Sequence[str] = side.key
    for query in text.queries:
        names = [name_of(column, query) for column in key]
        dropped = [column for column, name in zip(key, names, strict=True) if name is None]
        if dropped:
            problem = (
                f"FROM: the subquery `{text.alias}` does not select {', '.join(f'`{column}`' for column in dropped)}, "
                f"of the key of {side.source}, by which its rows are told apart"
            )
            return side, [Objection(problem, "select it as a plain column, under any name", text.written)]
        key = [name for name in names if name is not None]
    return side.through(text.alias, tuple(key), text.queries), []


def name_of(column: str, query: Query) -> str | None:
    """Return the name of the first output of a query that is a column, ignoring case; None if no output is."""
    for item in query.select:
        star = item.this if isinstance(item, exp.Column) else item
        if isinstance(star, exp.Star):
            if column.lower() not in {name.name.lower() for name in star.args.get("except_") or ()}:
                return column
        elif _is_column(item.unalias(), column, query.alias):
            return item.alias_or_name
    return None


def _is_column(node: exp.Expr, name: str, alias: str) -> bool:
    if not isinstance(node, exp.Column) or len(node.parts) > 2:
        return False
    return node.name.lower() == name.lower() and node.table.lower() in ("", alias.lower())


def rows_of_groups(side: Side, text: InputText, alias: str, own: Query) -> Side:
    """Return the rows to group, an input over the source; queries without its key get it under a name of ours."""
    key, queries = side.key, list[Query]()
    for query in (*text.queries, own):
        select, names = list(query.select), list[str]()
        for number, name in enumerate(key):
            found = name_of(name, query)
            if found is None:
                found = f"{PREFIX}key_{number}"
                select.append(exp.Alias(this=exp.column(name, table=query.alias, quoted=True), alias=found))
            names.append(found)
        key = tuple(names)
        queries.append(replace(query, select=tuple(select)))
    return side.through(alias, key, tuple(queries))


def grouping(groups: Groups, key: tuple[str, ...]) -> Side:
    """Return the input that groups rows, whose key columns are the groups."""
    return replace(groups.rows, key=key, source_key=(), may_be_absent=False, groups=groups)


def source_column(side: Side, name: str) -> str | None:
    """Return the column of its source that a column of an input is, ignoring case; None if it is an expression."""
    for query in reversed(side.queries):
        found = next((column for item in query.select if (column := _column_of(item, name, query.alias))), None)
        if found is None:
            return None
        name = found
    return name


def _column_of(item: exp.Expr, name: str, alias: str) -> str | None:
    """Return the column that an item of a query selects as `name`."""
    star, value = item.this if isinstance(item, exp.Column) else item, item.unalias()
    if isinstance(star, exp.Star):
        left_out = {column.name.lower() for column in star.args.get("except_") or ()}
        return None if name.lower() in left_out else name
    is_it = item.alias_or_name.lower() == name.lower() and _is_column(value, value.name, alias)
    return value.name if is_it else None


def refused_queries(sides: Sequence[Side], texts: Sequence[InputText]) -> Iterator[Objection]:
    """Yield an objection to each subquery of a stream, of a global table, or in a join with a stream."""
    has_stream = any(side.kind == "stream" for side in sides)
    for side, text in zip(sides, texts, strict=True):
        if not side.queries:
            continue
        if side.kind == "stream":
            problem = f"FROM: `{side.alias}` is a subquery of a stream, which is read as it is"
            hint = f"name {side.source}, and write expressions in SELECT and the filter in WHERE"
            yield Objection(problem, hint, text.written)
        elif side.kind == "global_table":
            problem = f"FROM: `{side.alias}` is a subquery of a global table, which is read as it is"
            yield Objection(problem, f"name {side.source}, and write the filter in its ON", text.written)
        elif has_stream:
            problem = f"FROM: `{side.alias}` is a subquery, and a join with a stream looks up tables as they are"
            hint = "make it a join of its own under `joins:`, and look up its result"
            yield Objection(problem, hint, text.written)
