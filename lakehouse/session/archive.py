"""
An archive of the classes that Spark and Delta load, with which the JVM of a command starts sooner.

A JVM that ends writes the archive (class data sharing); a JVM that starts maps it instead of reading the classes from
their jars. A JVM ignores an archive that is incomplete or was made by another Java or from other jars.
"""

import hashlib
import os
import shutil
import sys
import time
import uuid
from contextlib import suppress
from pathlib import Path

import pyspark

CACHE = "LAKEJOIN_CACHE"
"""The variable for the folder of the archive, by default `lakejoin` in the user's cache; empty for no archive."""

QUIETLY = ("-XX:+IgnoreUnrecognizedVMOptions", "-Xshare:auto", "-Xlog:cds*=off")
"""Options without which the JVM would tell of each class that it does not archive, and of each archive it ignores."""

FOLDERS = ("SPARK_CONF_DIR", "HADOOP_CONF_DIR", "YARN_CONF_DIR")
"""Variables for folders that Spark puts on the class path; a JVM makes no archive if one of them has files."""

FURTHER = ("SPARK_DIST_CLASSPATH", "SPARK_SUBMIT_OPTS", "JAVA_TOOL_OPTIONS", "JDK_JAVA_OPTIONS")
"""Variables that add to the class path or to the options of the JVM."""

UNUSED_SECONDS = 30 * 24 * 3600
"""Seconds after which an archive that no command has used is deleted when another is written."""

WRITING_SECONDS = 600
"""Seconds within which a JVM has written its archive; an incomplete one that is older is deleted."""


def class_archive_options(jars: Path) -> list[str]:
    """
    Return the options with which a JVM uses the archive of this installation, or writes it when it ends.

    They are empty if the archive is switched off or cannot be made.

    Args:
        jars: The folder with the jars of Delta.
    """
    folder, java = _folder(), _java()
    if folder is None or java is None or _has_folder_on_class_path() or set(str(folder)) & set(':"\\'):
        return []
    archive = folder / f"classes-{_installation(java, jars)}.jsa"
    with suppress(OSError):  # a cache that others fill may be read only
        _settle(archive)
    if archive.exists():
        return [*QUIETLY, f'"-XX:SharedArchiveFile={archive}"']
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.glob(f"{archive.name}.*")):  # another command has been told to write it
            return []
        part = folder / f"{archive.name}.{uuid.uuid4().hex[:8]}"
        part.touch()  # of commands that start together one writes
    except OSError:
        return []
    return [*QUIETLY, f'"-XX:ArchiveClassesAtExit={part}"']


def _settle(archive: Path) -> None:
    """Rename a finished archive, and delete what was never finished or is no longer used."""
    folder, now = archive.parent, time.time()
    for part in folder.glob(f"{archive.name}.*"):
        if _is_complete(part):
            part.replace(archive)
        elif now - part.stat().st_mtime > WRITING_SECONDS:
            part.unlink()
    if archive.exists():
        os.utime(archive)
    for other in folder.glob("classes-*.jsa*"):
        if now - other.stat().st_mtime > UNUSED_SECONDS:
            other.unlink()


def _folder() -> Path | None:
    named = os.environ.get(CACHE)
    if named is not None:
        return Path(named).absolute() if named else None
    with suppress(RuntimeError):  # this user has no home
        return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "lakejoin"
    return None


def _java() -> Path | None:
    """Return the home of Java; None if none is found."""
    home, found = os.environ.get("JAVA_HOME"), shutil.which("java")
    if home:
        return Path(home)
    return Path(found).resolve().parent.parent if found else None


def _has_folder_on_class_path() -> bool:
    folders = [_spark_home() / "conf", *(Path(named) for name in FOLDERS if (named := os.environ.get(name)))]
    return any(folder.is_dir() and any(folder.iterdir()) for folder in folders)


def _spark_home() -> Path:
    return Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)


def _installation(java: Path, jars: Path) -> str:
    """Return a hash of what an archive depends on: the Java, and the jars as the JVM compares them."""
    release = java / "release"
    facts = [release.read_text() if release.exists() else str(java), sys.prefix]
    facts += [os.environ.get(name, "") for name in FURTHER]
    for folder in (_spark_home() / "jars", jars):
        found = sorted((jar.name, jar.stat()) for jar in folder.glob("*.jar"))
        facts += [f"{folder} {name} {stat.st_size} {stat.st_mtime_ns}" for name, stat in found]
    return hashlib.sha256("\n".join(facts).encode()).hexdigest()[:16]


def _is_complete(part: Path) -> bool:
    """Return whether a JVM has finished an archive: it writes the header, which begins with a number, last."""
    with part.open("rb") as file:
        return any(file.read(4))
