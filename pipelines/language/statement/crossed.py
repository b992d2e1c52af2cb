"""
Rewrite commas, CROSS JOIN and JOIN without a condition to the inner joins that the equalities of WHERE make of them.

    FROM orders o, customers c WHERE o.customer = c.id AND o.total > 5
    FROM orders o JOIN customers c ON o.customer = c.id WHERE o.total > 5

As in Spark, commas and JOINs follow one another from left to right. An equality moves to the ON of the last input that
it compares, and so does a condition on the times of two streams. The JOINs after it must be inner or left: they keep
the rows before them, or some of these, unchanged, so the rows for which it is not true may be removed before them.
"""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from pipelines.language.sql.dialect import as_named, as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.columns import EQUAL, conjuncts, index_of
from pipelines.language.statement.statement import Inputs, Side
from pipelines.language.statement.windows import time_of

INNER = ("", "INNER", "CROSS")
"""The kinds of an inner JOIN in the statement."""

GROWS = "the result, and the work for each change, would grow with the product of both"


def is_crossed(join: exp.Join) -> bool:
    """Return whether a JOIN, or a comma, compares nothing."""
    has_condition = join.args.get("using") or join.args.get("on") not in (None, exp.true())
    return not (join.side or join.args.get("method") or has_condition) and join.kind in INNER


def with_conditions(inputs: Inputs) -> tuple[Inputs, list[Objection]]:
    """Move equalities of WHERE to the joins without a condition, and list the objections to those that have none."""
    joins = inputs.select.args.get("joins") or []
    crossed = [index for index, join in enumerate(joins, 1) if is_crossed(join)]
    if not crossed:
        return inputs, []
    where = inputs.select.args.get("where")
    parts = list(conjuncts(where.this)) if where else []
    moved = {index: [part for part in parts if _joined_by(part, inputs.sides) == index] for index in crossed}
    objections = [problem for index in crossed for problem in _objections(inputs, index, moved[index], parts)]
    if objections:
        return inputs, objections
    select = inputs.select.copy()
    for index, equalities in moved.items():
        join = select.args["joins"][index - 1]
        join.set("kind", None)
        join.set("on", exp.and_(*equalities))
    taken = {id(part) for equalities in moved.values() for part in equalities}
    rest = [part for part in parts if id(part) not in taken]
    select.set("where", exp.Where(this=exp.and_(*rest)) if rest else None)
    clauses = tuple("WHERE" if index in moved else clause for index, clause in enumerate(inputs.clauses, 1))
    return inputs._replace(select=select, clauses=clauses), []


def _joined_by(part: exp.Expr, sides: Sequence[Side]) -> int | None:
    """Return the input that a condition joins: the last one of an equality, or of a condition on times of streams."""
    last = _meets(part, sides)
    if last is not None:
        return last
    columns = list(part.find_all(exp.Column))
    named = {index_of(column, sides) for column in columns}
    known = [index for index in named if index is not None]
    if len(named) < 2 or len(known) < len(named) or sides[max(known)].kind != "stream":
        return None
    return max(known) if any(time_of(column, sides) for column in columns) else None


def _meets(part: exp.Expr, sides: Sequence[Side]) -> int | None:
    """Return the last input of an equality that compares it with inputs before it; None for any other condition."""
    if not isinstance(part, EQUAL):
        return None
    one, other = ({index_of(column, sides) for column in end.find_all(exp.Column)} for end in part.iter_expressions())
    known = (one | other) - {None}
    if not one or not other or one & other & known:
        return None
    if None in one | other:  # of two inputs, the one or the other: ON and WHERE of an inner join mean the same
        return 1 if len(sides) == 2 else None
    last = max(index for index in known if index is not None)
    return last if {last} in (one, other) else None


def _objections(
    inputs: Inputs, index: int, equalities: Sequence[exp.Expr], parts: Sequence[exp.Expr]
) -> Iterator[Objection]:
    table = inputs.select.args["joins"][index - 1].this
    written = as_named(table)
    if not equalities:
        alone = f"FROM: no equality compares `{inputs.sides[index].alias}` with the inputs before it"
        problem = f"{alone}: every row would match every row, and {GROWS}"
        yield Objection(problem, _remedy(inputs, index, written, parts), table)
        return
    after = range(index + 1, len(inputs.sides))
    outer = next((other for other in after if inputs.hows[other - 1] in ("right", "full")), None)
    if outer is not None:
        how, name = inputs.hows[outer - 1].upper(), inputs.sides[outer].alias
        condition = as_written(exp.and_(*equalities))
        yield Objection(
            f"WHERE: `{condition}` applies after {how} JOIN `{name}`, also to the rows that this JOIN keeps unmatched",
            f"write JOIN {written} ON {condition} if these rows should stay, else an inner or left JOIN instead of "
            f"{how} JOIN `{name}`",
            equalities[0],
        )


def _remedy(inputs: Inputs, index: int, written: str, parts: Sequence[exp.Expr]) -> str:
    sides, joins = inputs.sides, inputs.select.args["joins"]
    if sides[index].kind == "stream":
        return f"write JOIN {written} ON, with bounds on the times of both streams"
    ons = (part for join in joins if join.args.get("on") for part in conjuncts(join.args["on"]))
    for part in (*parts, *ons):
        later = _meets(part, sides)
        named = {index_of(column, sides) for column in part.find_all(exp.Column)}
        if later is not None and later > index in named and set(inputs.hows[index - 1 : later]) == {"inner"}:
            return f"write `{written}` after `{as_named(joins[later - 1].this)}`: `{as_written(part)}` compares them"
        if isinstance(part, EQUAL) and None in named:
            return f"write an alias before each column of `{as_written(part)}`"
    example = f"{sides[0].alias}.<column> = {sides[index].alias}.<column>"
    return f"compare a column of each: JOIN {written} ON {example}"
