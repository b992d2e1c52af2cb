"""
What tells a commit from another one under the same version.

A table that was put back from a copy of its files has its old id, and may pass a recorded version with other commits.
"""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class CommitIdentity:
    """
    A commit, as far as it is known.

    Args:
        time: Its time, UTC; None where that is not known.
        transaction: The id that Delta gave its transaction; empty where this process cannot read it.
    """

    time: datetime | None = None
    transaction: str = ""

    def contradicts(self, other: "CommitIdentity") -> bool:
        """
        Tell whether the marks are of different commits.

        Transactions decide where both are known, for the time of a commit may be that of its file, which changes when
        a lake is copied. What is not known of one commit contradicts nothing.
        """
        if self.transaction and other.transaction:
            return self.transaction != other.transaction
        return self.time is not None and other.time is not None and self.time != other.time


UNKNOWN = CommitIdentity()
