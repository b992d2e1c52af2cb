"""The explanation of a join, from its statement and the pipeline file alone."""

from collections.abc import Iterator
from textwrap import indent, wrap

from pipelines.language.statement.definition import How, JoinType
from pipelines.report.facts import Facts

WIDTH = 100
"""The number of characters at which lines wrap. The statement is not wrapped."""

LABEL = 13
"""The number of characters before the second column."""


class SourceExplanation(Facts):
    """One input of a join."""

    name: str
    """The name of the source or join."""
    alias: str
    """Its alias in the statement."""
    kind: str
    """Its kind in the pipeline file; `join` for another join of the file."""
    key: tuple[str, ...]
    """Its key columns. All inputs that key the result list theirs in the same order."""
    address: str
    """The table or folder; a path is relative to the pipeline file if the file states it that way."""
    change: str
    """How a change of this input affects the result."""

    def text(self) -> str:
        """Render as one line of text, without `change`."""
        alias = "" if self.alias.lower() == self.name.lower() else f" as {self.alias}"
        key = f", key ({', '.join(self.key)})" if self.key else ""
        return f"{self.kind} {self.name}{alias}{key}, in {self.address}"


class JoinExplanation(Facts):
    """The kind of a join, the reasons for it, and its consequences."""

    join: str
    """The name of the join."""
    kind: JoinType
    """The kind of join."""
    how: tuple[How, ...]
    """The type of each JOIN, in the order of the statement."""
    why: tuple[str, ...]
    """The reasons for this kind: what keys the result, and what each reference is."""
    sources: tuple[SourceExplanation, ...]
    """Its inputs, in the order of FROM."""
    key: tuple[str, ...]
    """The parts of the result's key, named by the inputs that hold them; empty if the result is a stream."""
    result: str
    """The result table or its folder."""
    semantics: str
    """strict, kafka, kafka-0.10.2 or kafka-0.10.0."""
    refresh: str
    """auto, incremental or full."""
    plan: tuple[str, ...]
    """What the join reads and stores without the optimizer: a line for each read, with the stores that it fills, and a
    line for the join."""
    optimised: tuple[str, ...]
    """The same after the rules of the optimizer; empty if the rules change nothing for this join."""
    rules: tuple[str, ...]
    """What each rule changed for this join: the name of the rule, a colon, and a description."""
    sql: str
    """The statement."""
    gated: tuple[str, ...] = ()
    """Your own expectations that gate each epoch: the expectations that judge each row by itself."""
    validated: tuple[str, ...] = ()
    """Your own expectations that judge the result as a whole; they do not apply to a change set."""
    notes: tuple[str, ...] = ()
    """Notes about this join for the reader."""

    def text(self) -> str:
        """Render as text."""
        lines = [f"{self.join}: {self.kind}, {self.types()}"]
        lines += _labelled("why", *self.why)
        labels = ("left", "right") if len(self.sources) == 2 else ("input",) * len(self.sources)
        for label, source in zip(labels, self.sources, strict=True):
            lines += _labelled(label, source.text(), f"a change {source.change}")
        holds = f"one row for each ({', '.join(self.key)})" if self.key else "a stream, to which rows are added"
        lines += _labelled("result", f"{self.result}, {holds}")
        lines += _labelled("semantics", self.semantics)
        lines += _labelled("plan", *self.plan)
        lines += _labelled("optimised", *self.optimised, *self.rules)
        lines += _labelled("gate", *self.gated)
        lines += _labelled("validate", *self.validated)
        lines += _labelled("notes", *self.notes, bullet="- ")
        return "\n".join([*lines, "  sql", indent(self.sql, "    ")])

    def types(self) -> str:
        """Describe the types of its JOINs."""
        if len(self.how) == 1:
            return f"{self.how[0]} join"
        return f"{len(self.sources)} inputs, {' and '.join(dict.fromkeys(self.how))} joins"


def _labelled(label: str, *texts: str, bullet: str = "") -> Iterator[str]:
    """Wrap each text in the second column, with the label in the first column of the first line."""
    for number, text in enumerate(texts):
        yield from wrap(
            text,
            WIDTH,
            initial_indent=f"  {'' if number else label}".ljust(LABEL) + bullet,
            subsequent_indent=" " * (LABEL + len(bullet)),
            break_long_words=False,
            break_on_hyphens=False,
        )
