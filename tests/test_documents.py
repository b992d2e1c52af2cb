"""
The printed example tables of the documents that lakejoin follows, computed by its own functions. A `.` stands for no
output, `null` for a tombstone; two outputs of one record are separated by a comma.
"""

import pytest
from pyspark.sql import SparkSession

from pipelines.language import Semantics
from tests.joins.changelogs import CUTS, changelogs
from tests.joins.vectors import Case, Record

TABLE_TABLE = """
    ts  left  right | old: inner  left      outer    | new: inner  left      outer
     1  null  .     | null        null      null     | .           .         .
     2  .     null  | null        null      null     | .           .         .
     3  A     .     | null        A-null    A-null   | .           A-null    A-null
     4  .     a     | A-a         A-a       A-a      | A-a         A-a       A-a
     5  B     .     | B-a         B-a       B-a      | B-a         B-a       B-a
     6  .     b     | B-b         B-b       B-b      | B-b         B-b       B-b
     7  null  .     | null        null      null-b   | null        null      null-b
     8  .     null  | null        null      null     | .           .         null
     9  C     .     | null        C-null    C-null   | .           C-null    C-null
    10  .     c     | C-c         C-c       C-c      | C-c         C-c       C-c
    11  .     null  | null        C-null    C-null   | null        C-null    C-null
    12  null  .     | null        null      null     | .           null      null
    13  .     null  | null        null      null     | .           .         .
    14  .     d     | null        null      null-d   | .           .         null-d
    15  D     .     | D-d         D-d       D-d      | D-d         D-d       D-d
    16  .     .     | .           .         .        | .           .         .
    17  .     d     | D-d         D-d       D-d      | D-d         D-d       D-d
"""
"""
The join semantics page: KTable-KTable before KIP-77 (0.10.0.x, 0.10.1.x) and after it (0.10.2.x and newer).

KIP-77 prints rows 1 to 15: the current semantics are the old columns, the suggested ones the new columns. One cell
differs: by its rule for left joins ("null iff left null-value and right lookup not null") row 12 would have none. The
library sends it, and has to: `C-null` must go.
"""

FOREIGN_KEY = """
    ts  left          right       | inner     left
     0  .             1: foo      | .         .
     1  k: 1, v       .           | k=v-foo   k=v-foo
     2  k: 2, v       .           | k=null    k=v-null
     3  k: 3, v       .           | k=null    k=v-null
     4  .             3: bar      | k=v-bar   k=v-bar
     5  k: null       .           | k=null    k=null
     6  k: 1, v       .           | k=v-foo   k=v-foo
     7  q: 10, w      .           | .         q=w-null
     8  .             10: baz     | q=w-baz   q=w-baz
"""
"""
The workflow of the foreign-key join of the same page; row 0 makes the right state that its first step shows.

Two cells are printed otherwise there: step 7, left, as (q,null,10), with the columns swapped; and the right state of
step 8 as (q,baz), where the printed output needs (10,baz). The tombstone of step 3, inner, is an unnecessary one: the
result held no `k`.
"""

TYPES = ("inner", "left", "outer")
ERAS: dict[Semantics, int] = {"kafka-0.10.0": 1, "kafka": 2, "kafka-0.10.2": 2}
"""The semantics that a part of the first table shows."""

Table = list[list[list[str]]]


def parts_of(table: str) -> Table:
    """Read a printed table: for each row the words of its parts, without the head."""
    rows = [line.split("|") for line in table.strip().splitlines()[1:]]
    return [[part.split() for part in row] for row in rows]


def one_key_case(how: str) -> Case:
    """Write the inputs of the first table as a case: one key for all records."""
    records = []
    for (ts, left, right), *_ in parts_of(TABLE_TABLE):
        for side, value in (("left", left), ("right", right)):
            if value != ".":
                records.append(Record(int(ts), side, "k", None if value == "null" else value))
    return Case(f"documents/{how}", "table_table", how, "3.1", tuple(records), (), None)


def printed(part: int, how: str) -> list[tuple[int, str | None]]:
    found = []
    for row in parts_of(TABLE_TABLE):
        value = row[part][TYPES.index(how)]
        if value != ".":
            found.append((int(row[0][0]), None if value == "null" else value))
    return found


def computed(spark: SparkSession, kind: str, how: str, case: Case, semantics: Semantics) -> list[tuple]:
    """Give the outputs of the product; cutting the records into epochs must not change them."""
    (ways,) = changelogs(spark, kind, how, [case], semantics)
    assert all(ways[cut] == ways[CUTS[0]] for cut in CUTS)
    return [(row.after, row.key, row.value) for row in ways[CUTS[0]]]


def of_the_one_key(spark: SparkSession, how: str, semantics: Semantics) -> list[tuple[int, str | None]]:
    return [(ts, value) for ts, _, value in computed(spark, "table_table", how, one_key_case(how), semantics)]


@pytest.mark.parametrize("how", TYPES)
@pytest.mark.parametrize("semantics", ERAS)
def test_table_table_as_printed(spark: SparkSession, how: str, semantics: Semantics) -> None:
    """The semantics of Kafka Streams give the printed outputs, cell by cell."""
    assert of_the_one_key(spark, how, semantics) == printed(ERAS[semantics], how)


def test_unnecessary_tombstones_side_by_side(spark: SparkSession) -> None:
    """`kafka-0.10.0` has the tombstones that KIP-77 calls unnecessary, `strict` none of them and no repeat."""
    columns = {(how, semantics): dict(of_the_one_key(spark, how, semantics)) for how in TYPES for semantics in BOTH}
    cells = [[""] + [f"{how}, {semantics}" for how, semantics in columns]]
    for (ts, left, right), *_ in parts_of(TABLE_TABLE):
        shown = [str(outputs[int(ts)]) if int(ts) in outputs else "" for outputs in columns.values()]
        cells.append([f"{ts:>2} {left:5} {right:5}", *shown])
    print("\n".join("  ".join(f"{cell:20}" for cell in row).rstrip() for row in cells))
    for how in TYPES:
        assert needless(columns[how, "strict"]) == []
        assert needless(columns[how, "kafka-0.10.0"]) == UNNECESSARY[how]


BOTH: tuple[Semantics, Semantics] = ("kafka-0.10.0", "strict")
UNNECESSARY = {"inner": [1, 2, 3, 8, 9, 12, 13, 14], "left": [1, 2, 8, 13, 14], "outer": [1, 2, 13]}
"""The records whose tombstone deletes nothing, as the old columns of the page show it."""


def needless(outputs: dict[int, str | None]) -> list[int]:
    """List the records after which a tombstone was sent for a result that was not there."""
    held, found = None, []
    for ts, value in outputs.items():
        if value is None and held is None:
            found.append(ts)
        held = value
    return found


def workflow(how: str) -> Case:
    records = []
    for line in FOREIGN_KEY.strip().splitlines()[1:]:
        inputs = line.split("|")[0]
        ts = int(inputs.split()[0])
        for side, text in (("left", inputs[8:22].strip()), ("right", inputs[22:].strip())):
            if text != ".":
                key, value = text.split(": ")
                records.append(Record(ts, side, key, record_value(side, value)))
    return Case(f"workflow/{how}", "foreign_key", how, "3.1", tuple(records), (), None)


def record_value(side: str, value: str) -> str | None:
    if value == "null":
        return None
    if side == "right":
        return value
    reference, mine = value.split(", ")
    return f'{{"fk": "{reference}", "v": "{mine}"}}'


@pytest.mark.parametrize("how", ["inner", "left"])
def test_foreign_key_workflow_as_printed(spark: SparkSession, how: str) -> None:
    """Every step of the workflow gives what the page prints for it, the unnecessary tombstone of step 3 too."""
    expected: list[tuple[int, str, str | None]] = []
    for line in FOREIGN_KEY.strip().splitlines()[1:]:
        inputs, outputs = line.split("|")
        output = outputs.split()[("inner", "left").index(how)]
        if output != ".":
            key, value = output.split("=")
            expected.append((int(inputs.split()[0]), key, None if value == "null" else value))
    assert computed(spark, "foreign_key", how, workflow(how), "kafka") == expected
    strict = [step for step in expected if step[0] != 3]  # inner: no such row; left: the same row again
    assert computed(spark, "foreign_key", how, workflow(how), "strict") == strict
