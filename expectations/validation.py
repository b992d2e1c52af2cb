"""Validate rows with Great Expectations: one suite at a time over one frame, with one context for the process."""

import json
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from threading import Lock, Thread
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from expectations.catalogue import Declared, described, each
from expectations.results import ExpectationResult, arguments_of, expectation_result, unexpected
from lakehouse.errors.errors import GateErrored
from lakehouse.values.sqltext import quote

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations.data_context import AbstractDataContext
    from great_expectations.expectations.expectation import Expectation

EXAMPLES = 3
"""The number of rows that a finding shows."""

Finding = Callable[[Any], str]
"""Describes the finding of an expectation that is not met, from its result."""


@dataclass(frozen=True)
class Verdict:
    """The verdict of a gate: the violated rules, each with a number of rows, and if they are needed all results."""

    findings: tuple[str, ...] = ()
    results: tuple[ExpectationResult, ...] = ()

    @property
    def passed(self) -> bool:
        """Whether all rules hold."""
        return not self.findings


_one_at_a_time = Lock()
"""The context of Great Expectations is shared by the process and stores the current frame under fixed names."""


@cache
def _context() -> "AbstractDataContext":
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    return context


def import_in_background() -> None:
    """
    Import Great Expectations, which takes some seconds, while Spark computes the rows to validate.

    An import that fails raises its error in `validated`.
    """

    def imported() -> None:
        with _one_at_a_time, suppress(Exception):
            _context()
            import great_expectations.expectations  # noqa: F401

            import expectations.own  # noqa: F401

    if not _context.cache_info().currsize:
        Thread(target=imported, name="great-expectations").start()


def judge(about: str, rows: DataFrame, declared: Declared, *, with_results: bool = False) -> Verdict:
    """
    Validate rows against expectations. Spark evaluates them, because they refer to its types and nulls.

    The arguments and errors are those of `validated`.
    """
    if not declared:
        return Verdict()
    return validated(
        about, rows, partial(expectations_of, declared), _finding, in_process=False, with_results=with_results
    )


def expectations_of(declared: Declared) -> list["Expectation"]:
    """Build expectations; raise GateErrored if arguments are inconsistent, such as a minimum above the maximum."""
    from great_expectations.compatibility import pydantic
    from great_expectations.expectations.registry import get_expectation_impl

    import expectations.own  # noqa: F401  (registers ours; Great Expectations registers its own)

    built = []
    for name, arguments in each(declared):
        try:
            built.append(get_expectation_impl(name)(**arguments))
        except pydantic.ValidationError as error:
            raise GateErrored(
                described(name, arguments),
                "the arguments of the expectation are inconsistent",
                found="; ".join(part["msg"] for part in error.errors()),
                hint="correct the expectation in the pipeline file",
            ) from error
    return built


def _finding(result: Any) -> str:
    details = result.result or {}
    words = described(result.expectation_config.type, arguments_of(result))
    if "unexpected_count" in details:
        examples = ", ".join(map(str, unexpected(result)[:EXAMPLES]))
        words += f": {details['unexpected_count']} of {details['element_count']} rows"
        words += f", for example {examples}" if examples else ""
    elif "observed_value" in details:
        words += f": {details['observed_value']}"
    return words


def as_json(name: str, declared: Declared) -> str:
    """
    Convert a suite to the JSON of Great Expectations; a reader of it imports `expectations.own` first.

    Ids and the version of Great Expectations are left out, because they would change the text.
    """
    import great_expectations as gx

    suite: dict[str, Any] = gx.ExpectationSuite(name=name, expectations=expectations_of(declared)).to_json_dict()
    expectations = [{key: value for key, value in written.items() if key != "id"} for written in suite["expectations"]]
    return json.dumps({"name": name, "expectations": expectations}, indent=2, sort_keys=True) + "\n"


def validated(
    about: str,
    batch: DataFrame,
    expected: Callable[[], Sequence["Expectation"]],
    finding: Finding,
    *,
    in_process: bool,
    with_results: bool = False,
) -> Verdict:
    """
    Validate a frame against expectations.

    Args:
        about: The name of the join or of the data, for errors.
        expected: Builds the expectations; called after Great Expectations is imported.
        in_process: Whether this process evaluates the expectations instead of Spark; only for small frames.
        with_results: Whether the verdict also has the results of the expectations that the rows meet.

    Raises:
        GateErrored: An expectation could not be evaluated; this is no verdict about the rows.
    """
    with _one_at_a_time:
        context = _context()
        import great_expectations as gx

        sources = context.data_sources
        source = (
            sources.add_or_update_pandas("small") if in_process else sources.add_or_update_spark("large", persist=False)
        )
        definition = source.add_dataframe_asset("batch").add_batch_definition_whole_dataframe("all")
        frame = _in_pandas(batch) if in_process else batch
        whole = definition.get_batch(batch_parameters={"dataframe": frame})
        suite = gx.ExpectationSuite(name=about)
        for expectation in expected():
            suite.add_expectation(expectation)
        if not with_results:
            outcome = whole.validate(suite, result_format="BOOLEAN_ONLY")
            _refuse_errors(about, outcome)
            if outcome.success:
                return Verdict()
        details = whole.validate(suite, result_format="SUMMARY")
        _refuse_errors(about, details)
        findings = tuple(finding(result) for result in details.results if not result.success)
        return Verdict(findings, tuple(map(expectation_result, details.results)) if with_results else ())


def _in_pandas(batch: DataFrame) -> "pd.DataFrame":
    """Collect rows into a pandas frame with nullable types, so that integers and booleans with nulls stay exact."""
    import pandas as pd
    import pyarrow as pa

    nullable = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    return _printable(batch).toArrow().to_pandas(types_mapper=nullable.get)


def _printable(batch: DataFrame) -> DataFrame:
    """Convert strings that are not valid UTF-8, which Python cannot read, to hexadecimal digits."""
    texts = [field.name for field in batch.schema if isinstance(field.dataType, StringType)]
    written = "IF(is_valid_utf8({0}), {0}, concat('invalid UTF-8: ', hex({0})))"
    return batch.withColumns({name: F.expr(written.format(quote(name))) for name in texts}) if texts else batch


def _refuse_errors(about: str, outcome: Any) -> None:
    """Raise an error if an expectation raised: this is an error of the gate, not a failed gate."""
    for result in outcome.results:
        info = result.exception_info or {}
        raised = [info] if "raised_exception" in info else list(info.values())
        for item in raised:
            if item.get("raised_exception"):
                settings = result.expectation_config
                raise GateErrored(
                    about,
                    "an expectation could not be evaluated, so the rows were not validated",
                    found=f"{settings.type}: {item.get('exception_message')}",
                    hint="correct the expectation if it is in the pipeline file, else report this error",
                )
