"""Commands that a user can type, also if the folder of the Python environment is not on the PATH."""

import os
import shlex
import shutil
import sys
from pathlib import Path


def program(folder: Path | None = None) -> str:
    """Return the command for lakejoin: `lakejoin` if it is on the PATH, else its path, quoted for a shell."""
    return "lakejoin" if shutil.which("lakejoin") else _path_of("lakejoin", folder)


def python(folder: Path | None = None) -> str:
    """
    Return the command for Python: `python` if the first one on the PATH is this one, else its path, quoted for a shell.
    """
    found = shutil.which("python")
    if found and Path(found).parent.resolve() == _scripts_folder():
        return "python"
    return _path_of(Path(sys.executable).name, folder)


def _scripts_folder() -> Path:
    return (Path(sys.prefix) / "bin").resolve()


def _path_of(name: str, folder: Path | None) -> str:
    """
    Return the shorter of the relative and the absolute path of a program.

    The relative path starts at the resolved folder, by default the working directory, so a symbolic link in the path of
    the folder does not break it.
    """
    absolute = str(_scripts_folder() / name)
    return shlex.quote(min(absolute, os.path.relpath(absolute, (folder or Path()).resolve()), key=len))
