"""A statement and the columns of its tables become the definition of a join."""

from collections.abc import Iterator, Mapping, Sequence

from sqlglot import exp

from lakehouse.errors import PipelineFileError
from pipelines.spec.definition import Input, Output, TableJoin
from pipelines.spec.dialect import as_written, render
from pipelines.spec.names import nearest
from pipelines.spec.objection import Objection, faults_of
from pipelines.spec.outputs import bad_names, key_dropped
from pipelines.spec.scope import Scope, Table
from pipelines.spec.sql import sql_path
from pipelines.spec.statement import Statement


def bind(statement: Statement, columns: Mapping[str, Sequence[str]]) -> TableJoin:
    """
    Resolve all names of a statement.

    Args:
        statement: The statement, from `parse`.
        columns: For each source that the statement names, its columns in the order of the table.

    Returns:
        The definition that everything else works with.

    Raises:
        PipelineFileError: With every unknown or ambiguous column, every name that cannot be one of the result, and
            every part of the key that the SELECT drops.
    """
    left, right = (Table(side, columns[side.source]) for side in (statement.left, statement.right))
    missing = [*_missing_keys(left), *_missing_keys(right)]
    if missing:
        raise _refused(statement, missing)
    scope = Scope(statement, left, right)
    expanded = [(item, output) for item in statement.select for output in _outputs(item, scope)]
    selected = [output for _, output in expanded]
    on = scope.resolve(statement.on)
    where = scope.resolve(statement.where) if statement.where else None
    keys = [_key_of_result(position, selected, scope) for position in range(len(left.side.key))]
    objections = [*scope.objections, *bad_names((name, item) for item, (name, _) in expanded)]
    objections += [_dropped(position, scope) for position, name in enumerate(keys) if name is None]
    if objections:
        raise _refused(statement, objections)
    return TableJoin(
        name=statement.name,
        how=statement.how,
        left=_input(left),
        right=_input(right),
        on=render(on),
        where=render(where) if where else None,
        outputs=tuple(Output(name, render(expression)) for name, expression in selected),
        key=tuple(name for name in keys if name is not None),
    )


def _refused(statement: Statement, objections: Sequence[Objection]) -> PipelineFileError:
    path = sql_path(statement.name)
    return PipelineFileError(statement.name, faults_of(objections, path, statement.sql))


def _missing_keys(table: Table) -> Iterator[Objection]:
    for name in table.side.key:
        if not table.has(name):
            yield Objection(
                f"the key of {table.side.source} names `{name}`, which is no column of it", nearest(name, table.columns)
            )


def _input(table: Table) -> Input:
    key = tuple(table.real(name) for name in table.side.key)
    others = tuple(column for column in table.columns if column in table.used and column not in key)
    return Input(table.side.source, table.side.alias, key, key + others)


def _outputs(item: exp.Expr, scope: Scope) -> list[tuple[str, exp.Expr]]:
    star = item.this if isinstance(item, exp.Column) else item
    if isinstance(star, exp.Star):
        return _star(star, item.args.get("table"), scope)
    expression = scope.resolve(item.this if isinstance(item, exp.Alias) else item)
    return [(item.alias_or_name, expression)]


def _star(star: exp.Star, alias: exp.Expr | None, scope: Scope) -> list[tuple[str, exp.Expr]]:
    """Expand `*` as Spark does: the columns of USING first, in their order, wherever the table has them."""
    tables: tuple[Table, ...] = scope.tables
    if alias is not None:
        table = scope.table(alias.name)
        if table is None:
            choices = " and ".join(f"`{table.side.alias}`" for table in scope.tables)
            problem = f"SELECT: there is no input `{alias.name}`"
            scope.objections.append(Objection(problem, f"the inputs are {choices}", alias))
            return []
        tables = (table,)
    dropped = _except(star, tables, scope)
    expanded: list[tuple[str, exp.Expr]] = []
    for name in scope.using:
        owner = tables[0] if alias is not None else scope.right if scope.how == "right" else scope.left
        if name.lower() not in dropped:
            expanded.append((owner.real(name), owner.column(name) if alias is not None else scope.merged(name)))
    for table in tables:
        rest = [column for column in table.columns if not scope.is_merged(column) and column.lower() not in dropped]
        expanded += [(column, table.column(column)) for column in rest]
    return expanded


def _except(star: exp.Star, tables: Sequence[Table], scope: Scope) -> set[str]:
    dropped = set()
    for column in star.args.get("except_") or ():
        owners = [table for table in tables if table.has(column.name)]
        if not isinstance(column, exp.Column) or len(column.parts) > 1:
            scope.objections.append(Objection(f"EXCEPT: `{as_written(column)}`", "name columns, without alias", column))
        elif not owners:
            known = [name for table in tables for name in table.columns]
            problem = f"EXCEPT: `{column.name}` is no column that `*` stands for"
            scope.objections.append(Objection(problem, nearest(column.name, known), column))
        elif len(owners) > 1 and not scope.is_merged(column.name):
            problem = f"EXCEPT: `{column.name}` is a column of both sides"
            scope.objections.append(Objection(problem, "write `alias.* EXCEPT (...)` for each side", column))
        dropped.add(column.name.lower())
    return dropped


def _key_of_result(position: int, selected: Sequence[tuple[str, exp.Expr]], scope: Scope) -> str | None:
    """Find the first output that is a part of the key whichever side the row came from."""
    left, right = (render(table.column(table.side.key[position])) for table in scope.tables)
    functions = ("COALESCE", "IFNULL", "NVL")
    either = {f"{function}({pair})" for function in functions for pair in (f"{left}, {right}", f"{right}, {left}")}
    right_answers = {"inner": {left, right}, "left": {left}, "right": {right}, "full": either}[scope.how]
    return next((name for name, expression in selected if render(expression.unnest()) in right_answers), None)


def _dropped(position: int, scope: Scope) -> Objection:
    left, right = (f"{table.side.alias}.{table.real(table.side.key[position])}" for table in scope.tables)
    name = scope.left.real(scope.left.side.key[position])
    return key_dropped(scope.how, left, right, name)
