"""The one place that tells the kinds of join apart."""

from typing import Any

from pipelines.binding.workspace import Workspace
from pipelines.epochs.kind import Kind
from pipelines.epochs.ktable.kind import KTableKind
from pipelines.epochs.lookup.kind import LookupKind
from pipelines.epochs.tables.kind import TablesKind
from pipelines.epochs.window.kind import WindowKind
from pipelines.spec import is_stream, statement_of


def kind_of(workspace: Workspace, name: str) -> Kind[Any]:
    """
    Return how a join, or the KTable of a changelog source, is run.

    Args:
        workspace: Where the tables are.
        name: The join, or the changelog source.
    """
    if name not in workspace.file.joins:
        return KTableKind(workspace, name)
    if not is_stream(workspace.file, name):
        return TablesKind(workspace, name)
    return (WindowKind if statement_of(workspace.file, name).is_windowed else LookupKind)(workspace, name)
