"""The base class of our own expectations: their arguments, and the sentence that Data Docs show."""

import re
from typing import Any, ClassVar, Literal

from great_expectations.compatibility import pydantic
from great_expectations.core import ExpectationValidationResult
from great_expectations.expectations.expectation import MulticolumnMapExpectation, render_suite_parameter_string
from great_expectations.expectations.expectation_configuration import ExpectationConfiguration
from great_expectations.render import LegacyRendererType, RenderedStringTemplateContent
from great_expectations.render.renderer.renderer import renderer
from great_expectations.render.renderer_configuration import RendererConfiguration, RendererValueType

Value = pydantic.StrictBool | pydantic.StrictInt | pydantic.StrictStr
"""A value of a column that an argument may name."""


class RowsExpectation(MulticolumnMapExpectation):
    """
    Judge each row of a table by the columns that the arguments name.

    A subclass declares the arguments as fields, each with a description, and `map_metric`, `args_keys` and
    `success_keys`. It also declares the `sentence` that Data Docs show, in which `$argument` stands for the argument,
    and `clauses`: for some arguments the text that is appended to the sentence if the argument is set. Its docstring
    says what these do not.

    Raises:
        pydantic.ValidationError: An argument is unknown, missing, names no column or a column twice, or does not fit
            another.
    """

    column_list: list[pydantic.StrictStr] = pydantic.Field(
        default=[], exclude=True, description="Derived from the other arguments; must not be set."
    )
    ignore_row_if: Literal["all_values_are_missing", "any_value_is_missing", "never"] = "never"

    sentence: ClassVar[str] = ""
    clauses: ClassVar[tuple[tuple[str, str], ...]] = ()

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

    @pydantic.validator(
        "key_columns",
        "left_columns",
        "right_columns",
        "value_columns",
        "before_columns",
        "position_columns",
        "order_columns",
        "row_columns",
        "reference_columns",
        "answer_columns",
        "partner_columns",
        check_fields=False,
    )
    @classmethod
    def _validate_columns(cls, names: list[str] | None, field: Any) -> list[str] | None:
        if field.required and not names:
            raise ValueError(f"{field.name} names no column")
        twice = sorted({name for name in names or [] if (names or []).count(name) > 1})
        if twice:
            raise ValueError(f"{field.name} names a column twice: {', '.join(twice)}")
        return names

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
            given = getattr(self, argument)
            if argument.endswith("_columns"):
                named += given or []
            elif argument.endswith("_column") and given is not None:
                named.append(given)
        return list(dict.fromkeys(named))

    def _get_domain_kwargs(self) -> dict[str, Any]:
        return {**super()._get_domain_kwargs(), "column_list": self.columns()}

    @classmethod
    def _prescriptive_template(cls, renderer_configuration: RendererConfiguration[Any]) -> RendererConfiguration[Any]:
        defaults = {name: cls.__fields__[name].default for name in cls.args_keys}
        given = {**defaults, **renderer_configuration.kwargs}
        template = cls.sentence + "".join(words for argument, words in cls.clauses if given[argument])
        for argument in cls.args_keys:
            value = given[argument]
            parts = value if isinstance(value, list) else [value]
            names = [f"{argument}_{place}" for place in range(len(parts))]
            placeholder = re.compile(rf"\${argument}\b")
            if not placeholder.search(template):
                continue
            template = placeholder.sub(", ".join(f"${name}" for name in names), template)
            for name, part in zip(names, parts, strict=True):
                renderer_configuration.add_param(name=name, param_type=RendererValueType.STRING, value=str(part))
        renderer_configuration.template_str = template
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
