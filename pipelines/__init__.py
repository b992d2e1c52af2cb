"""
Joins between Delta tables, kept up to date from their Change Data Feed.

A job calls `Pipeline.load(path).run(spark)`.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.commands.api import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> Any:
    """Import the Python API on first use, so that the help of the command line does not wait for Spark."""
    if name != "Pipeline":
        raise AttributeError(f"module 'pipelines' has no attribute {name!r}")
    from pipelines.commands.api import Pipeline

    return Pipeline
