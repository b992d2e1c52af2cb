"""What was found of an expectation, in the words of Great Expectations' own renderers, as plain values for a page."""

import json
from dataclasses import dataclass
from string import Template
from typing import Any

from expectations.catalogue import described

EXAMPLES = 10


@dataclass(frozen=True)
class ExpectationResult:
    """
    An expectation, and what was found.

    Args:
        expectation: Its name.
        words: What it expects.
        column: The column that it is about; empty if it is about several or the whole table.
        is_met: Whether rows meet it.
        observed: What was observed.
        found: How many rows do not meet it, of how many; empty if it counts none.
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
    """
    Tell the result of an expectation.

    Args:
        result: What Great Expectations gives of it, with some of the values that were not expected.
    """
    result.render()
    settings, found = result.expectation_config, result.result or {}
    given = {name: value for name, value in settings.kwargs.items() if name != "batch_id"}
    count = found.get("unexpected_count")
    return ExpectationResult(
        expectation=settings.type,
        words=_sentence(settings.rendered_content) or described(settings.type, given),
        column=str(given.get("column", "")),
        is_met=bool(result.success),
        observed=_sentence(result.rendered_content) or json.dumps(found.get("observed_value"), default=str),
        found=f"{count:,} of {found['element_count']:,} rows" if count else "",
        examples=tuple(map(str, found.get("partial_unexpected_list", ())[:EXAMPLES])),
    )


def _sentence(rendered: Any) -> str:
    """Put the arguments into the sentence that was rendered; what is a graph or a table, or failed, has none."""
    for content in rendered or ():
        value = content.value.to_json_dict()
        if content.value_type == "StringValueType" and not content.name.endswith(".failed"):
            parts = {name: part["value"] for name, part in value["params"].items()}
            return Template(value["template"]).safe_substitute(parts)
    return ""
