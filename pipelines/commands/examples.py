"""The example pipelines, in a wheel or a checkout."""

import importlib.resources
from pathlib import Path


def example(name: str) -> str:
    """Read a file of the folder `conf`, which is inside the package in a wheel and beside it in a checkout."""
    installed = importlib.resources.files("pipelines") / "conf"
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "conf"
    return (folder / name).read_text(encoding="utf-8")
