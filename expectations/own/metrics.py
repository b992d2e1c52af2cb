"""The base class of our metrics, by which Great Expectations finds the rows that violate a rule."""

from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any

import pandas as pd
from great_expectations.constants import MAX_RESULT_RECORDS
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.metric_function_types import MetricFunctionTypes, MetricPartialFunctionTypes
from great_expectations.exceptions import InvalidMetricAccessorDomainKwargsKeyError
from great_expectations.execution_engine import ExecutionEngine, PandasExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations.metrics.map_metric_provider import MulticolumnMapMetricProvider
from great_expectations.expectations.metrics.metric_provider import metric_partial
from great_expectations.expectations.registry import register_metric
from pyspark.sql import Column
from pyspark.sql import functions as F

from expectations.own.values import Flags, column

BROKEN = "__broken"
"""The working column that marks the rows that violate the rule."""

Judged = tuple[Any, dict[str, Any], dict[str, Any]]
"""The rows that violate a rule, and the judged domain, in the form that Great Expectations passes between metrics."""


class RowsMetric(MulticolumnMapMetricProvider):
    """
    Find the rows that violate a rule.

    A subclass defines its name (`condition_metric_name`), the arguments of its rule (`condition_value_keys`), and the
    rule itself, decorated with `broken_in_spark`. A rule that the gate applies to small batches is also defined with
    `broken_in_pandas`.

    Great Expectations would find these rows by rewritten column names, which fails for names with dots or backticks,
    and would count the judged rows again for each expectation. This class does both itself.
    """

    @classmethod
    def _register_metric_functions(cls) -> None:
        super()._register_metric_functions()  # type: ignore[no-untyped-call]
        if not hasattr(cls, "condition_metric_name"):
            return
        for engine, values in ((PandasExecutionEngine, _values_in_pandas), (SparkDFExecutionEngine, _values_in_spark)):
            for suffix, metric in (("unexpected_values", values), ("filtered_row_count", _judged_rows)):
                register_metric(
                    metric_name=f"{cls.condition_metric_name}.{suffix}",
                    metric_domain_keys=cls.condition_domain_keys,
                    metric_value_keys=(*cls.condition_value_keys, "result_format"),
                    execution_engine=engine,
                    metric_class=cls,
                    metric_provider=metric,
                    metric_fn_type=MetricFunctionTypes.VALUE,
                )


def broken_in_pandas(rule: Callable[..., Flags]) -> Callable[..., Judged]:
    """
    Convert a rule to a metric for pandas frames.

    Args:
        rule: Takes the frame and the arguments of the rule; returns for each row whether it violates the rule.
    """

    def broken(frame: pd.DataFrame, arguments: Mapping[str, Any]) -> pd.Series:
        return pd.Series(rule(frame, **arguments), index=frame.index, dtype=bool)

    return _metric(rule, broken, PandasExecutionEngine, MetricPartialFunctionTypes.MAP_CONDITION_SERIES)


def broken_in_spark(*, window: bool) -> Callable[[Callable[..., Column]], Callable[..., Judged]]:
    """
    Return a decorator that converts a rule to a metric for Spark frames.

    Args:
        window: Whether the rule reads other rows than the judged one.
    """
    kind = MetricPartialFunctionTypes.WINDOW_CONDITION_FN if window else MetricPartialFunctionTypes.MAP_CONDITION_FN

    def decorate(rule: Callable[..., Column]) -> Callable[..., Judged]:
        return _metric(rule, lambda _, arguments: rule(**arguments), SparkDFExecutionEngine, kind)

    return decorate


def _metric(
    rule: Callable[..., Any],
    broken: Callable[[Any, Mapping[str, Any]], Any],
    engine: type[ExecutionEngine[Any]],
    kind: MetricPartialFunctionTypes,
) -> Callable[..., Judged]:
    """Build a metric of Great Expectations that gets the frame, checks that the columns exist, and judges the rows."""

    @metric_partial(
        engine=engine,
        partial_fn_type=kind,
        domain_type=MetricDomainTypes.TABLE,  # so that only `RowsMetric` registers its two metrics
    )
    @wraps(rule)
    def judge(
        cls: type[RowsMetric],
        execution_engine: ExecutionEngine[Any],
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        metrics: dict[str, Any],
        runtime_configuration: dict[str, Any],
    ) -> Judged:
        frame = execution_engine.get_domain_records(metric_domain_kwargs)
        _refuse_missing(metric_domain_kwargs["column_list"], list(frame.columns))
        return broken(frame, metric_value_kwargs), *_parts(metric_domain_kwargs)

    return judge


def _parts(domain: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Split a domain into judged rows and columns: the function of Great Expectations rejects a single column."""
    rows = {name: value for name, value in domain.items() if name != "column_list"}
    return rows, {"column_list": list(domain["column_list"])}


def _refuse_missing(wanted: Sequence[str], existing: Sequence[Any]) -> None:
    for name in wanted:
        if existing.count(name) != 1:
            found = "exists more than once" if name in existing else "does not exist"
            raise InvalidMetricAccessorDomainKwargsKeyError(
                f"the column {name!r} {found}; the table has {', '.join(map(repr, existing))}"
            )


def _judged_rows(
    cls: type[RowsMetric],
    execution_engine: ExecutionEngine[Any],
    metric_domain_kwargs: dict[str, Any],
    metric_value_kwargs: dict[str, Any],
    metrics: dict[str, Any],
    **kwargs: Any,
) -> Any:
    """Return the number of judged rows: all rows, because none is ignored."""
    return metrics["table.row_count"]


def _values_in_pandas(
    cls: type[RowsMetric],
    execution_engine: PandasExecutionEngine,
    metric_domain_kwargs: dict[str, Any],
    metric_value_kwargs: dict[str, Any],
    metrics: dict[str, Any],
    **kwargs: Any,
) -> list[dict[Any, Any]]:
    broken, compute, accessor = metrics["unexpected_condition"]
    frame = execution_engine.get_domain_records({**compute, **accessor})
    found = frame.loc[broken.to_numpy(), metric_domain_kwargs["column_list"]]
    return list(found.head(_most(metric_value_kwargs)).to_dict("records"))


def _values_in_spark(
    cls: type[RowsMetric],
    execution_engine: SparkDFExecutionEngine,
    metric_domain_kwargs: dict[str, Any],
    metric_value_kwargs: dict[str, Any],
    metrics: dict[str, Any],
    **kwargs: Any,
) -> list[dict[str, Any]]:
    broken, compute, accessor = metrics["unexpected_condition"]
    frame = execution_engine.get_domain_records({**compute, **accessor})
    marked = frame.withColumn(BROKEN, broken).where(F.col(BROKEN))
    found = marked.select(*map(column, metric_domain_kwargs["column_list"]))
    return [row.asDict() for row in found.limit(_most(metric_value_kwargs)).collect()]


def _most(metric_value_kwargs: Mapping[str, Any]) -> int:
    wanted = metric_value_kwargs["result_format"]
    if wanted["result_format"] == "COMPLETE":
        return MAX_RESULT_RECORDS
    return min(int(wanted["partial_unexpected_count"]), MAX_RESULT_RECORDS)
