"""A static site about a pipeline: values in, HTML out. No module here reads a ledger or depends on Spark."""

from pipelines.commands.site.facts import JoinFacts, PartFacts, SiteFacts, SourceEntry, TableFacts
from pipelines.commands.site.pages import pages, quality_pages, write_files

__all__ = ["JoinFacts", "PartFacts", "SiteFacts", "SourceEntry", "TableFacts", "pages", "quality_pages", "write_files"]
