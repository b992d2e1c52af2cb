"""A statement of the pipeline file, taken apart as far as that goes without the schemas of its sources."""

from collections.abc import Collection, Mapping
from dataclasses import replace

from lakehouse.errors import PipelineFileError
from pipelines.spec.inputs import read_inputs
from pipelines.spec.kind import condition, pair_keys
from pipelines.spec.model import Source
from pipelines.spec.objection import Objection, faults_of
from pipelines.spec.outputs import check_items
from pipelines.spec.statement import Statement
from pipelines.spec.syntax import read


def sql_path(name: str) -> str:
    """
    Name the place of a join's statement in the file.

    Args:
        name: The join's name.

    Returns:
        Dotted keys.
    """
    return f"joins.{name}.sql"


def parse(name: str, sql: str, sources: Mapping[str, Source], joins: Collection[str] = ()) -> Statement:
    """
    Take a statement apart.

    Args:
        name: The join's name in the file.
        sql: Its statement.
        sources: The sources of the file, by name.
        joins: The names of the file's joins, so that a chain is recognised.

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
    name: str, sql: str, sources: Mapping[str, Source | None] | None, joins: Collection[str] = ()
) -> tuple[Statement | None, list[Objection]]:
    """
    Take a statement apart and list what is wrong with it.

    Args:
        name: The join's name in the file.
        sql: Its statement.
        sources: The sources of the file, by name, None for one that is at fault itself. None for all of them if they
            are not known: then only the statement is looked at.
        joins: The names of the file's joins.

    Returns:
        The statement if nothing is wrong and its sources are known, and what speaks against it.
    """
    select, objections = read(sql)
    if select is None or sources is None:
        return None, objections
    inputs, more = read_inputs(select, sources, joins)
    objections += more
    if inputs is None:
        return None, objections
    on, using = condition(select.args["joins"][0], inputs.left, inputs.right)
    right_key, more = pair_keys(inputs, on)
    objections += [*more, *check_items(select.expressions, inputs, right_key)]
    if objections:
        return None, objections
    where = select.args.get("where")
    statement = Statement(
        name=name,
        sql=sql,
        how=inputs.how,
        left=inputs.left,
        right=replace(inputs.right, key=right_key),
        using=using,
        select=tuple(select.expressions),
        on=on,
        where=where.this if where else None,
    )
    return statement, []
