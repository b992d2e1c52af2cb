"""What a join is, as far as its statement and the pipeline file say."""

from collections.abc import Iterator
from textwrap import indent, wrap

from pipelines.report.facts import Facts
from pipelines.spec.statement.definition import How, JoinType

WIDTH = 100
"""Lines are wrapped to so many characters, but for the statement, which stays as it was written."""

LABEL = 13
"""Where the second column begins."""


class SourceExplanation(Facts):
    """One input of a join."""

    name: str
    """The source or join."""
    alias: str
    """What the statement calls it."""
    kind: str
    """Its kind in the pipeline file; `join` for another join of it."""
    key: tuple[str, ...]
    """Its key columns; of all inputs that key the result in one order."""
    address: str
    """The table or folder, relative to the pipeline file where the file says it so."""
    change: str
    """What a change of it does to the result."""

    def text(self) -> str:
        """Render for a person, as one line without the change."""
        alias = "" if self.alias.lower() == self.name.lower() else f" as {self.alias}"
        key = f", key ({', '.join(self.key)})" if self.key else ""
        return f"{self.kind} {self.name}{alias}{key}, in {self.address}"


class JoinExplanation(Facts):
    """What kind of join it is, why, and what follows."""

    join: str
    """The join."""
    kind: JoinType
    """The kind."""
    how: tuple[How, ...]
    """The type of each JOIN, in the order of the statement."""
    why: tuple[str, ...]
    """Why it is of this kind: what keys the result, and what each reference is."""
    sources: tuple[SourceExplanation, ...]
    """Its inputs, in the order of FROM."""
    key: tuple[str, ...]
    """The parts of the result's key, over the inputs that hold it; none of a stream."""
    result: str
    """The table or folder of the result."""
    semantics: str
    """strict, kafka, kafka-0.10.2 or kafka-0.10.0."""
    refresh: str
    """auto, incremental or full."""
    plan: tuple[str, ...]
    """What it reads and keeps without the optimiser: a line for each read, with what it fills, and one for the join."""
    optimised: tuple[str, ...]
    """The same after the rules of the optimiser; empty if these change nothing for this join."""
    rules: tuple[str, ...]
    """What each of them did for it: its name, a colon, and words."""
    sql: str
    """The statement."""
    gated: tuple[str, ...] = ()
    """Your own expectations that gate each epoch: those that judge each row by itself."""
    validated: tuple[str, ...] = ()
    """Your own expectations about the whole result, which say nothing about a change set."""
    notes: tuple[str, ...] = ()
    """What a reader should know about this join."""

    def text(self) -> str:
        """Render for a person."""
        lines = [f"{self.join}: {self.kind}, {self.types()}"]
        for number, reason in enumerate(self.why):
            lines += _labelled("" if number else "why", reason)
        labels = ("left", "right") if len(self.sources) == 2 else ("input",) * len(self.sources)
        for label, source in zip(labels, self.sources, strict=True):
            lines += _labelled(label, source.text())
            lines += _labelled("", f"a change {source.change}")
        holds = f"one row for each ({', '.join(self.key)})" if self.key else "a stream, to which rows are added"
        lines += _labelled("result", f"{self.result}, {holds}")
        lines += _labelled("semantics", self.semantics)
        for label, drawn in (("plan", self.plan), ("optimised", (*self.optimised, *self.rules))):
            for number, line in enumerate(drawn):
                lines += _labelled("" if number else label, line)
        for label, expected in (("gate", self.gated), ("validate", self.validated)):
            for number, line in enumerate(expected):
                lines += _labelled("" if number else label, line)
        for number, note in enumerate(self.notes):
            lines += _labelled("" if number else "notes", note, bullet="- ")
        return "\n".join([*lines, "  sql", indent(self.sql, "    ")])

    def types(self) -> str:
        """Put the types of its JOINs into words."""
        if len(self.how) == 1:
            return f"{self.how[0]} join"
        return f"{len(self.sources)} inputs, {' and '.join(dict.fromkeys(self.how))} joins"


def _labelled(label: str, words: str, bullet: str = "") -> Iterator[str]:
    """Wrap words into the second column."""
    lead = " " * (LABEL + len(bullet))
    yield from wrap(
        words,
        WIDTH,
        initial_indent=f"  {label}".ljust(LABEL) + bullet,
        subsequent_indent=lead,
        break_long_words=False,
        break_on_hyphens=False,
    )
