"""Resolve the inputs of a statement to sources and joins, and read their types of join."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from pipelines.language.file.model import Source
from pipelines.language.names import nearest
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.definition import How
from pipelines.language.statement.statement import Side

HOWS: dict[tuple[str, str], How] = {
    ("", ""): "inner",
    ("", "INNER"): "inner",
    ("LEFT", ""): "left",
    ("LEFT", "OUTER"): "left",
    ("RIGHT", ""): "right",
    ("RIGHT", "OUTER"): "right",
    ("FULL", ""): "full",
    ("FULL", "OUTER"): "full",
}
Key = tuple[str, ...]
"""The names of the key columns."""

UPSTREAM = ""
"""Replaces a lateness: the join that produces the column determines its watermark."""


class Produced(NamedTuple):
    """
    The properties of a join's result for the joins that read it.

    Args:
        key: The key of the result, named as in the SELECT list; empty for a stream.
        is_stream: Whether the result is a stream.
        times: For a stream: the columns that have a watermark.
        added: For a stream: the columns that lakejoin adds, which no statement can use.
        is_ordered: Whether `order_by` orders its rows, instead of the commits that caused them.
        may_be_absent: Whether parts of the key may be null, because a row lacks one side of the join.
    """

    key: Key
    is_stream: bool = False
    times: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    is_ordered: bool = False
    may_be_absent: bool = False


class Inputs(NamedTuple):
    """The inputs in the order of FROM, and the type of each JOIN; the keys are in the order of the file."""

    sides: tuple[Side, ...]
    hows: tuple[How, ...]


def tables_of(select: exp.Select) -> list[exp.Table] | None:
    """Return the tables that FROM and JOIN name, in their order; None if one of them is not a plain name."""
    tables = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    is_named = all(isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier) for table in tables)
    return tables if is_named else None


def defined(select: exp.Select) -> set[str]:
    """Return the names that WITH defines, in lower case. WITH is refused, and its names are not sources or joins."""
    with_ = select.args.get("with_")
    return {query.alias.lower() for query in with_.expressions} if with_ else set()


def called(name: str, known: Iterable[str]) -> str | None:
    """Return the name of a source or join as the file writes it, ignoring case; None if the file does not have it."""
    return next((written for written in known if written.lower() == name.lower()), None)


def read_inputs(
    select: exp.Select, sources: Mapping[str, Source | None], joins: Mapping[str, Produced | None]
) -> tuple[Inputs | None, list[Objection]]:
    """
    Resolve the names in FROM and JOIN, and return the objections; an invalid source or an unknown result is None.

    The inputs are None if a source is unknown or invalid, or an objection exists.
    """
    found = select.args.get("joins") or []
    tables = tables_of(select)
    if tables is None:
        return None, []  # `read` has objected to the clauses already
    own = defined(select)
    named = [table for table in tables if table.db or table.name.lower() not in own]
    objections = [problem for table in named for problem in _table(table, sources, joins)]
    if len(tables) == 1:
        objections.append(
            Objection(f"`{tables[0].name}` is the only input: a join has two", "add JOIN ... ON ...", tables[0])
        )
    if len(tables) > 2:
        for join in found:
            if join.args.get("using"):
                problem = "USING in a join of three or more inputs is not yet supported"
                objections.append(Objection(problem, "write ON, with an alias before each column", "USING"))
                break
    for join in found:
        objections.extend(_join(join))
    taken: set[str] = set()
    for table in tables:
        if table.alias_or_name.lower() in taken:
            objections.append(Objection("FROM: two inputs have the same name", "give each input its own alias", table))
        taken.add(table.alias_or_name.lower())
    if objections or len(named) < len(tables):
        return None, objections
    sides = [_side(table, sources, joins) for table in tables]
    known = tuple(side for side in sides if side is not None)
    if len(known) < len(sides):
        return None, []
    return Inputs(known, tuple(HOWS[join.side, join.kind] for join in found)), []


def is_self_join(sides: Sequence[Side], sources: Mapping[str, Source | None]) -> bool:
    """
    Return whether a statement joins a stream with itself.

    The inputs are then one source under two aliases, or two sources that read the same table in the same way.
    """
    if [side.kind for side in sides] != ["stream", "stream"]:
        return False
    if sides[0].source == sides[1].source:
        return True
    left, right = (sources.get(side.source) for side in sides)
    if left is None or right is None or (left.table is None and left.path is None):
        return False
    return _rows_of(left) == _rows_of(right)


def misplaced(inputs: Inputs) -> Objection | None:
    """Return an objection to a stream that is not the first input, or to a global table that no stream looks up."""
    first, *others = inputs.sides
    for side in others:
        if side.kind == "stream" and first.kind == "stream":
            if len(inputs.sides) > 2:
                problem = "FROM: a join of streams has two inputs; longer ones are split when a file is loaded"
                return Objection(problem, about="FROM")
            continue
        if side.kind == "stream":
            hint = f"write it first: FROM {side.source} JOIN {first.source} ON ..."
            return Objection(f"FROM: `{side.source}` is a stream, which cannot be looked up", hint, "FROM")
    for side in inputs.sides:
        if side.kind == "global_table" and first.kind != "stream":
            problem = (
                f"FROM: `{side.source}` is a global table: its changes trigger no epoch, so only a stream can join it"
            )
            return Objection(problem, "give the source `kind: table`", "FROM")
    return None


def _rows_of(stream: Source) -> tuple[object, ...]:
    """Return the options that determine the rows of a stream with an address, and how they are read."""
    late = tuple(stream.watermarks.items())
    return stream.table, stream.path, late, stream.order_by, stream.null_value, stream.ignore_changes


def _table(
    table: exp.Table, sources: Mapping[str, Source | None], joins: Mapping[str, Produced | None]
) -> Iterator[Objection]:
    name = table.name
    if table.db:
        qualified = ".".join(part.name for part in table.parts)
        hint = "name a source, and set its location by `table:`"
        yield Objection(f"FROM: `{qualified}` is a qualified name", hint, table)
        return
    found = called(name, sources)
    join = called(name, joins) if found is None else None
    made = None if join is None else joins[join]
    if made is not None and made.is_ordered:
        problem = f"FROM: `order_by` orders the rows of `{join}`, and reading such a result is not yet supported"
        yield Objection(problem, "leave `order_by` out: commit times then order all rows", table)
    elif found is None and join is None:
        known = ", ".join(f"`{source}`" for source in sources)
        near = nearest(name, sources) or nearest(name, (join for join, made in joins.items() if made))
        hint = near or (f"the sources are {known}" if known else "the file has no sources")
        yield Objection(f"FROM: unknown source `{name}`", hint, table.this)


def _join(join: exp.Join) -> Iterator[Objection]:
    method, kind = join.args.get("method"), join.kind
    if method:
        yield Objection(f"{method} JOIN is not supported", "write ON with an equality", method.upper())
    elif kind == "CROSS":
        yield Objection("CROSS JOIN, or a comma in FROM, is not supported", "write JOIN ... ON ...", join.this)
    elif (join.side, kind) not in HOWS:
        yield Objection(f"{kind} JOIN is not supported", "use an inner, left, right or full join", kind)
    elif join.args.get("on") == exp.true():
        problem = f"JOIN `{join.this.name}`: ON TRUE compares nothing, so every row would match every row"
        yield Objection(problem, "write ON with an equality", join.args["on"])
    elif not join.args.get("using") and join.args.get("on") is None:
        yield Objection(f"JOIN `{join.this.name}` has no ON or USING", "write ON with an equality", join.this)


def _side(table: exp.Table, sources: Mapping[str, Source | None], joins: Mapping[str, Produced | None]) -> Side | None:
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
    made = None if name is None else joins[name]
    if name is None or made is None:
        return None
    return Side(
        source=name,
        alias=table.alias_or_name,
        key=made.key,
        kind="stream" if made.is_stream else "join",
        times=tuple((column, UPSTREAM) for column in made.times),
        added=made.added,
        may_be_absent=made.may_be_absent,
    )
