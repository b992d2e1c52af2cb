"""What the look-ups and the MERGE of a change prune files by, from the pipeline file alone."""

from collections.abc import Iterator, Sequence

from sqlglot import exp

from pipelines.language import PipelineFile, Statement, statement_of
from pipelines.language.sql.dialect import as_written
from pipelines.language.statement.outputs import is_star
from pipelines.language.statement.queries import source_column
from pipelines.language.statement.statement import ReferenceClause


def pruning_of(file: PipelineFile, statement: Statement, index: int) -> tuple[str, ...]:
    """
    Describe by which columns a change of an input skips files of the other inputs and of the result, and warn where it
    skips none. A stream, whose rows are only appended, has no such lines.
    """
    if statement.reads_stream:
        return ()
    layout, references = file.joins[statement.name].cluster_by, list(_references(statement, index))
    lines = [_skipped(file, statement, _referring(statement, link), link.expressions) for link in references]
    pairing = statement.keys.pairing
    if pairing is not None and index in (pairing.left, pairing.right):
        is_left = index == pairing.left
        other = statement.sides[pairing.right if is_left else pairing.over].source
        compared = [one.right if is_left else one.left for one in pairing.equalities]
        lines.append(_skipped(file, statement, other, compared))
    return (*lines, _of_result(statement, layout, references, index))


def _references(statement: Statement, index: int) -> Iterator[ReferenceClause]:
    """Yield the references to an input, then those to the inputs that refer to it, step by step."""
    for link in statement.keys.links:
        if link.side == index:
            yield link
            for over in {place for place, side in enumerate(statement.sides) if side.alias.lower() in _aliases(link)}:
                yield from _references(statement, over)


def _aliases(link: ReferenceClause) -> set[str]:
    return {column.table.lower() for part in link.expressions for column in part.find_all(exp.Column)}


def _referring(statement: Statement, link: ReferenceClause) -> str:
    names = dict.fromkeys(side.source for side in statement.sides if side.alias.lower() in _aliases(link))
    return " and ".join(names) or "the table that refers to it"


def _skipped(file: PipelineFile, statement: Statement, source: str, compared: Sequence[exp.Expr]) -> str:
    """Describe by which of the compared values, those that are columns, files of a source may be skipped."""
    columns = {value: name for value in compared if (name := _source_column(statement, value)) is not None}
    if not columns:
        return f"warning: it skips no file of {source}: {', '.join(map(as_written, compared))} is no column of it"
    listed = ", ".join(map(as_written, columns))
    if source not in file.joins:
        return f"it skips files of {source} by {listed}, if {source} is laid out by that"
    layout = file.joins[source].cluster_by or statement_of(file, source).key
    if {name.lower() for name in columns.values()}.isdisjoint(name.lower() for name in layout):
        would = ", ".join(columns.values())
        by = f"which is laid out by ({', '.join(layout)})"
        return f"warning: it skips no file of {source}, {by}: its `cluster_by: [{would}]` would"
    return f"it skips files of {source} by {listed}"


def _source_column(statement: Statement, value: exp.Expr) -> str | None:
    """Return the column of a source that a value is; None for an expression of the statement or of a subquery."""
    if not isinstance(value, exp.Column):
        return None
    inputs = (side for side in statement.sides if side.alias.lower() == value.table.lower())
    return next((source_column(side, value.name) for side in inputs), value.name)


def _of_result(statement: Statement, layout: Sequence[str], references: Sequence[ReferenceClause], index: int) -> str:
    """Describe by what a change finds the rows of the result that it changes."""
    who = "MERGE" if statement.keys.is_many_to_many and layout else "it"  # the gate of pairs reads them by key
    if layout and (not references or any(_is_told(statement, name, references, index) for name in layout)):
        return f"{who} skips files of the result by the {', '.join(layout)} that its rows had before"
    key = ", ".join(layout or statement.key)
    if references:
        source = statement.sides[index].source
        reached = next(iter(_reached(statement, references[-1])), None)
        remedy = "" if reached is None else f"; `cluster_by: [{reached}]` would"
        return f"warning: it skips no file of the result: rows that refer to {source} may be in any of them{remedy}"
    if statement.keys.is_many_to_many and index != statement.keys.paired.left:
        own = ", ".join(statement.sides[index].key)
        return f"warning: it skips no file of the result, which is laid out by ({key}): only {own} is known"
    return f"it skips files of the result by its key, ({key})"


def _is_told(statement: Statement, name: str, references: Sequence[ReferenceClause], index: int) -> bool:
    """
    Return whether few values of a column of the result are in the rows that refer to a changed row: it holds a column
    of the changed row, or a reference. A column that only a star gives counts as one.
    """
    values = [item.unalias() for item in statement.select if not is_star(item) and item.alias_or_name == name]
    if not values:
        return True
    columns = list(values[0].find_all(exp.Column))
    is_own = all(column.table.lower() == statement.sides[index].alias.lower() for column in columns)
    return (bool(columns) and is_own) or any(name in _reached(statement, link) for link in references)


def _reached(statement: Statement, link: ReferenceClause) -> dict[str, None]:
    """Return the columns of the result that hold a reference, or the key that it equals, as far as SELECT says."""
    side = statement.sides[link.side]
    wanted = [*link.expressions, *(exp.column(name, table=side.alias) for name in side.key)]
    return dict.fromkeys(name for sought in wanted for name in _holding(statement, sought))


def _holding(statement: Statement, sought: exp.Expr) -> Iterator[str]:
    for item in statement.select:
        if not is_star(item):
            if _is_same(item.unalias(), sought):
                yield item.alias_or_name
        elif isinstance(sought, exp.Column) and _has(item, sought):
            yield sought.name


def _has(star: exp.Expr, column: exp.Column) -> bool:
    """Return whether a star, of one input or of all, stands for a column, too."""
    alias, every = (star.table.lower(), star.this) if isinstance(star, exp.Column) else ("", star)
    left_out = {other.name.lower() for other in every.args.get("except_") or ()}
    return alias in ("", column.table.lower()) and column.name.lower() not in left_out


def _is_same(one: exp.Expr, other: exp.Expr) -> bool:
    """Return whether two expressions are written alike; a column may be named with its table or without."""
    if isinstance(one, exp.Column) and isinstance(other, exp.Column) and not (one.table and other.table):
        return one.name.lower() == other.name.lower()
    return as_written(one).replace("`", "").lower() == as_written(other).replace("`", "").lower()
