"""Parse a statement of the pipeline file without the schemas of its sources."""

from collections.abc import Mapping, Sequence

from sqlglot import exp

from lakehouse.errors.errors import PipelineFileError
from pipelines.language.file.model import Source
from pipelines.language.sql.objection import Objection, faults_of
from pipelines.language.sql.syntax import read
from pipelines.language.statement.columns import ambiguous, condition
from pipelines.language.statement.inputs import Inputs, Produced, is_self_join, read_inputs
from pipelines.language.statement.kind import infer
from pipelines.language.statement.outputs import check_items, is_star, key_of
from pipelines.language.statement.statement import Statement

NO_JOINS: Mapping[str, Produced] = {}


def sql_path(name: str) -> str:
    """Return the dotted keys of a join's statement in the file."""
    return f"joins.{name}.sql"


def parse(name: str, sql: str, sources: Mapping[str, Source], joins: Mapping[str, Produced] = NO_JOINS) -> Statement:
    """Parse a statement of a supported kind of join; raise `PipelineFileError` with all errors in it."""
    statement, objections = examine(name, sql, sources, joins)
    if objections or statement is None:
        raise PipelineFileError(name, faults_of(objections, sql_path(name), sql))
    return statement


def examine(
    name: str, sql: str, sources: Mapping[str, Source | None] | None, joins: Mapping[str, Produced | None]
) -> tuple[Statement | None, list[Objection]]:
    """
    Parse a statement, and list the objections to it; it is None if it has objections or unknown inputs.

    An invalid source or join is None. If the sources as a whole are None, only the clauses and expressions are checked.
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
    Analyze a statement whose clauses and inputs have been checked, and return it, None if it has objections, with them.
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
    """Return the condition of each JOIN, and the columns of USING, which only a join of two inputs can have."""
    conditions: list[exp.Expr] = []
    using: tuple[str, ...] = ()
    for join, side in zip(joins, inputs.sides[1:], strict=True):
        on, using = condition(join, inputs.sides[0], side)
        conditions.append(on)
    return conditions, using
