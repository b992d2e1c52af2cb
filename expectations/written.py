"""Suites in the JSON of Great Expectations, alike however often they are written."""

import json
from typing import Any

from expectations.catalogue import Declared
from expectations.declared import made


def as_json(name: str, declared: Declared) -> str:
    """
    Write a suite as Great Expectations does, without what differs from time to time: ids and its own version.

    Args:
        name: The table that the suite is for.
        declared: The expectations: Great Expectations' and our own. Who reads the suite imports `expectations.own`.

    Returns:
        A JSON document with a final line break.
    """
    import great_expectations as gx

    suite: dict[str, Any] = gx.ExpectationSuite(name=name, expectations=made(declared)).to_json_dict()
    expectations = [{key: value for key, value in one.items() if key != "id"} for one in suite["expectations"]]
    return json.dumps({"name": name, "expectations": expectations}, indent=2, sort_keys=True) + "\n"
