"""
The identity of a commit, which distinguishes it from another commit with the same version.

A table that is restored from a copy of its files keeps its id, and may reach a recorded version with other commits.
"""

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True)
class CommitIdentity:
    """
    The known facts that identify a commit.

    Args:
        time: Its time, UTC; None if unknown.
        transaction: Delta's id of its transaction, or a hash of its commit information if that contains no id; empty
            if this process cannot read either.
    """

    time: datetime | None = None
    transaction: str = ""

    def contradicts(self, other: "CommitIdentity") -> bool:
        """
        Return whether the two identities belong to different commits.

        Transactions decide if both are known: the time of a commit may be the time of its file, which changes when a
        lake is copied. An unknown fact contradicts nothing.
        """
        if self.transaction and other.transaction:
            return self.transaction != other.transaction
        return self.time is not None and other.time is not None and self.time != other.time


UNKNOWN = CommitIdentity()
