"""The example pipelines, wherever they were installed."""

import importlib.resources
from pathlib import Path


def example(name: str) -> str:
    """
    Read a file of `conf`, which a wheel has inside the package and a checkout beside it.

    Args:
        name: Its path below `conf`.

    Returns:
        Its text.
    """
    installed = importlib.resources.files("pipelines") / "conf"
    folder = installed if installed.is_dir() else Path(__file__).parents[2] / "conf"
    return (folder / name).read_text(encoding="utf-8")
