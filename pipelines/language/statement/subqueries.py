"""
Find the join that means the same as a subquery, or as a semi or anti join.

    WHERE EXISTS (SELECT 1 FROM status s WHERE s.flight_id = f.flight_id)        JOIN status s ON s.flight_id = ...
    WHERE f.carrier NOT IN (SELECT a.carrier FROM airlines a)                    LEFT JOIN ... WHERE a.carrier IS NULL
    SELECT (SELECT s.state FROM status s WHERE s.flight_id = f.flight_id) AS x   LEFT JOIN ..., and s.state AS x

They mean the same where the condition equates the whole key of the table, so that a row matches at most one row of it.
"""

from collections.abc import Callable, Collection, Iterator, Sequence

from sqlglot import exp

from pipelines.language.sql.dialect import as_named, as_text
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.columns import conjuncts, in_key
from pipelines.language.statement.statement import Side

NONE_MEANS_THE_SAME = "no join means the same"
OF_ITS_OWN = "make what the subquery joins a join of its own under `joins:`, and read that in it"
PARTS = {"expressions", "from_", "where"}

KEYED = ("table", "changelog", "join")
"""The kinds of inputs of which a key has at most one row."""

SideOf = Callable[[exp.Table], Side | None]


def with_remedies(objections: Sequence[Objection], select: exp.Select, side_of: SideOf) -> list[Objection]:
    """Add to each objection to a subquery, as its hint, the join that means the same."""
    return [
        one._replace(hint=_remedy(one.about, select, side_of))
        if isinstance(one.about, exp.Expr) and _is_subquery(one.about)
        else one
        for one in objections
    ]


def remedy_of_semi_join(join: exp.Join, side: Side | None, later: Collection[exp.Join]) -> str:
    """Return what to write instead of a semi or anti join of a table; `later` are the joins after it."""
    condition, using = join.args.get("on"), [column.name for column in join.args.get("using") or ()]
    compared = using or _equated(list(conjuncts(condition)) if condition is not None else [], side)
    if side is None or not _has_key(side, compared):
        return _without_key(side, compared)
    written = f"USING ({', '.join(using)})" if condition is None else f"ON {as_text(condition)}"
    joined = f"JOIN {as_named(join.this)} {written}"
    if join.kind == "ANTI":
        if any(one.side in ("RIGHT", "FULL") for one in later):
            return NONE_MEANS_THE_SAME
        joined = f"LEFT {joined}, and {side.alias}.{side.key[0]} IS NULL in WHERE"
    select = join.find_ancestor(exp.Select)
    return "write " + joined + (_instead_of_star(select, side.alias) if select else "")


def _instead_of_star(select: exp.Select, added: str) -> str:
    """Return what to select where the columns of an added input have no place; empty without a star."""
    names = [table.alias_or_name for table in (select.args["from_"].this, *_joined(select))]
    stars = ", ".join(f"{name}.*" for name in names if name.lower() != added.lower())
    return f"; with `{stars}` instead of `*`" if any(isinstance(one, exp.Star) for one in select.expressions) else ""


def _is_subquery(node: exp.Expr) -> bool:
    """Return whether a node is EXISTS, IN with a query, or a query, and not an input of FROM."""
    is_query = isinstance(node, exp.Exists | exp.Subquery) or (isinstance(node, exp.In) and node.args.get("query"))
    return bool(is_query) and not isinstance(node.parent, exp.From | exp.Join)


def _remedy(node: exp.Expr, select: exp.Select, side_of: SideOf) -> str:
    if node.find_ancestor(exp.Select) is not select:
        return NONE_MEANS_THE_SAME  # it is within an input
    query = node.args["query"] if isinstance(node, exp.In) else node.this if isinstance(node, exp.Exists) else node
    query = query.unnest() if query is not None else None
    if not isinstance(query, exp.Select):
        return NONE_MEANS_THE_SAME
    others = {part for part, value in query.args.items() if value} - PARTS
    table = query.args["from_"].this if query.args.get("from_") else None
    side = side_of(table) if isinstance(table, exp.Table) and not table.db else None
    if others or side is None or table is None or len(query.expressions) != 1:
        return OF_ITS_OWN if others == {"joins"} else NONE_MEANS_THE_SAME
    if side.alias.lower() in [one.alias_or_name.lower() for one in (select.args["from_"].this, *_joined(select))]:
        return f"give {side.source} in the subquery an alias of its own"
    item = _qualified(query.expressions[0].unalias(), side)
    parts = [_qualified(part, side) for part in conjuncts(query.args["where"].this)] if query.args.get("where") else []
    if isinstance(node, exp.In):
        parts.insert(0, exp.EQ(this=node.this.copy(), expression=item))
    compared = _equated(parts, side)
    if not _has_key(side, compared):
        return _without_key(None if isinstance(node, exp.Subquery) else side, compared)
    joined = f"{as_named(table)} ON {' AND '.join(map(as_text, parts))}"
    return _written(node, joined, side, item) + _instead_of_star(select, side.alias)


def _joined(select: exp.Select) -> Iterator[exp.Expr]:
    return (join.this for join in select.args.get("joins") or ())


def _written(node: exp.Expr, joined: str, side: Side, item: exp.Expr) -> str:
    """Return the JOIN, and what remains in the place of the subquery."""
    is_negated, is_conjunct = _place(node)
    key = f"{side.alias}.{side.key[0]}"
    if isinstance(node, exp.Subquery):
        return f"write LEFT JOIN {joined}, and {as_text(item)} instead of the subquery"
    if is_conjunct and not is_negated:
        return f"write JOIN {joined}"
    test = f"{key} IS {'' if is_negated else 'NOT '}NULL"
    nulls = ""
    if isinstance(node, exp.In) and is_negated:
        nulls = f": it keeps rows without {as_text(node.this)}, which NOT IN removes"
    return f"write LEFT JOIN {joined}, and {test} instead of the condition{nulls}"


def _place(node: exp.Expr) -> tuple[bool, bool]:
    """Return whether a condition is negated, and whether WHERE consists of it and others that all have to hold."""
    is_negated, parent = False, node.parent
    while isinstance(parent, exp.Paren | exp.Not):
        is_negated ^= isinstance(parent, exp.Not)
        parent = parent.parent
    while isinstance(parent, exp.Paren | exp.And):
        parent = parent.parent
    return is_negated, isinstance(parent, exp.Where)


def _qualified(node: exp.Expr, side: Side) -> exp.Expr:
    """Write the alias of a table before its key columns."""

    def written(column: exp.Expr) -> exp.Expr:
        if not isinstance(column, exp.Column) or column.table or in_key(column.name, side) is None:
            return column
        return exp.Column(this=column.this.copy(), table=exp.Identifier(this=side.alias, quoted=False))

    return node.transform(written)


def _equated(parts: Sequence[exp.Expr], side: Side | None) -> list[str]:
    """Return the columns of a table that conditions equate with columns of other tables."""

    def is_own(column: exp.Expr) -> bool:
        return isinstance(column, exp.Column) and side is not None and column.table.lower() == side.alias.lower()

    ends = [(part.this.unnest(), part.expression.unnest()) for part in parts if isinstance(part, exp.EQ)]
    return [
        one.name
        for pair in ends
        for one, other in (pair, pair[::-1])
        if is_own(one) and (columns := list(other.find_all(exp.Column))) and not any(map(is_own, columns))
    ]


def _has_key(side: Side, compared: Collection[str]) -> bool:
    named = {column.lower() for column in compared}
    return side.kind in KEYED and named >= {column.lower() for column in side.key}


def _without_key(side: Side | None, compared: Sequence[str]) -> str:
    if side is None or side.kind not in KEYED or not compared:
        return NONE_MEANS_THE_SAME
    return (
        f"{NONE_MEANS_THE_SAME}: a JOIN has a row for each match; if no two rows of {side.source} are equal in "
        f"{', '.join(compared)}, declare that as its `key:`, and write JOIN"
    )
