"""The gate of the rows that an epoch appends to the result of a join with a stream: number, epoch and position."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.gate.judging import judged
from expectations.validation import Verdict
from lakehouse.sqltext import quote

STREAM_RULES = {
    "number_differs": "the number of staged rows equals the number that was counted",
    "of_another_epoch": "every row has the number of the epoch that appends it",
    "has_no_position": "every row has a position in the order",
}


def gate_stream(rows: DataFrame, number: int, epoch: int | None, epoch_column: str, position_column: str) -> Verdict:
    """
    Check the staged rows that an epoch appends to the result of a join with a stream.

    Args:
        rows: The staged rows.
        number: The number of rows that were counted while they were staged.
        epoch: The number of the epoch; None if the rows belong to several epochs.
        epoch_column: The column with the number of the epoch.
        position_column: The column that orders the rows within an epoch.
    """
    of_others = f"{quote(epoch_column)} IS NULL" if epoch is None else f"NOT ({quote(epoch_column)} <=> {epoch})"
    counted = rows.agg(
        F.count(F.lit(1)).alias("rows"),
        F.count(F.expr(f"IF({of_others}, 1, NULL)")).alias("of_others"),
        F.count(F.expr(f"IF({quote(position_column)} IS NULL, 1, NULL)")).alias("unplaced"),
    )
    batch = counted.select(
        F.lit(0).alias("key_0"),
        F.expr(f"rows <> {number}").alias("number_differs"),
        F.expr("of_others > 0").alias("of_another_epoch"),
        F.expr("unplaced > 0").alias("has_no_position"),
    )
    return judged(batch, ["epoch"], STREAM_RULES, in_process=True)
