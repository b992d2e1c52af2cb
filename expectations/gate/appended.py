"""The gate of the rows that an epoch appends to the result of a join with a stream: number, epoch and position."""

from collections.abc import Mapping

from pyspark.sql import SparkSession

from expectations.gate.judging import judged
from expectations.validation import Verdict
from lakehouse.values.sqltext import quote

STREAM_RULES = {
    "number_differs": "the number of rows equals the number that was counted",
    "of_another_epoch": "every row has the number of the epoch that appends it",
    "has_no_position": "every row has a position in the order",
}


def stream_facts(epoch: int | None, epoch_column: str, position_column: str) -> dict[str, str]:
    """
    Return what `gate_stream` needs to know about the rows: aggregates, as SQL by name.

    Args:
        epoch: The number of the epoch; None if the rows belong to several epochs.
        epoch_column: The column with the number of the epoch.
        position_column: The column that orders the rows within an epoch.
    """
    of_others = f"{quote(epoch_column)} IS NULL" if epoch is None else f"NOT ({quote(epoch_column)} <=> {epoch})"
    return {
        "rows": "count(1)",
        "of_others": f"count_if({of_others})",
        "unplaced": f"count_if({quote(position_column)} IS NULL)",
    }


def gate_stream(spark: SparkSession, facts: Mapping[str, int], number: int) -> Verdict:
    """
    Check the rows that an epoch appends to the result of a join with a stream.

    Args:
        facts: The values of `stream_facts`.
        number: The number of rows that were counted while they were computed.
    """
    wrong = (facts["rows"] != number, facts["of_others"] > 0, facts["unplaced"] > 0)
    columns = ", ".join(f"{value} AS {rule}" for rule, value in zip(STREAM_RULES, wrong, strict=True))
    return judged(spark.sql(f"SELECT 0 AS key_0, {columns}"), ["epoch"], STREAM_RULES, in_process=True)
