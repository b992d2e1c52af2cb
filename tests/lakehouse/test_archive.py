"""The archive of classes: written by the first command, used by the next, and never in the way of one."""

import os
import time
from pathlib import Path

import pytest

from lakehouse.session.archive import CACHE, UNUSED_SECONDS, WRITING_SECONDS, class_archive_options


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv(CACHE, str(tmp_path / "cache"))
    return tmp_path / "cache"


def written(option: str) -> Path:
    name, _, path = option.strip('"').partition("=")
    assert name == "-XX:ArchiveClassesAtExit"
    return Path(path)


def test_the_first_command_writes_the_archive_and_the_next_uses_it(cache: Path, tmp_path: Path) -> None:
    part = written(class_archive_options(tmp_path)[-1])
    assert part.parent == cache
    assert class_archive_options(tmp_path) == [], "the JVM of the first will write it"
    part.write_bytes(bytes(8))
    assert class_archive_options(tmp_path) == [], "it is writing"
    part.write_bytes(b"\xa8\xba\x0b\xf0")
    archive = part.with_suffix("")
    assert class_archive_options(tmp_path)[-1] == f'"-XX:SharedArchiveFile={archive}"'
    assert list(cache.iterdir()) == [archive]


def test_an_archive_that_was_never_finished_is_written_again(cache: Path, tmp_path: Path) -> None:
    part = written(class_archive_options(tmp_path)[-1])
    part.write_bytes(bytes(8))
    os.utime(part, (0, time.time() - WRITING_SECONDS - 1))
    written(class_archive_options(tmp_path)[-1])
    assert not part.exists()


def test_another_installation_has_an_archive_of_its_own_and_an_unused_one_goes(cache: Path, tmp_path: Path) -> None:
    part = written(class_archive_options(tmp_path)[-1])
    old = part.with_suffix("")
    old.write_bytes(b"archive")
    for unused in (old, part):
        os.utime(unused, (0, time.time() - UNUSED_SECONDS - 1))
    (tmp_path / "another.jar").touch()
    assert written(class_archive_options(tmp_path)[-1]).with_suffix("") != old
    assert not old.exists()
    assert not part.exists()


def test_a_folder_on_the_class_path_allows_no_archive(
    cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The JVM would end with an error on stderr."""
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert class_archive_options(tmp_path) != [], "an empty folder does no harm"
    (tmp_path / "spark-defaults.conf").touch()
    assert class_archive_options(tmp_path) == []


def test_without_java_there_is_no_archive(cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert class_archive_options(tmp_path) == []


def test_without_a_folder_to_write_no_archive_is_asked_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    for folder in ("", str(tmp_path / "file" / "below"), str(tmp_path / "a:b")):
        monkeypatch.setenv(CACHE, folder)
        assert class_archive_options(tmp_path) == []
