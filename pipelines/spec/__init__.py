"""The pipeline file and its statements as plain values, independent of Spark and Delta."""

from pipelines.spec.file.model import Join, PipelineFile, Source, Storage, schema
from pipelines.spec.file.options import Semantics
from pipelines.spec.join.bind import bind
from pipelines.spec.join.chains import (
    UnknownJoin,
    is_stream,
    keeps_changelog,
    reading_alike,
    reads,
    selected,
    statement_of,
)
from pipelines.spec.join.changelog import Changelog, bind_changelog, changelogs, changelogs_of
from pipelines.spec.join.condition import Condition, bind_condition, of_struct
from pipelines.spec.join.fingerprint import changelog_fingerprint, fingerprint
from pipelines.spec.join.produced import is_ordered_by_column
from pipelines.spec.join.streams import Stream, bind_result, bind_stream, stream_misfits
from pipelines.spec.load import find, load
from pipelines.spec.statement.added_columns import CHANGELOG_COLUMNS, ROW_COLUMNS, STREAM_COLUMNS
from pipelines.spec.statement.definition import (
    How,
    Input,
    Link,
    Output,
    Pairing,
    ResolvedQuery,
    Step,
    Time,
    Watermark,
    Window,
    Within,
)
from pipelines.spec.statement.sql import parse
from pipelines.spec.statement.statement import Statement

__all__ = [
    "CHANGELOG_COLUMNS",
    "ROW_COLUMNS",
    "STREAM_COLUMNS",
    "Changelog",
    "Condition",
    "How",
    "Input",
    "Join",
    "Link",
    "Output",
    "Pairing",
    "PipelineFile",
    "ResolvedQuery",
    "Semantics",
    "Source",
    "Statement",
    "Step",
    "Storage",
    "Stream",
    "Time",
    "UnknownJoin",
    "Watermark",
    "Window",
    "Within",
    "bind",
    "bind_changelog",
    "bind_condition",
    "bind_result",
    "bind_stream",
    "changelog_fingerprint",
    "changelogs",
    "changelogs_of",
    "find",
    "fingerprint",
    "is_ordered_by_column",
    "is_stream",
    "keeps_changelog",
    "load",
    "of_struct",
    "parse",
    "reading_alike",
    "reads",
    "schema",
    "selected",
    "statement_of",
    "stream_misfits",
]
