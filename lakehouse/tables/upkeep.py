"""Maintenance of lakejoin tables: compact and cluster their files, and remove files that no version needs."""

from lakehouse.errors.conditions import is_conflict
from lakehouse.errors.errors import AnotherRun
from lakehouse.session.engine import Engine
from lakehouse.session.writing import write
from lakehouse.tables.table import Table, history


def optimize(engine: Engine, table: Table) -> dict[str, int]:
    """
    Rewrite small files as fewer large files, clustered if the table is clustered. No row changes.

    Returns:
        The numbers of removed and added files: `files_removed`, `files_added`.

    Raises:
        AnotherRun: Another writer changed the same files concurrently; nothing was done.
    """
    address = table.address
    try:
        metrics = write(
            f"optimize {address.label}",
            lambda: engine.spark.sql(f"OPTIMIZE {address.sql}").select("metrics.*").collect(),
            table.location,
        )[0]
    except Exception as error:
        if not is_conflict(error):
            raise
        raise AnotherRun(
            address.label, "another writer changed the table during OPTIMIZE", hint="run `lakejoin maintain` again"
        ) from error
    return {"files_removed": int(metrics["numFilesRemoved"]), "files_added": int(metrics["numFilesAdded"])}


def vacuum(engine: Engine, table: Table) -> int:
    """
    Delete the files that are not needed by any version within the table's own retention.

    Returns:
        The number of deleted files.
    """
    address = table.address
    write(f"vacuum {address.label}", lambda: engine.spark.sql(f"VACUUM {address.sql}").collect(), table.location)
    done = next((one for one in history(engine, address, 2) if one.operation == "VACUUM END"), None)
    return 0 if done is None else int(done.metrics.get("numDeletedFiles", 0))
