"""Wrong pipeline files, each with the message that a user reads: `wrong/NAME.yml` and `wrong/NAME.txt`."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.errors.errors import PipelineFileError
from pipelines.language import load

FOLDER = Path(__file__).with_name("wrong")
FILES = sorted(FOLDER.glob("*.yml"))

CHECK_ALL = """
import pathlib, sys
from pipelines.cli import main
for path in sorted(pathlib.Path().glob("*.yml")):
    code = main(["check", "-f", path.name])
    print(f"exit code {code}", file=sys.stderr)
assert not {"pyspark", "delta", "great_expectations"} & set(sys.modules), "check imported Spark"
"""


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_the_message_is_the_recorded_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Place, problem, excerpt and hint of every fault, in the order of the file."""
    monkeypatch.chdir(FOLDER)
    with pytest.raises(PipelineFileError) as caught:
        load(Path(path.name))
    assert caught.value.message + "\n" == path.with_suffix(".txt").read_text()


def test_check_needs_no_java() -> None:
    """One process checks all files where there is no Java; each exits with 2, and nothing else is printed anywhere."""
    done = subprocess.run(
        [sys.executable, "-c", CHECK_ALL],
        cwd=FOLDER,
        env={**os.environ, "JAVA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(FILES) >= 40
    assert done.stdout == ""
    assert done.stderr == "".join(path.with_suffix(".txt").read_text() + "exit code 2\n" for path in FILES)


def test_nothing_else_lies_in_the_folder() -> None:
    """A message without its file is a test that nobody runs."""
    assert {path.stem for path in FOLDER.iterdir()} == {path.stem for path in FILES}
