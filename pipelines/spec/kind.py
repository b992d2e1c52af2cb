"""
The kind of a join, inferred from ON and the keys of its two tables, never declared.

    ON f.flight_id = s.flight_id    both are the whole key of their table: table-table, one row meets at most one
    ON f.tailnum = p.tailnum        only the right is: foreign-key, many rows of flights meet one of planes
    ON f.origin = w.station         neither is: a row of either side may meet many, and nothing keys the result
"""

from collections.abc import Iterator
from typing import Literal

from sqlglot import exp

from pipelines.spec.dialect import as_written
from pipelines.spec.inputs import Inputs
from pipelines.spec.names import nearest
from pipelines.spec.objection import Objection
from pipelines.spec.statement import Side

SideName = Literal["left", "right"]
SIDES: tuple[SideName, SideName] = ("left", "right")


def condition(join: exp.Join, left: Side, right: Side) -> tuple[exp.Expr, tuple[str, ...]]:
    """
    Give the condition of a join, for USING the equalities that it stands for.

    Args:
        join: The JOIN clause.
        left: The side in FROM.
        right: The side after JOIN.

    Returns:
        The condition and the columns of USING.
    """
    using = {column.name: column for column in join.args.get("using") or ()}
    if not using:
        return join.args["on"], ()
    pairs = [exp.EQ(this=_column(column, left), expression=_column(column, right)) for column in using.values()]
    return exp.and_(*pairs, copy=False), tuple(using)


def pair_keys(inputs: Inputs, on: exp.Expr) -> tuple[tuple[str, ...], list[Objection]]:
    """
    Find the column of the right key that each column of the left key must equal.

    Args:
        inputs: The two sides.
        on: The whole condition.

    Returns:
        The right key in the order of the left, and what speaks against a table-table join.
    """
    left, right = inputs.left, inputs.right
    ambiguous = list(dict.fromkeys(_ambiguous(on, inputs)))
    if ambiguous:
        return (), ambiguous
    pairs: dict[str, str] = {}
    others = 0
    for conjunct in _conjuncts(on):
        pair = _key_pair(conjunct, inputs)
        if pair and pair[0] not in pairs and pair[1] not in pairs.values():
            pairs[pair[0]] = pair[1]
        elif not pair or pairs.get(pair[0]) != pair[1]:
            others += 1
    if len(pairs) < len(left.key) or len(pairs) < len(right.key):
        return (), [_other_kind(on, inputs)]
    if left.source == right.source:
        problem = f"ON: {left.source} is joined with itself on its key: a row would always meet itself"
        return (), [Objection(problem, about=on)]
    if inputs.how == "full" and others:
        return (), [
            Objection(
                "ON: a FULL JOIN with a condition besides the key: a pair of rows that does not meet it would give two "
                "result rows for one key",
                "move the condition to WHERE or into the SELECT list",
                on,
            )
        ]
    return tuple(pairs[column] for column in left.key), []


def _column(written: exp.Expr, side: Side) -> exp.Column:
    """Make the column of a side that USING stands for; it remembers where it was written."""
    name = exp.to_identifier(written.name, quoted=True)
    name.meta.update(next(written.find_all(exp.Identifier)).meta)
    return exp.column(name, table=exp.to_identifier(side.alias, quoted=True))


def _conjuncts(on: exp.Expr) -> Iterator[exp.Expr]:
    pending = [on]
    while pending:
        node = pending.pop().unnest()
        if isinstance(node, exp.And):
            pending += [node.expression, node.this]
        else:
            yield node


def _in_key(name: str, side: Side) -> str | None:
    return next((column for column in side.key if column.lower() == name.lower()), None)


def _side_of(column: exp.Column, inputs: Inputs) -> SideName | None:
    """Name the side of a column as far as that shows without a schema: by its alias, or by being in one key only."""
    name = column.parts[0].name
    if column.table:
        owners = [side for side in SIDES if name.lower() == getattr(inputs, side).alias.lower()]
    else:
        owners = [side for side in SIDES if _in_key(name, getattr(inputs, side))]
    return owners[0] if len(owners) == 1 else None


def _key_column(expression: exp.Expr, side: SideName, inputs: Inputs) -> str | None:
    node = expression.unnest()
    if not isinstance(node, exp.Column) or len(node.parts) > 2 or _side_of(node, inputs) != side:
        return None
    return _in_key(node.name, getattr(inputs, side))


def _equality(conjunct: exp.Expr, inputs: Inputs) -> dict[SideName, exp.Expr]:
    """Take `x = y` apart where each is of one side only; empty if it is not such an equality."""
    if not isinstance(conjunct, exp.EQ):
        return {}
    ends: dict[SideName, exp.Expr] = {}
    for end in (conjunct.this, conjunct.expression):
        sides = {_side_of(column, inputs) for column in end.find_all(exp.Column)}
        side = sides.pop() if len(sides) == 1 else None
        if side:
            ends[side] = end
    return ends if len(ends) == 2 else {}


def _key_pair(conjunct: exp.Expr, inputs: Inputs) -> tuple[str, str] | None:
    ends = _equality(conjunct, inputs)
    if not ends:
        return None
    mine, theirs = (_key_column(ends[side], side, inputs) for side in SIDES)
    return (mine, theirs) if mine and theirs else None


def _ambiguous(on: exp.Expr, inputs: Inputs) -> Iterator[Objection]:
    for column in on.find_all(exp.Column):
        name = column.name
        if not column.table and _in_key(name, inputs.left) and _in_key(name, inputs.right):
            hint = f"write `{inputs.left.alias}.{name}` or `{inputs.right.alias}.{name}`"
            yield Objection(f"ON: `{name}` is a column of both sides", hint, column)


def _other_kind(on: exp.Expr, inputs: Inputs) -> Objection:
    """Say which kind it is, if not table-table: foreign-key where the other side equals one's whole key."""
    equalities = [found for found in (_equality(conjunct, inputs) for conjunct in _conjuncts(on)) if found]
    for mine, theirs in (SIDES, SIDES[::-1]):
        referencing, referenced = getattr(inputs, mine), getattr(inputs, theirs)
        references = {_key_column(ends[theirs], theirs, inputs): ends[mine] for ends in equalities}
        if all(column in references for column in referenced.key):
            written = [references[column] for column in referenced.key]
            others = [reference for reference in written if not _key_column(reference, mine, inputs)]
            what = "is not the key" if others else "is not the whole key"
            return Objection(
                f"ON: `{as_written((others or written)[0])}` {what} of {referencing.source}, while "
                f"({', '.join(referenced.key)}) is that of {referenced.source}: a foreign-key join, not yet supported",
                _misspelled((others or written)[0], referencing),
                (others or written)[0],
            )
    left, right = inputs.left, inputs.right
    return Objection(
        f"ON: nothing keys the result: the whole key of {left.source}, ({', '.join(left.key)}), must equal the whole "
        f"key of {right.source}, ({', '.join(right.key)})",
        f"one equality for each key column, with aliases: {left.alias}.{left.key[0]} = {right.alias}.{right.key[0]}",
        on,
    )


def _misspelled(reference: exp.Expr, side: Side) -> str:
    """Name the key column that was meant, where the reference is all but one."""
    node = reference.unnest()
    return nearest(node.name, side.key, at_least=0.8) if isinstance(node, exp.Column) else ""
