"""The gate bites: each rule has a change set that breaks it, and one that does not."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from pyspark.sql import SparkSession

from expectations.gate import gate_change_set, gate_keys
from lakehouse import limits
from lakehouse.values.sqltext import Address
from tests.lake import Lake

CHANGES = "op STRING, key STRUCT<k: INT>, before STRUCT<k: INT, v: STRING>, after STRUCT<k: INT, v: STRING>"
GOOD = [("insert", (3,), None, (3, "c")), ("update", (1,), (1, "a"), (1, None)), ("delete", (2,), (2, "b"), None)]


FAULTS: dict[str, list[tuple[object, ...]]] = {
    "": [],
    "no unnecessary tombstone": [("delete", (9,), (9, "x"), None)],
    "changes something": [("update", (4,), (4, "d"), (4, "d"))],
    "changes an existing row": [("update", (9,), (9, "x"), (9, "y"))],
    "adds a row that does not exist yet": [("insert", (4,), None, (4, "e"))],
    "equals the published row": [("update", (4,), (4, "other"), (4, "e"))],
    "has the key of the change": [("insert", (5,), None, (6, "e"))],
    "the key is present": [("insert", (None,), None, (None, "e"))],
    "one change per key": [("insert", (5,), None, (5, "e")), ("insert", (5,), None, (5, "f"))],
}


@pytest.fixture(scope="module")
def published(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark, tmp_path_factory.mktemp("published"))
    lake.create("t", "k INT, v STRING", "(1, 'a'), (2, 'b'), (4, 'd')")
    return lake


@pytest.mark.parametrize("finding", FAULTS)
@pytest.mark.every_case
def test_each_rule_finds_what_breaks_it(published: Lake, finding: str) -> None:
    """A good change set passes; with one fault more it fails, and the finding names the rule. So in any layout."""
    _judge(published, finding, len(GOOD))
    _judge(published, finding, len(GOOD), layout=("v",))


@pytest.mark.parametrize("finding", ["", "no unnecessary tombstone", "one change per key"])
@pytest.mark.deep
def test_a_large_change_set_is_judged_by_spark_and_alike(published: Lake, finding: str) -> None:
    _judge(published, finding, limits.ROWS_ON_DRIVER + 1)


@pytest.mark.deep
def test_gates_of_several_threads_do_not_meet(published: Lake) -> None:
    """Great Expectations keeps one context for the process; gates at once each judge their own change set."""
    findings = ["", "changes something", "", "one change per key"] * 3
    with ThreadPoolExecutor(4) as threads:
        list(threads.map(lambda finding: _judge(published, finding, len(GOOD)), findings))


def _judge(lake: Lake, finding: str, rows: int, layout: tuple[str, ...] = ()) -> None:
    changes = lake.spark.createDataFrame([*GOOD, *FAULTS[finding]], CHANGES)
    verdict = gate_change_set(lake.spark, changes, rows, Address("t", lake.path("t")), 1, layout=layout)
    assert verdict.passed == (not finding), verdict.findings
    if finding:
        assert any(finding in found for found in verdict.findings), verdict.findings


def test_a_result_written_in_place_needs_a_key_in_every_row_and_each_key_once(lake: Lake) -> None:
    lake.create("t", "k INT, j STRING", "(1, 'a'), (1, 'b')")
    at = Address("t", lake.path("t"))
    assert gate_keys(lake.spark, at, 1, ["k", "j"]).passed
    assert gate_keys(lake.spark, at, 1, ["k"]).findings == ("one change per key: k (2 rows)",)
    lake.sql("INSERT INTO {t} VALUES (2, NULL), (2, NULL), (2, NULL), (3, 'c')", "t")
    one_each, absent = "one change per key: k, j (4 rows)", "a part of the key is present (4 rows)"
    assert gate_keys(lake.spark, at, 2, ["k", "j"]).findings == (one_each, absent)
    assert gate_keys(lake.spark, at, 2, ["k", "j"], may_be_absent=True).findings == (
        "one change per key: k, j (2 rows)",
    )
