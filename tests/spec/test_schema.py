"""The published JSON schema of the pipeline file says what the file may hold."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from pipelines.spec import schema

CONF = Path(__file__).parents[2] / "conf"
WRONG = Path(__file__).with_name("wrong")
SCHEMA = json.loads(schema())
CAUGHT_IN_EDITORS = [
    "options_missing",
    "option_misspelled",
    "option_misspelled_in_source",
    "option_misspelled_in_join",
    "source_not_a_mapping",
    "source_without_key",
    "source_key_boolean",
    "source_key_empty",
    "source_kind_unknown",
    "storage_both_forms",
    "storage_schema_without_stage",
    "sources_none",
    "joins_none",
    "join_without_sql",
    "refresh_unknown",
    "changelog_not_boolean",
]


def complaints(path: Path) -> list[str]:
    content = yaml.safe_load(path.read_text())
    return [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(content)]


def test_the_published_file_is_this_schema():
    """`lakejoin schema > conf/lakejoin.schema.json` writes it anew."""
    assert (CONF / "lakejoin.schema.json").read_text() == schema()


@pytest.mark.parametrize("path", sorted(CONF.rglob("*.yml")), ids=lambda path: path.name)
def test_our_examples_fit(path):
    """An editor has nothing to say about them."""
    assert complaints(path) == []


@pytest.mark.parametrize("name", CAUGHT_IN_EDITORS)
def test_an_editor_sees_a_wrong_option(name):
    """Misspelled, missing or of the wrong type."""
    assert complaints(WRONG / f"{name}.yml")


def test_everything_is_described():
    """An editor shows a text for each option."""
    parts = [SCHEMA, *SCHEMA["$defs"].values()]
    assert [
        name for part in parts for name, option in part["properties"].items() if not option.get("description")
    ] == []
