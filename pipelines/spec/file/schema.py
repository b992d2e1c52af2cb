"""The JSON schema of the pipeline file, for editors: completion, and a fault under the cursor."""

import json

from pipelines.spec.file.model import PipelineFile


def schema() -> str:
    """
    Write the schema.

    It knows the options and their types. What a statement may hold, which names are taken and what is not yet
    supported is known to `check` alone.

    Returns:
        A JSON document with a final line break.
    """
    content = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **PipelineFile.model_json_schema(by_alias=True),
        "title": "lakejoin pipeline file",
    }
    return json.dumps(content, indent=2) + "\n"
