"""The results of expectations as plain values for a page, in the words of the renderers of Great Expectations."""

import json
from dataclasses import dataclass
from string import Template
from typing import Any

from expectations.catalogue import described

EXAMPLES = 10


@dataclass(frozen=True, kw_only=True)
class ExpectationResult:
    """
    An expectation and its result.

    Args:
        words: A sentence that describes the expectation.
        column: The column that it judges; empty if it judges several columns or the whole table.
        found: The number of rows that do not meet it, and of all rows; empty if no such row was counted.
        examples: Some values that do not meet it.
    """

    expectation: str
    words: str
    column: str
    is_met: bool
    observed: str
    found: str = ""
    examples: tuple[str, ...] = ()


def expectation_result(result: Any) -> ExpectationResult:
    """Convert a result of Great Expectations that has some of the unexpected values."""
    result.render()
    settings, details = result.expectation_config, result.result or {}
    arguments, count = arguments_of(result), details.get("unexpected_count")
    return ExpectationResult(
        expectation=settings.type,
        words=_sentence(settings.rendered_content) or described(settings.type, arguments),
        column=str(arguments.get("column", "")),
        is_met=bool(result.success),
        observed=_sentence(result.rendered_content) or json.dumps(details.get("observed_value"), default=str),
        found=f"{count:,} of {details['element_count']:,} rows" if count else "",
        examples=tuple(map(str, unexpected(result)[:EXAMPLES])),
    )


def arguments_of(result: Any) -> dict[str, Any]:
    """Return the arguments of the expectation of a result."""
    return {name: value for name, value in result.expectation_config.kwargs.items() if name != "batch_id"}


def unexpected(result: Any) -> list[Any]:
    """Return the unexpected values that a result has, without nulls, which show nothing."""
    return [value for value in (result.result or {}).get("partial_unexpected_list", ()) if value is not None]


def _sentence(rendered: Any) -> str:
    """Fill the arguments into the rendered sentence; return "" for a graph, a table or a failed renderer."""
    for content in rendered or ():
        value = content.value.to_json_dict()
        if content.value_type == "StringValueType" and not content.name.endswith(".failed"):
            parts = {name: part["value"] for name, part in value["params"].items()}
            return Template(value["template"]).safe_substitute(parts)
    return ""
