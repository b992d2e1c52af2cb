"""Recorded vectors as values: cases, their source tables and change feeds, and what strict semantics makes of them."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pipelines.language import Semantics
from tests.joins.statements import SIDES

SEMANTICS: Mapping[str, Semantics] = {"3.1": "kafka", "0.10.1": "kafka-0.10.0"}
"""The semantics of recorded joins of tables, as a pipeline file calls them."""


class Record(NamedTuple):
    """An input: a missing value is a tombstone."""

    seq: int
    side: str
    key: str | None
    value: str | None


class Output(NamedTuple):
    """A recorded output; `after` is the record whose processing emitted it."""

    after: int
    key: str
    value: str | None


class Change(NamedTuple):
    """An output with what it does to the result: the value that it replaces, and the operation by name."""

    after: int
    op: str
    key: str
    before: str | None
    value: str | None


class Logged(NamedTuple):
    """A row of a changelog: the record that it comes from, the side of that, and the value that it replaces."""

    after: int
    cause: str
    op: str
    key: str
    before: str | None
    value: str | None


class FeedRow(NamedTuple):
    change_type: str
    key: str | None
    value: str | None


@dataclass(frozen=True)
class Case:
    id: str
    join: str
    type: str
    semantics: str
    input: tuple[Record, ...]
    output: tuple[Output, ...]
    final: dict[str, str] | None
    engine: str = ""

    def why_skipped(self, mode: str) -> str | None:
        if self.join not in SIDES:
            return f"not yet supported: {self.join}"
        if self.semantics not in SEMANTICS or (mode == "strict" and self.semantics != "3.1"):
            return f"not yet supported: {self.join}, semantics {self.semantics}"
        return None


def apply(table: dict[str | None, str], key: str | None, value: str | None) -> list[FeedRow]:
    """Apply a record to its source table, in place, and give the rows of the table's change feed."""
    if value is None:
        return [FeedRow("delete", key, table.pop(key))] if key in table else []
    old = table.get(key)
    table[key] = value
    if old is None:
        return [FeedRow("insert", key, value)]
    return [FeedRow("update_preimage", key, old), FeedRow("update_postimage", key, value)]


def strict_changes(outputs: Iterable[Output]) -> Iterator[Change]:
    """Leave out each tombstone of a key that is not in the result, and each repeat of the value that is."""
    result: dict[str, str] = {}
    for after, key, value in outputs:
        before = result.get(key)
        if value == before:
            continue
        yield Change(after, "delete" if value is None else "insert" if before is None else "update", key, before, value)
        put(result, key, value)


def logged(case: "Case", changes: Iterable["Change | Output"]) -> list[Logged]:
    """Lay outputs out as rows of a changelog; of a chain it is that of its second join, which reads the first's."""
    names = {"a": "ab", "b": "ab"} if case.join == "table_table_chain" else {}
    sides = {record.seq: names.get(record.side, record.side) for record in case.input}
    result: dict[str, str] = {}
    found = []
    for change in changes:
        op = "tombstone" if change.value is None else "upsert"
        found.append(Logged(change.after, sides[change.after], op, change.key, result.get(change.key), change.value))
        put(result, change.key, change.value)
    return found


def put(result: dict[str, str], key: str, value: str | None) -> None:
    if value is None:
        result.pop(key, None)
    else:
        result[key] = value


def result_after(outputs: Iterable[Output], seq: int) -> dict[str, str]:
    result: dict[str, str] = {}
    for after, key, value in outputs:
        if after <= seq:
            put(result, key, value)
    return result


def case_of(line: dict) -> Case:
    return Case(
        id=line["id"],
        join=line["join"],
        type=line["type"],
        semantics=line["semantics"],
        input=tuple(Record(r["seq"], r["side"], r["key"], _text(r["value"])) for r in line["input"]),
        output=tuple(Output(r["after"], r["key"], r["value"]) for r in line["output"]),
        final=line.get("final"),
        engine=line["engine"],
    )


def _text(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)
