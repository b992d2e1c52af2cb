"""Commands as a reader can type them, also where the environment's folder is not on the path."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def program(folder: Path | None = None) -> str:
    """
    Name lakejoin.

    Args:
        folder: Where the reader will type it; the working directory if None.

    Returns:
        `lakejoin` if the path has it, else the way to it, quoted for a shell.
    """
    return "lakejoin" if shutil.which("lakejoin") else _way("lakejoin", folder)


def python(folder: Path | None = None) -> str:
    """
    Name the Python that runs now.

    Args:
        folder: Where the reader will type it; the working directory if None.

    Returns:
        `python` if the path has that of this environment first, else the way to it, quoted for a shell.
    """
    found = shutil.which("python")
    if found and Path(found).parent.resolve() == _programs():
        return "python"
    return _way(Path(sys.executable).name, folder)


def _programs() -> Path:
    return (Path(sys.prefix) / "bin").resolve()


def _way(name: str, folder: Path | None) -> str:
    """Give the shorter of the relative and the whole path; a link in the folder's own path would lead it astray."""
    whole = str(_programs() / name)
    return shlex.quote(min(whole, os.path.relpath(whole, (folder or Path()).resolve()), key=len))
