"""The report of `changes`: the rows that epochs changed, as text with colours and as JSON."""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from rich.text import Text

from pipelines.report.facts import Facts, cell, number_of, shortened

Change = Literal["insert", "update", "delete"]
SIGNS: Mapping[Change, str] = {"insert": "+", "update": "~", "delete": "-"}
STYLES: Mapping[Change, str] = {"insert": "green", "update": "yellow", "delete": "red"}
IN_WORDS: Mapping[Change, str] = {"insert": "inserted", "update": "updated", "delete": "deleted"}


class RowChange(Facts):
    """One change of a row of a result, in one version of it."""

    change: Change
    """insert, update or delete."""
    epoch: int | None
    """The epoch that made the change; null for a change by another writer."""
    version: int
    """The version of the result that has the change."""
    cause: tuple[str, ...]
    """The inputs whose changes caused it, in their order, `backfill` for a reconciliation; empty if no changelog knows
    them."""
    key: Mapping[str, Any]
    """The key of the row; empty for a stream. Values have the form of those of a query."""
    old: Mapping[str, Any] | None
    """The other columns of the row before, of an update only those that differ; null for an insert."""
    new: Mapping[str, Any] | None
    """The other columns of the row after, of an update only those that differ; null for a delete."""

    def lines(self) -> Iterator[Text]:
        """Render as a line, for an update followed by a line for each column that differs."""
        shown = Text(f"  {SIGNS[self.change]} ", STYLES[self.change])
        row = (self.new or self.old or {}) if self.change != "update" else {}
        shown.append(shortened("  ".join(f"{name}={cell(value)}" for name, value in {**self.key, **row}.items())))
        if self.cause:
            shown.append(f"  ({', '.join(self.cause)})", "dim")
        yield shown
        if self.change == "update" and self.old is not None and self.new is not None:
            width = max(map(len, self.old), default=0)
            for name, old in self.old.items():
                line = Text(f"      {name:<{width}}  ").append(shortened(cell(old)), STYLES["delete"])
                yield line.append(" → ").append(shortened(cell(self.new[name])), STYLES["insert"])


class ChangesReport(Facts):
    """The rows that epochs of a join changed."""

    join: str
    """The name of the join, or of the changelog source."""
    range: str
    """The epochs or the versions of the result, in words."""
    counts: Mapping[Change, int] = {}
    """The number of all inserts, updates and deletes."""
    rows: tuple[RowChange, ...] = ()
    """The first of these changes, in the order of the versions and the key."""

    def text(self) -> str:
        """Render as text."""
        return self.styled().plain

    def styled(self) -> Text:
        """Render as text with colours."""
        return Text("\n").join(self._lines())

    def _lines(self) -> Iterator[Text]:
        numbers = ", ".join(f"{number:,} {IN_WORDS[change]}" for change, number in self.counts.items())
        yield Text(f"{self.join}, {self.range}: {numbers}" if self.rows else f"{self.join}: {self.range}")
        several = len({(row.epoch, row.version) for row in self.rows}) > 1
        before = None
        for row in self.rows:
            if several and before != (row.epoch, row.version):
                epoch = "not of lakejoin" if row.epoch is None else f"epoch {row.epoch}"
                yield Text(f"  {epoch}, version {row.version}", "bold")
            before = row.epoch, row.version
            yield from row.lines()
        more = sum(self.counts.values()) - len(self.rows)
        if more:
            yield Text(f"  {number_of(more, 'more change', 'more changes')}; --limit N shows more")
