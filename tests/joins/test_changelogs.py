"""
The changelog of joins over random histories, under strict semantics. `oracle_*` compares with plain Python, which
evaluates the join after every single commit and takes the differences. The histories are read twice: cut into epochs at
random, and as one epoch each.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any

import pytest
from pyspark.sql import SparkSession
from pyspark.sql.types import LongType, StructField, StructType, TimestampType

from lakehouse.values.compare import plain_schema
from lakehouse.values.net_changes import net
from pipelines.joins.meaning import meaning
from pipelines.language import ResolvedQuery

from . import star_shapes, table_shapes
from .changelogs import Histories, StagedHistories, changelog
from .claims import CHANGE_TYPE, EPOCH, HISTORY, SCOPE, difference_of, literal
from .epochs import bound, key_types, known
from .histories import FeedRow, History, Row, history, plain
from .star_chains import CHAINS
from .stars import How, Star, oracle

HISTORIES = 40
AS_MADE, WHOLE, EACH = 0, 1, 2
"""How a history is cut into epochs: at random, not at all, and after every commit."""
START = datetime(2026, 1, 1, tzinfo=UTC)
COMMIT = [StructField("version", LongType()), StructField("at", TimestampType())]


@dataclass(frozen=True, eq=False)
class Subject:
    """A join to try, and how full the tables are at the start of its histories."""

    name: str
    star: Star
    how: How
    filled: int

    def oracle(self, state: tuple[list[Row], ...]) -> dict[Row, Row]:
        return oracle(self.star, self.how, state)


def of_two(star: Star) -> Subject:
    return Subject(f"{star.types[0][0]}-{star.name}", star, star.types[0], 4)


def of_star(star: Star, how: How) -> Subject:
    return Subject("-".join((star.name, *how)), star, how, 10)


SUBJECTS = [
    of_two(table_shapes.using("inner")),
    of_two(table_shapes.composite("full")),
    of_two(table_shapes.conditions("right")),
    *(of_star(star_shapes.FOREIGN_KEY, how) for how in star_shapes.FOREIGN_KEY.types),
    of_star(star_shapes.OTHER_WAY_ROUND, star_shapes.OTHER_WAY_ROUND.types[-1]),
    of_star(star_shapes.SELF, star_shapes.SELF.types[-1]),
    of_star(star_shapes.TWO_STEPS, star_shapes.TWO_STEPS.types[-1]),
    of_star(star_shapes.MIXED_FULL, star_shapes.MIXED_FULL.types[-1]),
    of_star(CHAINS[0], CHAINS[0].types[-1]),
]


@dataclass(frozen=True)
class Step:
    """A row of a changelog: the commit that it comes from, the source of that, the key, and what it is now."""

    commit: int
    cause: str
    key: Row
    row: Row | None


def expected_steps(subject: Subject, one: History) -> dict[int, list[Step]]:
    """Evaluate the join after every commit; the steps of each epoch, in the order of the commits."""
    found: dict[int, list[Step]] = {}
    before, number = subject.oracle(one.start), 0
    for at, epoch in enumerate(one.epochs, start=1):
        for commit in epoch.commits:
            number += 1
            after = subject.oracle(commit.states)
            changes = difference_of(before, after)
            cause = subject.star.names[commit.side]
            steps = [Step(number, cause, key, change.after) for key, change in changes.items()]
            found.setdefault(at, []).extend(sorted(steps, key=repr))
            before = after
    return found


Found = tuple[list[History], dict[tuple[int, int], list[Step]]]
"""Histories, and the steps of their changelogs by the number of a history and a cut, and by epoch."""


@pytest.fixture(scope="module")
def computed(spark: SparkSession) -> Callable[[Subject], Found]:
    return cache(lambda subject: compute(spark, subject))


def compute(
    spark: SparkSession, subject: Subject, number: int = HISTORIES, cuts: Sequence[int] = (AS_MADE, WHOLE)
) -> Found:
    """Compute the changelogs of all histories, each cut in several ways: the first as number 0, 1 and so on."""
    histories = [
        history(subject.star, f"changelog {subject.name} {number}", filled=subject.filled) for number in range(number)
    ]
    feeds: dict[str, list[Row]] = {name: [] for name in subject.star.names}
    rows: dict[str, list[Row]] = {name: [] for name in subject.star.names}
    for number, one in enumerate(histories):
        for cut in cuts:
            _tell(subject, one, len(cuts) * number + cut, feeds, rows, cut)
    schemas = dict(zip(subject.star.names, subject.star.schemas, strict=True))
    keys, results = dict(zip(subject.star.names, subject.star.keys, strict=True)), subject.star.results
    join = bound(subject.star.statement(subject.how), keys, schemas, results=results)

    def frame(data: Mapping[str, list[Row]], name: str, *more: StructField) -> Any:
        return literal(spark, data[name], StructType([*schemas[name], HISTORY, EPOCH, *more]))

    changes = {
        name: net(
            frame(feeds, name, *COMMIT, CHANGE_TYPE),
            key,
            [schemas[name][part].dataType for part in key],
            {field.name: field.dataType for field in schemas[name]},
            [*SCOPE, "version", "at"],
            may_be_absent=name in results,
        )
        for name, key in zip(subject.star.names, subject.star.keys, strict=True)
    }
    held = {name: frame(rows, name) for name in subject.star.names}
    columns = meaning([held[item.source] for item in join.inputs], join).schema
    kind = Histories
    if join.pairing is not None:
        kind, changes = StagedHistories, {name: known(frame) for name, frame in changes.items()}
    logged = changelog(kind(join, key_types(join, schemas), changes, held, SCOPE), plain_schema(columns), "strict")
    return histories, _steps(subject, join, logged.collect())


def _tell(
    subject: Subject, one: History, scope: int, feeds: dict[str, list[Row]], rows: dict[str, list[Row]], cut: int
) -> None:
    number = 0
    states = {}
    for at, epoch in enumerate(one.epochs, start=1):
        for commit in epoch.commits:
            number += 1
            place = (at, 0, number)[cut]
            states[place] = commit.states
            stamp = (scope, place, number, START + timedelta(seconds=number))
            feeds[subject.star.names[commit.side]] += [(*row, *stamp, kind) for kind, row in _fed(commit.feed)]
    for at, state in states.items():
        for name, held in zip(subject.star.names, state, strict=True):
            rows[name] += [(*row, scope, at) for row in held]


def _fed(feed: Sequence[FeedRow]) -> list[tuple[str, Row]]:
    return [(change.change_type, change.row) for change in feed]


def _steps(subject: Subject, join: ResolvedQuery, rows: Sequence[Any]) -> dict[tuple[int, int], list[Step]]:
    found: dict[tuple[int, int], list[Step]] = {}
    for row in rows:
        by_name = {name.lower(): plain(value) for name, value in row["key"].asDict().items()}
        key = tuple(by_name[name.lower()] for name in subject.star.key_outputs)
        cells = None if row["new"] is None else tuple(plain(row["new"][name]) for name in subject.star.outputs)
        assert (row["op"] == "tombstone") == (cells is None), row
        commit = round((row["at"].astimezone(UTC) - START).total_seconds())
        step = Step(commit, row["cause"], key, cells)
        found.setdefault((row["_history"], row["_epoch"]), []).append(step)
    return {scope: sorted(steps, key=lambda step: (step.commit, repr(step))) for scope, steps in found.items()}


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_oracle_a_row_for_every_commit_that_changes_the_result(computed, subject):
    """The changelog has exactly the differences that every single commit makes, in order, with their cause."""
    histories, found = computed(subject)
    several = 0
    for number, one in enumerate(histories):
        expected = expected_steps(subject, one)
        for at in range(1, len(one.epochs) + 1):
            steps = expected.get(at, [])
            assert found.get((2 * number, at), []) == steps, f"epoch {at} of {one.seed!r}: {one.script}"
            several += len({step.commit for step in steps}) > 1
    assert several > 5, "an epoch with one commit shows nothing of their order"


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
@pytest.mark.deep
def test_oracle_cuts_change_nothing(computed, subject):
    histories, found = computed(subject)
    for number, one in enumerate(histories):
        steps = [step for epoch in expected_steps(subject, one).values() for step in epoch]
        assert found.get((2 * number + 1, 0), []) == steps, one.script


@pytest.mark.parametrize("subject", SUBJECTS, ids=lambda subject: subject.name)
def test_the_changelog_of_an_epoch_nets_to_its_change_set(computed, subject):
    """The last row of each key, where it differs from the result before the epoch, is what the epoch changes."""
    nets_to_change_sets(subject, *computed(subject), 2)


def nets_to_change_sets(
    subject: Subject, histories: list[History], found: dict[tuple[int, int], list[Step]], cuts: int
) -> None:
    """See that the last row of each key, where it differs from the result before, is what an epoch changes."""
    for number, one in enumerate(histories):
        states = one.states()
        for at in range(1, len(states)):
            before, after = (subject.oracle(states[place]) for place in (at - 1, at))
            last = {step.key: step.row for step in found.get((cuts * number, at), [])}
            netted = {key: row for key, row in last.items() if before.get(key) != row}
            assert netted == {key: change.after for key, change in difference_of(before, after).items()}, one.script
