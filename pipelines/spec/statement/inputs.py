"""The inputs of a statement: which sources and joins they are and how they are joined."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from sqlglot import exp

from pipelines.spec.file.model import Source
from pipelines.spec.names import nearest
from pipelines.spec.sql.objection import Objection
from pipelines.spec.statement.definition import How
from pipelines.spec.statement.statement import Side

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
"""The names of key columns."""

UPSTREAM = ""
"""In place of a lateness: the join that makes a column says how far its watermark is."""


class Produced(NamedTuple):
    """
    What a join gives those that read its result.

    Args:
        key: What the SELECT list calls each part of the result's key; nothing for a stream.
        is_stream: Whether the result is a stream.
        times: Of a stream the columns that carry a watermark.
        added: The columns that lakejoin adds to it, which no statement sees.
        is_ordered: Whether `order_by` orders its rows, in place of the commits that caused them.
    """

    key: Key
    is_stream: bool = False
    times: tuple[str, ...] = ()
    added: tuple[str, ...] = ()
    is_ordered: bool = False


class Inputs(NamedTuple):
    """The inputs in the order of FROM, and the type of each JOIN; keys are still in the order of the file."""

    sides: tuple[Side, ...]
    hows: tuple[How, ...]


def tables_of(select: exp.Select) -> list[exp.Table] | None:
    """List what FROM and JOIN name, in their order; None if something there is no name."""
    tables = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    is_named = all(isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier) for table in tables)
    return tables if is_named else None


def defined(select: exp.Select) -> set[str]:
    """Return the names that WITH defines, in lower case: WITH is refused, and they name no source or join."""
    with_ = select.args.get("with_")
    return {query.alias.lower() for query in with_.expressions} if with_ else set()


def called(name: str, known: Iterable[str]) -> str | None:
    """Find a source or a join as the file writes its name, case aside; None if it is not there."""
    return next((written for written in known if written.lower() == name.lower()), None)


def read_inputs(
    select: exp.Select, sources: Mapping[str, Source | None], joins: Mapping[str, Produced | None]
) -> tuple[Inputs | None, list[Objection]]:
    """
    Look up what FROM and JOIN name.

    Args:
        select: The statement.
        sources: The sources of the file, by name; None for one that is at fault itself.
        joins: What each join gives, None where it is not known.

    Returns:
        The inputs if their sources are known and there is nothing to object to, and the objections.
    """
    found = select.args.get("joins") or []
    tables = tables_of(select)
    if tables is None:
        return None, []  # the clauses were objected to already
    own = defined(select)
    named = [table for table in tables if table.db or table.name.lower() not in own]
    objections = [problem for table in named for problem in _table(table, sources, joins)]
    if len(tables) == 1:
        objections.append(
            Objection(f"`{tables[0].name}` alone: a join has two inputs", "add JOIN ... ON ...", tables[0])
        )
    if len(tables) > 2:
        for join in found:
            if join.args.get("using"):
                problem = "USING in a join of three inputs and more is not yet supported"
                objections.append(Objection(problem, "write ON, with an alias before each column", "USING"))
                break
    for join in found:
        objections.extend(_join(join))
    taken: set[str] = set()
    for table in tables:
        if table.alias_or_name.lower() in taken:
            objections.append(Objection("FROM: two inputs have the same name", "give each an alias of its own", table))
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
    Tell whether two streams meet that are one: a source under two aliases, or two sources of one table, read alike.

    Args:
        sides: The inputs.
        sources: The sources of the file, by name.

    Returns:
        Whether each row of the one is the same row of the other.
    """
    if [side.kind for side in sides] != ["stream", "stream"]:
        return False
    if sides[0].source == sides[1].source:
        return True
    left, right = (sources.get(side.source) for side in sides)
    if left is None or right is None or (left.table is None and left.path is None):
        return False
    return _rows_of(left) == _rows_of(right)


def _rows_of(stream: Source) -> tuple[object, ...]:
    """Give what tells which rows a stream with an address has, and how they are taken."""
    late = tuple(stream.watermarks.items())
    return stream.table, stream.path, late, stream.order_by, stream.null_value, stream.ignore_changes


def _table(
    table: exp.Table, sources: Mapping[str, Source | None], joins: Mapping[str, Produced | None]
) -> Iterator[Objection]:
    name = table.name
    if table.db:
        qualified = ".".join(part.name for part in table.parts)
        hint = "name a source; its `table:` says where it lies"
        yield Objection(f"FROM: `{qualified}` is a qualified name", hint, table)
        return
    found = called(name, sources)
    join = called(name, joins) if found is None else None
    made = None if join is None else joins[join]
    if made is not None and made.is_ordered:
        problem = f"FROM: the rows of `{join}` have the order of `order_by`: to read such a result is not yet supported"
        yield Objection(problem, "leave `order_by` out: then the times of the commits order all rows", table)
    elif found is None and join is None:
        known = ", ".join(f"`{source}`" for source in sources)
        near = nearest(name, sources) or nearest(name, (join for join, made in joins.items() if made))
        hint = near or (f"the sources are {known}" if known else "the file has no sources")
        yield Objection(f"FROM: there is no source `{name}`", hint, table.this)


def _join(join: exp.Join) -> Iterator[Objection]:
    method, kind = join.args.get("method"), join.kind
    if method:
        yield Objection(
            f"{method} JOIN is not something that a join may use", "say with ON what is equal", method.upper()
        )
    elif kind == "CROSS":
        yield Objection(
            "CROSS JOIN, or a comma in FROM, is not something that a join may use", "JOIN ... ON ...", join.this
        )
    elif (join.side, kind) not in HOWS:
        yield Objection(f"{kind} JOIN is not something that a join may use", "inner, left, right or full", kind)
    elif join.args.get("on") == exp.true():
        problem = f"JOIN `{join.this.name}`: ON TRUE compares nothing, so every row would meet every row"
        yield Objection(problem, "say what is equal", join.args["on"])
    elif not join.args.get("using") and join.args.get("on") is None:
        yield Objection(f"JOIN `{join.this.name}` has no ON or USING", "say what is equal", join.this)


def _side(table: exp.Table, sources: Mapping[str, Source | None], joins: Mapping[str, Produced | None]) -> Side | None:
    name = called(table.name, sources)
    if name is not None:
        source = sources[name]
        if source is None:
            return None
        return Side(name, table.alias_or_name, source.key, source.kind, tuple(source.watermarks.items()))
    name = called(table.name, joins)
    made = None if name is None else joins[name]
    if name is None or made is None:
        return None
    times = tuple((column, UPSTREAM) for column in made.times)
    return Side(name, table.alias_or_name, made.key, "stream" if made.is_stream else "join", times, made.added)
