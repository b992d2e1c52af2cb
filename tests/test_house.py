"""The words of the house: standard names in public, and plain sentences in docstrings and messages."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.cases import cases

ROOT = Path(__file__).parents[1]
PACKAGES = ("lakehouse", "pipelines", "expectations")

OLD_WORDS = {
    "arrived", "came", "given", "placing", "pins", "pin", "pinning", "spans", "span", "stretch", "fates", "fate",
    "kept", "brought", "few", "told", "sighting", "beforehand", "ahead", "waiting", "held", "alone", "lone",
    "preserved", "mark", "marks", "reached", "passed", "apart", "below", "offers", "telling",
}  # fmt: skip
"""Words of our own that the field has others for."""

OLD_PHRASES = ("let_go", "way_on", "put_back", "made_ready", "handed_on", "in_the_place_of", "carry_out", "is_there")

NOT_IMPERATIVE = re.compile(r"(Give|Tell|Say|See that|Let|Of|There|Whatever|Whoever|Bring)\b")
"""Openings of sentences that say less than a verb for what a function does."""

THERE_IS = re.compile(r"\b(there (is|are|was|were)|is there|are there)\b", re.IGNORECASE)


class Named(NamedTuple):
    name: str
    where: str


def modules() -> Iterator[tuple[str, ast.Module]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def public_names(where: str, node: ast.AST) -> Iterator[Named]:
    """Name what a module or class shows: functions with their arguments, classes, constants and attributes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, (ast.FunctionDef, ast.ClassDef)):
            yield Named(child.name, f"{where}:{child.lineno}")
        if isinstance(child, ast.ClassDef):
            yield from public_names(where, child)
        elif isinstance(child, ast.FunctionDef) and not child.name.startswith("_"):
            arguments = child.args.posonlyargs + child.args.args + child.args.kwonlyargs
            yield from (Named(argument.arg, f"{where}:{child.lineno}") for argument in arguments)
        elif isinstance(child, (ast.Assign, ast.AnnAssign)):
            targets = child.targets if isinstance(child, ast.Assign) else [child.target]
            names = (part.id for target in targets for part in ast.walk(target) if isinstance(part, ast.Name))
            yield from (Named(name, f"{where}:{child.lineno}") for name in names)


def words(name: str) -> set[str]:
    return {word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])", name)}


def kept_names() -> set[str]:
    page = (ROOT / "tests" / "README.md").read_text()
    section = page.split("## Names kept against the vocabulary", 1)[1].split("\n## ", 1)[0]
    rows = [line.split("|")[1] for line in section.splitlines() if line.startswith("| `")]
    return {name for row in rows for name in re.findall(r"`(\w+)`", row)}


def docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and (text := ast.get_docstring(node)):
            yield getattr(node, "lineno", 1), text


def test_public_names_are_those_of_the_field() -> None:
    """A name that keeps a word of the old vocabulary stands in tests/README.md, with the reason."""
    kept = kept_names()
    found = [
        f"{where} {name}"
        for module, tree in modules()
        for name, where in public_names(module, tree)
        if not name.startswith("_") and name not in kept
        if words(name) & OLD_WORDS or any(phrase in name.lower() for phrase in OLD_PHRASES)
    ]
    assert found == []


def test_every_name_that_is_kept_exists() -> None:
    public = {name for module, tree in modules() for name, _ in public_names(module, tree)}
    assert kept_names() - public == set()


def test_paragraphs_of_docstrings_begin_with_what_they_are_about() -> None:
    found = [
        f"{module}:{line} {paragraph[:60]}"
        for module, tree in modules()
        for line, text in docstrings(tree)
        for paragraph in text.split("\n\n")
        if NOT_IMPERATIVE.match(paragraph.strip())
    ]
    assert found == []


def test_no_sentence_says_that_there_is_something() -> None:
    """It says what exists, or what does not: in docstrings and in the texts that users read."""
    found = [
        f"{module}:{node.lineno} {node.value[:80]!r}"
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and THERE_IS.search(node.value)
    ]
    assert found == []


@pytest.mark.parametrize("name", ["arrived_rows", "GivenPosition", "rows_held", "let_go_of"])
def test_an_old_word_is_found_in_a_name(name: str) -> None:
    assert words(name) & OLD_WORDS or any(phrase in name for phrase in OLD_PHRASES)


RUNS_ANY_KIND = (
    *(
        path.relative_to(ROOT).as_posix()
        for room in ("run", "publish")
        for path in sorted((ROOT / "pipelines" / "epochs" / room).glob("*.py"))
    ),
    "pipelines/epochs/kind.py",
    "pipelines/epochs/targets.py",
    "pipelines/commands/verify.py",
)
"""The modules that run a join of any kind by its `Kind`, its plan and its writes."""

ASKS_FOR_THE_KIND = re.compile(
    r"\bis_stream\b|\bis_windowed\b|\.streams?\b(?!\.more)|isinstance\([^)]*Bound|strategy (==|!=|in|not in) "
)


@pytest.mark.parametrize("module", RUNS_ANY_KIND)
def test_what_runs_any_kind_asks_for_none(module: str) -> None:
    text = (ROOT / module).read_text()
    found = [
        line.strip() for line in text.splitlines() if not line.startswith("from ") and ASKS_FOR_THE_KIND.search(line)
    ]
    assert found == []


@cases(
    "line",
    "if is_stream(file, name):",
    "if bound.streams:",
    "if isinstance(bound, BoundJoin):",
    'if plan.strategy == "load":',
    'if entry.strategy not in ("load", "reset"):',
)
def test_a_question_for_the_kind_is_found(line: str) -> None:
    assert ASKS_FOR_THE_KIND.search(line)


MOST_LINES_OF_A_FUNCTION, MOST_LINES_OF_A_FILE = 40, 350


def lines_of(function: ast.FunctionDef) -> int:
    text = ast.get_docstring(function, clean=False)
    return function.end_lineno - function.lineno + 1 - (0 if text is None else text.count("\n") + 1)  # type: ignore[operator]


@pytest.mark.parametrize("room", ["epochs", "plan", "binding"])
def test_functions_and_files_stay_short(room: str) -> None:
    long = []
    for path in sorted((ROOT / "pipelines" / room).rglob("*.py")):
        text = path.read_text()
        if text.count("\n") > MOST_LINES_OF_A_FILE:
            long.append(path.name)
        functions = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.FunctionDef))
        long += [f"{path.name}:{node.name}" for node in functions if lines_of(node) > MOST_LINES_OF_A_FUNCTION]
    assert long == []


def test_what_belongs_together_is_passed_as_one_value() -> None:
    """A join and the plan of its epoch are an `Epoch`."""
    apart = [
        f"{module}:{node.name}"
        for module, tree in modules()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef)
        and {"workspace", "bound", "plan"} <= {each.arg for each in (*node.args.args, *node.args.kwonlyargs)}
    ]
    assert apart == []


FILES = {"pathlib", "shutil", "glob", "tempfile", "fsspec", "pyarrow.fs"}
"""Modules that reach files."""

OF_THIS_MACHINE = {
    "lakehouse/session/files.py": "the layer: files at the addresses of tables and stages",
    "lakehouse/session/writing.py": "the lock beside a local table",
    "lakehouse/session/archive.py": "the archive of classes in the user's cache",
    "lakehouse/session/session.py": "the jars and the Java of this environment",
    "lakehouse/session/settings.py": "the settings of Spark's log",
    "lakehouse/session/configured.py": "the defaults of Spark",
    "pipelines/binding/workspace.py": "the folder of the pipeline file",
    "pipelines/commands/api.py": "the pipeline file, and the folders of pages",
    "pipelines/commands/cases.py": "the folder of the lakes of cases",
    "pipelines/commands/docs.py": "the folder of pages",
    "pipelines/commands/init.py": "the folder of a new pipeline",
    "pipelines/commands/keys.py": "the pipeline file, which it edits",
    "pipelines/commands/validate.py": "the folders of suites and of Data Docs",
}
"""The modules that may reach files, with which; command line, pipeline file, demo and site reach no table by path."""


def reaches_files(tree: ast.Module) -> bool:
    """Return whether a module imports what reaches files, or opens one by `open`."""
    for node in ast.walk(tree):
        imported = [name.name for name in node.names] if isinstance(node, ast.Import | ast.ImportFrom) else []
        if isinstance(node, ast.ImportFrom):
            imported = [node.module or "", *(f"{node.module}.{name}" for name in imported)]
        if not FILES.isdisjoint(imported):
            return True
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "open":
            return True
    return False


def test_only_the_layer_of_files_reaches_what_lies_at_the_address_of_a_table_or_stage() -> None:
    """A path taken for a URI, or a URI for a path, is read as missing and written into the working folder."""
    apart = ("pipelines/cli/", "pipelines/language/", "pipelines/commands/demo/", "pipelines/commands/site/")
    rooms = ("lakehouse/", "pipelines/")
    found = {
        module
        for module, tree in modules()
        if module.startswith(rooms) and not module.startswith(apart) and reaches_files(tree)
    }
    assert found == set(OF_THIS_MACHINE)


@cases(
    "line",
    "import shutil",
    "from pathlib import Path",
    "from pyarrow import fs",
    "import pyarrow.fs",
    "from pyarrow.fs import LocalFileSystem",
    "open(address.path)",
)
def test_a_way_to_files_is_found(line: str) -> None:
    assert reaches_files(ast.parse(line))
