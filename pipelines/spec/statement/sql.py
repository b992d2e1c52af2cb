"""A statement of the pipeline file, taken apart as far as that goes without the schemas of its sources."""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from lakehouse.errors import PipelineFileError
from pipelines.spec.file.model import Source
from pipelines.spec.sql.objection import Objection, faults_of
from pipelines.spec.sql.syntax import read
from pipelines.spec.statement.columns import ambiguous, condition
from pipelines.spec.statement.inputs import Inputs, Produced, is_self_join, read_inputs
from pipelines.spec.statement.kind import infer
from pipelines.spec.statement.outputs import check_items, is_star, key_of
from pipelines.spec.statement.statement import Statement

NO_JOINS: Mapping[str, Produced] = {}


def sql_path(name: str) -> str:
    """
    Name the place of a join's statement in the file.

    Args:
        name: The join's name.

    Returns:
        Dotted keys.
    """
    return f"joins.{name}.sql"


def parse(name: str, sql: str, sources: Mapping[str, Source], joins: Mapping[str, Produced] = NO_JOINS) -> Statement:
    """
    Take a statement apart.

    Args:
        name: The join's name in the file.
        sql: Its statement.
        sources: The sources of the file, by name.
        joins: What the joins give that it may read, by name.

    Returns:
        The statement, of a kind that is supported.

    Raises:
        PipelineFileError: With all that is wrong with it.
    """
    statement, objections = examine(name, sql, sources, joins)
    if objections or statement is None:
        raise PipelineFileError(name, faults_of(objections, sql_path(name), sql))
    return statement


def examine(
    name: str, sql: str, sources: Mapping[str, Source | None] | None, joins: Mapping[str, Produced | None] = NO_JOINS
) -> tuple[Statement | None, list[Objection]]:
    """
    Take a statement apart and list what is wrong with it.

    Args:
        name: The join's name in the file.
        sql: Its statement.
        sources: The sources of the file, by name, None for one that is at fault itself. None for all of them if they
            are not known: then only the statement is looked at.
        joins: What each join of the file gives, None for one that is at fault itself.

    Returns:
        The statement if nothing is wrong and its inputs are known, and what speaks against it.
    """
    select, found = read(sql)
    objections = list(found)
    if select is None or sources is None:
        return None, objections
    inputs, more = read_inputs(select, sources, joins)
    if inputs is None:
        return None, objections + more
    statement, more = examine_select(name, sql, select, inputs, sources)
    objections += more
    return None if objections else statement, objections


def examine_select(
    name: str, sql: str, select: exp.Select, inputs: Inputs, sources: Mapping[str, Source | None]
) -> tuple[Statement | None, list[Objection]]:
    """
    Take a statement apart whose clauses and inputs were looked at.

    Args:
        name: The join's name in the file.
        sql: Its statement.
        select: The same, read.
        inputs: Its inputs.
        sources: The sources of the file, by name, None for one that is at fault itself.

    Returns:
        The statement if nothing is wrong, and what speaks against it.
    """
    conditions, using = _conditions(select.args["joins"], inputs)
    where = select.args.get("where")
    found, objections = infer(inputs, conditions, where.this if where else None)
    if not using:
        for clause, part in (("SELECT", select.expressions), ("WHERE", [where] if where else [])):
            named = (item for item in part if not is_star(item))
            objections += [doubt for item in named for doubt in ambiguous(item, clause, inputs.sides)]
    objections += check_items(select.expressions, found, using)
    if objections or found is None:
        return None, objections
    statement = Statement(
        name=name,
        sql=sql,
        sides=found.sides,
        steps=found.steps,
        using=using,
        keys=found.keys,
        select=tuple(select.expressions),
        where=where.this if where else None,
        key=tuple(part for part in key_of(select.expressions, found, using) if part is not None),
        is_self_join=is_self_join(found.sides, sources),
    )
    return statement, []


def _conditions(joins: Sequence[exp.Join], inputs: Inputs) -> tuple[list[exp.Expr], tuple[str, ...]]:
    """Give the condition of each JOIN, and the columns of USING, which only a join of two inputs has."""
    conditions: list[exp.Expr] = []
    using: tuple[str, ...] = ()
    for join, side in zip(joins, inputs.sides[1:], strict=True):
        on, using = condition(join, inputs.sides[0], side)
        conditions.append(on)
    return conditions, using
