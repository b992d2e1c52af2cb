"""The layer of files: a path and its URI are the same, and what cannot be reached or removed is an error."""

import os
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs
from pyspark.sql import SparkSession

from lakehouse.errors.conditions import as_known
from lakehouse.errors.errors import StorageFailed
from lakehouse.publish.stage import Stage
from lakehouse.session.engine import Engine
from lakehouse.session.files import Files
from lakehouse.tables.creation import drop
from lakehouse.tables.table import find
from lakehouse.values.locations import uri_of
from lakehouse.values.sqltext import Address
from tests.cases import cases


@pytest.mark.parametrize("scheme", ["", "file:", "file://"])
def test_a_folder_of_this_machine_is_the_same_by_its_path_and_by_its_uri(tmp_path: Path, scheme: str) -> None:
    files, folder = Files(), f"{scheme}{tmp_path}/a %20 ü"
    assert not files.exists(folder)
    assert files.listed(folder) == []
    files.create(f"{folder}/part", "few.parquet", b"rows")
    (one,) = files.listed(f"{folder}/part")
    assert (one.path, one.name, one.size, one.is_folder) == (f"{folder}/part/few.parquet", "few.parquet", 4, False)
    assert [one.name for one in files.listed(folder, recursive=True)] == ["part", "few.parquet"]
    assert files.open(one.path).read() == b"rows"
    assert files.text(one.path).read() == "rows"
    modified = (tmp_path / "a %20 ü" / "part" / "few.parquet").stat().st_mtime_ns // 1_000_000
    assert files.modified(f"{folder}/part", ["few.parquet", "none"]) == {"few.parquet": modified}
    with pytest.raises(FileExistsError):
        files.create(f"{folder}/part", "more.parquet", b"")
    files.delete(folder)
    assert os.listdir(tmp_path) == []
    files.delete(folder)


@cases("location", "wasbs://lake@account/x", "dbfs:/x", "s3a:/bucket/x", "S3A://bucket/x", "relative/x")
def test_a_place_that_nothing_serves_is_refused(location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for action in (Files().exists, Files().delete, lambda at: Files().create(at, "x", b"")):
        with pytest.raises(StorageFailed, match="cannot write files of its own there"):
            action(location)
    assert os.listdir(tmp_path) == []


class Stubborn:
    """A local file system that leaves a file behind when it deletes a folder."""

    def __init__(self) -> None:
        self._local = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._local, name)

    def delete_dir(self, folder: str) -> None:
        for path in Path(folder).rglob("*.json"):
            path.unlink()


def test_a_drop_that_leaves_something_behind_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "t").mkdir()
    for name in ("left.parquet", "gone.json"):
        (tmp_path / "t" / name).touch()
    engine = Engine(lambda: pytest.fail("Spark is not needed"))
    monkeypatch.setattr(engine.files, "_at", lambda location: (Stubborn(), location))
    with pytest.raises(StorageFailed, match="could not be removed") as refused:
        drop(engine, Address("t", str(tmp_path / "t")))
    assert refused.value.found == f"{tmp_path}/t/left.parquet"


def test_a_stage_that_cannot_be_deleted_is_a_warning_and_left_to_maintain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The epoch is committed already."""
    stage = Stage(str(tmp_path), Files())
    (tmp_path / "few.parquet").touch()
    with monkeypatch.context() as patch:
        patch.setattr(stage.files, "_at", lambda location: (Stubborn(), location))
        assert not stage.delete()
    assert "for `lakejoin maintain` to delete" in caplog.text
    assert stage.delete()


def test_credentials_are_those_of_the_bucket_then_of_the_session_then_of_the_environment(monkeypatch) -> None:
    """As Spark's own client takes them."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "of environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "of environment")
    monkeypatch.setenv("AWS_SESSION_TOKEN", "of environment")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://of-all-services:1/")
    monkeypatch.setenv("AWS_ENDPOINT_URL_S3", "http://of-s3:1/")
    settings: dict[str, str] = {}
    files = Files(lambda name: settings.get(name, ""))

    def options(location: str) -> dict[str, str]:
        uri = uri_of(location)
        assert uri is not None
        return files.s3_options(uri)

    assert options("s3a://lake/x") == {
        "aws_access_key_id": "of environment",
        "aws_secret_access_key": "of environment",
        "aws_session_token": "of environment",
        "aws_endpoint": "http://of-s3:1",
        "aws_region": "us-east-1",
    }
    settings |= {"fs.s3a.access.key": "of session", "fs.s3a.secret.key": "of session/"}
    settings["fs.s3a.bucket.own.secret.key"] = "of bucket"
    assert options("s3a://lake/x")["aws_secret_access_key"] == "of session/"
    assert "aws_session_token" not in options("s3a://lake/x")  # which belongs to the key of the environment
    assert options("s3://own/x")["aws_secret_access_key"] == "of bucket"
    settings |= {"fs.s3a.endpoint": "localhost:9000", "fs.s3a.endpoint.region": "eu-central-1"}
    assert options("s3a://lake/x")["aws_endpoint"] == "https://localhost:9000"
    settings |= {"fs.s3a.connection.ssl.enabled": "false"}
    assert options("s3a://lake/x")["aws_endpoint"] == "http://localhost:9000"
    assert options("s3a://lake/x")["aws_region"] == "eu-central-1"
    settings |= {"fs.s3a.endpoint": "s3.eu-west-1.amazonaws.com", "fs.s3a.endpoint.region": ""}
    assert options("s3a://lake/x")["aws_region"] == "eu-west-1"
    assert "aws_endpoint" not in options("s3a://lake/x")
    settings["fs.s3a.endpoint"] = "s3-accelerate.amazonaws.com"
    assert options("s3a://lake/x")["aws_endpoint"] == "http://s3-accelerate.amazonaws.com"


def test_amazon_is_asked_once_for_the_region_of_a_bucket(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    asked: list[str] = []
    monkeypatch.setattr("pyarrow.fs.resolve_s3_region", lambda bucket: asked.append(bucket) or "eu-north-1")
    files = Files()
    for location in ("s3a://lake/x", "s3a://lake/y", "s3a://other/x"):
        uri = uri_of(location)
        assert uri is not None
        assert files.s3_options(uri) == {"aws_region": "eu-north-1"}
    assert asked == ["lake", "other"]


def test_no_credentials_are_in_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"fs.s3a.endpoint": "http://127.0.0.1:1", "fs.s3a.access.key": "the-key", "fs.s3a.secret.key": "secret"}
    files = Files(lambda name: settings.get(name, ""))
    with pytest.raises(StorageFailed, match="cannot be reached") as refused:
        files.exists("s3a://lake/x")
    shown = refused.value.message + repr(files) + repr(refused.value.__cause__)
    assert "the-key" not in shown
    assert "secret" not in shown


def test_a_table_at_an_address_that_spark_does_not_know_says_what_to_install(spark: SparkSession) -> None:
    with pytest.raises(Exception, match="not found") as refused:
        find(Engine.of(spark), Address("orders", "abfss://lake@account.dfs.core.windows.net/orders"))
    known = as_known(refused.value, "orders")
    assert isinstance(known, StorageFailed)
    assert "spark.jars.packages" in known.hint
