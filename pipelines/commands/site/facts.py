"""What the pages tell, as plain values."""

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from lakehouse.entries import SourceVersions
from pipelines.report import EpochReport

State = Literal["committed", "rejected", "redefined", "open", "broken", "not loaded"]
"""Where a join stands, as far as its ledger and the pipeline file tell; tables are not looked at."""


@dataclass(frozen=True)
class SourceFacts:
    """
    An input of a join.

    Args:
        name: The source, or the other join.
        kind: Its kind in the pipeline file; `join` for another join of it.
        key: Its key columns.
        address: The table or folder.
        alias: What the statement calls it, where that is another name.
        change: What a change of it does to the result; may be empty.
        watermarks: Its time columns, each with the lateness that is allowed.
        read: What the last committed epoch read of it; None before the load.
    """

    name: str
    kind: str
    key: tuple[str, ...] = ()
    address: str = ""
    alias: str = ""
    change: str = ""
    watermarks: tuple[tuple[str, str], ...] = ()
    read: SourceVersions | None = None


@dataclass(frozen=True)
class JoinFacts:
    """
    A join, or the table that is kept of a changelog source: all that has epochs of its own.

    Args:
        name: Its name.
        kind: Its kind.
        sources: What it reads, in the order of FROM.
        state: Where it stands.
        note: What a reader should know about the state; may be empty.
        types: The types of its JOIN clauses, in words.
        why: Why it is of its kind.
        key: The parts of the result's key; none of a stream.
        result: The table or folder of the result.
        semantics: strict or one of the kafka modes; empty for a changelog source.
        sql: The statement as it was written; empty for a changelog source.
        notes: What else follows from the statement.
        epochs: Its newest epochs, newest first, each at the last step that it took.
        more: Whether there are older ones.
    """

    name: str
    kind: str
    sources: tuple[SourceFacts, ...]
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


@dataclass(frozen=True)
class SiteFacts:
    """
    A whole pipeline.

    Args:
        pipeline: Its name.
        made_at: When the pages are written, aware.
        sources: The sources of the file by name, each with its kind.
        joins: All that has epochs, each after what it reads.
        data_docs: Whether there is a page about data quality to link to.
    """

    pipeline: str
    made_at: datetime
    sources: tuple[tuple[str, str], ...]
    joins: tuple[JoinFacts, ...]
    data_docs: bool = False
