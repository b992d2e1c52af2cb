"""
Recorded joins of two streams through the product: whole, cut at random, and one step an epoch. All epochs of all cases
of one definition are one Spark job. Each epoch begins from the state of the oracle, and must end in what the oracle
says, and what all of them emit is compared with the record.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StringType, StructField, StructType

from lakehouse.errors.errors import PipelineFileError
from pipelines.joins.watermarks import NOTHING_YET
from pipelines.language import ResolvedQuery, Semantics, Source, Window, bind, parse
from tests.joins import hazelcast, kafka_streams
from tests.joins.oracle import Emitted, Side, TooManyRows
from tests.joins.window_epochs import CUTS, SIDES, Part, Step, cut, ends_of
from tests.joins.windows import Definition, Made, Values, evaluate, unlike

Case = kafka_streams.Case | hazelcast.Case

JOINS = {"inner": "JOIN", "left": "LEFT JOIN", "right": "RIGHT JOIN", "full": "FULL JOIN"}
NOT_IN_ON = "ON does not say the bounds that the processor was given; lakejoin reads them from ON"
MERGES_APART = "two states merge into limits that are not those of the merged watermarks"


@dataclass
class Attempt:
    made: list[kafka_streams.Output] | hazelcast.Outcome
    problems: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Reading:
    """What the product reads in a case: its definition, or why it refuses it; or why the case cannot be run."""

    definition: Definition | None = None
    refused: str = ""
    skipped: str = ""


def attempts(spark: SparkSession, definition: Definition, cases: Sequence[Case]) -> list[dict[str, Attempt]]:
    parts = [(number, way, part) for number, case in enumerate(cases) for way, part in _parts(case, definition)]
    run = [one for one in parts if one[2].epoch.rows or one[2].epoch.given]
    is_counted = any(isinstance(case, hazelcast.Case) and case.max_records is not None for case in cases)
    made = evaluate(spark, definition, [part.epoch for _, _, part in run], is_counted=is_counted)
    found: list[dict[str, Attempt]] = [
        {way: Attempt([] if isinstance(case, kafka_streams.Case) else hazelcast.Outcome()) for way in CUTS}
        for case in cases
    ]
    for (number, way, part), one in zip(run, made, strict=True):
        case, attempt = cases[number], found[number][way]
        attempt.problems += [
            f"step {part.positions[0]} and on: {problem}" for problem in _unlike(definition, part, one)
        ]
        if isinstance(attempt.made, list):
            names = definition.columns[0].names
            for (at, *rows), times in one.emitted.items():
                sides = [None if row is None else dict(zip(names, row, strict=True)) for row in rows]
                attempt.made += [kafka_streams.written(at, *sides)] * times
        elif isinstance(case, hazelcast.Case):
            _collect(attempt.made, case, definition, part, one)
    return found


def reading(case: Case) -> Reading:
    """Take the definition of a case through the product's own reading."""
    return _of_kafka(case) if isinstance(case, kafka_streams.Case) else _of_hazelcast(case)


def _of_kafka(case: kafka_streams.Case) -> Reading:
    kinds = {"key": StringType(), "ts": LongType(), "value": StringType()}
    row = StructType([StructField(name, kind) for name, kind in kinds.items()])
    on = f"l.key = r.key AND r.ts BETWEEN l.ts - {case.before} AND l.ts + {case.after}"
    join = _read(case.how, on, (row, row), (("ts",), ("ts",)), case.grace, is_self_join=case.is_self_join)
    return Reading(_defined(join, (row, row), case.semantics))


def _of_hazelcast(case: hazelcast.Case) -> Reading:
    """The processor was given its bounds; the product finds them in ON, which may say more."""
    left, right = (StructType([StructField(name, LongType()) for name in case.columns[side]]) for side in SIDES)
    times = tuple(case.times[side] for side in SIDES)
    given = " AND ".join(f"{bound.greater} >= {bound.lesser} - ({bound.allowance})" for bound in case.bounds)
    try:
        bounds = _window(_read(case.type, given or "TRUE", (left, right), times)).bounds
    except PipelineFileError:
        return Reading(refused="bounds" if case.type in JOINS else "type")
    try:
        join = _read(case.type, case.on, (left, right), times)
    except PipelineFileError:
        return Reading(skipped=NOT_IN_ON)
    window = _window(join)
    own = {bound[:2]: bound.allowance for bound in window.bounds}
    is_less = any(own.get(bound[:2], bound.allowance + 1) > bound.allowance for bound in bounds)
    if is_less or len(bounds) < len({bound[:2] for bound in case.bounds}):
        return Reading(skipped=NOT_IN_ON)
    if _merges_apart(case):
        return Reading(skipped=MERGES_APART)
    return Reading(_defined(replace(join, window=replace(window, bounds=bounds)), (left, right), "strict"))


def _read(
    how: str,
    on: str,
    columns: tuple[StructType, StructType],
    times: Sequence[Sequence[str]],
    lateness: int = 0,
    *,
    is_self_join: bool = False,
) -> ResolvedQuery:
    """Read a statement; PipelineFileError if the product refuses it."""
    rows: dict[str, StructType] = dict(zip(SIDES, columns, strict=True))
    sources = {
        side: Source(kind="stream", key=row.names[:1], watermarks=dict.fromkeys(own, str(lateness)))
        for (side, row), own in zip(rows.items(), times, strict=True)
    }
    selected = ", ".join(f"{side}.{name} AS {side}_{name}" for side, row in rows.items() for name in row.names)
    right = "l AS r" if is_self_join else "r"
    sql = f"SELECT {selected} FROM l {JOINS.get(how, f'LEFT {how.upper()} JOIN')} {right} ON {on}"
    return bind(parse("joined", sql, sources), {side: row.names for side, row in rows.items()})


def _defined(join: ResolvedQuery, columns: tuple[StructType, StructType], semantics: Semantics) -> Definition:
    return Definition(join.steps[0].how, join.steps[0].on, columns, _window(join), semantics)


def _window(join: ResolvedQuery) -> Window:
    assert join.window is not None
    return join.window


def _merges_apart(case: hazelcast.Case) -> bool:
    """Tell whether merged limits are not those that merged watermarks set: the product keeps watermarks only."""
    processor = hazelcast.Processor(case, frozenset())
    for step in case.steps:
        try:
            processor.take(step)
        except (TooManyRows, hazelcast.Failed):
            return False
        if step.get("action") == "restore_merged":
            limits: dict[str, int] = {}
            for greater, lesser, allowance in case.bounds:
                mark = processor.watermarks()[lesser]
                if mark is not None:
                    limits[greater] = max(mark - allowance, limits.get(greater, mark - allowance))
            if limits != {name: limit for name, limit in processor.limits().items() if limit is not None}:
                return True
    return False


def _parts(case: Case, definition: Definition) -> Iterator[tuple[str, Part]]:
    if isinstance(case, kafka_streams.Case):
        steps = [_record(case, record) for record in case.input]
        for way, ends in zip(CUTS, ends_of(steps, case.id), strict=True):
            for part in cut(definition, kafka_streams.oracle_of(case), steps, ends):
                yield way, part
        return
    marks = definition.window.watermarks
    places = {f"{SIDES[mark.time.input]}.{mark.time.column}": place for place, mark in enumerate(marks)}
    steps = [_step(case, step, places) for step in case.steps]
    # What is saved or restored is the state between two epochs.
    acts = [number for number, step in enumerate(case.steps) if "action" in step]
    for way, ends in zip(CUTS, ends_of(steps, case.id), strict=True):
        pauses = sorted({*ends, *acts, *(number + 1 for number in acts)} - {0})
        processor = hazelcast.Processor(case, frozenset())
        for part in cut(definition, processor, steps, pauses, lambda oracle: dict(oracle.emitted)):
            yield way, part


def _record(case: kafka_streams.Case, record: kafka_streams.Record) -> Step:
    values = (record.key, record.ts, record.value)
    places = (0, 1) if case.is_self_join else (SIDES.index(record.side),)
    rows = [(record.seq, place, values, record.value is not None) for place in places]
    return Step(record.seq, lambda oracle: kafka_streams.took(oracle, case, record), rows)


def _step(case: hazelcast.Case, step: Mapping[str, Any], places: Mapping[str, int]) -> Step:
    def taken(processor: hazelcast.Processor) -> list[Emitted]:
        return processor.take(step)[0]

    if "row" in step:
        side: Side = step["side"][0]
        values = tuple(step["row"][name] for name in case.columns[side])
        return Step(step["seq"], taken, [(step["seq"], SIDES.index(side), values, True)])
    if "watermark" in step:
        return Step(step["seq"], taken, given=(places[step["watermark"]["column"]], step["watermark"]["value"]))
    return Step(step["seq"], taken)


def _unlike(definition: Definition, part: Part, made: Made) -> list[str]:
    """Compare with the oracle; where it fails it does not say what the last position had come to."""
    wanted = part.expected
    if part.fails:
        rows = {key: number for key, number in made.emitted.items() if key[0] != part.positions[-1]}
        wanted, made = Made(wanted.emitted, most=wanted.most), Made(Counter(rows), most=made.most)
    return unlike(definition, wanted, made)


def _collect(outcome: hazelcast.Outcome, case: hazelcast.Case, definition: Definition, part: Part, made: Made) -> None:
    """Add what came of an epoch; it fails as a whole, at the last position that is fed, and nothing follows it."""
    if outcome.error:
        return
    names = [f"{SIDES[mark.time.input]}.{mark.time.column}" for mark in definition.window.watermarks]
    positions = list(part.positions)
    if case.max_records is not None and made.most is not None and made.most > case.max_records:
        outcome.error = (positions.pop(), "limit")
    emitted = dict(part.before)
    for position in positions:
        rows: Counter[hazelcast.Joined] = Counter()
        for (at, left, right), number in made.emitted.items():
            if at == position:
                rows[_joined(case, left, right)] += number
        results = {names[place]: mark for place, mark in made.results.get(position, {}).items()}
        higher = {name: mark for name, mark in results.items() if mark > emitted.get(name, mark - 1)}
        emitted |= higher
        outcome.made[position] = hazelcast.Made(rows, frozenset(higher.items()))
    if not outcome.error:
        firsts = [sorted(row[0] for side, row, _ in made.held.elements() if side == place) for place in (0, 1)]
        limits = {names[place]: limit for place, limit in made.limits.items() if limit != NOTHING_YET}
        outcome.states[positions[-1]] = hazelcast.State(tuple(firsts[0]), tuple(firsts[1]), limits)


def _joined(case: hazelcast.Case, left: Values | None, right: Values | None) -> hazelcast.Joined:
    rows = zip(SIDES, (left, right), strict=True)
    return tuple(value for side, row in rows for value in row or [None] * len(case.columns[side]))
