"""Parse a statement of the pipeline file without the schemas of its sources."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial

from sqlglot import exp

from lakehouse.errors.errors import PipelineFileError
from pipelines.language.file.model import Source
from pipelines.language.names import nearest
from pipelines.language.sql.dialect import as_named
from pipelines.language.sql.objection import Objection, faults_of
from pipelines.language.sql.syntax import read
from pipelines.language.statement.columns import ambiguous, condition
from pipelines.language.statement.crossed import is_crossed, with_conditions
from pipelines.language.statement.definition import How
from pipelines.language.statement.groups import over_groups, through_groups
from pipelines.language.statement.kind import infer
from pipelines.language.statement.matching import is_semi_join
from pipelines.language.statement.outputs import check_items, is_grouped, is_star, key_of, missing_keys
from pipelines.language.statement.queries import InputText, inputs_of, refused_queries, through_queries
from pipelines.language.statement.semi_joins import semi_joins, tables_of, with_added_inputs, without_semi_joins
from pipelines.language.statement.statement import (
    UPSTREAM,
    Clause,
    Inputs,
    Produced,
    Results,
    Side,
    Sources,
    Statement,
)
from pipelines.language.statement.subqueries import remedy_of_semi_join, with_remedies

NO_JOINS: Mapping[str, Produced] = {}


def sql_path(name: str) -> str:
    """Return the dotted keys of a join's statement in the file."""
    return f"joins.{name}.sql"


def parse(
    name: str,
    sql: str,
    sources: Mapping[str, Source],
    joins: Mapping[str, Produced] = NO_JOINS,
    *,
    appends_keys: bool = False,
) -> Statement:
    """Parse a statement of a supported kind of join; raise `PipelineFileError` with all errors in it."""
    statement, objections = examine(name, sql, sources, joins, appends_keys=appends_keys)
    if objections or statement is None:
        raise PipelineFileError(name, faults_of(objections, sql_path(name), sql))
    return statement


def examine(
    name: str, sql: str, sources: Sources | None, joins: Results, *, appends_keys: bool = False
) -> tuple[Statement | None, list[Objection]]:
    """
    Parse a statement, and list the objections to it; it is None if it has objections or unknown inputs.

    An invalid source or join is None. If the sources as a whole are None, only the clauses and expressions are checked.
    The option `key_columns: append` appends the key columns that the SELECT list lacks.
    """
    select, found = read(sql)
    objections = list(found)
    if select is None or sources is None:
        return None, objections
    select = over_groups(select)
    side_of = partial(_side, sources=sources, joins=joins)
    semi = semi_joins(select, side_of)
    objections = [*with_remedies(semi.others(objections), select, side_of), *semi.objections]
    inputs, more = read_inputs(select, sources, joins)
    if inputs is None:
        return None, objections + more
    statement, more = examine_select(name, sql, inputs, sources, appends_keys=appends_keys)
    objections += more
    return None if objections else statement, objections


def examine_select(
    name: str, sql: str, inputs: Inputs, sources: Sources, *, appends_keys: bool = False
) -> tuple[Statement | None, list[Objection]]:
    """Analyze a statement whose clauses and inputs have been checked; it is None if it has objections."""
    select, (left, *others) = inputs.select, inputs.sides
    joins = select.args.get("joins") or []
    conditions = [condition(join, left, side) for join, side in zip(joins, others, strict=True)]
    using = conditions[-1][1] if conditions else ()  # only a join of two inputs can have it
    where = select.args["where"].this if select.args.get("where") else None
    inferred, objections = infer(inputs, [on for on, _ in conditions], where)
    if not using:
        for clause, part in (("SELECT", select.expressions), ("WHERE", [where] if where else [])):
            named = (item for item in part if not is_star(item))
            objections += [doubt for item in named for doubt in ambiguous(item, clause, inputs.sides)]
    missing = missing_keys(select.expressions, inferred, using) if appends_keys and inferred else ()
    appended = tuple(each.item for each in missing)
    items = (*select.expressions, *appended)
    objections += check_items(items, None if is_grouped(select) else inferred, using)
    if objections or inferred is None:
        return None, objections
    statement = Statement(
        name=name,
        sql=sql,
        sides=inferred.sides,
        steps=inferred.steps,
        using=using,
        keys=inferred.keys,
        select=items,
        where=where,
        key=tuple(part for part in key_of(items, inferred, using) if part is not None),
        appended=appended,
        is_self_join=is_self_join(inferred.sides, sources),
    )
    return statement, []


HOWS: dict[tuple[str, str], How] = {
    **dict.fromkeys([("", ""), ("", "INNER"), ("", "CROSS")], "inner"),
    **dict.fromkeys([("LEFT", ""), ("LEFT", "OUTER")], "left"),
    **dict.fromkeys([("RIGHT", ""), ("RIGHT", "OUTER")], "right"),
    **dict.fromkeys([("FULL", ""), ("FULL", "OUTER")], "full"),
}


def called(name: str, known: Iterable[str]) -> str | None:
    """Return the name of a source or join as the file writes it, ignoring case; None if the file does not have it."""
    return next((written for written in known if written.lower() == name.lower()), None)


def read_inputs(select: exp.Select, sources: Sources, joins: Results) -> tuple[Inputs | None, list[Objection]]:
    """Resolve the names in FROM and JOIN; the inputs are None if one is unknown or invalid, or an objection exists."""
    select = over_groups(select)
    semi = semi_joins(select, partial(_side, sources=sources, joins=joins))
    tables, select = tables_of(select), without_semi_joins(select, semi.found)
    found = select.args.get("joins") or []
    texts = inputs_of(select)
    if texts is None or not all(text.alias for text in texts):
        return None, []  # `read` has objected to the clauses already
    objections = [problem for table in tables for problem in _table(table, sources, joins)]
    if len(texts) > 2 and any(join.args.get("using") for join in found):
        problem = "USING in a join of three or more inputs is not yet supported"
        objections.append(Objection(problem, "write ON, with an alias before each column", "USING"))
    sides = [_side(text.table, sources, joins) for text in texts]
    for index, join in enumerate(found, 1):
        is_judged = is_semi_join(join) and bool(semi.refused)  # with an objection of its own
        objections += () if is_judged else _join(join, sides[: index + 1], found[index:])
    taken: set[str] = set()
    for text in texts:
        if text.alias.lower() in taken:
            problem = "FROM: two inputs have the same name"
            objections.append(Objection(problem, "give each input its own alias", text.written))
        taken.add(text.alias.lower())
    if objections:
        return None, objections
    named = [
        through_queries(side, text) if text.grouped is None or text.objection else through_groups(side, text)
        for side, text in zip(sides, texts, strict=True)
        if side is not None
    ]
    if len(named) < len(sides):
        return None, []
    known = tuple(side for side, _ in named)
    objections = [*(problem for _, problems in named for problem in problems), *refused_queries(known, texts)]
    objections += _alone(known, texts) if len(tables) == 1 else ()
    if objections or any((join.side, join.kind) not in HOWS for join in found) or _is_stream_alone(known):
        return None, objections  # a semi join, or a subquery of a statement of a stream, has been objected to
    hows = tuple(HOWS[join.side, join.kind] for join in found)
    clauses: list[Clause] = ["ON" for _ in found]
    read_by, objections = with_conditions(Inputs(known, hows, tuple(clauses), select))
    return None if objections else with_added_inputs(read_by, semi.found), objections


def _alone(sides: Sequence[Side], texts: Sequence[InputText]) -> Iterator[Objection]:
    """Yield an objection to a stream that is the only input."""
    if _is_stream_alone(sides):
        name = sides[0].source
        problem = f"FROM: `{name}` is a stream and the only input: its rows only grow, and need no join"
        hint = f"read it by a view, which needs no upkeep: CREATE VIEW ... AS SELECT ... FROM {name}"
        yield Objection(problem, hint, texts[0].written)


def _is_stream_alone(sides: Sequence[Side]) -> bool:
    return len(sides) == 1 and sides[0].kind == "stream"


def is_self_join(sides: Sequence[Side], sources: Sources) -> bool:
    """Return whether a statement joins a stream with itself: one source, or two that read one table alike."""
    if [side.kind for side in sides] != ["stream", "stream"]:
        return False
    if sides[0].source == sides[1].source:
        return True
    left, right = (sources.get(side.source) for side in sides)
    if left is None or right is None or (left.table is None and left.path is None):
        return False
    return _rows_of(left) == _rows_of(right)


def _rows_of(stream: Source) -> tuple[object, ...]:
    """Return the options that determine the rows of a stream with an address, and how they are read."""
    late = tuple(stream.watermarks.items())
    return stream.table, stream.path, late, stream.order_by, stream.null_value, stream.ignore_changes


def _table(table: exp.Table, sources: Sources, joins: Results) -> Iterator[Objection]:
    name = table.name
    if table.db:
        qualified = ".".join(part.name for part in table.parts)
        hint = "name a source, and set its location by `table:`"
        yield Objection(f"FROM: `{qualified}` is a qualified name", hint, table)
        return
    found = called(name, sources)
    join = called(name, joins) if found is None else None
    result = None if join is None else joins[join]
    if result is not None and result.is_ordered:
        problem = f"FROM: `order_by` orders the rows of `{join}`, and reading such a result is not yet supported"
        yield Objection(problem, "leave `order_by` out: commit times then order all rows", table)
    elif found is None and join is None:
        known = ", ".join(f"`{source}`" for source in sources)
        near = nearest(name, sources) or nearest(name, (join for join, each in joins.items() if each))
        hint = near or (f"the sources are {known}" if known else "the file has no sources")
        yield Objection(f"FROM: unknown source `{name}`", hint, table.this)


def _join(join: exp.Join, sides: Sequence[Side | None], later: Sequence[exp.Join]) -> Iterator[Objection]:
    """
    Yield the objections to a JOIN.

    Args:
        sides: The inputs up to the one that it joins; an unknown one is None.
        later: The JOINs after it.
    """
    method, kind = join.args.get("method"), join.kind
    if method == "NATURAL":
        yield _natural(join, sides)
    elif method:
        yield Objection(f"{method} JOIN is not supported", "write ON with an equality", method.upper())
    elif kind in ("SEMI", "ANTI") and join.side in ("", "LEFT"):
        yield Objection(f"{kind} JOIN is not supported", remedy_of_semi_join(join, sides[-1], later), kind)
    elif (join.side, kind) not in HOWS:
        yield Objection(f"{kind} JOIN is not supported", "use an inner, left, right or full join", kind)
    elif is_crossed(join):
        return  # equalities of WHERE may be its condition
    elif join.args.get("on") == exp.true():
        problem = f"JOIN `{called_in(join)}`: ON TRUE compares nothing, so every row would match every row"
        yield Objection(problem, "write ON with an equality", join.args["on"])
    elif not join.args.get("using") and join.args.get("on") is None:
        yield Objection(f"JOIN `{called_in(join)}` has no ON or USING", "write ON with an equality", join.this)


def called_in(join: exp.Join) -> str:
    """Return the name of the table that a JOIN joins; for a subquery its alias."""
    return join.this.name if isinstance(join.this, exp.Table) else join.this.alias


def _natural(join: exp.Join, sides: Sequence[Side | None]) -> Objection:
    """Return the objection to a NATURAL JOIN, with the key columns that it compares: no other columns are known."""
    *before, new = ([] if side is None else side.key for side in sides)
    taken = {column.lower() for key in before for column in key}
    shared = ", ".join(column for column in new if column.lower() in taken)
    columns = shared or "<column>, ..."
    written = " ".join(filter(None, (join.side, "JOIN", as_named(join.this), f"USING ({columns})")))
    others = "add any other columns" if shared else "name all columns"
    return Objection(
        "NATURAL JOIN compares all columns that both sides have: a new column of a source would change the join",
        f"write {written}; {others} that both sides have",
        "NATURAL",
    )


def _side(table: exp.Table, sources: Sources, joins: Results) -> Side | None:
    name = called(table.name, sources)
    if name is not None:
        source = sources[name]
        if source is None:
            return None
        return Side(
            source=name,
            alias=table.alias_or_name,
            key=source.key,
            kind=source.kind,
            times=tuple(source.watermarks.items()),
            may_be_absent=bool(source.nullable_key),
        )
    name = called(table.name, joins)
    result = None if name is None else joins[name]
    if name is None or result is None:
        return None
    return Side(
        source=name,
        alias=table.alias_or_name,
        key=result.key,
        kind="stream" if result.is_stream else "join",
        times=tuple((column, UPSTREAM) for column in result.times),
        added=result.added,
        may_be_absent=result.may_be_absent,
    )
