"""`init`: a first pipeline, and nobody's file overwritten. That it runs is shown in `test_docs.py`."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from lakehouse.errors.errors import FilesExist, LakejoinError
from pipelines.cli import main
from pipelines.commands.init import example, program, python, write_example
from pipelines.language import load

FILES = ["lakejoin.schema.json", "lakejoin.test.yml", "lakejoin.yml", "sources.py"]


def listed(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_it_makes_a_pipeline_that_loads_and_knows_its_schema(tmp_path: Path) -> None:
    """The folder is made too; the first line of the pipeline file names the schema for editors."""
    folder = tmp_path / "new" / "shop"
    text = write_example(folder)
    assert listed(folder) == FILES
    assert (folder / "lakejoin.yml").read_text().splitlines()[0] == (
        "# yaml-language-server: $schema=lakejoin.schema.json"
    )
    assert json.loads((folder / "lakejoin.schema.json").read_text())["properties"]["pipeline"]
    file = load(folder / "lakejoin.yml")
    assert (file.pipeline, list(file.sources), list(file.joins)) == ("shop", ["orders", "payments"], ["orders_paid"])
    assert all(str(folder / name) in text for name in FILES)


def test_it_says_how_to_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cd` only where it is needed, and a path that has to be quoted is."""
    elsewhere = write_example(tmp_path / "my shop")
    assert f"\n  cd '{tmp_path}/my shop'\n" in elsewhere
    monkeypatch.chdir(tmp_path)
    here = write_example(Path())
    assert "cd " not in here
    commands = [line.split("#")[0].split("/")[-1].strip() for line in here.split("Next steps")[1].splitlines() if line]
    assert [command.split(maxsplit=1)[1] for command in commands] == [
        "sources.py", "run", "sources.py", "plan", "run", 'sql "SELECT * FROM orders_paid"', "test", "verify",
    ]  # fmt: skip


def test_the_command_prints_it_and_exits_with_2_where_files_are(tmp_path, capsys):
    assert main(["init", str(tmp_path / "shop")]) == 0
    assert "Next steps" in capsys.readouterr().out
    assert main(["init", str(tmp_path / "shop")]) == 2
    said = capsys.readouterr()
    assert (said.out, "exist already" in said.err) == ("", True)


def test_files_that_are_there_are_all_named_and_nothing_is_written(tmp_path: Path) -> None:
    """A link that points nowhere counts as there."""
    (tmp_path / "sources.py").write_text("mine")
    (tmp_path / "lakejoin.yml").symlink_to(tmp_path / "nowhere")
    with pytest.raises(FilesExist) as refused:
        write_example(tmp_path)
    assert (refused.value.exit_code, refused.value.code) == (2, "FILE_EXISTS")
    assert all(str(tmp_path / name) in refused.value.message for name in ("sources.py", "lakejoin.yml"))
    assert listed(tmp_path) == ["lakejoin.yml", "sources.py"]
    assert (tmp_path / "sources.py").read_text() == "mine"


def test_what_cannot_be_written_whole_is_not_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that is full leaves no first half; a file in the place of the folder is an error in words."""
    real, opened = Path.open, []

    def full(path: Path, *arguments: str, **options: str) -> object:
        opened.append(path)
        if len(opened) == 5:
            raise OSError(28, "No space left on device", str(path))
        return real(path, *arguments, **options)  # type: ignore[call-overload]

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", full)
        with pytest.raises(LakejoinError, match="No space left"):
            write_example(tmp_path / "shop")
    assert listed(tmp_path / "shop") == []
    (tmp_path / "file").write_text("")
    with pytest.raises(LakejoinError, match="cannot write"):
        write_example(tmp_path / "file")


def test_programs_are_named_as_they_can_be_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name where the path has them; else by a way that holds from the folder where they are typed."""
    folder = tmp_path / "shop"
    folder.mkdir()
    beside = Path(sys.executable).parent
    monkeypatch.setenv("PATH", str(beside))
    assert (program(folder), python(folder)) == ("lakejoin", "python")
    other = tmp_path / "bin"
    other.mkdir()
    shutil.copy("/bin/true", other / "python")
    monkeypatch.setenv("PATH", str(other))
    assert os.path.samefile(folder / program(folder), beside / "lakejoin")
    assert os.path.samefile((folder / python(folder)).parent, beside), "a python of another environment is not ours"


def test_examples_are_found_in_a_checkout_and_in_a_wheel() -> None:
    """`conf` is where the build puts it; the wheel's place is looked at first."""
    assert example("flights.yml").startswith("# The flights")
    assert "orders_paid" in example("example/lakejoin.yml")
