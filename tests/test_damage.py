"""Every command on a damaged lake: none says that all is well, and each error names what to do."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from pyspark.sql import SparkSession

from pipelines.cli import main
from tests.damaged import LEDGER, after_two_epochs, put_back
from tests.lake import Lake

ROOT = Path(__file__).parent
SQL = "SELECT l.k, l.v, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
COMMANDS = ("status", "plan", "run", "verify", "validate", "maintain")
PAGE = ROOT / "README.md"


@pytest.fixture(scope="module")
def damaged(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lake, Path]:
    """Give a lake after two epochs of a join with a changelog, and a copy of its folder after the first one."""
    lake = Lake(spark, tmp_path_factory.mktemp("damaged") / "lake")
    lake.folder.mkdir()
    lake.create("left", "k INT, v STRING", "(1, 'a'), (2, 'b')")
    lake.create("right", "k INT, w STRING", "(2, 'x')")
    lake.pipeline(SQL, changelog=True).run(spark)
    copy = lake.folder.parent / "copy"
    shutil.copytree(lake.folder, copy)
    lake.sql("INSERT INTO {left} VALUES (3, 'c')")
    lake.pipeline(SQL, changelog=True).run(spark)
    return lake, copy


def _content(lake: Lake, change: Callable[[Any], None]) -> None:
    content = yaml.safe_load(lake.file.read_text())
    change(content)
    lake.file.write_text(yaml.safe_dump(content))


def _restored(name: str) -> Callable[[Lake, Path], None]:
    def damage(lake: Lake, copy: Path) -> None:
        put_back(lake, name, copy)
        if name != LEDGER:
            lake.sql(f"ALTER TABLE {{{name}}} SET TBLPROPERTIES (a = 'b')", name)

    return damage


def _recreate(lake: Lake, _: Path) -> None:
    shutil.rmtree(lake.path("left"))
    lake.create("left", "k INT, v STRING", "(1, 'a')")


def _corrupt(lake: Lake, _: Path) -> None:
    log = Path(lake.path("left")) / "_delta_log"
    for path in log.glob("*.json"):
        path.write_text("{")
    for path in log.glob("*.crc"):
        path.unlink()


def _unreachable(lake: Lake, _: Path) -> None:
    _content(lake, lambda content: content["sources"]["left"].update(path="s3a://nowhere/left"))


def _redefine(lake: Lake, _: Path) -> None:
    _content(lake, lambda content: content["joins"]["result"].update(sql=SQL.replace("r.w", "upper(r.w) AS w")))


DAMAGES: dict[str, Callable[[Lake, Path], object]] = {
    "result changed by hand": lambda lake, _: lake.sql("DELETE FROM {result} WHERE k = 1"),
    "result put back": _restored("result"),
    "result missing": lambda lake, _: shutil.rmtree(lake.path("result")),
    "changelog put back": _restored("result__changelog"),
    "ledger put back": _restored(LEDGER),
    "source created again": _recreate,
    "source missing": lambda lake, _: shutil.rmtree(lake.path("left")),
    "source unreachable": _unreachable,
    "log of a source corrupt": _corrupt,
    "definition changed": _redefine,
}


def _recreate_stream(lake: Lake, _: Path) -> None:
    shutil.rmtree(lake.path("clicks"))
    lake.create("clicks", "id INT, customer INT, t TIMESTAMP")


FURTHER: dict[str, tuple[str, Callable[[Lake, Path], object]]] = {
    "result of a stream changed by hand": ("seen", lambda lake, _: lake.sql("DELETE FROM {seen} WHERE id = 0", "seen")),
    "result of a stream put back": ("seen", _restored("seen")),
    "result of two streams put back": ("met", _restored("met")),
    "buffered rows put back": ("met", _restored("met__state")),
    "buffered rows missing": ("met", lambda lake, _: shutil.rmtree(lake.path("met__state"))),
    "KTable put back": ("kept", _restored("moves__state")),
    "KTable changed by hand": ("kept", lambda lake, _: lake.sql("DELETE FROM {moves__state}", "moves__state")),
    "stream created again": ("seen", _recreate_stream),
    "ledger put back": ("seen", _restored(LEDGER)),
}
"""Damages of joins with streams, and of joins of a changelog source, with the join to look at."""


def said(lake: Lake, command: str, capsys: pytest.CaptureFixture[str], join: str = "result") -> str:
    """Return the exit code of a command, with the code of its error or the state that it reports."""
    code = main([command, "-f", str(lake.file), "--output", "json", "--select", join])
    report = json.loads(capsys.readouterr().out)
    assert report["exit_code"] == code
    parts = report["joins"] or [{"error": report["error"]}]
    part = next((part for part in parts if part.get("error")), parts[0])
    error = part.get("error") or report["error"]
    if error:
        assert error["hint"], "each error names what to do"
    return f"{code} {error['code'] if error else part.get('state') or part.get('strategy') or part['outcome']}"


@pytest.mark.slow
def test_no_command_says_that_all_is_well(damaged, tmp_path, capsys):
    """The table in the page is what the commands say."""
    whole, copy = damaged
    lines = []
    for damage, harm in DAMAGES.items():
        lake = whole.copy(tmp_path / damage.replace(" ", "_"))
        harm(lake, copy)
        lines.append(f"| {damage} | {' | '.join(said(lake, command, capsys) for command in COMMANDS)} |")
    table = "\n".join(lines)
    assert table in PAGE.read_text(), table


@pytest.mark.slow
def test_no_command_says_that_all_is_well_of_a_stream_or_of_a_ktable(spark, tmp_path, capsys):
    whole, lines = after_two_epochs(spark, tmp_path / "whole", tmp_path / "copy"), []
    for damage, (join, harm) in FURTHER.items():
        lake = whole.copy(tmp_path / damage.replace(" ", "_"))
        harm(lake, tmp_path / "copy")
        lines.append(f"| {damage} | {' | '.join(said(lake, command, capsys, join) for command in COMMANDS)} |")
    table = "\n".join(lines)
    assert table in PAGE.read_text(), table
