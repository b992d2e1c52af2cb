"""Suites in the JSON format of Great Expectations, with reproducible text."""

import json
from typing import Any

from expectations.catalogue import Declared
from expectations.declared import made


def as_json(name: str, declared: Declared) -> str:
    """
    Convert a suite to the JSON of Great Expectations, without ids and its version, which would change the text.

    Args:
        name: The table that the suite is for.
        declared: The expectations, of Great Expectations and our own. A reader of the suite imports
            `expectations.own` first.

    Returns:
        A JSON document with a final line break.
    """
    import great_expectations as gx

    suite: dict[str, Any] = gx.ExpectationSuite(name=name, expectations=made(declared)).to_json_dict()
    expectations = [{key: value for key, value in one.items() if key != "id"} for one in suite["expectations"]]
    return json.dumps({"name": name, "expectations": expectations}, indent=2, sort_keys=True) + "\n"
