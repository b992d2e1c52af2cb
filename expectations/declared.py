"""Expectations by name, of a pipeline file and of our own suites: validate rows against them, write them as JSON."""

import json
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame

from expectations.catalogue import Declared, described, each
from expectations.results import arguments_of, unexpected
from expectations.validation import Verdict, validated
from lakehouse.errors.errors import GateErrored

if TYPE_CHECKING:
    from great_expectations.expectations.expectation import Expectation

EXAMPLES = 3


def judge(about: str, rows: DataFrame, declared: Declared, *, with_results: bool = False) -> Verdict:
    """
    Validate rows against expectations. Spark evaluates them, because they refer to its types and nulls.

    Args:
        about: The name of the join, for errors.
        with_results: Whether the verdict also has the results of the expectations that the rows meet.

    Raises:
        GateErrored: An expectation could not be evaluated.
    """
    if not declared:
        return Verdict()
    return validated(about, rows, partial(made, declared), _finding, in_process=False, with_results=with_results)


def made(declared: Declared) -> list["Expectation"]:
    """Build expectations; raise GateErrored if arguments are inconsistent, such as a minimum above the maximum."""
    import expectations.own  # noqa: F401  (registers ours; Great Expectations registers its own)

    return [_one(name, arguments) for name, arguments in each(declared)]


def _one(name: str, arguments: Mapping[str, Any]) -> "Expectation":
    from great_expectations.compatibility import pydantic
    from great_expectations.expectations.registry import get_expectation_impl

    try:
        expectation: Expectation = get_expectation_impl(name)(**arguments)
    except pydantic.ValidationError as error:
        raise GateErrored(
            described(name, arguments),
            "the arguments of the expectation are inconsistent",
            found="; ".join(part["msg"] for part in error.errors()),
            hint="correct the expectation in the pipeline file",
        ) from error
    return expectation


def _finding(result: Any) -> str:
    found = result.result or {}
    words = described(result.expectation_config.type, arguments_of(result))
    if "unexpected_count" in found:
        some = ", ".join(map(str, unexpected(result)[:EXAMPLES]))
        words += f": {found['unexpected_count']} of {found['element_count']} rows"
        words += f", for example {some}" if some else ""
    elif "observed_value" in found:
        words += f": {found['observed_value']}"
    return words


def as_json(name: str, declared: Declared) -> str:
    """
    Convert a suite, by the name of its table, to the JSON of Great Expectations, with a final line break.

    Ids and the version of Great Expectations are left out, because they would change the text. A reader of the suite
    imports `expectations.own` first.
    """
    import great_expectations as gx

    suite: dict[str, Any] = gx.ExpectationSuite(name=name, expectations=made(declared)).to_json_dict()
    expectations = [{key: value for key, value in one.items() if key != "id"} for one in suite["expectations"]]
    return json.dumps({"name": name, "expectations": expectations}, indent=2, sort_keys=True) + "\n"
