"""Our own expectations: each does what its sentence says; those of the gate on pandas and on Spark alike."""

import json
import random
from collections.abc import Iterator, Sequence
from typing import Any

import great_expectations as gx
import pandas as pd
import pytest
from great_expectations.compatibility.pydantic import ValidationError
from great_expectations.render.renderer import ExpectationSuitePageRenderer
from great_expectations.render.view import DefaultJinjaPageView
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from expectations.own import (
    ExpectForeignKeyToBeAnswered,
    ExpectKeyToBePresent,
    ExpectNoPaddedRowWithMatch,
    ExpectNoRepeatedValue,
    ExpectNoTombstoneAfterTombstone,
    ExpectNoUnnecessaryTombstone,
    ExpectOneChangePerKey,
    ExpectPartOfKeyToBePresent,
    ExpectPositionsToGrow,
)
from expectations.own.base import RowsExpectation
from tests.expectations import own_rules
from tests.expectations.own_rules import COLUMNS, SCHEMA, Rule, random_rows

KEY = ["case", "k.1", "k `2`"]
SIDES = {"key_columns": [*KEY[1:], "p1", "p.2"], "left_columns": KEY[1:], "right_columns": ["p1", "p.2"]}
CHANGE = {"key_columns": KEY, "operation_column": "op"}
ORDER = {"order_columns": ["at", "on.day"]}
VALUE = {"value_columns": ["v 1", "v`2"]}
BEFORE = {"before_columns": ["b 1", "b`2"]}
THERE = {"present_before_column": "there"}
FEW = {"tombstones": ["delete"]}
PADDED = {"row_columns": ["k.1", "k `2`"], "partner_columns": ["p.2", "p1"]}
ANSWERED = {"reference_columns": ["k.1"], "answer_columns": ["a1", "a.2"], "partner_columns": ["p1", "p.2"]}
GROWS = {"key_columns": KEY, "position_columns": ["on.day", "v 1"]}

RULES: list[tuple[type[RowsExpectation], Rule, dict[str, Any]]] = [
    (ExpectKeyToBePresent, own_rules.key_present, {"key_columns": KEY}),
    (ExpectPartOfKeyToBePresent, own_rules.part_of_key_present, {"key_columns": KEY[1:]}),
    (ExpectPartOfKeyToBePresent, own_rules.part_of_key_present, SIDES),
    (ExpectOneChangePerKey, own_rules.one_change, {"key_columns": KEY}),
    (ExpectNoUnnecessaryTombstone, own_rules.unnecessary_tombstone, CHANGE),
    (ExpectNoUnnecessaryTombstone, own_rules.unnecessary_tombstone, CHANGE | ORDER),
    (
        ExpectNoUnnecessaryTombstone,
        own_rules.unnecessary_tombstone,
        CHANGE | ORDER | THERE | {"tombstones": ["delete"]},
    ),
    (ExpectNoRepeatedValue, own_rules.repeated_value, CHANGE | VALUE | BEFORE),
    (ExpectNoRepeatedValue, own_rules.repeated_value, CHANGE | VALUE | ORDER),
    (ExpectNoRepeatedValue, own_rules.repeated_value, CHANGE | VALUE | ORDER | BEFORE),
    (ExpectNoRepeatedValue, own_rules.repeated_value, CHANGE | VALUE | ORDER | BEFORE | THERE),
    (ExpectNoTombstoneAfterTombstone, own_rules.tombstone_after_tombstone, CHANGE | ORDER),
    (ExpectNoPaddedRowWithMatch, own_rules.padded_row, PADDED | {"row_columns": KEY}),
    (ExpectNoPaddedRowWithMatch, own_rules.padded_row, PADDED),
    (ExpectForeignKeyToBeAnswered, own_rules.foreign_key, ANSWERED),
    (ExpectForeignKeyToBeAnswered, own_rules.foreign_key, ANSWERED | {"how": "inner", "found_column": "there"}),
    (ExpectPositionsToGrow, own_rules.positions_grow, GROWS),
    (ExpectPositionsToGrow, own_rules.positions_grow, GROWS | {"order_columns": ["at"]}),
]
CLASSES = sorted({kind for kind, _, _ in RULES}, key=lambda kind: kind.__name__)
ENGINES = ["pandas", "spark"]
IN_PROCESS = (ExpectKeyToBePresent, ExpectOneChangePerKey)
"""Those that the gate applies to a pandas frame."""


def _known(engine: str, kind: type[RowsExpectation]) -> bool:
    return engine == "spark" or kind in IN_PROCESS


class Judge:
    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        context = gx.get_context(mode="ephemeral")
        context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
        sources = {
            "pandas": context.data_sources.add_pandas("pandas"),
            "spark": context.data_sources.add_spark("spark", persist=False),
        }
        self.batches = {
            engine: source.add_dataframe_asset("rows").add_batch_definition_whole_dataframe("all")
            for engine, source in sources.items()
        }

    def frame(self, engine: str, rows: Sequence[dict[str, Any]]) -> Any:
        if engine == "spark":
            return self.spark.createDataFrame([tuple(row[name] for name in COLUMNS) for row in rows], SCHEMA)
        kinds = {name: "Int64" if kind == "BIGINT" else None for name, (kind, _) in COLUMNS.items()}
        return pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=kinds[name]) for name in COLUMNS})

    def judge(self, engine: str, frame: Any, expectations: Sequence[RowsExpectation], form: Any) -> list[Any]:
        suite = gx.ExpectationSuite(name="own", expectations=list(expectations))
        batch = self.batches[engine].get_batch(batch_parameters={"dataframe": frame})
        outcome = batch.validate(suite, result_format=form)
        by_settings = {
            json.dumps(_settings(result.expectation_config), sort_keys=True): result for result in outcome.results
        }
        return [by_settings[json.dumps(_settings(asked.configuration), sort_keys=True)] for asked in expectations]

    def broken(self, engine: str, rows: Sequence[dict[str, Any]], expectations: Sequence[RowsExpectation]) -> list[Any]:
        form = {"result_format": "COMPLETE", "unexpected_index_column_names": ["row"]}
        results = self.judge(engine, self.frame(engine, rows), expectations, form)
        for result in results:
            assert not _raised(result), _raised(result)
            assert result.success == (result.result["unexpected_count"] == 0)
            assert result.result["element_count"] == len(rows)
            assert result.result["missing_count"] == 0
        return [sorted(found["row"] for found in result.result["unexpected_index_list"]) for result in results]


def _settings(configuration: Any) -> str:
    kwargs = {name: value for name, value in configuration.kwargs.items() if name != "batch_id"}
    return json.dumps({"type": configuration.type, **kwargs}, sort_keys=True)


def _raised(result: Any) -> list[str]:
    info = result.exception_info or {}
    found = [info] if "raised_exception" in info else list(info.values())
    return [item["exception_message"] for item in found if item["raised_exception"]]


def _wrong(rule: Rule, rows: Sequence[dict[str, Any]], arguments: dict[str, Any]) -> list[int]:
    judged = rule(rows, **arguments)
    return [row["row"] for row, good in zip(rows, judged, strict=True) if not good]


@pytest.fixture(scope="module")
def judge(spark: SparkSession) -> Iterator[Judge]:
    return Judge(spark)


def _rows(*given: dict[str, Any]) -> list[dict[str, Any]]:
    plain = dict.fromkeys(COLUMNS) | {"case": 0, "k.1": "a", "k `2`": COLUMNS["k `2`"][1][0]}
    return [plain | {"row": number} | row for number, row in enumerate(given)]


MONDAY, TUESDAY, WEDNESDAY = COLUMNS["at"][1][:3]
DAYS = {"at": MONDAY}, {"at": TUESDAY}, {"at": WEDNESDAY}
UPSERT, DELETE = {"op": "update", "v 1": 1.5}, {"op": "delete"}
IN_TIME = {"order_columns": ["at"]}

EXAMPLES: list[tuple[RowsExpectation, list[dict[str, Any]], list[dict[str, Any]]]] = [
    (ExpectKeyToBePresent(key_columns=["k.1"]), _rows({}), _rows({"k.1": None}, {})),
    (
        ExpectPartOfKeyToBePresent(**SIDES),
        _rows({}, {"p1": 1, "p.2": "x"}, {"k.1": None, "k `2`": None, "p1": 1, "p.2": "x"}),
        _rows({"k.1": None}, {"p1": 1}, {"k.1": None, "k `2`": None}),
    ),
    (ExpectOneChangePerKey(key_columns=["k.1"]), _rows({}, {"k.1": None}), _rows({"k.1": None}, {"k.1": None})),
    (
        ExpectNoUnnecessaryTombstone(**CHANGE, **IN_TIME, **THERE),
        _rows(DELETE | DAYS[0] | {"there": True}, UPSERT | DAYS[1], DELETE | DAYS[2]),
        _rows(DELETE | DAYS[0], UPSERT | DAYS[1], DELETE | DAYS[2]),
    ),
    (
        ExpectNoRepeatedValue(**CHANGE, **VALUE, **IN_TIME, **BEFORE),
        _rows(UPSERT | DAYS[0] | {"b 1": 0.0}, DELETE | DAYS[1], UPSERT | DAYS[2], {"op": "update", "k.1": "b"}),
        _rows(UPSERT | DAYS[0], UPSERT | DAYS[1]),
    ),
    (
        ExpectNoTombstoneAfterTombstone(**CHANGE, **IN_TIME),
        _rows(DELETE | DAYS[0], UPSERT | DAYS[1], DELETE | DAYS[2]),
        _rows(DELETE | DAYS[0], DELETE | DAYS[1]),
    ),
    (
        ExpectNoPaddedRowWithMatch(**PADDED),
        _rows({"p1": 1}, {"p1": 2}, {"k.1": "b"}, {"k.1": None, "k `2`": None}, {"k.1": None, "k `2`": None}),
        _rows({"p1": 1}, {}),
    ),
    (
        ExpectForeignKeyToBeAnswered(**ANSWERED),
        _rows({"p1": 1, "a1": 1}, {}, {"k.1": None, "p1": 1}),
        _rows({"p1": 1, "a1": 2}),
    ),
    (
        ExpectPositionsToGrow(key_columns=KEY, position_columns=["v 1"], **IN_TIME),
        _rows(DAYS[0] | {"v 1": 0.0}, DAYS[1] | {"v 1": 1.5}),
        _rows(DAYS[0] | {"v 1": 0.0}, DAYS[1] | {"v 1": -0.0}),
    ),
]
SHOWN = [
    pytest.param(engine, *example, id=f"{type(example[0]).__name__}-{engine}")
    for example in EXAMPLES
    for engine in ENGINES
    if _known(engine, type(example[0]))
]


@pytest.mark.parametrize(("engine", "expectation", "good", "bad"), SHOWN)
@pytest.mark.every_case
def test_each_passes_and_fails(judge, engine, expectation, good, bad):
    """Good rows pass and bad rows fail; how many fail is told, and which."""
    assert judge.judge(engine, judge.frame(engine, good), [expectation], "BOOLEAN_ONLY")[0].success
    failed = judge.judge(engine, judge.frame(engine, bad), [expectation], "SUMMARY")[0]
    assert (failed.success, _raised(failed)) == (False, [])
    number = failed.result["unexpected_count"]
    assert 0 < number <= len(bad)
    assert [list(shown) for shown in failed.result["partial_unexpected_list"]] == [expectation.columns()] * number


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.deep
def test_an_empty_table_passes(judge: Judge, engine: str) -> None:
    expectations = [expectation for expectation, _, _ in EXAMPLES if _known(engine, type(expectation))]
    results = judge.judge(engine, judge.frame(engine, []), expectations, "BOOLEAN_ONLY")
    assert [(result.success, _raised(result)) for result in results] == [(True, [])] * len(expectations)


ROWS = st.builds(
    lambda seed, cases, size: random_rows(random.Random(seed), cases, size),
    st.integers(0, 2**32),
    st.integers(1, 10),
    st.integers(1, 10),
)


@given(rows=ROWS)
@settings(max_examples=15)
def test_oracle_pandas(judge: Judge, rows: list[dict[str, Any]]) -> None:
    """The rows that break a rule are those that its sentence, written in plain Python, names."""
    _compare(judge, "pandas", rows)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.slow
def test_oracle_many_cases(judge: Judge, engine: str) -> None:
    _compare(judge, engine, random_rows(random.Random(7), cases=200, size=10))


def _compare(judge: Judge, engine: str, rows: list[dict[str, Any]]) -> None:
    rules = [rule for rule in RULES if _known(engine, rule[0])]
    found = judge.broken(engine, rows, [kind(**arguments) for kind, _, arguments in rules])
    for (kind, rule, arguments), broken in zip(rules, found, strict=True):
        assert broken == _wrong(rule, rows, arguments), (kind.__name__, arguments)


@pytest.mark.deep
def test_nan_is_a_value_in_spark(judge: Judge) -> None:
    """NaN equals NaN and no null; as a key it is present."""
    nan = float("nan")
    rows = _rows(UPSERT | DAYS[0] | {"v 1": None}, UPSERT | DAYS[1] | {"v 1": nan}, UPSERT | DAYS[2] | {"v 1": nan})
    expectations = [
        ExpectNoRepeatedValue(**CHANGE, **VALUE, **IN_TIME),
        ExpectKeyToBePresent(key_columns=["v 1"]),
        ExpectOneChangePerKey(key_columns=["v 1"]),
    ]
    assert judge.broken("spark", rows, expectations) == [[2], [0], [1, 2]]


@pytest.mark.parametrize("engine", ENGINES)
def test_a_missing_column_is_an_error(judge: Judge, engine: str) -> None:
    """It can be told from a failure: every class says which column there is none of."""
    arguments_of = {kind: arguments for kind, _, arguments in RULES if "before_columns" not in arguments}
    absent = [
        kind(**{name: ["no.such"] if name.endswith("_columns") else value for name, value in arguments.items()})
        for kind, arguments in arguments_of.items()
        if _known(engine, kind)
    ]
    assert len(absent) == len([kind for kind in CLASSES if _known(engine, kind)])
    for result in judge.judge(engine, judge.frame(engine, _rows({})), absent, "BOOLEAN_ONLY"):
        assert not result.success
        assert "the column 'no.such' does not exist" in _raised(result)[0]


@pytest.mark.deep
def test_two_columns_of_one_name_are_an_error(judge: Judge) -> None:
    frame = pd.DataFrame([[1, 2]], columns=["k", "k"])
    (result,) = judge.judge("pandas", frame, [ExpectKeyToBePresent(key_columns=["k"])], "BOOLEAN_ONLY")
    assert "exists more than once" in _raised(result)[0]


FAULTS: list[tuple[type[RowsExpectation], dict[str, Any], str]] = [
    (ExpectKeyToBePresent, {}, "key_columns\n  field required"),
    (ExpectKeyToBePresent, {"key_columns": []}, "key_columns names no column"),
    (ExpectKeyToBePresent, {"key_columns": "k"}, "key_columns\n  value is not a valid list"),
    (ExpectKeyToBePresent, {"key_columns": ["k", "k"]}, "key_columns names a column twice: k"),
    (ExpectKeyToBePresent, {"key_columns": ["k"], "keys": ["k"]}, "keys\n  extra fields not permitted"),
    (ExpectKeyToBePresent, {"key_columns": ["k"], "mostly": 0.9}, "mostly must be 1"),
    (ExpectKeyToBePresent, {"key_columns": ["k"], "ignore_row_if": "any_value_is_missing"}, "must be 'never'"),
    (ExpectKeyToBePresent, {"key_columns": ["k"], "column_list": ["k", "l"]}, "leave it out"),
    (ExpectNoUnnecessaryTombstone, {**CHANGE, "tombstones": []}, "tombstones names no value"),
    (ExpectNoTombstoneAfterTombstone, CHANGE, "order_columns\n  field required"),
    (ExpectNoRepeatedValue, CHANGE | VALUE | {"before_columns": ["b"]}, "not name as many columns as value_columns"),
    (ExpectNoRepeatedValue, CHANGE | VALUE | THERE, "has no effect without before_columns"),
    (ExpectForeignKeyToBeAnswered, ANSWERED | {"how": "full"}, "how\n  unexpected value"),
    (ExpectForeignKeyToBeAnswered, ANSWERED | {"answer_columns": ["a"]}, "not name as many columns as answer_columns"),
]


@pytest.mark.parametrize(("kind", "arguments", "words"), FAULTS)
def test_arguments_are_checked(kind: type[RowsExpectation], arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError) as refused:
        kind(**arguments)
    assert words in str(refused.value)


@pytest.mark.parametrize(("kind", "rule", "arguments"), RULES)
def test_data_docs_show_a_sentence(judge: Judge, kind: type[RowsExpectation], rule: Rule, arguments: Any) -> None:
    """The sentence names every column, and no argument is left in it."""
    expectation = kind(**arguments)
    (content,) = kind._prescriptive_renderer(configuration=expectation.configuration)
    template = content.to_json_dict()["string_template"]
    words = template["template"]
    for name, value in sorted(template["params"].items(), reverse=True):
        words = words.replace(f"${name}", value)
    assert "$" not in words
    assert [name for name in expectation.columns() if name not in words] == []
    expectation.render()
    assert [part.name for part in expectation.rendered_content or []] == ["atomic.prescriptive.summary"]
    suite = gx.ExpectationSuite(name="shown", expectations=[expectation])
    page = DefaultJinjaPageView().render(ExpectationSuitePageRenderer().render(suite))
    assert template["template"].split(" $")[0] in page
    assert expectation.expectation_type not in page


def test_settings_survive_json(judge: Judge) -> None:
    suite = gx.ExpectationSuite(name="kept", expectations=[kind(**arguments) for kind, _, arguments in RULES])
    again = gx.ExpectationSuite(**json.loads(json.dumps(suite.to_json_dict())))
    assert [expectation for expectation in suite.expectations if expectation not in again.expectations] == []
    assert all("column_list" not in expectation.configuration.kwargs for expectation in again.expectations)


def test_every_class_describes_itself() -> None:
    assert len(CLASSES) == 9
    for kind in CLASSES:
        told = kind.schema()
        assert told["description"].startswith("Expect ")
        assert all(told["properties"][argument].get("description") for argument in kind.args_keys)
