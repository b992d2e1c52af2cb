"""
Joins between Delta tables, kept up to date from their change feeds.

`Pipeline.load(path).run(spark)` is all that a job needs.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pipelines.commands.api import Pipeline

__all__ = ["Pipeline"]


def __getattr__(name: str) -> Any:
    """Import the Python face on first use: the command line's help must not wait for Spark."""
    if name != "Pipeline":
        raise AttributeError(f"module 'pipelines' has no attribute {name!r}")
    from pipelines.commands.api import Pipeline

    return Pipeline
