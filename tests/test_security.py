"""A pipeline file is data; what a run writes lies below its storage, tells no variable's value and is no wider open."""

import os
from pathlib import Path

import pytest

from lakehouse.errors import PipelineFileError
from pipelines import Pipeline
from pipelines.cli import main
from tests.lake import JOIN, KEYED, Lake

TOKEN = "t0ps3cret-8c1f"


def test_what_the_session_and_the_environment_keep_secret_is_told_nowhere(
    standard: Lake, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Loaded, run, verified and described; a failing run says no more."""
    lake, settings = standard, ("fs.s3a.secret.key", "fs.azure.account.key", "spark.lakejoin.password")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", TOKEN)
    for name in settings:
        lake.spark.conf.set(name, TOKEN)
    try:
        lake.pipeline(changelog=True)
        call = ["-f", str(lake.file)]
        assert main(["-v", "--log-format", "json", "run", *call, "--output", "json"]) == 0
        lake.sql("INSERT INTO {left} VALUES (7, 'n')")
        assert main(["-v", "run", *call]) == 0
        assert main(["-v", "verify", *call]) == 0
        assert main(["docs", *call, "--folder", str(lake.folder / "site")]) == 0
        lake.sql("INSERT INTO {left} VALUES (7, 'twice')")
        assert main(["-v", "run", *call]) == 1
    finally:
        for name in settings:
            lake.spark.conf.unset(name)
    told = capfd.readouterr()
    assert "write ledger: publishing epoch 2 of result" in told.err
    assert TOKEN not in told.out + told.err
    assert TOKEN not in str(lake.ledger())
    held = [path for path in lake.folder.rglob("*") if path.is_file() and TOKEN.encode() in path.read_bytes()]
    assert held == []


def test_no_file_is_open_to_more_than_the_umask_allows(standard: Lake) -> None:
    umask = os.umask(0)
    os.umask(umask)
    call = ["-f", str(standard.file)]
    assert umask & 0o022 == 0o022, "the tests' own umask leaves nothing to see"
    for command in (["run"], ["docs", "--folder", str(standard.folder / "site")], ["validate", "--write-suites"]):
        assert main([*command, *call]) == 0
    wide = [path for path in standard.folder.rglob("*") if path.stat().st_mode & umask & 0o777]
    assert wide == []
    assert (standard.folder / "expectations").exists()


def test_all_that_is_written_lies_below_the_storage(loaded: Lake) -> None:
    """The sources lie elsewhere, and nothing is written there."""
    lake, elsewhere = loaded, loaded.folder / "elsewhere"
    elsewhere.mkdir()
    for name in ("left", "right"):
        Path(lake.path(name)).rename(elsewhere / name)
    before = {path: path.stat().st_mtime_ns for path in lake.folder.rglob("*") if path.is_file()}
    sources = {name: {"key": "k", "path": f"./elsewhere/{name}"} for name in ("left", "right")}
    lake.pipeline(sources=sources, beside={"storage": {"path": "./other"}}, changelog=True).run(lake.spark)
    written = {
        path for path in lake.folder.rglob("*") if path.is_file() and before.get(path) != path.stat().st_mtime_ns
    }
    assert {path.relative_to(lake.folder).parts[0] for path in written} == {"other", lake.file.name}


@pytest.mark.parametrize("name", ["../result", "a/b", "/tmp/result", "..", "a\\b"])
def test_a_name_is_no_path(standard: Lake, name: str) -> None:
    with pytest.raises(PipelineFileError):
        standard.pipeline(name=name)


@pytest.mark.parametrize(
    "text",
    [
        "pipeline: !!python/object/apply:os.system ['touch {mark}']",
        "pipeline: test\nstorage: !!python/name:os.system\n",
        "pipeline: test\nstorage: !include /etc/passwd\n",
    ],
)
def test_a_file_makes_no_objects(standard: Lake, text: str) -> None:
    mark = standard.folder / "mark"
    standard.file.write_text(text.replace("{mark}", str(mark)))
    with pytest.raises(PipelineFileError):
        Pipeline.load(standard.file)
    assert not mark.exists()


@pytest.mark.parametrize(
    "expression",
    [
        "java_method('java.lang.System', 'exit', 3)",
        "reflect('java.lang.System', 'exit', 3)",
        "input_file_name()",
        "(SELECT max(k) FROM left)",
        "secret('scope', 'key')",
        "ai_query('m', l.v)",
    ],
)
def test_a_statement_calls_nothing_that_leaves_it(standard: Lake, expression: str) -> None:
    with pytest.raises(PipelineFileError):
        standard.pipeline(JOIN.replace("l.v", f"{expression} AS v"), KEYED)
