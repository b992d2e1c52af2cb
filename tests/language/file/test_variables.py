"""Variables stand for values, never for names, options or SQL."""

import pytest
import yaml

from lakehouse.errors.errors import PipelineFileError
from pipelines.language import load
from tests.cases import cases

GOOD = {
    "pipeline": "p",
    "storage": {"path": "./lake"},
    "sources": {"a": {"key": ["k"]}, "b": {"key": "k"}},
    "joins": {"j": {"sql": "SELECT * FROM a JOIN b USING (k)"}},
}


@pytest.fixture
def read(tmp_path):

    def load_with(variables=None, **options):
        path = tmp_path / "lakejoin.yml"
        path.write_text(yaml.safe_dump({**GOOD, **options}))
        return load(path, variables)

    return load_with


def refusals(call, *arguments, **options):
    with pytest.raises(PipelineFileError) as caught:
        call(*arguments, **options)
    return [(fault.path, fault.problem) for fault in caught.value.faults]


def test_a_value_is_put_in_wherever_a_value_stands(read, monkeypatch):
    """Alone or inside a text, in lists too, from the command line and from the environment."""
    monkeypatch.setenv("LAKE", "/data")
    file = read(
        {"stage": "dev", "key": "k", "zone": "Europe/Oslo", "refresh": "full"},
        storage={"path": "${env.LAKE}/${var.stage}/${var.stage}"},
        sources={"a": {"key": ["${var.key}"]}, "b": {"key": "k", "table": "main.${var.stage}.b"}},
        joins={"j": {"sql": GOOD["joins"]["j"]["sql"], "refresh": "${var.refresh}"}},
        timezone="${var.zone}",
    )
    assert file.storage.path == "/data/dev/dev"
    assert (file.sources["a"].key, file.sources["b"].table) == (("k",), "main.dev.b")
    assert (file.timezone, file.joins["j"].refresh) == ("Europe/Oslo", "full")


@pytest.mark.parametrize("value", ["x}\nsources: {}", "{path: y}", "${var.x}", "${env.HOME}", "$${", "'; DROP TABLE a"])
def test_a_value_is_a_text_and_nothing_else(read, value):
    """It is never read as YAML and never looked through for variables again."""
    assert read({"x": value}, storage={"path": "${var.x}"}).storage.path == value


def test_the_characters_themselves(read):
    """A second dollar sign, and a dollar sign alone."""
    assert read(storage={"path": "$${var.x}/$x/$"}).storage.path == "${var.x}/$x/$"


def test_a_variable_without_a_value_is_the_only_fault_of_its_option(read, monkeypatch):
    """All of them at once, and no complaint about the text with a hole in it."""
    monkeypatch.delenv("NOPE", raising=False)
    assert refusals(read, timezone="${var.zone}", storage={"path": "${env.NOPE}"}) == [
        ("storage.path", "`${env.NOPE}` has no value"),
        ("timezone", "`${var.zone}` has no value"),
    ]


@cases("written", "${x}", "${var.}", "${var.a-b}", "${VAR.a}", "${env}", "${", "${var.x", "${ var.x }")
def test_what_looks_like_a_variable_and_is_none(read, written):
    ((path, problem),) = refusals(read, storage={"path": written})
    assert path == "storage.path"
    assert problem.endswith("is not a variable")


def test_a_variable_that_the_file_does_not_have(read):
    """A misspelled --var would otherwise be left out in silence."""
    with pytest.raises(
        PipelineFileError, match=r"--var lkae: the file has no `\$\{var.lkae}`\n +next: did you mean `lake`"
    ):
        read({"lkae": "x", "lake": "y"}, storage={"path": "${var.lake}"})


def test_a_missing_value_in_a_list_is_the_only_fault_of_it(read):
    """What the list would be without it is not looked at, what it is in the place of something else is."""
    sources = {"a": {"key": ["${var.k}", "b"]}, "b": {"key": "k"}}
    assert refusals(read, sources=sources) == [("sources.a.key.0", "`${var.k}` has no value")]
    assert refusals(read, sources={**sources, "b": ["${var.k}"]}) == [
        ("sources.a.key.0", "`${var.k}` has no value"),
        ("sources.b", "must be a mapping of options"),
        ("sources.b.0", "`${var.k}` has no value"),
    ]


def test_no_variable_in_sql_or_in_names(read):
    """What defines the join is in the file; that a variable is there is the only fault, also where it has a value."""
    sql = "SELECT * FROM a JOIN b USING (k) WHERE a.x = '${var.x}'"
    problems = refusals(read, {"x": "1"}, joins={"j": {"sql": sql}})
    assert problems == [("joins.j.sql", "variables are not allowed in SQL")]
    orders = {"key": "k", "kind": "changelog", "order_by": "n", "tombstone": "op = '${var.x}'"}
    for given in ({}, {"x": "1"}):
        problems = refusals(read, given, sources={**GOOD["sources"], "c": orders})
        assert problems == [("sources.c.tombstone", "variables are not allowed in SQL")]
    for given in ({}, {"name": "n"}):
        problems = refusals(read, given, joins={"${var.name}": GOOD["joins"]["j"]})
        assert problems == [("joins.${var.name}", "variables are not allowed in names")]
    problems = refusals(read, {"y": "1"}, joins={"j": {"sql": sql.replace("${var.x}", "$${var.y}")}})
    assert problems[0] == ("--var y", "the file has no `${var.y}`")
