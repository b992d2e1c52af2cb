"""The content of the pages, as plain values."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from expectations.results import ExpectationResult
from lakehouse.values.recorded import SourceVersions
from pipelines.report import EpochReport, RunReport

State = Literal["committed", "rejected", "redefined", "open", "broken", "stopped", "not loaded"]
"""The state of a join, from its ledger, the pipeline file and the logs of its tables."""


@dataclass(frozen=True, kw_only=True)
class SourceEntry:
    """
    An input of a join; its `alias` is empty if it is its name, and `watermarks` are time columns with their lateness.

    `read` has the versions that the last committed epoch read; None before the load.
    """

    name: str
    kind: str
    key: tuple[str, ...] = ()
    address: str = ""
    alias: str = ""
    change: str = ""
    watermarks: tuple[tuple[str, str], ...] = ()
    read: SourceVersions | None = None


@dataclass(frozen=True, kw_only=True)
class JoinFacts:
    """
    A join, or the KTable of a changelog source, whose `semantics` and `sql` are empty. Both have epochs of their own.

    Args:
        note: An explanation of the state for the user; may be empty.
        key: The parts of the result's key; empty for a stream.
        epochs: Its newest epochs, newest first, each at its last step; `more` if older ones exist.
        verified: When the checksum of the result was last verified, and the epoch that recorded it; empty if never.
    """

    name: str
    kind: str
    sources: tuple[SourceEntry, ...]
    state: State = "not loaded"
    note: str = ""
    types: str = ""
    why: tuple[str, ...] = ()
    key: tuple[str, ...] = ()
    result: str = ""
    semantics: str = ""
    sql: str = ""
    notes: tuple[str, ...] = ()
    epochs: tuple[EpochReport, ...] = ()
    more: bool = False
    verified: str = ""


@dataclass(frozen=True, kw_only=True)
class SiteFacts:
    """A pipeline: the kind of each source by name, and the joins and KTables, each after those that it reads."""

    pipeline: str
    made_at: datetime
    sources: tuple[tuple[str, str], ...] = ()
    joins: tuple[JoinFacts, ...] = ()
    data_docs: bool = False
    """Whether to link to the pages about data quality."""
    runs: tuple[RunReport, ...] = ()
    """The newest runs, newest first."""


@dataclass(frozen=True)
class PartFacts:
    """Rows of a table, what they are in words, and the result of each expectation about them."""

    what: str
    results: tuple[ExpectationResult, ...]


@dataclass(frozen=True)
class TableFacts:
    """A table that was validated, in parts; without a name an error, why its join could not be validated."""

    join: str
    name: str = ""
    parts: tuple[PartFacts, ...] = ()
    error: str = ""
