"""
Recorded cases of Hazelcast's join of two streams, and what of them lakejoin does otherwise, by name. A recorded engine
judges the oracle: with all its own rules switched on the oracle must make what was recorded, to the letter. Without
them it is what lakejoin must make. A rule alone, switched off, says which cases it decides.
"""

import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from sqlglot import exp, parse_one

from pipelines.language.statement.columns import conjuncts
from tests.joins.oracle import OTHER, PRESERVED, Bound, Emitted, Held, Oracle, Row, Side, TooManyRows, Values

DIFFERENCES: Mapping[str, str] = {
    "one_side_or_null_key": "a row that can meet nothing is padded as it comes, not as it leaves",
    "watermark_never_falls": "a watermark that comes back lower changes nothing",
    "watermark_not_repeated": "an output watermark is not repeated after a restore",
    "limit_after_lateness": "the record limit is looked at when the step is done, not before its row is",
    "full_is_taken": "a full join is a join like others",
    "null_times": "a null time is a null key where a bound uses it, and else neither late nor limiting",
}
"""Where lakejoin differs on purpose; the engine has the opposite rule."""

ENGINE = frozenset(DIFFERENCES)

Joined = tuple[Any, ...]
"""The columns of a left and a right row, null for a missing side."""


class Made(NamedTuple):
    """What a step sends out: a bag of rows and a set of watermarks."""

    rows: Counter[Joined]
    watermarks: frozenset[tuple[str, int]]


NOTHING = Made(Counter(), frozenset())


class State(NamedTuple):
    """What is kept after a step: the first column of each row held, sorted, and the limits that are known."""

    left: tuple[Any, ...]
    right: tuple[Any, ...]
    limits: dict[str, int] | None = None
    """None where they are not to be compared."""


@dataclass
class Outcome:
    made: dict[int, Made] = field(default_factory=dict)
    error: tuple[int, str] | None = None
    states: dict[int, State] = field(default_factory=dict)


@dataclass(frozen=True)
class Case:
    """One line of a vector file, at the processor."""

    id: str
    type: str
    columns: Mapping[Side, tuple[str, ...]]
    times: Mapping[Side, tuple[str, ...]]
    bounds: tuple[Bound, ...]
    equi: tuple[str, ...]
    on: str
    max_records: int | None
    steps: tuple[Mapping[str, Any], ...]
    recorded: Outcome


class Failed(Exception):
    """The engine, or lakejoin, goes no further; the text is the reason as in `Outcome.error`."""


def read(path: Path) -> list[Case]:
    """Read the cases of a file that were recorded at the processor, one case a line."""
    with path.open(encoding="utf-8") as lines:
        parsed = [json.loads(line) for line in lines if line.strip()]
    return [case_of(line) for line in parsed if line["level"] == "processor"]


def joined(case: Case, left: Values | None, right: Values | None) -> Joined:
    """Lay a row of the result out as the comparison wants it."""
    sides: tuple[tuple[Side, Values | None], ...] = (("l", left), ("r", right))
    return tuple(values[name] if values else None for side, values in sides for name in case.columns[side])


def expected(case: Case) -> Outcome:
    return replay(case, frozenset())


def replay(case: Case, rules: frozenset[str]) -> Outcome:
    outcome = Outcome()
    seq = 0
    try:
        processor = Processor(case, rules)
        for step in case.steps:
            seq = step["seq"]
            rows, watermarks = processor.take(step)
            bag = Counter(joined(case, row.left and row.left[1], row.right and row.right[1]) for row in rows)
            outcome.made[seq] = Made(bag, frozenset(watermarks.items()))
            outcome.states[seq] = processor.state()
    except TooManyRows:
        outcome.error = (seq, "limit")
    except Failed as failed:
        outcome.error = (seq, str(failed))
    return outcome


def compare(case: Case, made: Outcome) -> tuple[list[str], Counter[str]]:
    """Compare what an implementation made of a case with what lakejoin must make of it."""
    misread = [f"the oracle is not the recorded engine: {problem}" for problem in misreadings(case)]
    wanted = expected(case)
    last = max(wanted.states, default=0)
    if wanted.error or last not in made.states:
        wanted.states = {}
    else:
        known = wanted.states[last]
        limits = None if made.states[last].limits is None else known.limits
        wanted.states = {last: known._replace(limits=limits)}
    return misread + unlike(wanted, made), Counter(deciding(case))


def misreadings(case: Case) -> list[str]:
    """Say where the oracle, with all rules of the engine, differs from what was recorded."""
    return unlike(case.recorded, replay(case, ENGINE))


def deciding(case: Case) -> Iterator[str]:
    """Name the differences that decide a case: with that one rule of lakejoin's the engine had done otherwise."""
    engine = replay(case, ENGINE)
    for name in DIFFERENCES:
        if unlike(engine, replay(case, ENGINE - {name})):
            yield name


def unlike(wanted: Outcome, found: Outcome) -> list[str]:
    """Say where two outcomes differ; of the states those that are wanted are compared."""
    problems = []
    for seq in sorted(wanted.made.keys() | found.made.keys()):
        here, there = wanted.made.get(seq, NOTHING), found.made.get(seq, NOTHING)
        problems += [
            f"step {seq}: {word} {thing} {one}"
            for word, more, less in (("lacks", here, there), ("should not have", there, here))
            for thing, several in (
                ("row", (more.rows - less.rows).elements()),
                ("watermark", sorted(more.watermarks - less.watermarks)),
            )
            for one in several
        ]
    if wanted.error != found.error:
        problems.append(f"should fail as {wanted.error}, fails as {found.error}")
    for seq, state in wanted.states.items():
        if state != found.states.get(seq) and not (wanted.error and seq >= wanted.error[0]):
            problems.append(f"step {seq}: should keep {state}, keeps {found.states.get(seq)}")
    return problems


class Saved(NamedTuple):
    """What a processor starts from."""

    buffered: list[Held]
    watermarks: dict[str, int]
    limits: dict[str, int]
    emitted: dict[str, int]


class Processor(Oracle):
    """The oracle with steps for input, and with the rules of the engine that are switched on."""

    def __init__(self, case: Case, rules: frozenset[str]) -> None:
        if case.type not in PRESERVED or (case.type == "full" and "full_is_taken" in rules):
            raise Failed("type")
        if not {("l", "r"), ("r", "l")} <= {(bound.greater[0], bound.lesser[0]) for bound in case.bounds}:
            raise Failed("bounds")
        self.case, self.rules = case, rules
        meets, alone, keys = condition(case.on, case.equi)
        if "one_side_or_null_key" in rules:
            alone = dict.fromkeys(OTHER, lambda values: True)
            keys = dict.fromkeys(OTHER, lambda values: False)
        max_rows = None if "limit_after_lateness" in rules else case.max_records
        super().__init__(case.type, case.bounds, case.times, {}, meets, alone, keys, max_rows=max_rows)
        self.emitted: dict[str, int] = {}
        self.saved: Saved | None = None

    def take(self, step: Mapping[str, Any]) -> tuple[list[Emitted], dict[str, int]]:
        if "action" in step:
            self._act(step)
            return [], {}
        if "row" in step:
            return self.rows(step["side"][0], [(self.position, step["row"])]), {}
        rows = self.watermark(**step["watermark"])
        higher = {name: mark for name, mark in self.outputs().items() if mark > self.emitted.get(name, mark - 1)}
        self.emitted |= higher
        return rows, higher

    def state(self) -> State:
        first = {side: names[0] for side, names in self.case.columns.items()}
        held = {
            side: tuple(sorted(one.row[1][first[side]] for one in self.buffered if one.side == side)) for side in OTHER
        }
        return State(held["l"], held["r"], {name: limit for name, limit in self.limits().items() if limit is not None})

    def snapshot(self) -> Saved:
        emitted = {} if "watermark_not_repeated" in self.rules else dict(self.emitted)
        buffered = [replace(held) for held in self.buffered]
        return Saved(buffered, dict(self._watermarks), dict(self._limits), emitted)

    def _act(self, step: Mapping[str, Any]) -> None:
        if step["action"] == "save":
            self.saved = self.snapshot()
            return
        start = self.saved or Saved([], {}, {}, {})
        if step["action"] == "restore_merged":
            other = Processor(self.case, self.rules)
            for one in step["other_steps"]:
                other.take(one)
            start = merged(self.saved or self.snapshot(), other.saved or other.snapshot())
        self.buffered = [replace(held) for held in start.buffered]
        self._watermarks, self._limits, self.emitted = map(dict, start[1:])

    def _arrive(self, side: Side, row: Row) -> list[Emitted]:
        limit = self.case.max_records
        if "limit_after_lateness" in self.rules and limit is not None and len(self.buffered) >= limit:
            raise TooManyRows(f"{limit} rows are held as another comes")
        return super()._arrive(side, row)

    def _is_late(self, side: Side, values: Values) -> bool:
        if "null_times" not in self.rules:
            return super()._is_late(side, values)
        for time in self.times[side]:
            if values[time] is None:
                raise Failed("null_time")
            if values[time] < self._watermarks.get(f"{side}.{time}", values[time]):
                return True
        return False

    def _move(self, column: str, value: int) -> None:
        if "watermark_never_falls" in self.rules:
            self._watermarks[column] = value
        else:
            super()._move(column, value)


def merged(one: Saved, other: Saved) -> Saved:
    """Merge the states of two processors: all rows, and the lower of each watermark and of each limit."""
    watermarks, limits = (
        {name: min(first.get(name, mark), mark) for name, mark in (first | second).items()}
        for first, second in ((one.watermarks, other.watermarks), (one.limits, other.limits))
    )
    return Saved([*one.buffered, *other.buffered], watermarks, limits, one.emitted)


class Condition(NamedTuple):
    """An ON as functions: the whole, the conditions of one side, and whether a join key of a side is null."""

    meets: Callable[[Values, Values], bool | None]
    alone: dict[Side, Callable[[Values], bool | None]]
    keys: dict[Side, Callable[[Values], bool]]


@cache
def condition(on: str, equi: Sequence[str]) -> Condition:
    """Take a condition over the aliases l and r apart."""
    parsed = parse_one(on)
    alone: dict[Side, list[exp.Expr]] = {side: [] for side in OTHER}
    keys: dict[Side, list[exp.Expr]] = {side: [exp.column(name, table=side) for name in equi] for side in OTHER}
    for part in conjuncts(parsed):
        names = _sides_of(part)
        if len(names) == 1:
            alone[names.pop()].append(part)
        elif isinstance(part, exp.EQ) and all(len(_sides_of(operand)) == 1 for operand in (part.this, part.expression)):
            for operand in (part.this, part.expression):
                keys[_sides_of(operand).pop()].append(operand)
    whole = _compiled(parsed)
    return Condition(
        lambda left, right: whole({"l": left, "r": right}),
        {side: _of_one(side, exp.and_(exp.true(), *parts)) for side, parts in alone.items()},
        {
            side: _of_one(side, exp.or_(exp.false(), *(part.copy().is_(exp.null()) for part in parts)))
            for side, parts in keys.items()
        },
    )


def _of_one(side: Side, expression: exp.Expr) -> Callable[[Values], Any]:
    evaluate = _compiled(expression)
    return lambda values: evaluate({side: values})


def _sides_of(expression: exp.Expr) -> set[Side]:
    return {column.table for column in expression.find_all(exp.Column)}


CONNECTION = sqlite3.connect(":memory:", check_same_thread=False)


def _compiled(expression: exp.Expr) -> Callable[[Mapping[Side, Values]], bool | None]:
    """Make a function of a condition: SQLite has three values, and keeps what it has prepared."""

    def placed(node: exp.Expr) -> exp.Expr:
        return exp.Placeholder(this=f"{node.table}_{node.name}") if isinstance(node, exp.Column) else node

    names = [(column.table, column.name) for column in expression.find_all(exp.Column)]
    sql = f"SELECT {expression.transform(placed).sql(dialect='sqlite')}"

    def evaluate(rows: Mapping[Side, Values]) -> bool | None:
        value = CONNECTION.execute(sql, {f"{side}_{name}": rows[side][name] for side, name in names}).fetchone()[0]
        return None if value is None else bool(value)

    return evaluate


def case_of(line: Mapping[str, Any]) -> Case:
    params = line["params"]
    columns: dict[Side, tuple[str, ...]] = {"l": tuple(params["left_columns"]), "r": tuple(params["right_columns"])}
    return Case(
        id=line["id"],
        type=line["type"].lower(),
        columns=columns,
        times={"l": tuple(params["left_times"]), "r": tuple(params["right_times"])},
        bounds=tuple(Bound(bound["greater"], bound["lesser"], bound["constant"]) for bound in params["bounds"]),
        equi=tuple(params["equi"]),
        on=params["on"],
        max_records=params.get("max_records"),
        steps=tuple(line["steps"]),
        recorded=_recorded(line, [f"{side}.{name}" for side, names in columns.items() for name in names]),
    )


def _recorded(line: Mapping[str, Any], names: Sequence[str]) -> Outcome:
    outcome = Outcome()
    for one in line["output"]:
        if "error" in one:
            outcome.error = (one["after"], _reason(**one["error"]))
            continue
        rows, watermarks = outcome.made.get(one["after"], NOTHING)
        if "row" in one:
            rows = rows + Counter([tuple(one["row"][name] for name in names)])
        else:
            watermarks |= {(one["watermark"]["column"], one["watermark"]["value"])}
        outcome.made[one["after"]] = Made(rows, watermarks)
    for one in line.get("state", ()):
        outcome.states[one["after"]] = State(tuple(one["left_buffer"]), tuple(one["right_buffer"]), one["limits"])
    return outcome


REASONS = {
    "Unsupported join type": "type",
    "Not enough time bounds": "bounds",
    "AccumulationLimitExceededException": "limit",
    "NullPointerException": "null_time",
}


def _reason(**error: str) -> str:
    text = f"{error.get('class')}: {error.get('message')}"
    return next((reason for words, reason in REASONS.items() if words in text), text)
