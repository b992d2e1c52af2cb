"""Upkeep of tables that lakejoin keeps: their files made few and sorted, and files that no version needs removed."""

from pyspark.sql import SparkSession

from lakehouse.address import Address
from lakehouse.conditions import is_conflict
from lakehouse.errors import AnotherRun
from lakehouse.tables import history
from lakehouse.writing import write


def optimize(spark: SparkSession, address: Address) -> dict[str, int]:
    """
    Rewrite small files as few large ones, clustered where the table is; no row changes.

    Returns:
        How many files were removed and added: `files_removed`, `files_added`.

    Raises:
        AnotherRun: Somebody else wrote to the same files at the same time; nothing was done.
    """
    try:
        metrics = write(
            f"optimize {address.label}", lambda: spark.sql(f"OPTIMIZE {address.sql}").select("metrics.*").collect()
        )[0]
    except Exception as error:
        if not is_conflict(error):
            raise
        raise AnotherRun(
            address.label, "somebody else wrote to it while it was optimized", hint="run `lakejoin maintain` again"
        ) from error
    return {"files_removed": int(metrics["numFilesRemoved"]), "files_added": int(metrics["numFilesAdded"])}


def vacuum(spark: SparkSession, address: Address) -> int:
    """
    Delete the files that no version needs which can still be read by the table's own retention.

    Returns:
        How many were deleted.
    """
    write(f"vacuum {address.label}", lambda: spark.sql(f"VACUUM {address.sql}").collect())
    done = next((one for one in history(spark, address, 2) if one.operation == "VACUUM END"), None)
    return 0 if done is None else int(done.metrics.get("numDeletedFiles", 0))
