"""The one place that tells the kinds of join apart."""

from typing import Any

from pipelines.binding.workspace import Workspace
from pipelines.epochs.kind import Kind
from pipelines.epochs.ktable import KTableKind
from pipelines.epochs.lookup.kind import LookupKind
from pipelines.epochs.pairs.kind import PairsKind
from pipelines.epochs.tables.kind import TablesKind
from pipelines.epochs.window.kind import WindowKind
from pipelines.language import statement_of


def kind_of(workspace: Workspace, name: str) -> Kind[Any]:
    """Return how a join, or the KTable of a changelog source, is run."""
    if name not in workspace.file.joins:
        return KTableKind(workspace, name)
    statement = statement_of(workspace.file, name)
    if statement.reads_stream:
        return (WindowKind if statement.is_windowed else LookupKind)(workspace, name)
    return (TablesKind if statement.keys.pairing is None else PairsKind)(workspace, name)
