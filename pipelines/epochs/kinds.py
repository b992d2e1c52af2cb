"""The nodes that have epochs: joins of tables, joins with a stream, and the KTables of changelog sources."""

from collections.abc import Mapping

from pipelines.binding.workspace import Workspace
from pipelines.epochs.ktable.compute import prepare_ktable
from pipelines.epochs.preflight import Prepared
from pipelines.epochs.streams.prepare import prepare_stream
from pipelines.epochs.tables.prepare import prepare
from pipelines.spec import is_stream


def prepare_node(
    workspace: Workspace, name: str, *, backfill: bool = False, goal: Mapping[str, int] | None = None
) -> Prepared:
    """
    Plan the next epoch of a join, or of the KTable of a changelog source.

    Args:
        workspace: Where to work.
        name: The join, or the changelog source.
        backfill: Whether the user asked for a backfill.
        goal: The versions beyond which a join with a stream reads nothing, by source.
    """
    if name not in workspace.file.joins:
        return prepare_ktable(workspace, name, backfill=backfill)
    if is_stream(workspace.file, name):
        return prepare_stream(workspace, name, backfill=backfill, goal=goal)
    return prepare(workspace, name, backfill=backfill)
