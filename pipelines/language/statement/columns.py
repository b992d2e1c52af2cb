"""The columns of a condition, resolved without a schema."""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from pipelines.language.sql.functions import words
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.statement import ReferenceClause, Side

EQUAL = (exp.EQ, exp.NullSafeEQ)
NULL_IF_A_PART_IS = (exp.Cast, exp.Dot, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe)
NULL_OF_NULL = words(
    """
    abs btrim ceil concat date_add date_sub date_trunc day floor get_json_object hour initcap last_day lcase left length
    lower lpad ltrim md5 month quarter regexp_extract regexp_replace replace reverse right round rpad rtrim sha1 sha2
    split_part substr substring substring_index to_date to_timestamp translate trim trunc ucase unix_millis unix_seconds
    upper year
    """
)
"""Functions that return null if any argument is null."""


def condition(join: exp.Join, left: Side, right: Side) -> tuple[exp.Expr, tuple[str, ...]]:
    """Return the condition of a JOIN of two inputs, for USING the equivalent equalities, and the columns of USING."""
    using = {column.name: column for column in join.args.get("using") or ()}
    if not using:
        return join.args["on"], ()
    pairs = [exp.EQ(this=_column(column, left), expression=_column(column, right)) for column in using.values()]
    return exp.and_(*pairs, copy=False), tuple(using)


def place_of(node: exp.Expr, sides: Sequence[Side]) -> int | None:
    """
    Find the input of a column without a schema, by its alias or because only one key has it; None if it is unknown.
    """
    if not isinstance(node, exp.Column):
        return None
    name = node.parts[0].name
    if node.table:
        owners = [place for place, side in enumerate(sides) if name.lower() == side.alias.lower()]
    else:
        owners = [place for place, side in enumerate(sides) if in_key(name, side)]
    return owners[0] if len(owners) == 1 else None


def ambiguous(expression: exp.Expr, clause: str, sides: Sequence[Side]) -> Iterator[Objection]:
    """Yield an objection for each column without an alias that several keys have."""
    for column in expression.find_all(exp.Column):
        owners = [side for side in sides if not column.table and in_key(column.name, side)]
        if len(owners) > 1:
            first, last = (f"`{side.alias}.{column.name}`" for side in (owners[0], owners[-1]))
            several = "both sides" if len(sides) == 2 else "several inputs"
            yield Objection(f"{clause}: `{column.name}` is a column of {several}", f"write {first} or {last}", column)


def conjuncts(on: exp.Expr) -> Iterator[exp.Expr]:
    """Split a condition at its ANDs, in the order of the text."""
    pending = [on]
    while pending:
        node = pending.pop().unnest()
        if isinstance(node, exp.And):
            pending += [node.expression, node.this]
        else:
            yield node


def coalesced(node: exp.Expr) -> list[exp.Expr]:
    """Return the columns of an expression that is a column or a coalesce of columns; empty for any other expression."""
    node = node.unnest()
    if isinstance(node, exp.Anonymous) and node.name.lower() in ("coalesce", "ifnull", "nvl"):
        parts = [coalesced(part) for part in node.expressions]
        return [column for part in parts for column in part] if all(parts) else []
    return [node] if isinstance(node, exp.Column) else []


def in_key(name: str, side: Side) -> str | None:
    """Return a column of a key as the file writes it, ignoring case; None if the key does not have it."""
    return next((column for column in side.key if column.lower() == name.lower()), None)


def _column(written: exp.Expr, side: Side) -> exp.Column:
    """Create the column of an input that USING refers to, with its position in the text."""
    name = exp.to_identifier(written.name, quoted=True)
    name.meta.update(next(written.find_all(exp.Identifier)).meta)
    return exp.column(name, table=exp.to_identifier(side.alias, quoted=True))


def is_null_of_nulls(node: exp.Expr) -> bool:
    """Return whether an expression is certainly null if all its columns are null; False also if it is unknown."""
    node = node.unnest()
    if isinstance(node, exp.Column):
        return True
    if isinstance(node, exp.Anonymous):
        return node.name.lower() in NULL_OF_NULL and any(map(is_null_of_nulls, node.expressions))
    return isinstance(node, NULL_IF_A_PART_IS) and any(map(is_null_of_nulls, node.iter_expressions()))


def is_null_without(link: ReferenceClause, parts: Sequence[int]) -> bool:
    """
    Return whether a reference matches nothing, or has a null, without the input that has these parts of its key.
    """
    plain = (link.expressions[part] for part in parts if part not in link.null_safe)
    # No row has a key of nulls alone, so a reference that consists of nulls matches nothing, even by `<=>`.
    return any(map(is_null_of_nulls, plain)) or all(is_null_of_nulls(link.expressions[part]) for part in parts)
