"""The short demo of one join, and the tour of all kinds of joins. Both run the same code as a user's pipeline."""

from pipelines.commands.demo.short import run_demo
from pipelines.commands.demo.tour import run_tour

__all__ = ["run_demo", "run_tour"]
