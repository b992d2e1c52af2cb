"""The rings of tests: `make test`, `make test-deep`, `make test-all` and `make test-places` leave nothing out."""

import ast
import re
import tomllib
from itertools import product
from pathlib import Path

import pytest

from tests.conftest import FURTHER_CASES, pytest_collection_modifyitems

ROOT = Path(__file__).parents[1]
MAKEFILE = ROOT / "Makefile"
MARKERS = ("deep", "slow")
"""The markers that decide in which ring a test is."""


def rings() -> dict[str, str]:
    options = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]["addopts"]
    (default,) = re.findall(r"-m '([^']*)'", options)
    targets = re.findall(r"^(test[\w-]*):.*\n\t\$\(PYTEST\)(?: -m \"(.*)\")?$", MAKEFILE.read_text(), re.M)
    return {target: given if target != "test" else default for target, given in targets}


def is_selected(expression: str, markers: dict[str, bool]) -> bool:
    return not expression or bool(eval(expression, {}, {"places": False, **markers}))


@pytest.mark.parametrize("has", list(product((False, True), repeat=len(MARKERS))))
def test_every_test_is_in_one_ring_and_all_are_in_the_last(has: tuple[bool, ...]) -> None:
    markers = dict(zip(MARKERS, has, strict=True))
    selecting = [ring for ring in ("test", "test-deep") if is_selected(rings()[ring], markers)]
    assert len(selecting) == (0 if markers["slow"] else 1)
    assert is_selected(rings()["test-all"], markers)
    assert not is_selected(rings()["test-fast"], {**markers, "fast": True}) or selecting == ["test"]


@pytest.mark.parametrize("has", list(product((False, True), repeat=len(MARKERS))))
def test_a_test_of_places_is_in_a_ring_of_its_own(has: tuple[bool, ...]) -> None:
    markers = {"places": True, "fast": True, **dict(zip(MARKERS, has, strict=True))}
    assert [ring for ring, expression in rings().items() if is_selected(expression, markers)] == []
    alone = re.search(r"^test-places:.*\n(?:\t.*\n)*\t.*pytest.* -m (\w+) tests/places$", MAKEFILE.read_text(), re.M)
    assert alone is not None
    assert is_selected(alone[1], markers)


class Case:
    def __init__(self, nodeid: str, *markers: str, tables: bool = False) -> None:
        self.nodeid, self.markers = nodeid, [*markers]
        self.fixturenames = ("spark", "lake", "tmp_path") if tables else ("spark",)

    def get_closest_marker(self, name: str) -> bool:
        return name in self.markers

    def add_marker(self, name: str) -> None:
        self.markers.append(name)


def test_the_first_case_of_a_test_is_in_its_ring_and_the_others_in_the_next() -> None:
    cases = [Case("t[0]", "slow"), *(Case(f"t[{n}]") for n in (1, 2)), *(Case(f"d[{n}]", "deep") for n in (1, 2))]
    cases += [Case(f"e[{n}]", "every_case") for n in (1, 2)]
    many = [Case(f"m[{n}]") for n in range(FURTHER_CASES + 2)]
    pytest_collection_modifyitems(many)  # type: ignore[arg-type]
    assert [case.markers for case in many] == [[], *([["deep"]] * FURTHER_CASES), ["slow"]]
    costly = [Case(f"c[{n}]", tables=True) for n in (1, 2)]
    pytest_collection_modifyitems(costly)  # type: ignore[arg-type]
    assert [case.markers for case in costly] == [[], ["slow"]]
    pytest_collection_modifyitems(cases)  # type: ignore[arg-type]
    assert [case.markers for case in cases] == [
        *(["slow"], [], ["deep"]),
        *(["deep"], ["deep", "slow"]),
        *(["every_case"], ["every_case"]),
    ]


def test_the_page_has_a_row_for_each_ring() -> None:
    page = (ROOT / "tests" / "README.md").read_text()
    assert [ring for ring in rings() if f"| `make {ring}` |" not in page] == []
    assert "make test-deep" in (ROOT / ".ci" / "run").read_text()


def test_no_test_stands_in_a_file_that_is_not_collected() -> None:
    for path in sorted((ROOT / "tests").rglob("*.py")):
        names = {node.name for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.FunctionDef)}
        assert path.name.startswith("test_") or not any(name.startswith("test_") for name in names), path
