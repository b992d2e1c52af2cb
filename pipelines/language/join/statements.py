"""Check the statements of a file, and split those of several streams into parts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pydantic import ValidationError

from lakehouse.errors.errors import Fault
from pipelines.language.file.model import Join, Source
from pipelines.language.file.yaml_document import Document, dotted, mapping
from pipelines.language.join.chains import chains
from pipelines.language.join.produced import produced
from pipelines.language.join.split import Chain, is_chain
from pipelines.language.join.streams import split_misfits, stream_misfits
from pipelines.language.sql.objection import Objection, faults_of
from pipelines.language.sql.syntax import read
from pipelines.language.statement.inputs import Produced, read_inputs
from pipelines.language.statement.semantics import unlike_kafka, unlike_upstream
from pipelines.language.statement.sql import examine, examine_select, sql_path
from pipelines.language.statement.statement import Side, Statement

Sources = Mapping[str, Source | None]
Made = Mapping[str, Produced | None]
Parts = dict[str, dict[str, Join]]
"""For each join whose statement is split, the joins that it becomes, the join itself last."""


class Examined(NamedTuple):
    """
    The statement of a join, or its parts, and the objections to it.

    Args:
        names: The names of its parts, the join itself last; only the name of the join if it is not split.
        statements: Without those that have errors.
    """

    names: tuple[str, ...]
    statements: list[Statement]
    objections: list[Objection]

    @property
    def is_split(self) -> bool:
        """Whether the statement is split."""
        return len(self.names) > 1


def check_statements(
    sources: Sources | None, joins: Mapping[str, Any], document: Document
) -> tuple[list[Fault], Parts]:
    """
    Check all statements of a file, with joins as written, and return their faults and the parts of joins that are
    split.

    An invalid source is None; the sources as a whole are None if they are unknown.
    """
    texts = {name: mapping(join).get("sql") for name, join in joins.items()}
    statements = {name: sql for name, sql in texts.items() if isinstance(sql, str) and sql}
    found = chains(sources or (), statements)
    made: dict[str, Produced | None] = dict.fromkeys(joins)
    faults: list[Fault] = []
    parts: Parts = {}
    for name in found.order:
        sql, semantics = statements[name], _semantics(joins[name])
        examined = _examined(name, sql, sources, made)
        if not examined.objections and examined.statements:
            made[name] = produced(examined.statements[-1], sources or {})
        objections = [*examined.objections, *_unsupported(examined, semantics), *found.objections(name, sql)]
        if mapping(joins[name]).get("changelog") is True:
            objections += unlike_upstream(semantics, {other: _semantics(joins[other]) for other in found.reads[name]})
        line_of = partial(document.line_of_row, ("joins", name, "sql"))
        faults += faults_of(objections, sql_path(name), sql, line_of)
        faults += _clashes(examined.names, sources or {}, joins, document)
        join = _join(joins[name])
        if join is not None:
            becomes = {one.name: _part(join, one, name) if examined.is_split else join for one in examined.statements}
            faults += _misfits(join, examined, becomes, sources or {}, document)
            parts |= {name: becomes} if examined.is_split else {}
    return faults, parts


def _examined(name: str, sql: str, sources: Sources | None, made: Made) -> Examined:
    select, found = read(sql)
    inputs, _ = read_inputs(select, sources, made) if select is not None and sources is not None else (None, [])
    if select is None or sources is None or inputs is None or not is_chain(inputs):
        statement, objections = examine(name, sql, sources, made)
        return Examined((name,), [statement] if statement else [], objections)
    chain = Chain(name, select, inputs.sides)
    objections = [*found, *_ordered(inputs.sides, sources), *chain.objections()]
    statements: list[Statement] = []
    known = dict(made)
    is_splittable = not any(chain.objections()) and not _taken(chain.names, (*sources, *made))
    for piece in chain.pieces() if is_splittable else ():
        read_by, more = read_inputs(piece.select, sources, known)
        objections += map(chain.in_own_words, more)
        if read_by is None:
            break
        statement, more = examine_select(piece.name, piece.sql, piece.select, read_by, _unordered(sources))
        objections += map(chain.in_own_words, more)
        known[piece.name] = None
        if statement is not None:
            statements.append(statement)
            known[piece.name] = produced(statement, _unordered(sources))
    return Examined(chain.names, statements, objections)


def _unsupported(examined: Examined, semantics: str) -> Iterator[Objection]:
    if examined.is_split and semantics != "strict":
        problem = f"semantics `{semantics}`: a statement of several streams"
        yield Objection(problem, "write joins of two, each of which reads the one before, or use `semantics: strict`")
    for statement in () if examined.is_split else examined.statements:
        yield from unlike_kafka(statement, semantics)


def _ordered(sides: Collection[Side], sources: Sources) -> Iterator[Objection]:
    """Yield an objection to `order_by` of streams and tables in a statement of several streams."""
    read_by = {side.source: sources.get(side.source) for side in sides if side.kind in ("stream", "table")}
    ordered = [name for name, source in read_by.items() if source is not None and source.order_by is not None]
    if ordered:
        problem = f"`order_by` of {', '.join(ordered)} in a statement of several streams is not yet supported"
        yield Objection(problem, "leave `order_by` out: commit times then order all rows", "FROM")


def _unordered(sources: Sources) -> Sources:
    """Return the sources without the `order_by` of streams and tables, to which `_ordered` objects."""
    return {
        name: source and (source if source.kind == "changelog" else source.model_copy(update={"order_by": None}))
        for name, source in sources.items()
    }


def _taken(names: Sequence[str], others: Collection[str]) -> list[tuple[str, str]]:
    """Return the parts of a join that have the name of a source or another join, ignoring case, each with that name."""
    written = {other.lower(): other for other in others}
    return [(part, written[part.lower()]) for part in names[:-1] if part.lower() in written]


def _clashes(
    names: Sequence[str], sources: Collection[str], joins: Collection[str], document: Document
) -> Iterator[Fault]:
    where = ("joins", names[-1])
    for part, other in _taken(names, (*sources, *joins)):
        what = "source" if other in sources else "join"
        problem = f"a part of its statement is stored as `{part}`, but the file has a {what} `{other}`"
        yield Fault(dotted(where), problem, "rename one of them", document.line(where))


def _misfits(
    join: Join, examined: Examined, becomes: Mapping[str, Join], sources: Sources, document: Document
) -> list[Fault]:
    found = [misfit for one in examined.statements for misfit in stream_misfits(one, becomes[one.name], sources)]
    if examined.is_split:
        objected = ("sql", "semantics")
        found = [misfit for misfit in (*split_misfits(join), *found) if misfit[0] not in objected]
    name = examined.names[-1]
    faults = (
        Fault(dotted(where), *misfit, document.line(where))
        for option, misfit in found
        for where in [("joins", name, option)]
    )
    return list(dict.fromkeys(faults))


def _part(join: Join, statement: Statement, name: str) -> Join:
    """Create the join for a part of a statement. Options of the result apply to the last part, others to all parts."""
    common = {
        "sql": statement.sql,
        "max_buffered_rows": join.max_buffered_rows if statement.is_windowed else None,
    }
    if statement.name == name:
        return join.model_copy(update={**common, "max_versions": None, "max_bytes": None})
    return Join(semantics=join.semantics, refresh=join.refresh, **common)


def _join(value: object) -> Join | None:
    try:
        return Join.model_validate(value)
    except ValidationError:
        return None


def _semantics(join: object) -> str:
    return str(mapping(join).get("semantics", "strict"))
