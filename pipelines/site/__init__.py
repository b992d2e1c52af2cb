"""A static site about a pipeline: values in, HTML out. Nothing here reads a ledger or knows Spark."""

from pipelines.site.facts import JoinFacts, SiteFacts, SourceFacts
from pipelines.site.files import write_files
from pipelines.site.pages import pages

__all__ = ["JoinFacts", "SiteFacts", "SourceFacts", "pages", "write_files"]
