"""The pages about data quality: an overview, and one for each table with the result of each expectation."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from expectations.results import ExpectationResult
from pipelines.commands.site.facts import SiteFacts
from pipelines.commands.site.pages import DATA_DOCS, page, render

FOLDER = DATA_DOCS.rpartition("/")[0]


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

    @property
    def number(self) -> int:
        """The number of expectations."""
        return sum(len(part.results) for part in self.parts)

    @property
    def met(self) -> int:
        """The number of expectations that are met."""
        return sum(result.is_met for part in self.parts for result in part.results)

    @property
    def page(self) -> str:
        """The address of its page, relative to the overview."""
        return page(self.name, "")


def quality_pages(pipeline: str, tables: Sequence[TableFacts], now: datetime) -> dict[str, str]:
    """
    Render the pages about data quality by their paths below the folder of the site; the overview is last.

    The current time has a time zone.
    """
    site = SiteFacts(pipeline, now, (), (), data_docs=True)
    made = {
        f"{FOLDER}/{table.name}.html": render("suite.html", site, "../", title=table.name, table=table)
        for table in tables
        if table.name
    }
    return {**made, DATA_DOCS: render("quality.html", site, "../", title="Data quality", tables=tables)}
