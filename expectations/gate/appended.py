"""What an epoch adds to the result of a join with a stream is checked: number, epoch, place in the order."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from expectations.gate.judging import judged
from expectations.validation import Verdict
from lakehouse.sqltext import quote

STREAM_RULES = {
    "number_differs": "the staged rows are those that were counted",
    "of_another_epoch": "every row is of the epoch that adds it",
    "has_no_position": "every row has its place in the order",
}


def gate_stream(rows: DataFrame, number: int, epoch: int | None, epoch_column: str, position_column: str) -> Verdict:
    """
    Check the staged rows that an epoch adds to the result of a join with a stream.

    Args:
        rows: The staged rows.
        number: How many rows were counted while they were staged.
        epoch: The epoch; None where the rows are of several.
        epoch_column: The column that names it.
        position_column: The column that orders the rows in it.
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
