"""A first pipeline, ready to run: the pipeline file with cases and schema, and a script that creates two tables."""

import importlib.resources
import os
import shlex
import shutil
import sys
from pathlib import Path

from lakehouse.errors.errors import FilesExist, LakejoinError
from pipelines.language import schema
from pipelines.language.load import FILE_NAME

SCHEMA, SOURCES, CASES = "lakejoin.schema.json", "sources.py", "lakejoin.test.yml"

WHAT = {
    FILE_NAME: "the pipeline: orders joined with their payments",
    CASES: "two cases: rows of the sources, and what the join must make of them",
    SCHEMA: "its schema, for editors that check and complete YAML",
    SOURCES: "creates the two tables, and changes them when it runs again",
}


def write_example(folder: Path) -> str:
    """
    Write a first pipeline into a folder, created if needed; return the text to print: the files, and the next commands.

    Raises:
        FilesExist: One of the files exists already.
    """
    contents = {name: example(f"example/{name}") for name in (FILE_NAME, CASES, SOURCES)} | {SCHEMA: schema()}
    existing = [str(folder / name) for name in contents if os.path.lexists(folder / name)]
    if existing:
        problem = f"{', '.join(existing)} {'exists' if len(existing) == 1 else 'exist'} already"
        hint = "move existing files away, or choose another folder: `lakejoin init FOLDER`"
        raise FilesExist("init", problem, hint=hint)
    _write(folder, contents)
    width = max(len(str(folder / name)) for name in WHAT)
    files = [f"  {folder / name!s:<{width}}  {what}" for name, what in WHAT.items()]
    return "\n".join(["Created", *files, "", "Next steps", *_commands(folder)])


def _write(folder: Path, contents: dict[str, str]) -> None:
    """Write all files; after an error remove those already written."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, text in contents.items():
            with (folder / name).open("x", encoding="utf-8") as file:
                written.append(folder / name)
                file.write(text)
    except OSError as error:
        for path in written:
            path.unlink(missing_ok=True)
        raise LakejoinError("init", f"cannot write {error.filename or folder}: {error.strerror or error}") from error


def _commands(folder: Path) -> list[str]:
    lakejoin, sources = program(folder), f"{python(folder)} {SOURCES}"
    commands = [
        (sources, "creates the two tables"),
        (f"{lakejoin} run", "loads orders_paid"),
        (sources, "changes both tables"),
        (f"{lakejoin} plan", "shows what run would do, and why"),
        (f"{lakejoin} run", "applies only what changed"),
        (f'{lakejoin} sql "SELECT * FROM orders_paid"', "shows the result"),
        (f"{lakejoin} test", f"runs the cases of {CASES}"),
        (f"{lakejoin} verify", "computes the join from scratch and compares"),
    ]
    if folder.resolve() != Path.cwd():
        commands.insert(0, (f"cd {shlex.quote(str(folder))}", ""))
    width = max(len(command) for command, _ in commands)
    return [f"  {command:<{width}}  # {what}" if what else f"  {command}" for command, what in commands]


def example(name: str) -> str:
    """Read a file of the folder `conf`, which is inside the package in a wheel and beside it in a checkout."""
    installed = importlib.resources.files("pipelines") / "conf"
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "conf"
    return (folder / name).read_text(encoding="utf-8")


def program(folder: Path | None = None) -> str:
    """Return the command for lakejoin: `lakejoin` if it is on the PATH, else its path, quoted for a shell."""
    return "lakejoin" if shutil.which("lakejoin") else _path_of("lakejoin", folder)


def python(folder: Path | None = None) -> str:
    """Return the command for Python: `python` if it is this one, else its path, quoted for a shell."""
    first = shutil.which("python")
    is_this = first is not None and Path(first).parent.resolve() == _scripts_folder()
    return "python" if is_this else _path_of(Path(sys.executable).name, folder)


def _scripts_folder() -> Path:
    return (Path(sys.prefix) / "bin").resolve()


def _path_of(name: str, folder: Path | None) -> str:
    """Return the shorter of the absolute path of a program and the one relative to the folder, links resolved."""
    absolute = str(_scripts_folder() / name)
    return shlex.quote(min(absolute, os.path.relpath(absolute, (folder or Path()).resolve()), key=len))
