"""Great Expectations at work: a suite over one frame, with one context for the process, one suite at a time."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from threading import Lock
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from expectations.results import ExpectationResult, expectation_result
from lakehouse.errors import GateErrored
from lakehouse.sqltext import quote

if TYPE_CHECKING:
    import pandas as pd
    from great_expectations.data_context import AbstractDataContext
    from great_expectations.expectations.expectation import Expectation

Finding = Callable[[Any], str]
"""Says in words what an expectation that was not met found, from its result."""


@dataclass(frozen=True)
class Verdict:
    """
    What a gate found.

    Args:
        findings: Each rule that rows broke, with their number.
        results: Every expectation with what was found, where a page is made of it.
    """

    findings: tuple[str, ...] = ()
    results: tuple[ExpectationResult, ...] = ()

    @property
    def passed(self) -> bool:
        """Tell whether every rule held."""
        return not self.findings


_one_at_a_time = Lock()
"""The context of Great Expectations is the process's and keeps what is being validated under fixed names."""


@cache
def _context() -> "AbstractDataContext":
    import great_expectations as gx

    context = gx.get_context(mode="ephemeral")
    context.variables.progress_bars = {"globally": False}  # type: ignore[assignment]
    return context


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
    Hold a frame to expectations.

    Args:
        about: What the frame is part of, for errors.
        batch: The frame.
        expected: Makes the expectations; called where Great Expectations may be imported.
        finding: Says what one that was not met found.
        in_process: Whether its rows, which are few, are judged in this process and not by Spark.
        with_results: Whether the verdict also tells what was found of the expectations that were met.

    Raises:
        GateErrored: An expectation could not be evaluated; nothing is said about the rows then.
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
    """Bring rows to this process; a null beside integers and booleans makes no floats of them."""
    import pandas as pd
    import pyarrow as pa

    kinds = {
        pa.int8(): pd.Int8Dtype(),
        pa.int16(): pd.Int16Dtype(),
        pa.int32(): pd.Int32Dtype(),
        pa.int64(): pd.Int64Dtype(),
        pa.bool_(): pd.BooleanDtype(),
    }
    return _printable(batch).toArrow().to_pandas(types_mapper=kinds.get)


def _printable(batch: DataFrame) -> DataFrame:
    """Write a text whose bytes are not valid UTF-8, which no Python process takes, in hexadecimal digits."""
    texts = [field.name for field in batch.schema if isinstance(field.dataType, StringType)]
    written = "IF(is_valid_utf8({0}), {0}, concat('invalid UTF-8: ', hex({0})))"
    return batch.withColumns({name: F.expr(written.format(quote(name))) for name in texts}) if texts else batch


def _refuse_errors(about: str, outcome: Any) -> None:
    """Tell a gate that errored from one that failed: an expectation that raised has no verdict."""
    for result in outcome.results:
        info = result.exception_info or {}
        raised = [info] if "raised_exception" in info else list(info.values())
        for item in raised:
            if item.get("raised_exception"):
                settings = result.expectation_config
                raise GateErrored(
                    about,
                    "an expectation could not be evaluated: nothing is known of the rows",
                    found=f"{settings.type}: {item.get('exception_message')}",
                    hint="correct the expectation in the pipeline file, if it is yours, or report this",
                )
