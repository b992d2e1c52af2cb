"""The JSON schema of the pipeline file, for completion and error markers in editors."""

import json

from pipelines.spec.file.model import PipelineFile


def schema() -> str:
    """
    Return the JSON schema of the pipeline file.

    The schema describes the options and their types. Only `lakejoin check` also checks statements, name clashes and
    features that are not yet supported.

    Returns:
        A JSON document with a final line break.
    """
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PipelineFile.model_json_schema(by_alias=True),
        "title": "lakejoin pipeline file",
    }
    return json.dumps(content, indent=2) + "\n"
