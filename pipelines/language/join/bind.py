"""Resolve a statement against the columns of its tables to the definition of a join."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from sqlglot import exp

from lakehouse.errors.errors import PipelineFileError
from pipelines.language.join.inputs import bound_input
from pipelines.language.names import nearest
from pipelines.language.sql.dialect import as_written, render
from pipelines.language.sql.objection import Objection, faults_of
from pipelines.language.sql.syntax import lateness
from pipelines.language.statement.columns import NamedTable, Scope, is_null_of_nulls
from pipelines.language.statement.definition import (
    Link,
    Output,
    Pairing,
    ResolvedQuery,
    Step,
    Time,
    Watermark,
    Window,
    Within,
)
from pipelines.language.statement.outputs import bad_names, carried, is_star
from pipelines.language.statement.parse import sql_path
from pipelines.language.statement.statement import UPSTREAM, ReferenceClause, Statement, absent_after, added_columns
from pipelines.language.statement.windows import asserted, equalities, find_window_bounds, one_side


def bind(
    statement: Statement, columns: Mapping[str, Sequence[str]], result_columns: Collection[str] | None = None
) -> ResolvedQuery:
    """
    Resolve all names of a statement to the definition of its join.

    Args:
        columns: For each source and join that the statement names, its columns in the order of the table.
        result_columns: The columns of the existing result of this statement; None without a result. A star then selects
            only those of these columns that no other item produces, without columns added to a source later.

    Raises:
        PipelineFileError: With every unknown or ambiguous column, and every invalid name of a result column.
    """
    inputs = [bound_input(side, columns[side.source], _outputs) for side in statement.sides]
    wrong = [objection for _, objections in inputs for objection in objections]
    wrong += _hidden_aliases(statement, columns)
    if wrong:
        raise _refused(statement, dict.fromkeys(wrong))
    tables = [each.table for each, _ in inputs]
    added = added_columns(statement.sides)
    of_stars = None if result_columns is None else _star_columns(statement, result_columns, added)
    how = statement.steps[0].how if statement.using else "inner"
    scope = Scope(tables, how, statement.using, of_stars)
    expanded = [(item, output) for item in statement.select for output in _outputs(item, scope)]
    selected = [output for _, output in expanded]
    steps = [Step(step.how, render(scope.resolve(step.on))) for step in statement.steps]
    where = scope.resolve(statement.where) if statement.where else None
    links = list(references(statement, scope))
    if statement.reads_stream:
        links.sort(key=lambda link: link.input)  # each input may need all inputs before it
    pairing = _pairing(statement, scope, steps)
    window = window_of(statement, scope) if statement.is_windowed else None
    looking_up = tuple(watermarks_of(tables[:1])) if statement.reads_stream and not window else ()
    misnamed = bad_names(((name, item) for item, (name, _) in expanded), added)
    objections = [*scope.objections, *(_of_appended(objection, statement) for objection in misnamed)]
    if objections:
        raise _refused(statement, objections)
    if statement.is_self_join:
        _use_same_columns(tables)
    names = {name.lower(): name for name, _ in selected}
    return ResolvedQuery(
        name=statement.name,
        inputs=tuple(each.resolved() for each, _ in inputs),
        steps=tuple(steps),
        members=statement.keys.members,
        links=tuple(links),
        where=render(where) if where else None,
        outputs=tuple(Output(name, render(expression)) for name, expression in selected),
        key=tuple(names[part.lower()] for part in statement.key),
        window=window,
        looking_up=looking_up,
        carried=tuple(_carried(statement, window.watermarks if window else looking_up, names)),
        left_out=tuple(dict.fromkeys(scope.left_out)),
        pairing=pairing,
    )


def _hidden_aliases(statement: Statement, columns: Mapping[str, Sequence[str]]) -> Iterator[Objection]:
    """Yield an objection where a name in a semi join means an input of FROM, and a column of its own rows in SQL."""
    aliases = {side.alias.lower() for side in statement.of_from}
    for side in statement.sides:
        if side.matches is None or isinstance(side.matches.written, exp.Join):
            continue
        hidden = aliases.intersection(name.lower() for name in columns[side.source]) - {side.alias.lower()}
        for column in side.matches.written.find_all(exp.Column):
            if len(column.parts) > 1 and column.parts[0].name.lower() in hidden:
                problem = f"`{as_written(column)}` may be of an input of FROM, or of a column of {side.source}"
                yield Objection(problem, "give the input another alias", column)


def _of_appended(objection: Objection, statement: Statement) -> Objection:
    """Return an objection to the name of an item; one that the text does not have cannot be given another there."""
    if not any(objection.about is item for item in statement.appended):
        return objection
    problem = f"{objection.problem}, of which `key_columns: append` adds one"
    return objection._replace(problem=problem, hint="select the key column under another name", about="SELECT")


def _star_columns(statement: Statement, result_columns: Collection[str], added: Collection[str]) -> set[str]:
    """Return the columns of a result, in lower case, that only a star can have produced."""
    named = {item.alias_or_name.lower() for item in statement.select if not is_star(item)}
    return {name.lower() for name in result_columns} - named - set(added)


def _carried(
    statement: Statement, watermarks: Sequence[Watermark], names: Mapping[str, str]
) -> Iterator[tuple[str, int]]:
    """Yield the outputs that keep a watermark, under their real names, with the index of the watermark."""
    found = carried(statement)
    for number, watermark in enumerate(watermarks):
        for output, time in found:
            if (time.input, time.column.lower()) == (watermark.time.input, watermark.time.column.lower()):
                yield names.get(output.lower(), output), number


def _pairing(statement: Statement, scope: Scope, steps: Sequence[Step]) -> Pairing | None:
    found = statement.keys.pairing
    if found is None:
        return None
    left = tuple(render(scope.resolve(equality.left)) for equality in found.equalities)
    right = tuple(render(scope.resolve(equality.right)) for equality in found.equalities)
    columns = scope.resolve(statement.steps[found.right - 1].on).find_all(exp.Column)
    looked_up = {index for column in columns if (index := scope.index(column)) not in (None, found.left, found.right)}
    return Pairing(
        left=found.left,
        right=found.right,
        over=found.over,
        how=found.how,
        on=steps[found.right - 1].on,
        values=(left, right),
        null_safe=tuple(equality.is_null_safe for equality in found.equalities),
        after=len(statement.sides),
        looked_up=tuple(sorted(index for index in looked_up if index is not None)),
    )


def _use_same_columns(tables: Sequence[NamedTable]) -> None:
    """Mark columns that either side of a self-join uses as used by both, so that both have the same rows."""
    used = {column for table in tables for column in table.used}
    for table in tables:
        table.used |= used


def _refused(statement: Statement, objections: Iterable[Objection]) -> PipelineFileError:
    path = sql_path(statement.part_of or statement.name)
    return PipelineFileError(statement.name, faults_of(objections, path, statement.sql))


def _outputs(item: exp.Expr, scope: Scope) -> list[tuple[str, exp.Expr]]:
    star = item.this if isinstance(item, exp.Column) else item
    if isinstance(star, exp.Star):
        return _star(star, item.args.get("table"), scope)
    expression = scope.resolve(item.this if isinstance(item, exp.Alias) else item)
    return [(item.alias_or_name, expression)]


def _star(star: exp.Star, alias: exp.Expr | None, scope: Scope) -> list[tuple[str, exp.Expr]]:
    """Expand `*` as Spark does: the columns of USING first, in their order, regardless of their order in the table."""
    tables: tuple[NamedTable, ...] = scope.named
    if alias is not None:
        table = scope.table(alias.name)
        if table is None or table not in scope.named:
            choices = " and ".join(f"`{table.side.alias}`" for table in scope.named)
            problem = f"SELECT: unknown input `{alias.name}`"
            scope.objections.append(Objection(problem, f"the inputs are {choices}", alias))
            return []
        tables = (table,)
    dropped = _except(star, tables, scope)
    expanded: list[tuple[str, exp.Expr]] = []
    for name in scope.using:
        owner = tables[0] if alias is not None else scope.tables[1 if scope.how == "right" else 0]
        if name.lower() not in dropped:
            expanded.append((owner.real(name), owner.column(name) if alias is not None else scope.merged(name)))
    for table in tables:
        rest = [column for column in table.columns if not scope.is_merged(column) and column.lower() not in dropped]
        expanded += [(column, table.column(column)) for column in rest if scope.stands_for(table, column)]
    return expanded


def _except(star: exp.Star, tables: Sequence[NamedTable], scope: Scope) -> set[str]:
    dropped = set()
    for column in star.args.get("except_") or ():
        owners = [table for table in tables if table.has(column.name)]
        if not isinstance(column, exp.Column) or len(column.parts) > 1:
            scope.objections.append(Objection(f"EXCEPT: `{as_written(column)}`", "name columns without alias", column))
        elif not owners:
            known = [name for table in tables for name in table.columns]
            problem = f"EXCEPT: `{column.name}` is not a column that `*` selects"
            scope.objections.append(Objection(problem, nearest(column.name, known), column))
        elif len(owners) > 1 and not scope.is_merged(column.name):
            problem = f"EXCEPT: `{column.name}` is a column of both sides"
            scope.objections.append(Objection(problem, "write `alias.* EXCEPT (...)` for each side", column))
        dropped.add(column.name.lower())
    return dropped


def window_of(statement: Statement, scope: Scope) -> Window:
    """Build the window of two streams; the scope collects objections to unknown columns and missing bounds."""
    step = statement.steps[0]
    resolved = [scope.resolve(condition) for condition in asserted(step.on, step.how, statement.where)]
    for table in scope.tables:
        for name, _ in table.side.times:
            if table.has(name):
                table.column(name)
    bounds, objections = find_window_bounds(resolved, statement.sides)
    scope.objections += objections
    watermarks = list(watermarks_of(scope.tables))
    indexes = {(each.time.input, each.time.column.lower()): index for index, each in enumerate(watermarks)}
    within = [
        Within(
            indexes[bound.greater.input, bound.greater.column.lower()],
            indexes[bound.lesser.input, bound.lesser.column.lower()],
            bound.allowance,
            bound.unit,
            bound.has_days,
        )
        for bound in bounds
    ]
    left, right = (
        " AND ".join(f"({render(condition)})" for condition in conditions) or "TRUE"
        for conditions in one_side(resolved[0], scope.index)
    )
    pairs = tuple((render(one), render(other)) for one, other in equalities(resolved[0], scope.index))
    return Window(tuple(watermarks), tuple(within), pairs, (left, right), is_self_join=statement.is_self_join)


def watermarks_of(tables: Sequence[NamedTable]) -> Iterator[Watermark]:
    """Yield the watermarked columns of inputs."""
    for index, table in enumerate(tables):
        for name, written in table.side.times:
            time = Time(index, table.real(name) if table.has(name) else name)
            is_upstream = written == UPSTREAM
            yield Watermark(time, 0, is_from_upstream=True) if is_upstream else Watermark(time, *lateness(written))


def references(statement: Statement, scope: Scope) -> Iterator[Link]:
    """Resolve the references, each after those that reach the inputs that it needs, and add objections to the scope."""
    resolved = set(statement.keys.members)
    pending = list(_resolved(statement, scope))
    while pending:
        ready = [link for link in pending if link.needed <= resolved]
        if not ready:
            if not scope.objections:
                link = statement.keys.links[-1]
                problem = f"ON: `{as_written(link.expressions[0])}` is not a column of the input that keys the result"
                scope.objections.append(Objection(problem, "write an alias before each column", link.expressions[0]))
            return
        yield from ready
        resolved |= {link.input for link in ready}
        pending = [link for link in pending if link not in ready]


def _resolved(statement: Statement, scope: Scope) -> Iterator[Link]:
    for link in statement.keys.links:
        found = ReferenceClause(link.side, tuple(map(scope.resolve, link.expressions)), link.null_safe)
        indexes = [{scope.index(column) for column in one.find_all(exp.Column)} for one in found.expressions]
        over = sorted(index for index in set().union(*indexes) if index is not None)
        if None in set().union(*indexes):
            continue  # the scope has objected to the column
        clause = statement.steps[max(1, link.side, *over) - 1].clause
        objection = _objection(statement, link, indexes, over)
        if objection is not None:
            scope.objections.append(objection.moved_to(clause))
            continue
        written = tuple(map(render, found.expressions))
        if len(over) == 1:
            yield Link(link.side, written, over[0], null_safe=link.null_safe)
            continue
        # A changed row of a table adds no row to a stream, so that nothing is followed.
        followed = over[-1] if statement.reads_stream else _followed(statement, found, indexes, over)
        if followed is None:
            name, about = statement.sides[link.side].source, link.expressions[0]
            problem = f"{clause}: each input from which a part of the key of {name} is taken may be absent"
            scope.objections.append(Objection(problem, "compare the parts from one of them by `=`", about))
            continue
        overs = tuple(min((index for index in of if index is not None), default=followed) for of in indexes)
        yield Link(link.side, written, followed, null_safe=link.null_safe, overs=overs)


def _objection(
    statement: Statement, link: ReferenceClause, indexes: Sequence[set[int | None]], over: Sequence[int]
) -> Objection | None:
    name, about = statement.sides[link.side].source, link.expressions[0]
    if not over or any(len(of) > 1 for of in indexes):
        return Objection(f"ON: each part of the key of {name} must be taken from one other input", about=about)
    if link.side in over:
        own = next(one for one, of in zip(link.expressions, indexes, strict=True) if link.side in of)
        problem = f"ON: `{as_written(own)}` is a column of {name} itself"
        return Objection(problem, "write an alias before each column", own)
    if len(over) > 1 and over[-1] > link.side:
        problem = f"ON: parts of the key of {name} are taken from inputs after it"
        return Objection(problem, "write an alias before each column", about)
    return None


def _followed(
    statement: Statement, link: ReferenceClause, indexes: Sequence[set[int | None]], over: Iterable[int]
) -> int | None:
    """
    Choose the input through which to follow a reference with parts from several inputs.

    Wherever the reference leads to a row, that input must have one: it is never absent, or a part is null without it.
    """
    absent = absent_after(step.how for step in statement.steps[: link.side - 1])

    def parts(index: int) -> list[int]:
        return [part for part, of in enumerate(indexes) if index in of]

    def preference(index: int) -> tuple[bool, bool, int, int]:
        plain = all(isinstance(link.expressions[part].unnest(), exp.Column) for part in parts(index))
        return index not in statement.keys.members, not plain, -len(parts(index)), index

    def is_null_without(index: int) -> bool:
        return any(is_null_of_nulls(link.expressions[part]) for part in parts(index) if part not in link.null_safe)

    usable = [index for index in over if index not in absent or is_null_without(index)]
    return min(usable, key=preference, default=None)
