"""The base class of our own expectations: their arguments, their metric, and the sentence that Data Docs show."""

import re
from collections.abc import Callable, Sequence
from functools import wraps
from types import new_class
from typing import Any, ClassVar, Literal

import pandas as pd
from great_expectations.compatibility import pydantic
from great_expectations.constants import MAX_RESULT_RECORDS
from great_expectations.core import ExpectationValidationResult
from great_expectations.core.metric_domain_types import MetricDomainTypes
from great_expectations.core.metric_function_types import MetricFunctionTypes, MetricPartialFunctionTypes
from great_expectations.exceptions import InvalidMetricAccessorDomainKwargsKeyError
from great_expectations.execution_engine import ExecutionEngine, PandasExecutionEngine, SparkDFExecutionEngine
from great_expectations.expectations.expectation import MulticolumnMapExpectation, render_suite_parameter_string
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.expectations.metrics.map_metric_provider import MulticolumnMapMetricProvider
from great_expectations.expectations.metrics.metric_provider import metric_partial
from great_expectations.expectations.registry import register_metric
from great_expectations.render import LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer
from great_expectations.render.renderer_configuration import RendererConfiguration, RendererValueType
from pyspark.sql import Column
from pyspark.sql import functions as F

from expectations.own.values import Flags, column

BROKEN = "__broken"
"""The working column that marks the rows that violate the rule."""

Judged = tuple[Any, dict[str, Any], dict[str, Any]]
"""The rows that violate a rule, and the judged domain, in the form that Great Expectations passes between metrics."""


class RowsExpectation(MulticolumnMapExpectation):
    """
    Judge each row of a table by the columns that the arguments name.

    A subclass declares the arguments as fields, each with a description, and the rule as functions of the arguments:
    `_broken` for Spark, and for a rule that the gate applies to small batches `_broken_in_pandas`. In the `sentence`
    that Data Docs show, `$argument` stands for the argument, and a text in brackets is left out if its argument is not
    set. The docstring says what these do not.

    Raises:
        pydantic.ValidationError: An argument is unknown, missing, names no column or a column twice, or does not fit
            another.
    """

    column_list: list[pydantic.StrictStr] = pydantic.Field(
        default=[], exclude=True, description="Derived from the other arguments; must not be set."
    )
    ignore_row_if: Literal["all_values_are_missing", "any_value_is_missing", "never"] = "never"

    sentence: ClassVar[str] = ""
    reads_other_rows: ClassVar[bool] = False
    """Whether the rule reads other rows than the judged one."""

    _broken: ClassVar[Callable[..., Column]]
    _broken_in_pandas: ClassVar[Callable[..., Flags] | None] = None

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        cls.args_keys = tuple(name for name in cls.__fields__ if name not in RowsExpectation.__fields__)
        cls.success_keys = ("mostly", *cls.args_keys)
        cls.map_metric = f"own_rows.{cls.__name__}"
        of_window, of_map = MetricPartialFunctionTypes.WINDOW_CONDITION_FN, MetricPartialFunctionTypes.MAP_CONDITION_FN
        in_spark = _condition(cls._broken, SparkDFExecutionEngine, of_window if cls.reads_other_rows else of_map)
        metric = {
            "condition_metric_name": cls.map_metric,
            "condition_value_keys": cls.args_keys,
            "in_spark": staticmethod(in_spark),
        }
        if cls._broken_in_pandas is not None:
            of_series = MetricPartialFunctionTypes.MAP_CONDITION_SERIES
            in_pandas = _condition(cls._broken_in_pandas, PandasExecutionEngine, of_series)
            metric["in_pandas"] = staticmethod(in_pandas)
        new_class(f"{cls.__name__}Metric", (_RowsMetric,), exec_body=lambda body: body.update(metric))

    @pydantic.validator("column_list")
    @classmethod
    def _validate_column_list(cls, names: list[str]) -> list[str]:
        raise ValueError("column_list is derived from the other arguments; leave it out")

    @pydantic.validator("mostly")
    @classmethod
    def _validate_mostly(cls, share: object) -> object:
        if share != 1:
            raise ValueError("mostly must be 1: a single row violates the rule")
        return share

    @pydantic.validator("ignore_row_if")
    @classmethod
    def _validate_ignore_row_if(cls, when: str) -> str:
        if when != "never":
            raise ValueError("ignore_row_if must be 'never': rows with nulls are judged too")
        return when

    @pydantic.validator("*")
    @classmethod
    def _validate_columns(cls, value: Any, field: Any) -> Any:
        if field.name.endswith("_columns"):
            if field.required and not value:
                raise ValueError(f"{field.name} names no column")
            twice = sorted({name for name in value or [] if value.count(name) > 1})
            if twice:
                raise ValueError(f"{field.name} names a column twice: {', '.join(twice)}")
        return value

    @pydantic.validator("tombstones", check_fields=False)
    @classmethod
    def _validate_tombstones(cls, values: list[Any]) -> list[Any]:
        if not values:
            raise ValueError("tombstones names no value: list the values that mark a tombstone")
        return values

    def columns(self) -> list[str]:
        """Return the columns that are judged, each once, in the order of the arguments."""
        named: list[str] = []
        for argument in self.args_keys:
            value = getattr(self, argument)
            if argument.endswith("_columns"):
                named += value or []
            elif argument.endswith("_column") and value is not None:
                named.append(value)
        return list(dict.fromkeys(named))

    def _get_domain_kwargs(self) -> dict[str, Any]:
        return {**super()._get_domain_kwargs(), "column_list": self.columns()}

    @classmethod
    def _prescriptive_template(cls, renderer_configuration: RendererConfiguration[Any]) -> RendererConfiguration[Any]:
        arguments = {name: cls.__fields__[name].default for name in cls.args_keys} | renderer_configuration.kwargs

        def clause(text: re.Match[str]) -> str:
            return text[1] if all(arguments[name] for name in re.findall(r"\$(\w+)", text[1])) else ""

        def placeholders(argument: re.Match[str]) -> str:
            value, names = arguments[argument[1]], []
            for index, part in enumerate(value if isinstance(value, list) else [value]):
                names.append(f"{argument[1]}_{index}")
                renderer_configuration.add_param(names[-1], RendererValueType.STRING, value=str(part))
            return ", ".join(f"${name}" for name in names)

        sentence = re.sub(r"\[(.*?)\]", clause, cls.sentence)
        renderer_configuration.template_str = re.sub(r"\$(\w+)", placeholders, sentence)
        return renderer_configuration

    @classmethod
    @renderer(renderer_type=LegacyRendererType.PRESCRIPTIVE)
    @render_suite_parameter_string
    def _prescriptive_renderer(
        cls,
        configuration: ExpectationConfiguration | None = None,
        result: ExpectationValidationResult | None = None,
        runtime_configuration: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> list[RenderedStringTemplateContent]:
        rendered = cls._prescriptive_template(
            RendererConfiguration(
                configuration=configuration, result=result, runtime_configuration=runtime_configuration
            )
        )
        return [
            RenderedStringTemplateContent(
                content_block_type="string_template",
                string_template={
                    "template": rendered.template_str,
                    "params": {name: param["value"] for name, param in rendered.params.dict().items()},
                    "styling": (runtime_configuration or {}).get("styling"),
                },
            )
        ]


class _RowsMetric(MulticolumnMapMetricProvider):
    """
    Find the rows that violate a rule; each `RowsExpectation` has a subclass with its name, arguments and rule.

    Great Expectations would find these rows by rewritten column names, which fails for names with dots or backticks,
    and would count the judged rows again for each expectation. This class does both itself.
    """

    @classmethod
    def _register_metric_functions(cls) -> None:
        super()._register_metric_functions()  # type: ignore[no-untyped-call]
        if not hasattr(cls, "condition_metric_name"):
            return
        for engine in (PandasExecutionEngine, SparkDFExecutionEngine):
            for suffix, metric in (("unexpected_values", _unexpected_values), ("filtered_row_count", _judged_rows)):
                register_metric(
                    metric_name=f"{cls.condition_metric_name}.{suffix}",
                    metric_domain_keys=cls.condition_domain_keys,
                    metric_value_keys=(*cls.condition_value_keys, "result_format"),
                    execution_engine=engine,
                    metric_class=cls,
                    metric_provider=metric,
                    metric_fn_type=MetricFunctionTypes.VALUE,
                )


def _condition(
    rule: Callable[..., Any], engine: type[ExecutionEngine[Any]], function_type: MetricPartialFunctionTypes
) -> Callable[..., Judged]:
    """Build a metric that gets the frame, checks that the columns exist, and judges the rows by a rule."""

    @metric_partial(
        engine=engine,
        partial_fn_type=function_type,
        domain_type=MetricDomainTypes.TABLE,  # so that only `_RowsMetric` registers its two metrics
    )
    @wraps(rule)
    def judge(
        execution_engine: ExecutionEngine[Any],
        metric_domain_kwargs: dict[str, Any],
        metric_value_kwargs: dict[str, Any],
        **_: Any,
    ) -> Judged:
        frame, names = execution_engine.get_domain_records(metric_domain_kwargs), metric_domain_kwargs["column_list"]
        _refuse_missing(names, list(frame.columns))
        if engine is PandasExecutionEngine:
            broken = pd.Series(rule(frame, **metric_value_kwargs), index=frame.index, dtype=bool)
        else:
            broken = rule(**metric_value_kwargs)
        # The function of Great Expectations that splits a domain into rows and columns rejects a single column.
        rows = {name: value for name, value in metric_domain_kwargs.items() if name != "column_list"}
        return broken, rows, {"column_list": list(names)}

    return judge


def _refuse_missing(wanted: Sequence[str], existing: Sequence[Any]) -> None:
    for name in wanted:
        if existing.count(name) != 1:
            problem = "exists more than once" if name in existing else "does not exist"
            raise InvalidMetricAccessorDomainKwargsKeyError(
                f"the column {name!r} {problem}; the table has {', '.join(map(repr, existing))}"
            )


def _judged_rows(metrics: dict[str, Any], **_: Any) -> Any:
    """Return the number of judged rows: all rows, because none is ignored."""
    return metrics["table.row_count"]


def _unexpected_values(
    execution_engine: ExecutionEngine[Any],
    metric_domain_kwargs: dict[str, Any],
    metric_value_kwargs: dict[str, Any],
    metrics: dict[str, Any],
    **_: Any,
) -> list[dict[Any, Any]]:
    """Return the judged columns of rows that violate the rule, as many as the form of the result asks for."""
    broken, compute, accessor = metrics["unexpected_condition"]
    frame, names = execution_engine.get_domain_records({**compute, **accessor}), metric_domain_kwargs["column_list"]
    form, most = metric_value_kwargs["result_format"], MAX_RESULT_RECORDS
    if form["result_format"] != "COMPLETE":
        most = min(int(form["partial_unexpected_count"]), most)
    if isinstance(execution_engine, PandasExecutionEngine):
        return list(frame.loc[broken.to_numpy(), names].head(most).to_dict("records"))
    rows = frame.withColumn(BROKEN, broken).where(F.col(BROKEN)).select(*map(column, names))
    return [row.asDict() for row in rows.limit(most).collect()]
