"""Maintenance of lakejoin tables: compact and cluster their files, and remove files that no version needs."""

from pyspark.sql import SparkSession

from lakehouse.address import Address
from lakehouse.conditions import is_conflict
from lakehouse.errors import AnotherRun
from lakehouse.tables import history
from lakehouse.writing import write


def optimize(spark: SparkSession, address: Address) -> dict[str, int]:
    """
    Rewrite small files as fewer large files, clustered if the table is clustered. No row changes.

    Returns:
        The numbers of removed and added files: `files_removed`, `files_added`.

    Raises:
        AnotherRun: Another writer changed the same files concurrently; nothing was done.
    """
    try:
        metrics = write(
            f"optimize {address.label}", lambda: spark.sql(f"OPTIMIZE {address.sql}").select("metrics.*").collect()
        )[0]
    except Exception as error:
        if not is_conflict(error):
            raise
        raise AnotherRun(
            address.label, "another writer changed the table during OPTIMIZE", hint="run `lakejoin maintain` again"
        ) from error
    return {"files_removed": int(metrics["numFilesRemoved"]), "files_added": int(metrics["numFilesAdded"])}


def vacuum(spark: SparkSession, address: Address) -> int:
    """
    Delete the files that are not needed by any version within the table's own retention.

    Returns:
        The number of deleted files.
    """
    write(f"vacuum {address.label}", lambda: spark.sql(f"VACUUM {address.sql}").collect())
    done = next((one for one in history(spark, address, 2) if one.operation == "VACUUM END"), None)
    return 0 if done is None else int(done.metrics.get("numDeletedFiles", 0))
