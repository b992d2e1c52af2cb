"""What a join is and why, told from the pipeline file alone: no Spark, no table is looked at."""

from collections.abc import Iterator
from textwrap import dedent

from sqlglot import exp

from pipelines.report import JoinExplanation, SourceExplanation
from pipelines.spec import How, PipelineFile, Statement, parse
from pipelines.spec.dialect import as_written
from pipelines.spec.statement import Side

PRESERVED: dict[How, tuple[bool, bool]] = {
    "inner": (False, False),
    "left": (True, False),
    "right": (False, True),
    "full": (True, True),
}
"""Whether a row of the left, and one of the right, is in the result without a row on the other side."""

REFRESH = {
    "auto": "refresh auto: an epoch reads the change feeds of its sources; across a gap in one the join is computed in "
    "full, and only the rows that differ are written",
    "incremental": "refresh incremental: `lakejoin run` never computes the join in full; the first load, and a gap in "
    "a change feed, wait for `lakejoin backfill`",
    "full": "refresh full: an epoch computes the join from its whole sources and writes only the rows that differ",
}


def explain(file: PipelineFile, name: str) -> JoinExplanation:
    """
    Say what kind a join is, why, and what follows for its result.

    Args:
        file: The pipeline file.
        name: A join of it.

    Returns:
        The explanation; addresses are as the file says them.

    Raises:
        PipelineFileError: The statement is not one that is supported.
    """
    join = file.joins[name]
    statement = parse(name, join.sql, file.sources, file.joins)
    left, right = statement.left, statement.right
    keeps_left, keeps_right = PRESERVED[statement.how]
    return JoinExplanation(
        join=name,
        kind="table-table",
        how=statement.how,
        why=_why(statement),
        sources=(
            _source(file, left, _change(left, right, keeps_left, keeps_right)),
            _source(file, right, _change(right, left, keeps_right, keeps_left)),
        ),
        key=left.key,
        result=_stored(file, name),
        semantics=join.semantics,
        refresh=join.refresh,
        sql=dedent(join.sql).strip(),
        notes=tuple(_notes(statement, join.refresh)),
    )


def _why(statement: Statement) -> str:
    left, right = statement.left, statement.right
    clause = "USING names" if statement.using else "ON equates"
    keys = [f"the whole key of {side.source}, ({', '.join(side.key)})" for side in (left, right)]
    return f"{clause} {keys[0]}, {'and' if statement.using else 'with'} {keys[1]}: a row meets at most one row"


def _source(file: PipelineFile, side: Side, change: str) -> SourceExplanation:
    source = file.sources[side.source]
    return SourceExplanation(
        name=side.source,
        alias=side.alias,
        kind=source.kind,
        key=side.key,
        address=source.table or source.path or _stored(file, side.source),
        change=change,
    )


def _stored(file: PipelineFile, name: str) -> str:
    storage = file.storage
    if storage.schema_name is not None:
        return f"{storage.schema_name}.{name}"
    return f"{(storage.path or '.').rstrip('/')}/{name}"


def _change(side: Side, other: Side, kept: bool, other_kept: bool) -> str:
    """
    Say what a change of one side does.

    Args:
        side: The side that changes.
        other: The other side.
        kept: Whether a row of this side is in the result alone.
        other_kept: Whether a row of the other side is.
    """
    mine, theirs = side.source, other.source
    if kept and other_kept:
        return (
            f"inserts or updates the result row of its key, with nulls for {theirs} while that lacks the key; a delete "
            f"leaves nulls for {mine} while {theirs} has the key, else it deletes the row"
        )
    if kept:
        return (
            f"inserts, updates or deletes the result row of its key, with nulls for {theirs} while that lacks the key"
        )
    if other_kept:
        return (
            f"updates the result row of its key, if {theirs} has the key: fills in what {mine} holds, or nulls after a "
            f"delete"
        )
    return f"inserts, updates or deletes the result row of its key, if {theirs} has the key; else it changes nothing"


def _notes(statement: Statement, refresh: str) -> Iterator[str]:
    for condition in _further_conditions(statement):
        yield f"ON also asks for `{as_written(condition)}`: {_unmet(statement)}"
    if statement.where is not None:
        where = as_written(statement.where)
        yield f"WHERE `{where}`: a result row that leaves it is deleted, one that enters it is inserted"
    yield "a source row whose key holds a null takes no part; each run counts those that it meets"
    yield REFRESH[refresh]


def _unmet(statement: Statement) -> str:
    """Say what becomes of a pair with the same key that a further condition keeps apart; FULL JOINs have none."""
    if statement.how == "inner":
        return "a pair of rows for which that is not true is not in the result"
    kept, other = statement.left.source, statement.right.source
    if statement.how == "right":
        kept, other = other, kept
    return f"a row of {kept} for which that is not true meets nothing and has nulls for {other}"


def _further_conditions(statement: Statement) -> Iterator[exp.Expr]:
    """Give the conditions of ON besides the equality of the keys."""
    pending = [statement.on]
    while pending:
        node = pending.pop().unnest()
        if isinstance(node, exp.And):
            pending += [node.expression, node.this]
        elif not _equates_keys(node, statement):
            yield node


def _equates_keys(node: exp.Expr, statement: Statement) -> bool:
    if not isinstance(node, exp.EQ):
        return False
    ends = (node.this.unnest(), node.expression.unnest())
    return any(
        _is_column(mine, left, statement.left) and _is_column(theirs, right, statement.right)
        for left, right in zip(statement.left.key, statement.right.key, strict=True)
        for mine, theirs in (ends, ends[::-1])
    )


def _is_column(node: exp.Expr, name: str, side: Side) -> bool:
    if not isinstance(node, exp.Column) or len(node.parts) > 2:
        return False
    return node.name.lower() == name.lower() and node.table.lower() in ("", side.alias.lower())
