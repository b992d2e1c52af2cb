"""What is asked of a run: the options of a backfill, and what a run of one join is to do."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

from lakehouse import limits
from lakehouse.errors.errors import LakejoinError

Decision = Literal["", "accept", "reset"]
"""The user's decision about a result that a replay cannot repair: accept it as it is, or reset it."""


class WrongOptions(LakejoinError):
    """The options of a command are invalid or cannot be combined."""

    exit_code = 2
    code = "USAGE"


@dataclass(frozen=True)
class Backfill:
    """
    The options of a requested backfill; `WrongOptions` if they are invalid or cannot be combined.

    Args:
        remedy: The decision about the result of a join with a stream; empty for none.
        where: A condition on the columns of one result of a join of tables. Only rows that satisfy it are reconciled.
        slices: The number of slices into which the key space of an existing result is divided; 0 derives it from the
            size of the sources.
    """

    remedy: Decision = ""
    where: str | None = None
    dry_run: bool = False
    slices: int = 0

    def __post_init__(self) -> None:
        if self.remedy and self.where is not None:
            raise _wrong(f"--where is for joins of tables, --{self.remedy} for joins with a stream", "leave one out")
        if self.remedy and self.dry_run:
            problem = f"--dry-run reports what a backfill would append; it cannot be combined with --{self.remedy}"
            raise _wrong(problem, "leave one out")
        if self.where is not None and not self.where.strip():
            raise _wrong("--where is empty", "write a condition on the columns of the result, or leave it out")
        if self.slices and (self.remedy or self.dry_run):
            raise _wrong("--slices is for a backfill that writes, and for joins of tables", "leave it out")
        if not 0 <= self.slices <= limits.MOST_SLICES:
            raise _wrong(f"--slices must be from 1 to {limits.MOST_SLICES:,}", "leave it out for slices by size")


@dataclass(frozen=True)
class Request:
    """
    What is asked of a run of one join: a backfill, to flush the buffered rows of two streams, or a run as usual.

    Args:
        goal: The versions of streams beyond which it reads nothing, by source; None for the newest.
        begins: Called before each epoch.
    """

    backfill: Backfill | None = None
    flush: bool = False
    goal: Mapping[str, int] | None = None
    begins: Callable[[], None] = lambda: None

    @property
    def is_whole(self) -> bool:
        """Whether a backfill of the whole result is asked for, which overrides what speaks against going on."""
        return self.backfill is not None and self.backfill.where is None

    @property
    def resets(self) -> bool:
        """Whether the result and the buffered rows of a join with a stream are to be recreated."""
        return self.backfill is not None and self.backfill.remedy == "reset"


def _wrong(problem: str, hint: str) -> WrongOptions:
    return WrongOptions("backfill", problem, hint=hint)
