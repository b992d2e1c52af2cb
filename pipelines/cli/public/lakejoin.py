"""
lakejoin keeps joins between Delta tables up to date: `from lakejoin import Pipeline`.

The packages behind it are `lakehouse`, `expectations` and `pipelines`. A folder of one of these names beside a program
hides ours; the import then fails and says which folder it is.
"""

from importlib.util import find_spec
from pathlib import Path

_PARTS = {"lakehouse": "limits.py", "expectations": "gate", "pipelines": "binding"}
"""Something that only our package of each name has."""


def _check_packages() -> None:
    for name, part in _PARTS.items():
        spec = find_spec(name)
        folders = [] if spec is None else [Path(folder) for folder in spec.submodule_search_locations or ()]
        if not any((folder / part).exists() for folder in folders):
            other = ", ".join(map(str, folders)) or (spec.origin if spec else None) or "nothing"
            raise ImportError(
                f"lakejoin needs its package `{name}`, and Python finds {other} under this name: rename that folder, "
                "or start Python where it is not on the path"
            )


_check_packages()

from lakehouse.errors.errors import (  # noqa: E402
    AnotherRun,
    CannotContinue,
    Drifted,
    DuplicateKey,
    GateFailed,
    LakejoinError,
    PipelineFileError,
    RowFailed,
)
from pipelines.commands.api import Pipeline  # noqa: E402
from pipelines.report import JoinReport  # noqa: E402

__all__ = [
    "AnotherRun",
    "CannotContinue",
    "Drifted",
    "DuplicateKey",
    "GateFailed",
    "JoinReport",
    "LakejoinError",
    "Pipeline",
    "PipelineFileError",
    "RowFailed",
]
