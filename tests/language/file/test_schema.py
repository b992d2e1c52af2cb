"""The published JSON schema of the pipeline file says what the file may hold."""

import copy
import itertools
import json
from pathlib import Path

import jsonschema
import pytest
import yaml
from pydantic import ValidationError

from pipelines.language import PipelineFile, schema
from pipelines.language.cases import ENDING
from pipelines.language.file.options import RULES

CONF = Path(__file__).parents[3] / "conf"
WRONG = Path(__file__).parents[1] / "wrong"
SCHEMA = json.loads(schema())
EXAMPLE = yaml.safe_load((CONF / "example" / "lakejoin.yml").read_text())
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
    "join_not_a_mapping",
    "sql_empty",
    "refresh_unknown",
    "changelog_not_boolean",
    "optimizations_unknown_rule",
    "optimizations_empty",
    "optimizations_all_in_a_list",
    "optimizations_twice",
    "optimizations_rule_without_list",
    "optimizations_number",
]


def complaints(path: Path) -> list[str]:
    return misfits(yaml.safe_load(path.read_text()))


def misfits(content: object) -> list[str]:
    return [error.message for error in jsonschema.Draft202012Validator(SCHEMA).iter_errors(content)]


def test_the_published_file_is_this_schema():
    """`lakejoin schema > conf/lakejoin.schema.json` writes it anew."""
    assert (CONF / "lakejoin.schema.json").read_text() == schema()


EXAMPLES = sorted(
    path for path in CONF.rglob("*.yml") if path.parent.name != "databricks" and not path.name.endswith(ENDING)
)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_our_examples_fit(path):
    assert complaints(path) == []


@pytest.mark.parametrize("name", CAUGHT_IN_EDITORS)
def test_an_editor_sees_a_wrong_option(name):
    """Misspelled, missing or of the wrong type."""
    assert complaints(WRONG / f"{name}.yml")


@pytest.mark.parametrize("options", [*itertools.product([None, "x", ...], repeat=3)])
def test_storage_has_the_forms_that_check_allows(options):
    """Whatever is given, left out, or null."""
    storage = {
        name: value for name, value in zip(("path", "schema", "stage"), options, strict=True) if value is not ...
    }
    content = {**EXAMPLE, "storage": storage}
    try:
        PipelineFile.model_validate(content)
    except ValidationError:
        assert misfits(content)
    else:
        assert not misfits(content)


@pytest.mark.parametrize("value", ["${var.x}", "${env.X_1}"])
def test_a_variable_may_stand_where_one_of_a_few_texts_belongs(value):
    """An editor does not know its value; what only looks like one is wrong."""
    for fine, given in ((True, value), (False, value.replace(".", "-"))):
        content = copy.deepcopy(EXAMPLE)
        content["optimizations"] = given
        content["sources"]["orders"]["kind"] = given
        content["joins"]["orders_paid"].update(refresh=given, on_failed_gate=given, semantics=given)
        assert len(misfits(content)) == (0 if fine else 5)


@pytest.mark.parametrize("value", ["all", "none", [*RULES], [RULES[0]], ["${var.x}"]])
def test_optimizations_are_all_none_or_names_of_rules(value):
    """A variable may stand for a name, too."""
    assert misfits({**EXAMPLE, "optimizations": value}) == []


def test_everything_is_described():
    parts = [SCHEMA, *SCHEMA["$defs"].values()]
    assert [
        name for part in parts for name, option in part["properties"].items() if not option.get("description")
    ] == []
