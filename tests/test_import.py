"""`import lakejoin`: the Python API under its own name, and what hides the packages behind it."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = "import lakejoin; print(lakejoin.Pipeline.__name__, issubclass(lakejoin.Drifted, lakejoin.LakejoinError))"


def python(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", PROGRAM], cwd=folder, capture_output=True, text=True, check=False)


def test_it_exports_the_api(tmp_path: Path) -> None:
    assert python(tmp_path).stdout.split() == ["Pipeline", "True"]


@pytest.mark.parametrize("name", ["lakehouse", "expectations", "pipelines"])
def test_a_folder_that_hides_a_package_is_named(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    (tmp_path / name / "__init__.py").touch()
    told = python(tmp_path).stderr
    assert f"Python finds {tmp_path / name}" in told
    assert "rename that folder" in told
