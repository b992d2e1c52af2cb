"""
Read semi and anti joins, EXISTS and IN as look-ups.

    FROM customers c WHERE EXISTS (SELECT 1 FROM orders o WHERE o.customer_id = c.id AND o.open)
    FROM customers c LEFT JOIN <open orders, one row for each customer_id> o ON o.customer_id = c.id
        WHERE o.customer_id IS NOT NULL

`matching` reads each of them; here they are found in a statement, and the statement is written with what they add.
"""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from sqlglot import exp

from pipelines.language.sql.dialect import as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.sql.syntax import objections_to_query
from pipelines.language.statement.columns import conjuncts, qualified
from pipelines.language.statement.definition import How
from pipelines.language.statement.matching import Reader, Refused, SemiJoin, SideOf, Written, is_semi_join
from pipelines.language.statement.queries import TAKEN, InputText, Known, input_of, inputs_of, named_in
from pipelines.language.statement.statement import Clause, Inputs, Side

PARTS = TAKEN | {"distinct"}
"""The clauses that a subquery of EXISTS or IN may have; DISTINCT changes nothing."""

OVER_GROUPS = "make the groups a join of their own under `joins:`, and name that"


class SemiJoins(NamedTuple):
    """The semi joins of a statement, and those that cannot be look-ups."""

    found: tuple[SemiJoin, ...] = ()
    refused: tuple[Refused, ...] = ()
    objections: tuple[Objection, ...] = ()

    def others(self, objections: Sequence[Objection]) -> list[Objection]:
        """Leave out the objections to subqueries in general about what is taken, or refused for a better reason."""
        nodes = {id(one.node) for one in self.found} | {id(one.node) for one in self.refused}
        return [one for one in objections if id(one.about) not in nodes]


def semi_joins(select: exp.Select, side_of: SideOf) -> SemiJoins:
    """Find the semi joins of a statement of tables; those of a stream stay what they are, and are refused."""
    texts, known = inputs_of(select), named_in(select)
    first = side_of(texts[0].table) if texts else None
    if texts is None or first is None or first.kind == "stream":
        return SemiJoins()
    found: list[SemiJoin] = []
    refused: list[Refused] = []
    joins = select.args.get("joins") or []
    plain = [True, *(not is_semi_join(join) for join in joins)]
    aliases = frozenset(text.alias.lower() for text, is_plain in zip(texts, plain, strict=True) if is_plain)
    taken = set(aliases)
    for each in (*_of_joins(joins, texts, len(aliases) > 1), *_of_conditions(select, known)):
        before = texts[: joins.index(each.node) + 1] if isinstance(each.node, exp.Join) else texts
        named = frozenset(text.alias.lower() for text in before) & aliases
        read = each if isinstance(each, Refused) else Reader(each, select, side_of, named).read(taken)
        if isinstance(read, Refused):
            refused.append(read)
        elif read is not None:
            found.append(read)
            taken.add(read.side.alias.lower())
    objections = [one.objection for one in refused if one.objection is not None]
    if found and any(join.args.get("using") and not is_semi_join(join) for join in joins):
        problem = "USING in a statement with a semi join, EXISTS or IN is not yet supported"
        objections.append(Objection(problem, "write ON, with an alias before each column", "USING"))
    return SemiJoins(tuple(found), tuple(refused), tuple(objections))


def tables_of(select: exp.Select) -> list[exp.Table]:
    """Return the tables that a statement names: those of FROM, in its order, then those of EXISTS and IN."""
    texts = inputs_of(select) or []
    found = _of_conditions(select, named_in(select)) if texts else ()
    return [*(text.table for text in texts), *(one.text.table for one in found if isinstance(one, Written))]


def without_semi_joins(select: exp.Select, found: Sequence[SemiJoin]) -> exp.Select:
    """Return a statement with the conditions that semi joins are, but not yet the inputs that they add."""
    if not found:
        return select
    copy = select.copy()
    twins = {id(node): twin for node, twin in zip(select.walk(), copy.walk(), strict=True)}
    of_joins = list[exp.Expr]()
    for each in found:
        assert each.side.matches is not None
        holds, twin = exp.Paren(this=each.side.matches.holds.copy()), twins[id(each.node)]
        if isinstance(twin, exp.Join):
            twin.pop()
            of_joins.append(exp.Not(this=holds) if each.is_anti else holds)
        else:
            twin.replace(holds)
    where = copy.args.get("where")
    conditions = [*([where.this] if where else []), *of_joins]
    copy.set("where", exp.Where(this=exp.and_(*conditions, copy=False)) if conditions else None)
    return copy


def with_added_inputs(inputs: Inputs, found: Sequence[SemiJoin]) -> Inputs:
    """Return the inputs of a statement with those that its semi joins add, each with a LEFT JOIN."""
    if not found:
        return inputs
    select = inputs.select.copy()
    for each in found:
        named = exp.Table(this=exp.to_identifier(each.side.alias, quoted=True))
        pairs = zip(each.on, each.side.key, strict=True)
        on = [exp.EQ(this=_wrapped(one), expression=qualified(each.side.alias, name)) for one, name in pairs]
        select.append("joins", exp.Join(this=named, side="LEFT", on=exp.and_(*on, copy=False)))
    hows: list[How] = ["left" for _ in found]
    clauses: list[Clause] = ["ON" for _ in found]
    sides = (*inputs.sides, *(each.side for each in found))
    return Inputs(sides, (*inputs.hows, *hows), (*inputs.clauses, *clauses), select)


def where_in_text(where: exp.Expr, sides: Sequence[Side]) -> str:
    """Format WHERE for a message as the statement writes it; empty if only semi joins of FROM have made it."""
    added = [side.matches for side in sides if side.matches is not None]
    of_from = [each.holds for each in added if isinstance(each.written, exp.Join)]

    def is_of_from(part: exp.Expr) -> bool:
        return part.unnest() in of_from or (isinstance(part, exp.Not) and part.this.unnest() in of_from)

    def written(node: exp.Expr) -> exp.Expr:
        found = (each.written.copy() for each in added if node in (each.holds, exp.Paren(this=each.holds)))
        return next(found, node)

    parts, pending = list[exp.Expr](), [where]
    while pending:
        part = pending.pop()
        if isinstance(part, exp.And) and part not in of_from:
            pending += [part.expression, part.this]
        elif not is_of_from(part):
            parts.append(part.transform(written))
    return as_written(exp.and_(*parts)) if parts else ""


def _of_joins(joins: Sequence[exp.Join], texts: Sequence[InputText], are_several: bool) -> Iterator[Written | Refused]:
    for index, join in enumerate(joins, start=1):
        if not is_semi_join(join):
            continue
        on, using, text = join.args.get("on"), join.args.get("using") or (), texts[index]
        outer = next((later for later in joins[index:] if later.side in ("RIGHT", "FULL")), None)
        if outer is not None:
            problem = (
                f"{join.kind} JOIN before a {outer.side} JOIN is not supported: it applies to the rows before that"
            )
            yield Refused(
                join, Objection(problem, "make the part before it a join of its own under `joins:`", join.this)
            )
            continue
        wrong = text.objection
        if wrong is None and text.grouped is not None:
            wrong = Objection(f"{join.kind} JOIN over groups is not supported", OVER_GROUPS, text.written)
        if wrong is not None:
            yield Refused(join, wrong)
            continue
        if using and are_several:
            continue  # `read_inputs` refuses it
        first = texts[0].alias
        equal = ((qualified(first, name.name), qualified(text.alias, name.name)) for name in using)
        parts = [*conjuncts(on)] if on is not None else [exp.EQ(this=one, expression=other) for one, other in equal]
        bare = next((column for part in parts for column in part.find_all(exp.Column) if not column.table), None)
        if bare is not None:
            problem = f"ON: `{as_written(bare)}` may be a column of either side of the {join.kind} JOIN"
            yield Refused(join, Objection(problem, "write an alias before each column", bare))
        elif parts:
            yield Written(join, text, tuple(parts))


def _of_conditions(select: exp.Select, known: Known) -> Iterator[Written | Refused]:
    where = select.args.get("where")
    pending = [*reversed([*select.expressions, *([where] if where else [])])]
    while pending:
        node = pending.pop()
        query = node.this if isinstance(node, exp.Exists) else node.args.get("query")
        if isinstance(query, exp.Expr) and isinstance(node, exp.Exists | exp.In):
            found = _written(node, query.unnest(), known)
            if isinstance(found, Written) and _is_without_name(node, select):
                problem = f"SELECT: `{as_written(node)}` has no name"
                found = Refused(node, Objection(problem, "name it with AS", node))
            if found is not None:
                yield found
        elif not isinstance(node, exp.Query):
            pending.extend(node.iter_expressions(reverse=True))


def _written(node: exp.Exists | exp.In, query: exp.Expr, known: Known) -> Written | Refused | None:
    """Return EXISTS or IN with its parts; None if its query is not a selection from one table."""
    if isinstance(query, exp.Select) and query.args.get("limit") and isinstance(node, exp.Exists):
        return Refused(node, Objection("LIMIT in EXISTS is not supported", "leave it out: one row is enough", node))
    if not isinstance(query, exp.Select) or {part for part, value in query.args.items() if value} - PARTS:
        return None
    distinct, from_ = query.args.get("distinct"), query.args.get("from_")
    if from_ is None or (distinct is not None and distinct.args.get("on")):
        return None
    text = input_of(from_.this, named_in(query, known))
    if text is None:
        return None
    wrong = next(objections_to_query(node, query), text.objection)
    if wrong is None and text.grouped is not None:
        wrong = Objection("EXISTS and IN over groups are not supported", OVER_GROUPS, text.written)
    if wrong is None and not text.alias:
        wrong = Objection("FROM: a subquery has no name", "write an alias after it", text.written)
    if wrong is not None:
        return Refused(node, wrong)
    where = query.args.get("where")
    conditions = tuple(conjuncts(where.this)) if where else ()
    if isinstance(node, exp.Exists):
        return Written(node, text, conditions)
    value = node.this.unnest()
    values = value.expressions if isinstance(value, exp.Tuple) else [value]
    items = [item.unalias() for item in query.expressions]
    if len(items) != len(values) or any(isinstance(item, exp.Star) or item.is_star for item in items):
        problem = f"IN compares {len(values)} values with what the subquery selects"
        return Refused(node, Objection(problem, "select as many columns, by their names", node))
    return Written(node, text, conditions, tuple(zip(values, items, strict=True)))


def _is_without_name(node: exp.Expr, select: exp.Select) -> bool:
    """Return whether an item of SELECT consists of a condition, or its negation, and has no alias."""
    while isinstance(node.parent, exp.Paren | exp.Not):
        node = node.parent
    return node.parent is select


def _wrapped(node: exp.Expr) -> exp.Expr:
    return node.copy() if isinstance(node, exp.Column) else exp.Paren(this=node.copy())
