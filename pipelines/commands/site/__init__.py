"""A static site about a pipeline: values in, HTML out. No module here reads a ledger or depends on Spark."""

from pipelines.commands.site.facts import JoinFacts, SiteFacts, SourceEntry
from pipelines.commands.site.files import write_files
from pipelines.commands.site.pages import pages
from pipelines.commands.site.quality import PartFacts, TableFacts, quality_pages

__all__ = ["JoinFacts", "PartFacts", "SiteFacts", "SourceEntry", "TableFacts", "pages", "quality_pages", "write_files"]
