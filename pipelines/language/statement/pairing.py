"""
Infer a join of two tables of any cardinality: the result has the keys of both tables, and a row for each pair.

    customers c LEFT JOIN orders o ON o.customer_id = c.id    a customer has many orders or none
    a JOIN b ON a.city = b.city                               a row of each table matches many of the other
    orders o JOIN customers c ON o.customer = c.id
      JOIN rates r ON r.region = c.region                     an order has the value of the customer that it looks up

The value of a row is what the equalities of ON compare with one input. Rows meet only if their values are equal; all
other conditions of ON decide pair by pair.
"""

from collections.abc import Callable, Collection, Mapping, Sequence

from sqlglot import exp

from pipelines.language.names import nearest
from pipelines.language.sql.dialect import as_written
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.columns import EQUAL, conjuncts, in_key, is_null_of_nulls
from pipelines.language.statement.definition import How
from pipelines.language.statement.statement import Equality, Keys, PairingClause, Side

ALIKE = 0.8
"""The similarity from which a column counts as a misspelled key column."""

TWO_JOINS = "write two joins of the file: the second one reads the result of the first"


IndexOf = Callable[[exp.Expr], int | None]


def paired(
    sides: Sequence[Side], keys: Keys, how: How, on: exp.Expr, index_of: IndexOf, absent: Collection[int]
) -> tuple[PairingClause, tuple[exp.Expr, ...]] | Objection:
    """
    Pair the rows of the last input with those of the input that keys the result so far, or return the objection to it.

    The equalities that give the rows their values have the columns of that input, if any has; else those of the first
    input that it looks up before whose columns some equalities have. The other conditions of ON are returned too.

    Args:
        index_of: Returns the input of a column; None if it is unknown without a schema.
        absent: The inputs before the new one that may have no row.
    """
    new = len(sides) - 1
    if keys.is_many_to_many:
        problem = f"ON: {sides[new].source} would be the second input that matches many rows, and a statement has one"
        return Objection(problem, TWO_JOINS, on)
    left, *others = keys.members
    if others:
        names = " and ".join(sides[index].source for index in keys.members)
        problem = f"ON: {names} key their result together, so {sides[new].source} cannot match many of its rows"
        return Objection(problem, TWO_JOINS, on)
    found = _equalities(on, new, index_of)
    usable = [over for over, of in found.items() if over not in absent or _need_a_row(of.values())]
    over = min(usable, key=lambda index: (index != left, index), default=None)
    equal = {} if over is None else found[over]
    further = tuple(part for part in conjuncts(on) if part not in equal)
    for part in further:
        if None in map(index_of, part.find_all(exp.Column)):
            hint = "write an alias before each column"
            problem = f"ON: `{as_written(part)}` has a column of an unknown input, in a join that matches many rows"
            return Objection(problem, hint, part)
    if over is None:
        return _without_values(sides, left, found, on)
    return PairingClause(left=left, right=new, how=how, equalities=tuple(equal.values()), over=over), further


def _equalities(on: exp.Expr, new: int, index_of: IndexOf) -> dict[int, dict[exp.Expr, Equality]]:
    """Return the equalities of ON between an input and the new one, by the index of the former and as written."""
    found: dict[int, dict[exp.Expr, Equality]] = {}
    for part in conjuncts(on):
        if not isinstance(part, EQUAL):
            continue
        ends = (part.this.unnest(), part.expression.unnest())
        for one, other in (ends, ends[::-1]):
            indexes, others = ({index_of(column) for column in end.find_all(exp.Column)} for end in (one, other))
            over = indexes.pop() if len(indexes) == 1 else None
            if over is not None and over != new and others == {new}:
                found.setdefault(over, {})[part] = Equality(one, other, isinstance(part, exp.NullSafeEQ))
    return found


def _need_a_row(equalities: Collection[Equality]) -> bool:
    """Return whether equalities never hold where the input of their left columns has no row."""
    return any(not one.is_null_safe and is_null_of_nulls(one.left) for one in equalities)


def _without_values(
    sides: Sequence[Side], left: int, found: Mapping[int, Mapping[exp.Expr, Equality]], on: exp.Expr
) -> Objection:
    """Return the objection to an ON without an equality by which the rows of the left side can be found."""
    keyed, new = sides[left], sides[-1]
    if found:
        over = min(found)
        name, part = sides[over].source, next(iter(found[over]))
        return Objection(
            f"ON: `{as_written(part)}` may match rows of {keyed.source} for which {name} has no row",
            f"look {name} up by JOIN, or compare by `=` a column of it or an expression that is null without it",
            part,
        )
    problem = (
        f"ON: no equality compares columns of {keyed.source} with columns of {new.source}: each changed row would have "
        "to be compared with every row of the other side"
    )
    example = f"{keyed.alias}.<column> = {new.alias}.<column>"
    return Objection(problem, f"add one, such as {example}, with an alias before each column", on)


def misspelled_key(pairing: PairingClause, sides: Sequence[Side]) -> tuple[exp.Expr, str] | None:
    """Return a column of the equalities that is most likely a misspelled key, with a hint to it; None if none is."""
    for equality in pairing.equalities:
        for index, end in ((pairing.over, equality.left), (pairing.right, equality.right)):
            is_other = isinstance(end, exp.Column) and not in_key(end.name, sides[index])
            if is_other and (hint := nearest(end.name, sides[index].key, at_least=ALIKE)):
                return end, hint
    return None
