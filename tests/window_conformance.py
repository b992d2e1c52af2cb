"""What `tests.conformance` knows of recorded joins of two streams: of Kafka Streams, and of Hazelcast at two levels."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any, NamedTuple

from pyspark.sql import SparkSession

from tests.joins import hazelcast, kafka_streams
from tests.joins.window_vectors import Attempt, attempts, reading
from tests.joins.windows import Definition
from tests.language.statement.planned_bounds import AGREES, DIFFERS, joins_of, judged


@dataclass(frozen=True)
class Statement:
    """A statement that Hazelcast planned or refused; nothing of it is run."""

    id: str
    vector: Mapping[str, Any] = field(hash=False)


Case = kafka_streams.Case | hazelcast.Case | Statement
Attempts = Mapping[str, Attempt]
"""What was made of a case, by the way it was cut; nothing for a statement."""


class Compared(NamedTuple):
    """What is wrong with a case, how it differs from the record by name, and what to show of it: by step, in order."""

    problems: list[str]
    differences: Counter[str]
    expected: list[tuple[int, str]]
    actual: list[tuple[int, str]]


def case_of(line: Mapping[str, Any]) -> Case:
    if "level" not in line:
        return kafka_streams.case_of(line)
    return hazelcast.case_of(line) if line["level"] == "processor" else Statement(line["id"], line)


def why_skipped(case: Case) -> str | None:
    if isinstance(case, Statement):
        is_ours = joins_of(case.vector["params"]["sql"])
        return None if is_ours else "a statement other than a join of streams with watermarks"
    return reading(case).skipped or None


def definition_of(case: Case) -> Definition | None:
    """Give what a case has in common with others that can be run at once; None if there is nothing to run."""
    return None if isinstance(case, Statement) else reading(case).definition


def run(spark: SparkSession, definition: Definition | None, cases: Sequence[Case]) -> list[Attempts]:
    """Run cases of one definition; without one the product refuses them."""
    if definition is not None:
        return list(attempts(spark, definition, [case for case in cases if not isinstance(case, Statement)]))
    return [{} if isinstance(case, Statement) else _refused(case) for case in cases]


def _refused(case: kafka_streams.Case | hazelcast.Case) -> Attempts:
    return {"refused": Attempt(hazelcast.Outcome(error=(0, reading(case).refused)))}


def compared(case: Case, made: Attempts) -> Compared:
    """Compare what the product made of a case with what it must make, and that with the record."""
    if isinstance(case, Statement):
        verdict = judged(joins_of(case.vector["params"]["sql"]), case.vector)
        differs = [verdict] if verdict == DIFFERS else []
        return Compared(differs, Counter() if verdict in (AGREES, DIFFERS) else Counter([verdict]), [], [])
    problems: list[str] = []
    differences: Counter[str] = Counter()
    wanted = _told(kafka_streams.expected(case) if isinstance(case, kafka_streams.Case) else hazelcast.expected(case))
    shown: list[tuple[int, str]] | None = None
    for way, attempt in made.items():
        wrong, differences = _against_record(case, attempt)
        wrong += attempt.problems
        problems += [f"{way}: {problem}" for problem in wrong]
        if shown is None or (wrong and shown == wanted):
            shown = _told(attempt.made)
    return Compared(problems, differences, wanted, shown or [])


def _against_record(case: Case, attempt: Attempt) -> tuple[list[str], Counter[str]]:
    if isinstance(case, kafka_streams.Case) and isinstance(attempt.made, list):
        return kafka_streams.compare(case, attempt.made)
    assert isinstance(case, hazelcast.Case)
    assert isinstance(attempt.made, hazelcast.Outcome)
    return hazelcast.compare(case, attempt.made)


def _told(made: list[kafka_streams.Output] | hazelcast.Outcome) -> list[tuple[int, str]]:
    """Tell each output and the step of which it came, in one order for all ways to make the same."""
    if isinstance(made, list):
        return sorted((one.after, f"{one.key}={one.value}") for one in made)
    found = []
    for seq, (rows, watermarks) in made.made.items():
        found += [(seq, ",".join("-" if value is None else str(value) for value in row)) for row in rows.elements()]
        found += [(seq, f"{name}={value}") for name, value in watermarks]
    return sorted(found + ([(made.error[0], f"error: {made.error[1]}")] if made.error else []))


def steps_of(case: Case) -> list[tuple[int, list[str]]]:
    """Give the input of a case: the step, its side, its key, and what else is to be seen of it."""
    if isinstance(case, Statement):
        return [(0, ["", "", str(case.vector["params"]["sql"])])]
    if isinstance(case, kafka_streams.Case):
        return [(one.seq, [one.side, str(one.key), f"{one.value} at {one.ts}"]) for one in case.input]
    return [(step["seq"], _cells(step)) for step in case.steps]


def _cells(step: Mapping[str, Any]) -> list[str]:
    if "row" in step:
        return [step["side"], "row", ",".join(map(str, step["row"].values()))]
    if "watermark" in step:
        return ["", "mark", f"{step['watermark']['column']}={step['watermark']['value']}"]
    return ["", "", step["action"]]


def damaged(made: Attempts, damage: str) -> Attempts:
    """Damage what was made of a case; one that has not enough to damage stays as it is."""
    return {way: replace(attempt, made=_damaged(attempt.made, DAMAGES[damage])) for way, attempt in made.items()}


Placed = list[tuple[int, Any]]
"""Rows of the result, each with the step of which it came."""


def _damaged(
    made: list[kafka_streams.Output] | hazelcast.Outcome, damage: Callable[[Placed], Placed]
) -> list[kafka_streams.Output] | hazelcast.Outcome:
    if isinstance(made, list):
        outputs = sorted(made, key=str)
        return [kafka_streams.Output(seq, *one) for seq, one in damage([(one[0], one[1:]) for one in outputs])]
    placed = [(seq, row) for seq, one in made.made.items() for row in one.rows.elements()]
    steps = {seq: hazelcast.Made(Counter(), one.watermarks) for seq, one in made.made.items()}
    for seq, row in damage(placed):
        steps[seq].rows[row] += 1
    return replace(made, made=steps)


def _drop(rows: Placed) -> Placed:
    middle = len(rows) // 2
    return rows[:middle] + rows[middle + 1 :]


def _add(rows: Placed) -> Placed:
    middle = len(rows) // 2
    return [*rows, *rows[middle : middle + 1]]


def _swap(rows: Placed) -> Placed:
    """Exchange the steps of two rows that are not of one step, and not equal."""
    for at, (one, other) in enumerate(pairwise(rows)):
        if one[0] != other[0] and one[1] != other[1]:
            return [*rows[:at], (other[0], one[1]), (one[0], other[1]), *rows[at + 2 :]]
    return rows


DAMAGES: Mapping[str, Callable[[Placed], Placed]] = {"drop": _drop, "add": _add, "swap": _swap}
