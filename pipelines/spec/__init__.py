"""The pipeline file as values; nothing here knows Spark or Delta."""

from pipelines.spec.bind import bind
from pipelines.spec.chains import keeps_changelog, reads, statement_of
from pipelines.spec.changelog import Changelog, bind_changelog, changelogs, changelogs_of
from pipelines.spec.definition import How, Input, Kind, Link, Output, Step, TableJoin
from pipelines.spec.fingerprint import changelog_fingerprint, fingerprint
from pipelines.spec.load import find, load
from pipelines.spec.model import Join, PipelineFile, Semantics, Source, Storage
from pipelines.spec.schema import schema
from pipelines.spec.selection import UnknownJoin, selected
from pipelines.spec.semantics import CHANGELOG_COLUMNS
from pipelines.spec.sql import parse
from pipelines.spec.statement import Statement

__all__ = [
    "CHANGELOG_COLUMNS",
    "Changelog",
    "How",
    "Input",
    "Join",
    "Kind",
    "Link",
    "Output",
    "PipelineFile",
    "Semantics",
    "Source",
    "Statement",
    "Step",
    "Storage",
    "TableJoin",
    "UnknownJoin",
    "bind",
    "bind_changelog",
    "changelog_fingerprint",
    "changelogs",
    "changelogs_of",
    "find",
    "fingerprint",
    "keeps_changelog",
    "load",
    "parse",
    "reads",
    "schema",
    "selected",
    "statement_of",
]
