"""Write pages into a folder: pages of lakejoin are replaced, other files are never changed."""

import os
from collections.abc import Mapping
from pathlib import Path

from lakehouse.errors.errors import FilesExist, LakejoinError

GENERATOR = '<meta name="generator" content="lakejoin">'
"""The element near the top of each page that marks it as written by lakejoin."""
TOP = 1_000


def write_files(folder: Path, pages: Mapping[str, str], own_folder: str = "") -> None:
    """
    Write pages by their paths into a folder in the given order, each atomically; the folder is created if needed.

    Other pages of lakejoin in `own_folder`, a folder below it, are deleted.

    Raises:
        FilesExist: A file that lakejoin did not write has the path of a page; nothing was written.
        LakejoinError: The folder is not writable.
    """
    try:
        foreign = [str(folder / path) for path in pages if not _is_free(folder / path)]
        if foreign:
            raise FilesExist(
                "docs",
                f"{', '.join(foreign)} {'is' if len(foreign) == 1 else 'are'} not written by lakejoin and not replaced",
                hint="move existing files away, or choose another folder: `lakejoin docs --folder FOLDER`",
            )
        for path, text in pages.items():
            _write(folder / path, text)
        for left in (folder / own_folder).glob("*.html") if own_folder else ():
            if f"{own_folder}/{left.name}" not in pages and _is_free(left):
                left.unlink()
    except OSError as error:
        raise LakejoinError("docs", f"cannot write {error.filename or folder}: {error.strerror or error}") from error


def _is_free(path: Path) -> bool:
    """Return whether the path does not exist, or is a page of lakejoin."""
    if not os.path.lexists(path):
        return True
    with path.open(encoding="utf-8", errors="replace") as file:
        return GENERATOR in file.read(TOP)


def _write(path: Path, text: str) -> None:
    """Write a page to a temporary file and move it to its path: a reader sees the old page or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".lakejoin-{os.getpid()}.tmp"
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
