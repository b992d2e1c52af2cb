"""The pages in a folder: ours are written anew, nobody else's is touched."""

import os
from collections.abc import Mapping
from pathlib import Path

from lakehouse.errors import FilesExist, LakejoinError

GENERATOR = '<meta name="generator" content="lakejoin">'
"""What is near the top of each page of ours, by which it is known again."""
TOP = 1_000


def write_files(folder: Path, pages: Mapping[str, str], own_folder: str = "") -> None:
    """
    Write pages into a folder, each as a whole, in their order.

    Args:
        folder: The folder; made if it is not there.
        pages: The pages by their paths in it.
        own_folder: A folder below it in which no page of ours is left that is not one of these; may be empty.

    Raises:
        FilesExist: A file that is not ours is where a page belongs; nothing was written.
        LakejoinError: The folder cannot be written to.
    """
    try:
        strangers = [str(folder / path) for path in pages if not _is_free(folder / path)]
        if strangers:
            raise FilesExist(
                "docs",
                f"{', '.join(strangers)} {'is' if len(strangers) == 1 else 'are'} there already, and not lakejoin's",
                hint="move what is there away, or name another folder: `lakejoin docs --folder FOLDER`",
            )
        for path, text in pages.items():
            _write(folder / path, text)
        for left in (folder / own_folder).glob("*.html") if own_folder else ():
            if f"{own_folder}/{left.name}" not in pages and _is_free(left):
                left.unlink()
    except OSError as error:
        raise LakejoinError("docs", f"cannot write {error.filename or folder}: {error.strerror or error}") from error


def _is_free(path: Path) -> bool:
    """Tell whether there is nothing, or a page of ours."""
    if not os.path.lexists(path):
        return True
    with path.open(encoding="utf-8", errors="replace") as file:
        return GENERATOR in file.read(TOP)


def _write(path: Path, text: str) -> None:
    """Write a page beside its place and move it there: a reader sees the old page or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.parent / f".lakejoin-{os.getpid()}.tmp"
    beside.unlink(missing_ok=True)
    try:
        with beside.open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
        beside.replace(path)
    except OSError:
        beside.unlink(missing_ok=True)
        raise
