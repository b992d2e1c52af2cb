"""What a person may ask of a backfill."""

from dataclasses import dataclass
from typing import Literal

from lakehouse import limits
from lakehouse.errors import LakejoinError

Remedy = Literal["", "accept", "reset"]
"""What a person decided about a result that a replay cannot mend: to take it as it is, or to begin it anew."""


class WrongOptions(LakejoinError):
    """Options of a backfill that do not go together."""

    exit_code = 2
    code = "USAGE"


@dataclass(frozen=True)
class Backfill:
    """
    A backfill as it was asked for.

    Args:
        remedy: What is to become of the result of a join with a stream.
        where: A condition on the columns of one result, a join of tables: only rows that meet it are mended.
        dry_run: Only say what would change.
        slices: Into how many slices the key space of a result is cut that is there already; by the size of its sources
            if 0.

    Raises:
        WrongOptions: They do not go together.
    """

    remedy: Remedy = ""
    where: str | None = None
    dry_run: bool = False
    slices: int = 0

    def __post_init__(self) -> None:
        if self.remedy and self.where is not None:
            raise _wrong(f"--where is for joins of tables, --{self.remedy} for joins with a stream", "leave one out")
        if self.remedy and self.dry_run:
            problem = f"--dry-run says what a backfill would append; it goes without --{self.remedy}"
            raise _wrong(problem, "leave one out")
        if self.where is not None and not self.where.strip():
            raise _wrong("--where is empty", "give a condition on the columns of the result, or leave it out")
        if self.slices and (self.remedy or self.dry_run):
            raise _wrong("--slices is for a backfill of joins of tables that writes", "leave it out")
        if not 0 <= self.slices <= limits.MOST_SLICES:
            raise _wrong(f"--slices is a number from 1 to {limits.MOST_SLICES:,}", "leave it out for slices by size")


def _wrong(problem: str, hint: str) -> WrongOptions:
    return WrongOptions("backfill", problem, hint=hint)
