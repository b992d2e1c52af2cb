"""The pages name everything that exists, each on the page where it belongs, and what they say to type works."""

import ast
import importlib
import json
import pkgutil
import re
import runpy
import shlex
import tomllib
from collections.abc import Iterator
from pathlib import Path

import click
import pytest
from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

import expectations
import lakehouse
import pipelines
from expectations.catalogue import _catalogue
from lakehouse import limits
from lakehouse.errors.errors import CannotContinue, LakejoinError
from lakehouse.ledger.rows import SCHEMA as LEDGER
from pipelines.cli import cli, main
from pipelines.commands.docs import EPOCHS_SHOWN
from pipelines.language import fingerprint, load, schema
from pipelines.report import report_schema
from tests.pages import (
    CONF,
    EXPECTATIONS,
    JOINS,
    LAKEHOUSE,
    PAGES,
    PIPELINES,
    README,
    ROOT,
    TESTS,
    anchors,
    blocks,
    links,
    prose,
    section,
    spans,
    text_of,
)

MOST_LINES = 250


def errors() -> Iterator[type[LakejoinError]]:
    for package in (lakehouse, pipelines, expectations):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            importlib.import_module(module.name)
    pending: list[type[LakejoinError]] = [LakejoinError]
    while pending:
        kind = pending.pop()
        yield kind
        pending += kind.__subclasses__()


def test_the_readme_is_short() -> None:
    assert len(text_of(README).splitlines()) <= MOST_LINES


@pytest.mark.parametrize("page", PAGES)
def test_every_link_leads_somewhere(page: str) -> None:
    """Files and folders exist, and so do headings, on the page itself and on others."""
    for label, target in links(page):
        if "://" in target:
            continue
        path, _, anchor = target.partition("#")
        found = (ROOT / page).parent / path if path else ROOT / page
        assert found.exists(), (label, target)
        if anchor:
            assert anchor in anchors(str(found.resolve().relative_to(ROOT))), (label, target)


def test_the_readme_leads_to_every_page_and_answers_each_question_by_a_heading() -> None:
    """One jump from the first page is enough."""
    assert {page for page in PAGES if page != README} <= {target for _, target in links(README)}
    rows = re.findall(r"^\| .+\? \| (.*) \|$", section(README, "Questions"), re.MULTILINE)
    assert len(rows) >= 6
    assert all(re.fullmatch(r"\[[^\]]+\]\([\w/]+\.md#[\w-]+\)", row) for row in rows)


def defined(path: Path) -> set[str]:
    """Return the functions, classes and methods of a module, by name: `function`, `Class`, `Class.method`."""
    names = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            names.add(node.name)
        if isinstance(node, ast.ClassDef):
            names |= {f"{node.name}.{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return names


def test_every_module_and_function_that_a_page_of_code_names_exists() -> None:
    """Of `epochs/run/driver.py:run_join` both parts, and the link leads to that module."""
    named = 0
    for page in (PIPELINES, CONF, JOINS, EXPECTATIONS, LAKEHOUSE):
        folder = (ROOT / page).parent
        targets = dict(links(page))
        for code in spans(page):
            found = re.fullmatch(r"([\w/]+\.py)(?::([\w.]+))?", code)
            if not found:
                continue
            path = next((at for at in (folder / found[1], ROOT / found[1]) if at.exists()), None)
            assert path is not None, code
            assert found[2] is None or found[2] in defined(path), code
            target = targets.get(f"`{code}`")
            assert target is None or (folder / target).resolve() == path, code
            named += 1
    assert named > 60


def test_the_path_of_an_epoch_is_a_figure_of_eight_stations_each_with_one_module() -> None:
    path = section(PIPELINES, "The path of one epoch").split("\n### ")[0]
    (figure,) = blocks("text", path)
    stations = re.findall(r"\d (\w+)", figure.splitlines()[0])
    rows = re.findall(r"^\| (\w+) \| [^|]+ \| \[`([^`]+)`\]\([^)]+\) \| [^|]+ \|$", path, re.MULTILINE)
    assert [station for station, _ in rows] == stations
    assert len({module for _, module in rows}) == len(stations) == 8


def test_every_room_is_on_its_page() -> None:
    """And every folder of modules in it."""
    text = section(PIPELINES, "Rooms")
    rooms = {path.parent for path in (ROOT / "pipelines").glob("*/__init__.py")}
    rooms |= {path.parent for path in (ROOT / "pipelines").glob("*/*/__init__.py")}
    shown = {(ROOT / "pipelines" / target).parent for _, target in links(PIPELINES) if target in text}
    assert rooms <= shown


def test_every_test_that_the_page_of_tests_names_exists() -> None:
    """By file, and by function."""
    tests = ROOT / "tests"
    functions = {name for path in tests.rglob("test_*.py") for name in defined(path)}
    for code in spans(TESTS):
        if re.fullmatch(r"[\w/]+\.py", code):
            assert (tests / code).exists(), code
        elif code.startswith("test_"):
            assert code in functions, code
        elif code.startswith("python -m"):
            assert (ROOT / code.split()[2].replace(".", "/")).with_suffix(".py").exists() or (
                ROOT / code.split()[2].replace(".", "/") / "__main__.py"
            ).exists(), code


def test_names_kept_against_the_vocabulary_exist_and_have_a_reason() -> None:
    """One row for each, with the name in backticks in its first cell."""
    rows = re.findall(r"^\| `(\w+)` \| .+ \| .+ \|$", section(TESTS, "Names kept against the vocabulary"), re.MULTILINE)
    assert {"Span", "span_of", "passed", "ARRIVED_AT"} <= {*rows}
    code = "".join(path.read_text() for path in (ROOT / "pipelines").rglob("*.py"))
    assert [name for name in rows if not re.search(rf"\b{name}\b", code)] == []


def test_the_supported_versions_are_those_of_the_project() -> None:
    """By pyproject.toml, and for Java by set-up."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    lines = [Requirement(line) for part in (project["dependencies"], extras["local"]) for line in part]
    needed = {each.name: each.specifier for each in lines}
    rows = re.findall(r"^\| ([^|]+) \| `([<>=][^`|]*)` \| ", section(README, "Two commands"), re.MULTILINE)
    shown = {name.split(",")[0]: SpecifierSet(versions) for name, versions in rows}
    assert shown == {
        "Python": SpecifierSet(project["requires-python"]),
        "Spark": needed["pyspark"],
        "Delta Lake for Spark": needed["delta-spark"],
        "delta-rs": needed["deltalake"],
        "Great Expectations": needed["great-expectations"],
    }
    (java,) = re.findall(r"=~ \^\(([\d|]+)\)\$", (ROOT / ".ci" / "setup").read_text())
    assert java.split("|") == [str(version) for version in range(17, 23)]
    assert "| Java | 17 to 22 |" in section(README, "Two commands")
    (locked,) = re.findall(r"^pyspark==(\S+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    (newest,) = re.findall(r"^NEWEST := (\S+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    tried = f"Set-up installs {locked}; a part of the tests runs on {newest}"
    assert tried in section(README, "Two commands")
    assert locked in needed["pyspark"]
    assert newest in needed["pyspark"]


def test_every_command_and_option_is_in_the_readme() -> None:
    """Each command has its row, and each option is named in the section."""
    text = section(README, "Commands")
    for name, command in cli.commands.items():
        assert f"| `lakejoin {name}" in text, name
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert any(f"`{option}" in text for option in parameter.opts), (name, parameter.opts)
    named = re.findall(r"^\| `lakejoin ([a-z]+)", text, re.MULTILINE)
    assert sorted(named) == sorted(cli.commands)


def test_every_command_and_option_has_a_help_text() -> None:
    """Nothing is left for the reader to guess."""
    for name, command in cli.commands.items():
        assert command.help, name
        assert all(option.help for option in command.params if isinstance(option, click.Option)), name


def typed(page: str) -> list[str]:
    """Return the command lines of a page: in its sentences and in its blocks."""
    lines = [line for block in blocks("console", text_of(page)) for line in block.splitlines()]
    found = [line.removeprefix("$ ") for line in lines] + spans(page)
    return [line for line in found if re.match(r"lakejoin [a-z]", line)]


@pytest.mark.parametrize("page", [page for page in PAGES if page != TESTS])
def test_every_command_line_of_a_page_can_be_typed(page: str) -> None:
    """The command exists, and so do the options of the line."""
    for line in typed(page):
        name, *arguments = shlex.split(line)[1:]
        assert name in cli.commands, line
        options = {option for parameter in cli.commands[name].params for option in parameter.opts} | {"--help", "-h"}
        assert [one for one in arguments if one.startswith("-") and one not in options] == [], line


def test_every_error_code_stands_beside_its_exit_code() -> None:
    """And no code that is gone."""
    text = section(LAKEHOUSE, "Exit codes and error codes")
    rows = dict(re.findall(r"^\| (\d) \|.*\| (.*) \|$", text, re.MULTILINE))
    documented = {code: int(row) for row, codes in rows.items() for code in re.findall(r"`([A-Z_]{5,})`", codes)}
    assert documented == {kind.code: kind.exit_code for kind in errors()}


def test_every_error_code_of_exit_code_4_has_its_cause_and_remedy() -> None:
    """Each in a row of its own."""
    rows = re.findall(r"^\| `([A-Z_]+)` \| .+ \| .+ \|$", section(LAKEHOUSE, "Exit code 4"), re.MULTILINE)
    assert sorted(rows) == sorted({kind.code for kind in errors() if issubclass(kind, CannotContinue)})


@pytest.mark.parametrize("page", PAGES)
def test_nothing_waits_to_be_filled_in(page: str) -> None:
    """Numbers are put in by hand."""
    assert "@@" not in text_of(page)


def test_every_key_of_the_file_is_on_its_page() -> None:
    """Those of storage, sources and joins too, with the part that they belong to, and none that is gone."""
    content = json.loads(schema())
    parts = {"": content, "storage.": content["$defs"]["Storage"], "sources.*.": content["$defs"]["Source"]}
    parts["joins.*."] = content["$defs"]["Join"]
    cells = re.findall(r"^\| (`.*?`) \|", section(CONF, "Keys"), re.MULTILINE)
    documented = sorted(key for cell in cells for key in re.findall(r"`([^`]+)`", cell))
    assert documented == sorted(folder + key for folder, part in parts.items() for key in part["properties"])


def test_every_column_of_the_ledger_is_on_its_page() -> None:
    """So that a query can be written without looking into the table."""
    columns = LEDGER.fieldNames()
    assert len(columns) >= 13
    text = section(LAKEHOUSE, "The ledger")
    assert [column for column in columns if f"`{column}`" not in text] == []


def test_every_expectation_of_ours_is_on_its_page() -> None:
    """And none that is gone."""
    ours = {name for name in _catalogue() if name in vars_of_ours()}
    rows = re.findall(r"^\| `(expect_\w+)` \|", section(EXPECTATIONS, "Add an expectation"), re.MULTILINE)
    assert {*rows} == ours


def vars_of_ours() -> set[str]:
    """Return the names of our own classes as pipeline files write them, without importing Great Expectations."""
    names = {name for path in (ROOT / "expectations" / "own").glob("*.py") for name in defined(path) if "." not in name}
    return {re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower() for name in names if name.startswith("Expect")}


def test_figures_on_the_pages_are_the_limits() -> None:
    """Where a page names a size, it is that of `lakehouse.limits`."""
    mib = 2**20
    claims = {
        EXPECTATIONS: [
            f"else up to {limits.SEARCHED_ROWS:,}",
            f"{limits.SAMPLED_KEYS} whole rows",
            f"at most {limits.SCANNED_BYTES // mib} MiB",
            f"others refer to have {limits.BROADCAST_BYTES // mib} MiB",
            f"the rows of {limits.SAMPLED_KEYS} keys",
            f"more than about {2 * limits.RECOMPUTED_ROWS:,} changes (two streams: {2 * limits.SEARCHED_ROWS:,})",
            f"(two streams: {limits.MOST_MEETINGS:,})",
        ],
        LAKEHOUSE: [
            f"two for each commit, up to {limits.DISTORTED_COMMITS}",
            f"more than {limits.BYTES_PER_SLICE // 2**30} GiB",
            f"newest {EPOCHS_SHOWN} epochs",
        ],
        PIPELINES: [f"more than {limits.STAGED_STREAM_BYTES // mib} MiB"],
        JOINS: [
            f"Up to {limits.CHANGES_VIA_DRIVER:,} changes",
            f"({limits.ROWS_ON_DRIVER:,} rows, {limits.BYTES_ON_DRIVER // mib} MiB at a time)",
        ],
    }
    for page, sentences in claims.items():
        text = " ".join(prose(page).split())
        assert [sentence for sentence in sentences if sentence not in text] == []
    assert limits.LARGE_STREAM_ROWS == 1_000_000, "a million rows of a stream"


def test_the_published_schema_of_reports_is_that_of_the_code() -> None:
    """`lakejoin schema --report > conf/report.schema.json` writes it again."""
    assert (ROOT / "conf" / "report.schema.json").read_text() == report_schema()


@pytest.mark.deep
def test_what_the_pages_say_to_type_works(spark, tmp_path, monkeypatch, capsys):
    """The first pipeline step by step, then the Python and each query of the ledger."""
    monkeypatch.chdir(tmp_path)
    folder = tmp_path
    for line in "".join(blocks("console", section(README, "A first pipeline in five minutes"))).splitlines():
        program, *arguments = shlex.split(line.removeprefix("$ "))
        if program == "cd":
            folder = folder / arguments[0]
            monkeypatch.chdir(folder)
        elif program == "python":
            runpy.run_path(str(folder / arguments[0]), run_name="__main__")
        else:
            assert program == "lakejoin"
            assert main(arguments) == 0, line
    capsys.readouterr()
    assert main(["history", "--output", "json"]) == 0
    newest, first = json.loads(capsys.readouterr().out)["joins"][0]["epochs"]
    assert first["counts"]["inserted"] == 5
    assert [newest["counts"][name] for name in ("inserted", "updated", "deleted")] == [1, 4, 1], "as sources.py says"
    assert main(["changes", "orders_paid"]) == 0
    assert capsys.readouterr().out in blocks("text", section(LAKEHOUSE, "What an epoch changed"))
    (python,) = blocks("python", text_of(README))
    exec(python, {"spark": spark})
    assert "orders_paid: nothing to do" in capsys.readouterr().out
    queries = [query for page in PAGES for query in blocks("sql", text_of(page))]
    assert len(queries) >= 4
    for query in queries:
        assert main(["sql", "--output", "json", query]) == 0, query
        assert json.loads(capsys.readouterr().out)["query"]["rows"] or "rejected" in query


def test_the_python_of_other_pages_is_python_and_calls_what_exists() -> None:
    """Methods of `Pipeline` and their arguments."""
    for page in PAGES[1:]:
        for block in blocks("python", text_of(page)):
            for call in (node for node in ast.walk(ast.parse(block)) if isinstance(node, ast.Call)):
                assert isinstance(call.func, ast.Attribute)
                assert hasattr(pipelines.Pipeline, call.func.attr), block


def test_the_file_in_the_readme_is_that_of_the_example(tmp_path: Path) -> None:
    """Whoever copies it gets the same join."""
    (text,) = blocks("yaml", text_of(README))
    (tmp_path / "lakejoin.yml").write_text(text)
    written, example = load(tmp_path / "lakejoin.yml"), load(ROOT / "conf" / "example" / "lakejoin.yml")
    assert fingerprint(written, "orders_paid") == fingerprint(example, "orders_paid")


HEAD = "pipeline: p\nstorage: {path: ./lake}\ntimezone: UTC\n"


@pytest.mark.parametrize("fragment", [fragment for page in PAGES[1:] for fragment in blocks("yaml", text_of(page))])
def test_the_sources_and_joins_of_other_pages_are_a_pipeline_file(tmp_path: Path, fragment: str) -> None:
    """With a head, `lakejoin check` takes each."""
    (tmp_path / "lakejoin.yml").write_text(HEAD + fragment)
    assert load(tmp_path / "lakejoin.yml").joins


def test_the_faults_on_the_page_are_what_check_prints(tmp_path, monkeypatch, capsys):
    """Two slips in the file of the README give the message that the page of the file shows."""
    (text,) = blocks("yaml", text_of(README))
    text = text.replace("payments: {key", "payments: {kye").replace("FROM orders o", "FROM ordres o")
    (tmp_path / "lakejoin.yml").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert main(["check", "-f", "lakejoin.yml"]) == 2
    assert [capsys.readouterr().err] == blocks("text", section(CONF, "Check a file"))
