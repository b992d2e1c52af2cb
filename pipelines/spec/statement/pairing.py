"""
Infer a join of two tables of any cardinality: the result has the keys of both tables, and a row for each pair.

    customers c LEFT JOIN orders o ON o.customer_id = c.id    a customer has many orders or none
    a JOIN b ON a.city = b.city                               a row of each table matches many of the other

The value of a row is what all equalities of ON compare. Rows meet only if their values are equal; all other conditions
of ON decide pair by pair.
"""

from collections.abc import Callable, Sequence

from sqlglot import exp

from pipelines.spec.names import nearest
from pipelines.spec.sql.dialect import as_written
from pipelines.spec.sql.objection import Objection
from pipelines.spec.statement.columns import conjuncts, in_key
from pipelines.spec.statement.definition import How
from pipelines.spec.statement.statement import Equality, Keys, Pairing, Side

ALIKE = 0.8
"""The similarity from which a column counts as a misspelled key column."""

TWO_JOINS = "write two joins of the file: the second one reads the result of the first"


def paired(
    sides: Sequence[Side], keys: Keys, how: How, on: exp.Expr, place_of: Callable[[exp.Expr], int | None]
) -> tuple[Pairing, tuple[exp.Expr, ...]] | Objection:
    """
    Pair the rows of the last input with those of the input that keys the result so far.

    Args:
        sides: The inputs, the new one last.
        keys: The key of the result of the inputs before it.
        how: The type of join.
        on: The condition of ON.
        place_of: Returns the place of the input of a column; None if it is unknown without a schema.

    Returns:
        The pairing, and the conditions of ON that are not an equality of it; or the objection to the join.
    """
    new = len(sides) - 1
    if keys.pairing is not None:
        problem = f"ON: {sides[new].source} would be the second input that matches many rows, and a statement has one"
        return Objection(problem, TWO_JOINS, on)
    left, *others = keys.members
    if others:
        names = " and ".join(sides[place].source for place in keys.members)
        problem = f"ON: {names} key their result together, so {sides[new].source} cannot match many of its rows"
        return Objection(problem, TWO_JOINS, on)

    def places(node: exp.Expr) -> set[int | None]:
        return {place_of(column) for column in node.find_all(exp.Column)}

    equalities, further = list[Equality](), list[exp.Expr]()
    for part in conjuncts(on):
        equality = _equality(part, lambda node: places(node) == {left}, lambda node: places(node) == {new})
        if equality is not None:
            equalities.append(equality)
            continue
        if None in places(part):
            hint = "write an alias before each column"
            problem = f"ON: `{as_written(part)}` has a column of an unknown input, in a join that matches many rows"
            return Objection(problem, hint, part)
        further.append(part)
    if not equalities:
        problem = f"ON: no equality compares columns of {sides[left].source} with columns of {sides[new].source}"
        example = f"{sides[left].alias}.<column> = {sides[new].alias}.<column>"
        return Objection(problem, f"add one, such as {example}, with an alias before each column", on)
    return Pairing(left, new, how, tuple(equalities)), tuple(further)


def misspelled_key(pairing: Pairing, sides: Sequence[Side]) -> tuple[exp.Expr, str] | None:
    """Return a column of the equalities that is most likely a misspelled key, with a hint to it; None if none is."""
    ends = (
        (place, end)
        for one in pairing.equalities
        for place, end in ((pairing.left, one.left), (pairing.right, one.right))
    )
    for place, end in ends:
        if isinstance(end, exp.Column) and not in_key(end.name, sides[place]):
            hint = nearest(end.name, sides[place].key, at_least=ALIKE)
            if hint:
                return end, hint
    return None


def _equality(
    part: exp.Expr, is_left: Callable[[exp.Expr], bool], is_right: Callable[[exp.Expr], bool]
) -> Equality | None:
    """Return an equality between both inputs; None for any other condition."""
    if not isinstance(part, exp.EQ | exp.NullSafeEQ):
        return None
    one, other = part.this.unnest(), part.expression.unnest()
    is_null_safe = isinstance(part, exp.NullSafeEQ)
    if is_left(one) and is_right(other):
        return Equality(one, other, is_null_safe)
    return Equality(other, one, is_null_safe) if is_left(other) and is_right(one) else None
