"""Suites of published tables bite: what Kafka Streams emitted once fails them, what strict semantics emit passes."""

from typing import Any

import pytest
from pyspark.sql import SparkSession

from expectations.suites import KeyOfSide, of_changelog, of_table, of_two_streams
from expectations.validation import judge
from lakehouse.errors.errors import GateFailed
from pipelines.language import ROW_COLUMNS, Semantics
from tests.cases import cases
from tests.lake import Lake, only
from tests.test_documents import TYPES, UNNECESSARY, of_the_one_key

LOGGED = "k STRING, v STRING, op STRING, position INT"
WINDOWED = "SELECT l.id, r.id AS r FROM left l LEFT JOIN right r ON r.k = l.k AND r.t BETWEEN l.t AND l.t + 5"


@pytest.mark.parametrize("how", [TYPES[0], *(pytest.param(how, marks=pytest.mark.slow) for how in TYPES[1:])])
def test_kafka_0_10_0_fails_no_unnecessary_tombstone_and_strict_passes(spark: SparkSession, how: str) -> None:
    """The example of the documents: each tombstone that the page shows for a result that was not there is found."""
    found = {semantics: _findings(spark, how, semantics) for semantics in ("kafka-0.10.0", "strict")}
    assert found["strict"] == ()
    (finding,) = (one for one in found["kafka-0.10.0"] if one.startswith("expect_no_unnecessary_tombstone("))
    assert f": {len(UNNECESSARY[how])} of " in finding


def _findings(spark: SparkSession, how: str, semantics: Semantics) -> tuple[str, ...]:
    outputs = of_the_one_key(spark, how, semantics)
    rows = [("k", value, "tombstone" if value is None else "upsert", at) for at, value in outputs]
    suite = of_changelog((KeyOfSide(("k",)),), ["v"], "op", ["position"])
    return judge("documents", spark.createDataFrame(rows, LOGGED), suite).findings


@pytest.mark.parametrize("semantics", ["kafka-0.10.2", "strict"])
@pytest.mark.slow
def test_kafka_0_10_2_fails_no_padded_row_with_match_and_strict_passes(lake: Lake, semantics: Semantics) -> None:
    """A row that is emitted alone as it comes, and once more with what it meets."""
    sources: dict[str, Any] = {}
    for name in ("left", "right"):
        lake.create(name, "id INT, k STRING, t BIGINT")
        sources[name] = {"key": "id", "kind": "stream", "order_by": "t", "watermarks": {"t": 0}}
    join = lake.pipeline(WINDOWED, sources, semantics=semantics)
    join.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (1, 'a', 1), (2, 'b', 2)", "left")
    join.run(lake.spark)
    lake.sql("INSERT INTO {right} VALUES (9, 'a', 3), (8, 'z', 90)", "right")
    lake.sql("INSERT INTO {left} VALUES (3, 'z', 90)", "left")
    join.run(lake.spark)
    verdict = judge(
        "result", lake.spark.read.format("delta").load(lake.path("result")), of_two_streams((0,), ROW_COLUMNS)
    )
    assert verdict.passed == (semantics == "strict")
    assert only(join.validate(lake.spark)).outcome == "done", "what a kafka mode emits by intent is no fault"


@pytest.mark.slow
def test_validate_holds_a_changelog_to_its_suite(lake: Lake) -> None:
    lake.create("left", "k INT", "(1), (2)")
    lake.create("right", "k INT, v INT", "(1, 10)")
    join = lake.pipeline("SELECT l.k, r.v FROM left l LEFT JOIN right r ON l.k = r.k", changelog=True)
    join.run(lake.spark)
    lake.sql("UPDATE {right} SET v = 11 WHERE k = 1", "right")
    lake.sql("DELETE FROM {left} WHERE k = 1", "left")
    join.run(lake.spark)
    assert only(join.validate(lake.spark)).counts == {"rows": 1, "expectations": 7}
    tombstone = "SELECT k, v, _op, _cause, _position + 1, _epoch, _at FROM {result__changelog} WHERE _op = 'tombstone'"
    lake.sql(f"INSERT INTO {{result__changelog}} {tombstone}", "result__changelog")
    with pytest.raises(GateFailed, match="result__changelog: expect_no_unnecessary_tombstone") as caught:
        join.validate(lake.spark)
    assert "expect_no_tombstone_after_tombstone" in caught.value.found


PRESENT, PART = "expect_key_to_be_present", "expect_part_of_key_to_be_present"


@cases(
    "may_lack, may_have_nulls, expected",
    ((False, False), (False, True), [{PRESENT: {"key_columns": ["a", "n"]}}, {PART: {"key_columns": ["b", "m"]}}]),
    (
        (False, True),
        (False, False),
        [
            {PRESENT: {"key_columns": ["a", "n"]}},
            {PART: {"key_columns": ["a", "n", "b", "m"], "left_columns": ["a", "n"], "right_columns": ["b", "m"]}},
        ],
    ),
    ((True, True), (True, False), [{PART: {"key_columns": ["a", "n", "b", "m"], "right_columns": ["b", "m"]}}]),
)
def test_a_side_is_present_or_wholly_absent(may_lack, may_have_nulls, expected):
    """A side that no row lacks is present; the key of the other one has all of its parts or none."""
    left, right = map(KeyOfSide, (("a", "n"), ("b", "m")), may_lack, may_have_nulls)
    assert of_table((left, right))[:-1] == expected
