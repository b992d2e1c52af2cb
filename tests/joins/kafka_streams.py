"""
Recorded cases of Kafka Streams' join of two streams, and what of them lakejoin does otherwise, by name. What must come
is defined over all pairs of records at once, without a buffer, and the oracle must say the same. In order of time it is
also what was recorded, but for the differences named here. Out of order the library loses pairs, finds rows that are
closed, and emits rows both alone and joined; there the definition alone counts. The oldest semantics are as recorded,
to the letter.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate, product
from pathlib import Path
from typing import NamedTuple

from tests.joins.oracle import OTHER, PRESERVED, Bound, Emitted, Oracle, Semantics, Side, Values

DIFFERENCES: Mapping[str, str] = {
    "pair_lost": "with no bound and no grace on a side the library drops rows while their window is open",
    "alone_for_lost_pair": "and emits alone what would have met them, and them",
    "still_held": "the library holds closed rows at the end of a case without flush",
    "earlier": "the library lets a closed row out later",
}
"""Where lakejoin differs on purpose, in order of time."""

SEMANTICS: Mapping[str, Semantics] = {"3.1": "kafka", "0.10.2": "kafka-0.10.2", "0.10.1": "kafka-0.10.0"}
"""The semantics of recorded joins of two streams, as a pipeline file calls them."""

JOINS = ("stream_stream", "self_join")
"""The joins of two streams, as the vectors call them; the records of a self-join come to both sides."""

TYPES = {"inner": "inner", "left": "left", "outer": "full"}


class Record(NamedTuple):
    seq: int
    side: Side
    key: str | None
    ts: int
    value: str | None


class Output(NamedTuple):
    """A row of the result: the record whose processing emitted it, its key, and both values as one text."""

    after: int
    key: str | None
    value: str


class Meant(NamedTuple):
    """A row that must come: the record at which, and the records it consists of, with None for a missing side."""

    after: int
    left: Record | None
    right: Record | None


@dataclass(frozen=True)
class Case:
    id: str
    how: str
    semantics: Semantics
    before: int
    after: int
    grace: int
    input: tuple[Record, ...]
    output: tuple[Output, ...]
    is_self_join: bool = False

    @property
    def in_order(self) -> bool:
        times = [record.ts for record in self.input]
        return times == sorted(times)

    @property
    def is_flushed(self) -> bool:
        return self.input[-1].key == "~flush"

    def bound(self, side: Side) -> int:
        """Say how much younger a partner of a row of this side may be."""
        return self.after if side == "l" else self.before

    def on(self, left: Values, right: Values) -> bool | None:
        if left["key"] is None or right["key"] is None:
            return None
        return left["key"] == right["key"] and -self.before <= right["ts"] - left["ts"] <= self.after


def read(path: Path) -> list[Case]:
    with path.open(encoding="utf-8") as lines:
        parsed = [json.loads(line) for line in lines if line.strip()]
    return [case_of(line) for line in parsed if line["join"] in JOINS]


def written(after: int, left: Values | None, right: Values | None) -> Output:
    """Write a row of the result as it was recorded, from the keys and values of its sides."""
    texts = ["null" if side is None or side["value"] is None else side["value"] for side in (left, right)]
    return Output(after, (left or right or {})["key"], "-".join(texts))


def emitted(case: Case) -> list[Output]:
    oracle = oracle_of(case)
    made = [(record.seq, one) for record in case.input for one in took(oracle, case, record)]
    return [written(seq, one.left and one.left[1], one.right and one.right[1]) for seq, one in made]


def took(oracle: Oracle, case: Case, record: Record) -> list[Emitted]:
    """Let a record come to the oracle: that of a self-join on both sides at once."""
    rows = [(record, record._asdict())]
    return oracle.both(rows, rows) if case.is_self_join else oracle.rows(record.side, rows)


def oracle_of(case: Case) -> Oracle:
    return Oracle(
        how=case.how,
        bounds=[Bound("l.ts", "r.ts", case.after), Bound("r.ts", "l.ts", case.before)],
        times={"l": ("ts",), "r": ("ts",)},
        lateness={"l.ts": case.grace, "r.ts": case.grace},
        meets=case.on,
        alone=dict.fromkeys(OTHER, lambda values: True),
        keys=dict.fromkeys(OTHER, lambda values: values["key"] is None),
        semantics=case.semantics,
        is_null_value=lambda values: values["value"] is None,
    )


def compare(case: Case, made: Iterable[Output]) -> tuple[list[str], Counter[str]]:
    """Compare what an implementation made of a case with what lakejoin must make of it."""
    is_defined = case.in_order and case.semantics != "kafka-0.10.0"
    wrong, differences = against_the_library(case, definition(case)) if is_defined else ([], Counter())
    return wrong + _unlike(Counter(expected(case)), Counter(made)), differences


def expected(case: Case) -> list[Output]:
    return list(case.output if case.semantics == "kafka-0.10.0" else map(_output, definition(case)))


def definition(case: Case) -> list[Meant]:
    """
    Name the rows that must come, by looking at all pairs of records. A pair comes if ON holds and the earlier record is
    not below its limit where the later one is.
    """
    seen = list(accumulate((record.ts for record in case.input), max))
    valued = [(place, record) for place, record in enumerate(case.input) if record.value is not None]
    pairs = []
    for (i, one), (j, other) in product(valued, valued):
        is_pair = case.is_self_join or (one.side, other.side) == ("l", "r")
        if is_pair and case.on(one._asdict(), other._asdict()):
            # Of a self-join a record comes as the left one first, and meets itself as the right one.
            earlier, side, later = (one, "l", j) if i <= j else (other, "r", i)
            if not later or not _is_closed(case, earlier, seen[later - 1], side):
                pairs.append(Meant(case.input[later].seq, one, other))
    joined = {record.seq for pair in pairs for record in pair[1:]}
    joined_at_once = {pair.after for pair in pairs}
    alone = []
    for place, record in valued:
        if record.side not in PRESERVED[case.how]:
            continue
        if record.key is None:
            at: int | None = record.seq
        elif case.semantics == "kafka-0.10.2":
            at = None if record.seq in joined_at_once else record.seq
        elif record.seq in joined:
            at = None
        else:
            ends = (case.input[later].seq for later in range(place, len(seen)) if _is_closed(case, record, seen[later]))
            at = next(ends, None)
        if at is not None:
            alone.append(Meant(at, record, None) if record.side == "l" else Meant(at, None, record))
    return pairs + alone


def against_the_library(case: Case, meant: Sequence[Meant]) -> tuple[list[str], Counter[str]]:
    """Say where the rows that must come are not those recorded in order of time, and count the differences wanted."""
    problems: list[str] = []
    differences: Counter[str] = Counter()
    recorded = {output[1:]: output.after for output in case.output}
    missed = {
        record.seq
        for row in meant
        if row.left and row.right and _output(row)[1:] not in recorded
        for record in (row.left, row.right)
    }
    for row in meant:
        at = recorded.pop(_output(row)[1:], None)
        waits = case.semantics == "kafka" and not (row.left and row.right)
        if at == row.after:
            continue
        if at is None and row.left and row.right and _is_lost(case, row.left, row.right):
            differences["pair_lost"] += 1
        elif at is None and waits and not case.is_flushed:
            differences["still_held"] += 1
        elif at is not None and waits and row.after < at:
            differences["earlier"] += 1
        else:
            problems.append(f"the library does not do so: {_output(row)}, recorded at {at}")
    for (key, value), after in recorded.items():
        if any(
            value in (f"{record.value}-null", f"null-{record.value}") for record in case.input if record.seq in missed
        ):
            differences["alone_for_lost_pair"] += 1
        else:
            problems.append(f"the library has one more: {Output(after, key, value)}")
    return problems, differences


def alone_and_joined(case: Case, outputs: Iterable[Output]) -> Iterator[Record]:
    """Find records that were emitted both null-padded and in a pair."""
    values = Counter((part, side == 0) for one in outputs for side, part in enumerate(one.value.split("-")))
    padded = {one.value for one in outputs}
    for record in case.input:
        text = f"{record.value}-null" if record.side == "l" else f"null-{record.value}"
        if text in padded and values[record.value, record.side == "l"] > 1:
            yield record


def _is_closed(case: Case, record: Record, time: int, side: str = "") -> bool:
    return record.ts + case.bound("l" if (side or record.side) == "l" else "r") + case.grace < time


def _is_lost(case: Case, left: Record, right: Record) -> bool:
    """Tell whether the library has dropped the earlier row of a pair when the later one comes."""
    earlier, later = sorted((left, right))
    newest = max(
        record.ts
        for record in case.input
        if record.seq < later.seq and record.side == earlier.side and None not in (record.key, record.value)
    )
    kept = case.before + case.after + case.grace
    return min(case.before, case.after) + case.grace == 0 and earlier.ts <= newest - kept


def _output(row: Meant) -> Output:
    return written(row.after, *(record and record._asdict() for record in row[1:]))


def _unlike(wanted: Counter[Output], found: Counter[Output]) -> list[str]:
    lacks = [f"lacks {one}" for one in sorted((wanted - found).elements(), key=str)]
    return lacks + [f"should not have {one}" for one in sorted((found - wanted).elements(), key=str)]


def case_of(line: Mapping) -> Case:
    params = line["params"]
    return Case(
        id=line["id"],
        how=TYPES[line["type"]],
        semantics=SEMANTICS[line["semantics"]],
        before=params["before_ms"],
        after=params["after_ms"],
        grace=params.get("grace_ms", 0),
        input=tuple(Record(one["seq"], one["side"][0], one["key"], one["ts"], one["value"]) for one in line["input"]),
        output=tuple(Output(one["after"], one["key"], one["value"]) for one in line["output"]),
        is_self_join=line["join"] == "self_join",
    )
