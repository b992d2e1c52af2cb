"""The two inputs of a statement: which sources they are and how they are joined."""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple

from sqlglot import exp

from pipelines.spec.definition import How
from pipelines.spec.model import Source
from pipelines.spec.names import nearest
from pipelines.spec.statement import Objection, Side

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
KINDS = {
    "stream": ("a stream", "a join with a stream"),
    "global_table": ("a global table", "a join with a global table"),
    "changelog": ("a changelog source", "a join with a changelog source"),
}


class Inputs(NamedTuple):
    """The two sides and how they are joined; the right key is still in the order of the file."""

    how: How
    left: Side
    right: Side


def read_inputs(
    select: exp.Select, sources: Mapping[str, Source], joins: Collection[str]
) -> tuple[Inputs | None, list[Objection]]:
    """
    Look up what FROM and JOIN name.

    Args:
        select: The statement.
        sources: The sources of the file, by name.
        joins: The names of all joins of the file.

    Returns:
        The inputs if there is nothing to object to, and the objections.
    """
    found = select.args.get("joins") or []
    tables = [select.args["from_"].this, *(join.this for join in found)]
    if not all(isinstance(table, exp.Table) and isinstance(table.this, exp.Identifier) for table in tables):
        return None, []  # the clauses were objected to already
    objections = [problem for table in tables for problem in _table(table, sources, joins)]
    if len(tables) == 1:
        objections.append(Objection(f"`{tables[0].name}` alone: a join has two inputs", "add JOIN ... ON ..."))
    if len(tables) > 2:
        objections.append(Objection(f"{len(tables)} inputs in FROM: a star, not yet supported", "join two sources"))
    for join in found:
        objections.extend(_join(join))
    if len({table.alias_or_name.lower() for table in tables}) < len(tables):
        objections.append(Objection("FROM: two inputs have the same name", "give each an alias of its own"))
    if objections:
        return None, objections
    left, right = (_side(table, sources) for table in tables)
    return Inputs(HOWS[found[0].side, found[0].kind], left, right), []


def _table(table: exp.Table, sources: Mapping[str, Source], joins: Collection[str]) -> Iterator[Objection]:
    name = table.name
    if table.db:
        qualified = ".".join(part.name for part in table.parts)
        yield Objection(f"FROM: `{qualified}` is a qualified name", "name a source; its `table:` says where it lies")
        return
    if any(name.lower() == join.lower() for join in joins):
        yield Objection(f"FROM: `{name}` is a join: a chain of joins, not yet supported", "name a source")
        return
    source = next((found for known, found in sources.items() if known.lower() == name.lower()), None)
    if source is None:
        known = ", ".join(f"`{source}`" for source in sources)
        hint = nearest(name, sources) or (f"the sources are {known}" if known else "the file has no sources")
        yield Objection(f"FROM: there is no source `{name}`", hint)
    elif source.kind in KINDS:
        article, kind = KINDS[source.kind]
        yield Objection(f"FROM: `{name}` is {article}: {kind}, not yet supported")


def _join(join: exp.Join) -> Iterator[Objection]:
    method, kind = join.args.get("method"), join.kind
    if method:
        yield Objection(f"{method} JOIN is not something that a join may use", "say with ON what is equal")
    elif kind == "CROSS":
        yield Objection("CROSS JOIN, or a comma in FROM, is not something that a join may use", "JOIN ... ON ...")
    elif (join.side, kind) not in HOWS:
        yield Objection(f"{kind} JOIN is not something that a join may use", "inner, left, right or full")
    elif not join.args.get("using") and join.args.get("on") in (None, exp.true()):
        yield Objection(f"JOIN `{join.this.name}` has no ON or USING", "say what is equal")


def _side(table: exp.Table, sources: Mapping[str, Source]) -> Side:
    name = next(known for known in sources if known.lower() == table.name.lower())
    return Side(name, table.alias_or_name, sources[name].key)
