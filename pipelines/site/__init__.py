"""A static site about a pipeline: values in, HTML out. Nothing here reads a ledger or knows Spark."""

from pipelines.site.facts import JoinFacts, SiteFacts, SourceFacts
from pipelines.site.files import write_files
from pipelines.site.pages import pages
from pipelines.site.quality import PartFacts, TableFacts, quality_pages

__all__ = [
    "JoinFacts",
    "PartFacts",
    "SiteFacts",
    "SourceFacts",
    "TableFacts",
    "pages",
    "quality_pages",
    "write_files",
]
