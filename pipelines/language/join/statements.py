"""Check the statements of a file against the options of their joins, and split those of several streams into parts."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pydantic import ValidationError

from lakehouse.errors.errors import Fault
from pipelines.language.file.document import Document, dotted, mapping
from pipelines.language.file.model import Join
from pipelines.language.join.chains import chains
from pipelines.language.join.misfits import BOUNDS, option_misfits, split_misfits
from pipelines.language.join.split import Chain, is_chain
from pipelines.language.sql.dialect import as_item, as_written
from pipelines.language.sql.objection import Objection, Span, faults_of, place_of_last_output
from pipelines.language.sql.syntax import lateness, read
from pipelines.language.statement.outputs import produced
from pipelines.language.statement.pairing import misspelled_key
from pipelines.language.statement.parse import examine, examine_select, read_inputs, sql_path
from pipelines.language.statement.statement import Produced, Results, Side, Sources, Statement

Parts = dict[str, dict[str, Join]]
"""For each join whose statement is split, the joins that it becomes, the join itself last."""


class Examined(NamedTuple):
    """
    The statement of a join, or its parts, and the objections to it.

    The names are those of its parts, the join itself last; faulty statements are left out.
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
    Check all statements of a file, with joins as written, and split those of several streams into parts.

    An invalid source is None; the sources as a whole are None if they are unknown.
    """
    texts = {name: mapping(join).get("sql") for name, join in joins.items()}
    statements = {name: sql for name, sql in texts.items() if isinstance(sql, str) and sql}
    found = chains(sources or (), statements)
    results: dict[str, Produced | None] = dict.fromkeys(joins)
    faults: list[Fault] = []
    parts: Parts = {}
    elsewhere: dict[str, list[str]] = {}
    of_groups: list[str] = []
    logged = {name for name, join in joins.items() if mapping(join).get("changelog") is True}
    for name in found.order:
        sql, semantics = statements[name], _semantics(joins[name])
        examined = _examined(name, sql, sources, results, appends_keys=_appends_keys(joins[name]))
        if not examined.objections and examined.statements:
            results[name] = produced(examined.statements[-1], sources or {})
        objections = [*examined.objections, *_unsupported(examined, semantics), *found.objections(name, sql)]
        if mapping(joins[name]).get("changelog") is True:
            objections += unlike_upstream(semantics, {other: _semantics(joins[other]) for other in found.reads[name]})
        line_of = partial(document.line_of_row, ("joins", name, "sql"))
        faults += faults_of(objections, sql_path(name), sql, line_of)
        faults += _clashes(examined.names, sources or {}, joins, document)
        for statement in examined.statements:
            if any(side.groups is not None for side in statement.sides):
                of_groups.append(name)
            if statement.reads_stream:
                logged.add(name)  # it reads the changelogs of the joins behind it
            else:
                of_others = (side for side in statement.sides if side.source in joins or side.kind == "changelog")
                elsewhere[name] = list(dict.fromkeys(side.source for side in of_others))
        join = _join(joins[name])
        if join is not None:
            becomes = {one.name: _part(join, one, name) if examined.is_split else join for one in examined.statements}
            faults += _misfits(join, examined, becomes, sources or {}, document)
            parts |= {name: becomes} if examined.is_split else {}
    keeping = logged.union(*map(found.behind, logged))
    faults += [*_unlike_readers(found.reads, joins, document), *_uncut(elsewhere, keeping, joins, document)]
    faults += _unlogged([name for name in of_groups if name in keeping], joins, document)
    return faults, parts


class MissingKeys(NamedTuple):
    """The items that add the missing key columns to a SELECT list, and the last item that it has."""

    items: tuple[str, ...]
    last: Span


def missing_key_columns(sources: Sources, joins: Mapping[str, Any]) -> dict[str, MissingKeys]:
    """Find the key columns that joins, as written in a file, do not select; without those that may be misspelled."""
    statements = {name: sql for name, join in joins.items() if isinstance(sql := mapping(join).get("sql"), str) and sql}
    results: dict[str, Produced | None] = dict.fromkeys(joins)
    found: dict[str, MissingKeys] = {}
    for name in chains(sources, statements).order:
        examined = _examined(name, statements[name], sources, results, appends_keys=True)
        if examined.objections or not examined.statements:
            continue
        statement = examined.statements[-1]
        results[name] = produced(statement, sources)
        pairing = statement.keys.pairing
        is_misspelled = pairing is not None and misspelled_key(pairing, statement.sides) is not None
        last = place_of_last_output(statement.sql) if statement.appended else None
        if last is not None and not is_misspelled and not _appends_keys(joins[name]):
            found[name] = MissingKeys(tuple(map(as_item, statement.appended)), last)
    return found


def _appends_keys(join: object) -> bool:
    return mapping(join).get("key_columns") == "append"


def _examined(name: str, sql: str, sources: Sources | None, results: Results, *, appends_keys: bool) -> Examined:
    select, found = read(sql)
    inputs, _ = read_inputs(select, sources, results) if select is not None and sources is not None else (None, [])
    if select is None or sources is None or inputs is None or not is_chain(inputs):
        statement, objections = examine(name, sql, sources, results, appends_keys=appends_keys)
        return Examined((name,), [statement] if statement else [], objections)
    chain = Chain(name, inputs.select, inputs.sides)
    objections = [*found, *_ordered(inputs.sides, sources), *chain.objections()]
    statements: list[Statement] = []
    known = dict(results)
    is_splittable = not any(chain.objections()) and not _taken(chain.names, (*sources, *results))
    for piece in chain.pieces() if is_splittable else ():
        read_by, more = read_inputs(piece.select, sources, known)
        objections += map(chain.in_own_words, more)
        if read_by is None:
            break
        statement, more = examine_select(piece.name, piece.sql, read_by, _unordered(sources))
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
    found = [misfit for one in examined.statements for misfit in option_misfits(one, becomes[one.name], sources)]
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
    common = {"sql": statement.sql, "max_buffered_rows": join.max_buffered_rows if statement.is_windowed else None}
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


def unlike_upstream(semantics: str, upstream: Mapping[str, str]) -> Iterator[Objection]:
    """Find joins that a join with a changelog reads, whose semantics are not its own."""
    for name, other in upstream.items():
        if other != semantics:
            problem = f"FROM: `{name}` has semantics `{other}`, but the changelog of this join needs `{semantics}`"
            yield Objection(problem, "give both joins the same semantics, or leave the changelog out", "FROM")


def unlike_kafka(statement: Statement, semantics: str) -> Iterator[Objection]:
    """Find features of a statement that Kafka Streams does not support, if the join uses its semantics."""
    if not semantics.startswith("kafka"):
        return
    said = f"semantics `{semantics}`"
    if len(statement.of_from) == 1:
        yield Objection(f"{said}: a statement of one input", "use `semantics: strict`")
    if len(statement.of_from) < len(statement.sides):
        yield Objection(f"{said}: a semi or anti join, EXISTS or IN", "use `semantics: strict`")
    for side in statement.of_from:
        if side.queries:
            hint = f"name {side.source}, or use `semantics: strict`"
            yield Objection(f"{said}: a subquery as an input, `{side.alias}`", hint, "FROM")
    if statement.keys.is_many_to_many:
        yield Objection(f"{said}: a join in which many rows match many", "use `semantics: strict`")
    if len(statement.sides) > 2 and not statement.reads_stream:
        hint = "write a join of two inputs, and another join that reads its result"
        yield Objection(f"{said}: a statement of {len(statement.sides)} inputs", hint)
    than = "equalities and a time window" if statement.is_windowed else "the equality of keys"
    for step in statement.steps:
        for condition in step.further:
            problem = f"{said}: ON: `{as_written(condition)}` is a condition besides {than}"
            yield Objection(problem, "leave it out, or use `semantics: strict`", condition)
    if semantics.startswith("kafka-0.10") and statement.keys.links and not statement.reads_stream:
        problem = f"{said}: a foreign-key join, which Kafka supports since 2.4"
        yield Objection(problem, "use `semantics: kafka` or `strict`")
    if statement.is_windowed:
        yield from _unlike_window(statement, said)


def _unlike_window(statement: Statement, said: str) -> Iterator[Objection]:
    """Yield objections to several times or grace periods: a window of Kafka Streams has one of each."""
    sides = [side for side in statement.sides if not side.is_result]
    for side in sides:
        if len(side.times) > 1:
            problem = f"{said}: {side.source} has several `watermarks`; a window has one time for each input"
            yield Objection(problem, "leave one, or use `semantics: strict`")
    late = {lateness(written)[0] for side in sides for _, written in side.times}
    if len(late) > 1:
        each = (f"{side.source} {written}" for side in sides for _, written in side.times)
        listed = ", ".join(dict.fromkeys(each))
        yield Objection(f"{said}: lateness {listed}: a window has one grace period", "use the same for both")


def _unlike_readers(
    reads: Mapping[str, Collection[str]], joins: Mapping[str, Any], document: Document
) -> Iterator[Fault]:
    """Yield a fault for each join without an exact feed whose result another join of the file reads."""
    for name, join in joins.items():
        readers = [reader for reader, read in reads.items() if name in read]
        if readers and mapping(join).get("feed") == "any":
            where = ("joins", name, "feed")
            problem = f"`feed: any`, but {', '.join(f'`{reader}`' for reader in readers)} reads the feed of this result"
            yield Fault(dotted(where), problem, "leave it out: the feed is exact then", document.line(where))


def _uncut(
    timed_elsewhere: Mapping[str, Sequence[str]], keeping: Collection[str], joins: Mapping[str, Any], document: Document
) -> Iterator[Fault]:
    """Yield a fault for each bound of a join with a changelog whose inputs have changes that are older than commits."""
    for name, inputs in timed_elsewhere.items():
        for option in BOUNDS if inputs and name in keeping else ():
            if mapping(joins[name]).get(option) is not None:
                where = ("joins", name, option)
                problem = (
                    f"`{option}` cuts epochs by commit times, but this join keeps a changelog, and the changes of "
                    f"{', '.join(inputs)} are in it by the times of the commits that caused them"
                )
                hint = "leave it out; a join keeps a changelog if it, or a join that reads it, asks for one"
                yield Fault(dotted(where), problem, hint, document.line(where))


def _unlogged(of_groups: Collection[str], joins: Mapping[str, Any], document: Document) -> Iterator[Fault]:
    """Yield a fault for each join with a changelog whose statement has a semi join or groups."""
    for name in of_groups:
        is_asked = mapping(joins[name]).get("changelog") is True
        where = ("joins", name, "changelog" if is_asked else "sql")
        problem = "a changelog of a join with groups, a semi join, EXISTS or IN is not yet supported"
        readers = "it keeps one for a join that reads it, with a stream or with `changelog`"
        yield Fault(dotted(where), problem, "leave it out" if is_asked else readers, document.line(where))
