"""`make lock` leaves out no dependency of the project."""

import re
import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def test_every_dependency_has_a_locked_version_in_its_range() -> None:
    """Those of the package, of its extras and of the group for developers."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project, groups = settings["project"], settings["dependency-groups"]
    lines = [project["dependencies"], *project["optional-dependencies"].values(), groups["dev"]]
    pinned = re.findall(r"^([\w.-]+)==([\w.]+)", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    locked = {canonicalize_name(name): version for name, version in pinned}
    needed = [Requirement(line) for part in lines for line in part]
    assert len(needed) > 25
    assert [str(each) for each in needed if locked.get(canonicalize_name(each.name)) is None] == []
    assert [str(each) for each in needed if locked[canonicalize_name(each.name)] not in each.specifier] == []


def test_set_up_and_lock_take_the_group_for_developers() -> None:
    """It is no extra, so `--all-extras` does not include it."""
    assert "--group dev" in (ROOT / ".ci" / "setup").read_text()
    assert "--group dev" in (ROOT / "Makefile").read_text()
