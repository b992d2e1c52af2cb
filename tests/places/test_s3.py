"""Tables, ledger and stages on S3: loads, epochs of each size, kills, a rejected load, upkeep; nothing left over."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.errors.errors import GateFailed, StorageFailed
from lakehouse.session.engine import Engine
from lakehouse.tables.table import DELTA_RS, find
from lakehouse.values.sqltext import Address
from pipelines.report import JoinReport
from tests.conftest import SHORT_LIVED
from tests.killing import killed
from tests.lake import only
from tests.lakehouse.test_delta_log import facts
from tests.log_readers import without_delta_rs
from tests.places.bucket import S3Lake

pytestmark = pytest.mark.places

CHANGES = ("INSERT INTO {left} VALUES (4, 'd'), (9, 'n')", "UPDATE {right} SET w = 'X' WHERE k = 2")
MANY = "INSERT INTO {left} SELECT id, 'many' FROM range(100, 12100)"


def change(lake: S3Lake, *statements: str) -> None:
    for statement in statements or CHANGES:
        lake.sql(statement)


def load(lake: S3Lake) -> JoinReport:
    return only(lake.pipeline().run(lake.spark))


def run(lake: S3Lake) -> JoinReport:
    """Run a loaded join by its change feeds, however many rows have changed."""
    return only(lake.pipeline(refresh="incremental").run(lake.spark))


def test_a_load_then_small_and_large_epochs_leave_the_result_and_nothing_else(lake: S3Lake) -> None:
    assert load(lake).strategy == "load"
    assert lake.is_right()
    change(lake)
    assert run(lake).strategy == "incremental"
    assert lake.is_right()
    change(lake, MANY, "DELETE FROM {left} WHERE k = 1")
    assert (run(lake).strategy, lake.sql("SELECT count(*) FROM {result}")[0][0]) == ("incremental", 12_004)
    assert lake.is_right()
    assert run(lake).outcome == "nothing"
    assert [report.outcome for report in lake.pipeline().verify(lake.spark)] == ["done"]
    assert lake.stages() == []


@pytest.mark.parametrize("statement", [CHANGES[0], MANY], ids=["small", "large"])
def test_an_epoch_that_was_killed_after_staging_is_resumed_from_its_stage(lake: S3Lake, statement: str) -> None:
    load(lake)
    change(lake, statement)
    with killed("ledger: publishing", "after"):
        run(lake)
    assert lake.stages() != []
    assert run(lake).strategy == "resume"
    assert lake.is_right()
    assert lake.stages() == []


def test_an_epoch_whose_stage_is_gone_before_anything_was_written_is_computed_again(lake: S3Lake) -> None:
    load(lake)
    change(lake)
    with killed("ledger: publishing", "after"):
        run(lake)
    lake.files.delete(lake.path("lakejoin_stage"))
    assert run(lake).strategy == "incremental"
    assert lake.is_right()


def test_a_first_load_that_its_gate_rejects_leaves_nothing(lake: S3Lake) -> None:
    """And the next load, without the expectation, is a load like any other."""
    rule = {"expect_column_values_to_not_be_null": {"column": "w"}}
    with pytest.raises(GateFailed, match="was dropped"):
        lake.pipeline(expectations=[rule]).run(lake.spark)
    assert [one for one in lake.files.listed(lake.path("result"), recursive=True) if not one.is_folder] == []
    assert not lake.files.exists(lake.path("result"))
    assert load(lake).strategy == "load"
    assert lake.is_right()


def test_maintain_deletes_the_stages_that_a_killed_run_left(lake: S3Lake) -> None:
    load(lake)
    change(lake)
    with killed("delete stage"):
        run(lake)
    assert lake.stages() != []
    report = lake.pipeline().maintain(lake.spark)[0]
    assert (report.outcome, report.counts["stages_deleted"]) == ("done", 1)
    assert lake.stages() == []
    assert run(lake).outcome == "nothing"


@pytest.mark.own_process
def test_a_command_takes_credentials_and_endpoint_from_the_environment(
    lake: S3Lake, endpoint: str, jars: list[Path], tmp_path: Path
) -> None:
    """Its Spark has the jars from `spark-defaults.conf`; without news it starts Spark for its settings only."""
    conf = tmp_path / "conf"
    conf.mkdir()
    listed = ",".join(map(str, jars))
    defaults = f"spark.jars {listed}\nspark.hadoop.fs.s3a.path.style.access true\n"
    (conf / "spark-defaults.conf").write_text(defaults)
    lake.pipeline()
    given = {
        "AWS_ACCESS_KEY_ID": "key-of-a-test",
        "AWS_SECRET_ACCESS_KEY": "secret-of-a-test",
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": "us-east-1",
        "SPARK_CONF_DIR": str(conf),
    }
    command = [sys.executable, "-c", "from pipelines.cli import main; raise SystemExit(main())", "run"]
    for outcome in ("done", "nothing"):
        done = subprocess.run(
            [*command, "-f", str(lake.file), "--output", "json"],
            env={**os.environ, **SHORT_LIVED, **given},
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        assert [report["outcome"] for report in json.loads(done.stdout)["joins"]] == [outcome]
        assert "secret-of-a-test" not in done.stdout + done.stderr
    assert lake.is_right()


def test_a_bucket_that_is_not_there_is_no_empty_one(lake: S3Lake) -> None:
    """A table or stage in it would count as missing otherwise."""
    files = Engine.of(lake.spark).files
    assert not files.exists(lake.path("nothing"))
    for ask in (files.exists, files.listed, files.delete):
        with pytest.raises(StorageFailed, match="the bucket does not exist"):
            ask("s3a://no-such-bucket/lake")


def test_delta_rs_and_spark_find_the_same_table(lake: S3Lake, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    change(lake)
    engine, address = Engine.of(lake.spark), Address("left", lake.path("left"))
    table = find(engine, address)
    assert table is not None
    assert table.reader == DELTA_RS
    without_delta_rs(monkeypatch, tmp_path)
    by_spark = find(Engine.of(lake.spark), address)
    assert by_spark is not None
    assert by_spark.reader != DELTA_RS
    assert facts(table) == facts(by_spark)
