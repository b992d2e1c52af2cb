"""The gate bites: each rule has a change set that breaks it, and one that does not."""

import pytest

from expectations.gate import IN_PROCESS, gate_change_set, gate_loaded
from lakehouse.address import Address
from tests.lake import Lake

CHANGES = "op STRING, key STRUCT<k: INT>, before STRUCT<k: INT, v: STRING>, after STRUCT<k: INT, v: STRING>"
GOOD = [
    ("insert", (3,), None, (3, "c")),
    ("update", (1,), (1, "a"), (1, None)),
    ("delete", (2,), (2, "b"), None),
]


@pytest.mark.parametrize(
    ("faults", "finding"),
    [
        ([], None),
        ([("delete", (9,), (9, "x"), None)], "no unnecessary tombstone"),
        ([("update", (4,), (4, "d"), (4, "d"))], "changes something"),
        ([("update", (9,), (9, "x"), (9, "y"))], "changes a row that is there"),
        ([("insert", (4,), None, (4, "e"))], "adds a row that is not there"),
        ([("update", (4,), (4, "other"), (4, "e"))], "is the published one"),
        ([("insert", (5,), None, (6, "e"))], "has the key of the change"),
        ([("insert", (None,), None, (None, "e"))], "the key is present"),
        ([("insert", (5,), None, (5, "e")), ("insert", (5,), None, (5, "f"))], "one change per key"),
    ],
)
def test_each_rule_finds_what_breaks_it(lake: Lake, faults: list[tuple[object, ...]], finding: str | None) -> None:
    lake.create("t", "k INT, v STRING", "(1, 'a'), (2, 'b'), (4, 'd')")
    changes = lake.spark.createDataFrame([*GOOD, *faults], CHANGES)
    for rows in (len(GOOD), IN_PROCESS + 1):  # validated in this process, and by Spark
        verdict = gate_change_set(lake.spark, changes, rows, Address("t", lake.path("t")), 1)
        assert verdict.passed == (finding is None), verdict.findings
        if finding is not None:
            assert any(finding in found for found in verdict.findings), verdict.findings


def test_a_loaded_result_needs_a_key_in_every_row_and_each_key_once(lake: Lake) -> None:
    lake.create("t", "k INT, j STRING", "(1, 'a'), (1, 'b')")
    at = Address("t", lake.path("t"))
    assert gate_loaded(lake.spark, at, 1, ["k", "j"]).passed
    assert gate_loaded(lake.spark, at, 1, ["k"]).findings == ("one change per key: k (2 rows)",)
    lake.sql("INSERT INTO {t} VALUES (2, NULL)", "t")
    assert gate_loaded(lake.spark, at, 2, ["k", "j"]).findings == ("the key is present: j (1 rows)",)
