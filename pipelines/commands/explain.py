"""The explanation of a join from the pipeline file alone, without Spark and without reading a table."""

from collections.abc import Iterator
from itertools import starmap
from textwrap import dedent

from expectations.catalogue import described, each, of_rows, of_whole
from lakehouse.values.recorded import CHANGELOG, STATE
from pipelines.commands.pruning import pruning_of
from pipelines.language import (
    ROW_COLUMNS,
    STREAM_COLUMNS,
    How,
    Join,
    PipelineFile,
    Statement,
    is_ordered_by_column,
    keeps_changelog,
    reading_alike,
    statement_of,
)
from pipelines.language.sql.dialect import as_item, as_written
from pipelines.language.sql.syntax import spelled_out
from pipelines.language.statement.semi_joins import where_in_text
from pipelines.language.statement.statement import Groups, Matches, PairingClause, Side
from pipelines.language.statement.windows import Bound, bounds_of
from pipelines.plan.sharing import explained_reads
from pipelines.report import JoinExplanation, SourceExplanation

REFRESH = {
    "auto": "refresh auto: an epoch reads the change feeds of its sources; if a feed has a gap, the epoch computes the "
    "join in full and writes only the rows that differ",
    "incremental": "refresh incremental: `lakejoin run` never computes the join in full; the first load and a gap in a "
    "change feed require `lakejoin backfill --select {join}`",
    "full": "refresh full: an epoch computes the join from its whole sources and writes only the rows that differ",
}


def explain(file: PipelineFile, name: str) -> JoinExplanation:
    """
    Explain the kind of a join, the reasons for it, and the consequences for its result, with addresses as in the file.

    Raises:
        PipelineFileError: The statement is not supported.
    """
    reads = explained_reads(file, reading_alike(file, name), name)
    join = file.joins[name]
    statement = statement_of(file, name)
    return JoinExplanation(
        join=name,
        kind=statement.kind,
        how=statement.hows,
        why=tuple(_why(file, statement)),
        sources=tuple(_source(file, statement, index) for index in range(len(statement.sides))),
        key=tuple(_key(statement)),
        result=_stored(file, name),
        semantics=join.semantics,
        refresh=join.refresh,
        plan=reads.plain,
        optimised=reads.optimized if reads.optimized != reads.plain else (),
        rules=reads.rules,
        sql=dedent(join.sql).strip(),
        gated=tuple(starmap(described, each(of_rows(join.expectations)))),
        validated=tuple(starmap(described, each(of_whole(join.expectations)))),
        notes=(*_ktables(file, statement), *_notes(file, statement)),
    )


def _why(file: PipelineFile, statement: Statement) -> Iterator[str]:
    yield from _why_split(file, statement.name)
    for side in {side.source: side for side in statement.sides if side.source in file.joins}.values():
        rows = side if side.groups is None else side.groups.rows
        holds = f"holds one row for each ({', '.join(rows.source_key or rows.key)}), as its own statement says"
        is_part = file.part_of(side.source) == file.part_of(statement.name)
        what = "an earlier part of it" if is_part else "a join of this file"
        yield f"{side.source} is {what}: its result {'is a stream' if side.is_result else holds}"
    for side in statement.sides:
        if side.matches is not None and side.groups is not None:
            yield from _why_matched(side, side.matches, side.groups)
        elif side.groups is not None:
            yield from _why_grouped(side, side.groups)
        elif side.queries:
            yield _why_queried(side)
    if len(statement.of_from) == 1:
        own = statement.sides[0]
        of_group = f"({', '.join(own.key)}), what it is grouped by"
        has = "its key" if own.groups is None else f"the key {of_group}"
        yield f"{own.source} is the only input, so that the result has {has}"
    if statement.keys.is_many_to_many:
        yield from _why_paired(statement, statement.keys.paired)
    first, *others = statement.keys.members
    for other in others if not statement.keys.is_many_to_many else ():
        if statement.sides[other].matches is not None:
            continue
        written_in = f"{statement.steps[other - 1].clause} equates"
        clause, and_with = ("USING names", "and") if statement.using else (written_in, "with")
        members = (statement.sides[first], statement.sides[other])
        keys = [f"the whole key of {side.source}, ({', '.join(side.key)})" for side in members]
        yield f"{clause} {keys[0]}, {and_with} {keys[1]}: a row matches at most one row"
    if statement.is_windowed:
        yield from _why_windowed(statement)
        return
    if statement.reads_stream:
        yield f"{statement.sides[0].source} is a stream, and so is the result: each new row looks up the other inputs"
    for link in statement.keys.links:
        side = statement.sides[link.side]
        if side.matches is not None:
            continue
        referring, by_key = _reference(statement, link.side), f"by its whole key, ({', '.join(side.key)})"
        if not statement.reads_stream:
            yield f"{referring} is a reference to {side.source} {by_key}: many rows may refer to one"
        elif side.kind == "global_table":
            yield f"{referring} looks up {side.source} {by_key}, at its newest version when the epoch is planned"
        else:
            yield f"{referring} looks up {side.source} {by_key}, as of the row's time"


def _why_matched(side: Side, matches: Matches, groups: Groups) -> Iterator[str]:
    """Describe what a semi join looks up."""
    values = ", ".join(map(as_written, groups.by))
    yield f"`{as_written(matches.written)}` looks up whether rows of {side.source} have a value, by {values}"
    filters = " and ".join(f"`{as_written(query.where)}`" for query in side.queries if query.where is not None)
    if filters:
        yield f"only rows of {side.source} that satisfy {filters} count for it"
    if groups.collected:
        yield f"its further conditions are met if any row of {side.source} with the value meets all of them"


def _why_grouped(side: Side, groups: Groups) -> Iterator[str]:
    """Describe the rows of an input that groups others."""
    filters = " and ".join(f"`{as_written(query.where)}`" for query in side.queries if query.where is not None)
    those = f" that satisfy {filters}" if filters else ""
    yield f"{side.alias} groups the rows of {side.source}{those} by {', '.join(map(as_written, groups.by))}"
    if groups.having is not None:
        yield "HAVING leaves groups out, which enter and leave with their rows"
    yield "by group: an epoch reads all rows of each group that a changed row leaves or enters"


def _why_queried(side: Side) -> str:
    """Describe the rows of a subquery."""
    filters = " and ".join(f"`{as_written(query.where)}`" for query in side.queries if query.where is not None)
    if not filters:
        return f"{side.alias} has a row for each row of {side.source}, with columns of its own"
    return f"{side.alias} has the rows of {side.source} that satisfy {filters}; others are absent, on an outer side too"


def _why_paired(statement: Statement, pairing: PairingClause) -> Iterator[str]:
    left, right = (_called(statement, index) for index in (pairing.left, pairing.right))
    compared = " and ".join(f"`{as_written(e.left)}` with `{as_written(e.right)}`" for e in pairing.equalities)
    many = f"a row of {left} may match many rows of {right}, and a row of {right} many of {left}"
    yield f"{statement.steps[pairing.right - 1].clause} compares {compared}: {many}"
    if pairing.over != pairing.left:
        yield f"a row of {left} matches by the row of {_called(statement, pairing.over)} that it looks up"
    yield f"the result has a row for each pair, with the keys of {left} and {right}"
    for name, is_outer in zip((left, right), _outer_sides(pairing.how), strict=True):
        if is_outer:
            yield f"a row of {name} without a match is in the result with nulls for the other side, also in its key"


def _why_split(file: PipelineFile, name: str) -> Iterator[str]:
    whole = file.part_of(name)
    parts = file.parts(whole)
    if len(parts) > 1:
        part = f"part {parts.index(name) + 1} of {len(parts)} of {whole}"
        yield f"{part}, whose statement has several streams: they are joined two at a time"
    if name != whole:
        yield "its result is stored for the next part: only joins with streams store intermediate results"


def _why_windowed(statement: Statement) -> Iterator[str]:
    left, right = statement.sides
    both = f"{left.source} and {right.source} are streams: their"
    if statement.is_self_join:
        both = f"{left.alias} and {right.alias} are one stream: its"
    yield f"{both} rows match within time bounds, and the result is a stream"
    for bound in bounds_of(statement):
        times = (bound.greater, bound.lesser)
        greater, lesser = (f"{statement.sides[time.input].alias}.{time.column}" for time in times)
        yield f"ON requires that {greater} is {_distance(bound)} {lesser}"
    yield "a row is buffered until the watermark of the other stream excludes further matches"


def _distance(bound: Bound) -> str:
    allowance = abs(bound.allowance)
    amount = f"{allowance:,}" if bound.unit == "number" else spelled_out(allowance)
    if not allowance:
        return "not before"
    return f"at most {amount} before" if bound.allowance > 0 else f"at least {amount} after"


def _key(statement: Statement) -> Iterator[str]:
    """Format each part of the result's key: a column of an input, or the coalesced columns of several."""
    if statement.keys.is_many_to_many:
        sides = (statement.sides[index] for index in (statement.keys.paired.left, statement.keys.paired.right))
        yield from (f"{side.alias}.{name}" for side in sides for name in side.key)
        return
    holders = [statement.sides[index] for index in statement.keys.holders] if statement.key else []
    for names in zip(*(side.key for side in holders), strict=False):
        parts = [f"{side.alias}.{name}" for side, name in zip(holders, names, strict=True)]
        yield parts[0] if len(parts) == 1 else f"coalesce({', '.join(parts)})"


def _source(file: PipelineFile, statement: Statement, index: int) -> SourceExplanation:
    side = statement.sides[index]
    source = file.sources.get(side.source)
    return SourceExplanation(
        name=side.source,
        alias=side.alias,
        kind=source.kind if source else "join",
        key=side.key if side.groups is None else side.groups.rows.source_key,
        address=(source and (source.table or source.path)) or _stored(file, side.source),
        change=_change(statement, index),
        pruning=pruning_of(file, statement, index),
    )


def _stored(file: PipelineFile, name: str) -> str:
    storage = file.storage
    if storage.schema_name is not None:
        return f"{storage.schema_name}.{name}"
    return f"{(storage.path or '.').rstrip('/')}/{name}"


def _ktables(file: PipelineFile, statement: Statement) -> Iterator[str]:
    for name in statement.sources:
        source = file.sources.get(name)
        if source is not None and source.kind == "changelog":
            deletes = f"; a row that satisfies `{source.tombstone}` deletes its key" if source.tombstone else ""
            row = f"for each key the row with the greatest {source.order_by}{deletes}"
            yield f"{name} is read through its KTable, {_stored(file, name + STATE)}: {row}"


def _notes(file: PipelineFile, statement: Statement) -> Iterator[str]:
    for index, step in enumerate(statement.steps, start=1):
        for condition in step.further:
            yield f"{step.clause} also requires `{as_written(condition)}`: {_unmet(statement, index)}"
    if statement.reads_stream:
        yield from _notes_of_stream(file, statement)
        return
    if statement.where is not None and (where := where_in_text(statement.where, statement.sides)):
        newly = "result rows that no longer satisfy it are deleted; those that newly do are inserted"
        yield f"WHERE `{where}`: {newly}"
    if any(link.side < len(statement.of_from) for link in statement.keys.links):
        yield "a reference that is null or refers to a missing row matches nothing"
    if not all(side.may_be_absent for side in statement.sides):
        yield "source rows with a null in their key are skipped; each run counts those that it reads"
    if statement.appended:
        items = ", ".join(f"`{as_item(item)}`" for item in statement.appended)
        yield f"key_columns append: the result also has {items}"
    yield from _notes_of_absent(statement)
    if statement.keys.is_many_to_many and keeps_changelog(file, statement.name):
        order = "read it in the order of _epoch, _position and _op, or apply each position as a whole"
        log = f"{statement.name}{CHANGELOG}"
        yield f"one position of {log} may have a tombstone and an upsert of different keys: {order}"
    yield from _notes_of_order(file, statement)
    join = file.joins[statement.name]
    yield from _notes_of_bounds(join)
    yield REFRESH[join.refresh].format(join=statement.name)
    if join.feed == "any":
        yield "feed any: an epoch in full overwrites the result, so that its feed also holds rows that do not differ"


def _notes_of_absent(statement: Statement) -> Iterator[str]:
    for name in dict.fromkeys(side.source for side in statement.sides if side.may_be_absent):
        yield f"a null in the key of {name} says which side a row lacks: `<=>` finds such a row, `=` does not"


def _notes_of_stream(file: PipelineFile, statement: Statement) -> Iterator[str]:
    if statement.where is not None:
        yield f"WHERE `{as_written(statement.where)}`: rows that do not satisfy it are not added"
    if statement.is_windowed:
        for side in statement.sides:
            if side.is_result:
                listed = ", ".join(f"{side.alias}.{name}" for name, _ in side.times)
                yield f"each epoch of {side.source} records its watermarks: {listed}"
                continue
            listed = ", ".join(f"{side.alias}.{name} by {late}" for name, late in side.times)
            yield f"rows of {side.source} may be late: {listed}; later rows are dropped and counted"
        if statement.is_self_join:
            yield "a row also matches itself if it satisfies ON with itself"
        yield "rows with a null in a key, or in a time that ON bounds, match nothing; they are counted"
        yield f"buffered rows are stored in {_stored(file, statement.name + STATE)}"
    else:
        yield "a null key matches nothing: a left join adds the row with nulls, an inner join drops and counts it"
        yield from _notes_of_absent(statement)
    streams = [file.sources[side.source] for side in statement.sides if side.kind == "stream" and not side.is_result]
    for null_value in dict.fromkeys(stream.null_value for stream in streams if stream.null_value is not None):
        yield f"a row that satisfies `{null_value}` has no value: it is skipped and counted"
    if is_ordered_by_column(statement, file.sources):
        timed = dict.fromkeys(side.source for side in statement.sides if side.kind != "global_table")
        listed = ", ".join(f"{name}.{file.sources[name].order_by}" for name in timed)
        yield f"rows and changes are ordered by their own time: {listed}"
    else:
        first = f"{_called(statement, 0)} comes" if statement.is_windowed else "a table's change comes"
        yield f"rows and changes are ordered by the time of their commits; at the same time {first} first"
    yield f"the result also has {' and '.join(STREAM_COLUMNS)}: the epoch that added a row, and its position"
    if statement.is_windowed:
        yield f"it also has {' and '.join(ROW_COLUMNS)}: the source rows of a row, by version, hash and number"
    yield from _notes_of_bounds(file.joins[statement.name])
    yield from _notes_of_order(file, statement)


def _notes_of_bounds(join: Join) -> Iterator[str]:
    most = ((join.max_versions, "commits"), (join.max_bytes, "bytes"))
    if bounds := [f"{number:,} {what}" for number, what in most if number]:
        yield f"an epoch reads at most {' and '.join(bounds)} of each source; a run takes as many epochs as it needs"


def _notes_of_order(file: PipelineFile, statement: Statement) -> Iterator[str]:
    for name in statement.sources:
        if name in file.joins:
            yield f"{name} runs first; this join reads what {name} has committed, and is skipped if {name} fails"


def _unmet(statement: Statement, index: int) -> str:
    """Explain the effect of a further condition of ON on pairs that do not satisfy it."""
    how = statement.steps[index - 1].how
    if how == "inner":
        return "pairs that do not satisfy it are not in the result"
    outer, other = _called(statement, 0) if index == 1 else "the inputs before it", _called(statement, index)
    if how == "right":
        outer, other = other, outer
    row, side = ("row", "the other side") if how == "full" else (f"row of {outer}", other)
    return f"pairs that do not satisfy it do not match; an unmatched {row} has nulls for {side}"


def _change(statement: Statement, index: int) -> str:
    """Describe the effect of a change of an input on the result."""
    if statement.reads_stream:
        return _change_with_stream(statement, index)
    side = statement.sides[index]
    if side.matches is not None and side.groups is not None:
        what = "inserts, updates or deletes every result row that looks up its value"
        return f"{what}{'' if side.groups.collected else '; it changes none while another row has the same value'}"
    before = "" if statement.where is None else "before WHERE: "
    if index not in statement.keys.members:
        return before + _change_of_referenced(statement, index)
    if statement.keys.is_many_to_many:
        return before + _change_of_many(statement, statement.keys.paired, index)
    if statement.kind == "table-table":
        return before + _change_of_pair(statement, index)
    return f"{before}inserts, updates or deletes the result row of its key"


def _change_with_stream(statement: Statement, index: int) -> str:
    if statement.is_windowed:
        outer = _outer_sides(statement.steps[0].how)[index]
        unmatched = "; an unmatched row is added with nulls once no other row can match it" if outer else ""
        return f"adds a row to the result for each matching row of the other stream{unmatched}"
    if index:
        return "adds nothing to the result: later rows of the stream look up the changed row"
    adds_each = all(step.how == "left" for step in statement.steps) and statement.where is None
    adds = f"adds {'one row' if adds_each else 'at most one row'} to the result for each new row"
    if statement.sides[0].is_result:
        return adds
    return f"{adds}; updates and deletes are refused, unless `ignore_changes` skips them"


def _change_of_pair(statement: Statement, index: int) -> str:
    sides, outer_sides = statement.sides, _outer_sides(statement.steps[0].how)
    outer, other_outer = outer_sides[index], outer_sides[1 - index]
    mine, theirs, row = sides[index].source, sides[1 - index].source, "the result row of its key"
    nulls = f"with nulls for {theirs} while it lacks the key"
    if outer and other_outer:
        delete = f"a delete leaves nulls for {mine} while {theirs} has the key, else it deletes the row"
        return f"inserts or updates {row}, {nulls}; {delete}"
    if outer:
        return f"inserts, updates or deletes {row}, {nulls}"
    if other_outer:
        return f"updates {row}, if {theirs} has the key: sets the columns of {mine}, to nulls after a delete"
    return f"inserts, updates or deletes {row}, if {theirs} has the key; else it changes nothing"


def _change_of_many(statement: Statement, pairing: PairingClause, index: int) -> str:
    is_left = index == pairing.left
    other = _called(statement, pairing.right if is_left else pairing.left)
    outer = _outer_sides(pairing.how) if is_left else _outer_sides(pairing.how)[::-1]
    own = f", or one row with nulls for {other} if it matches none" if outer[0] else ""
    theirs = f"; a row of {other} that loses its last match keeps a row with nulls" if outer[1] else ""
    return f"inserts, updates or deletes a result row for each row of {other} that it matches{own}{theirs}"


def _change_of_referenced(statement: Statement, index: int) -> str:
    side, how, pairing = statement.sides[index], statement.steps[max(index, 1) - 1].how, statement.keys.pairing
    rows = f"every result row that refers to it by {_reference(statement, index)}"
    if pairing is not None and (index == pairing.over or statement.steps[pairing.right - 1].uses(side)):
        left, right = (_called(statement, side) for side in (pairing.left, pairing.right))
        return f"alters {rows}, and which rows of {right} those rows of {left} match"
    if statement.kind in ("star", "many-to-many"):
        return f"alters {rows}"
    if how in ("left", "right"):
        return f"updates {rows}: sets the columns of {side.source}, to nulls after a delete"
    return f"inserts, updates or deletes {rows}"


def _reference(statement: Statement, index: int) -> str:
    """Name the reference to an input by the expressions that equal its key."""
    link = next(link for link in statement.keys.links if link.side == index)
    written = [f"`{as_written(expression)}`" for expression in link.expressions]
    return written[0] if len(written) == 1 else f"({', '.join(written)})"


def _called(statement: Statement, index: int) -> str:
    """Name an input by its source, or by its alias if several inputs have the same source."""
    side = statement.sides[index]
    return side.source if [other.source for other in statement.sides].count(side.source) == 1 else side.alias


def _outer_sides(how: How) -> tuple[bool, bool]:
    """Return whether unmatched rows of the left side, and of the right side, are in the result."""
    return how in ("left", "full"), how in ("right", "full")
