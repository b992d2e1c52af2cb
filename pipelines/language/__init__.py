"""The pipeline file and its statements as plain values, independent of Spark and Delta."""

from pipelines.language.file.model import Join, PipelineFile, Source, Storage, schema
from pipelines.language.file.options import Semantics
from pipelines.language.join.bind import bind
from pipelines.language.join.chains import (
    UnknownJoin,
    changelogs,
    changelogs_of,
    is_stream,
    keeps_changelog,
    reading_alike,
    reads,
    selected,
    statement_of,
)
from pipelines.language.join.fingerprint import changelog_fingerprint, fingerprint
from pipelines.language.join.misfits import option_misfits
from pipelines.language.join.sources import (
    Changelog,
    Condition,
    Stream,
    bind_changelog,
    bind_condition,
    bind_result,
    bind_stream,
    of_struct,
)
from pipelines.language.load import find, load
from pipelines.language.names import CHANGELOG_COLUMNS, ROW_COLUMNS, STREAM_COLUMNS
from pipelines.language.statement.definition import (
    Grouping,
    How,
    Input,
    InputQuery,
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
from pipelines.language.statement.outputs import is_ordered_by_column
from pipelines.language.statement.parse import parse
from pipelines.language.statement.statement import Statement

__all__ = [
    "CHANGELOG_COLUMNS", "ROW_COLUMNS", "STREAM_COLUMNS", "Changelog", "Condition", "Grouping",
    "How", "Input", "InputQuery",
    "Join", "Link", "Output", "Pairing", "PipelineFile", "ResolvedQuery", "Semantics", "Source", "Statement", "Step",
    "Storage", "Stream", "Time", "UnknownJoin", "Watermark", "Window", "Within", "bind", "bind_changelog",
    "bind_condition", "bind_result", "bind_stream", "changelog_fingerprint", "changelogs", "changelogs_of", "find",
    "fingerprint", "is_ordered_by_column", "is_stream", "keeps_changelog", "load", "of_struct", "option_misfits",
    "parse", "reading_alike", "reads", "schema", "selected", "statement_of",
]  # fmt: skip
