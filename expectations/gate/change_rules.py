"""The rules for the lines of a change set: what each means, and the SQL condition of a line that violates it."""

from collections.abc import Callable, Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql.types import DataType, StructType

from expectations.gate.judging import is_alike_in_pandas, judged, key_columns, suspects
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.values.compare import identical, same
from lakehouse.values.sqltext import quote

RULES = {
    "unnecessary_tombstone": "no unnecessary tombstone: a delete removes an existing row",
    "update_of_nothing": "an update changes an existing row",
    "insert_of_present": "an insert adds a row that does not exist yet",
    "changes_nothing": "no spurious row: an update changes something",
    "before_differs": "the staged row before the change equals the published row",
    "loses_its_key": "the row after the change has the key of the change",
}
SOURCE_RULES = {
    "not_joined": "the row after the change equals the row that the join computes from its sources",
    "left_out": "no missing change: the result changes wherever the changes of its sources require it",
}


def with_published(is_existing: Callable[[str], str]) -> dict[str, str]:
    """Return the conditions of the rules that need `existing`, given the condition that an image is equal to it."""
    return {
        "unnecessary_tombstone": "op = 'delete' AND existing IS NULL",
        "update_of_nothing": "op = 'update' AND existing IS NULL",
        "insert_of_present": "op = 'insert' AND existing IS NOT NULL",
        "changes_nothing": f"op = 'update' AND {is_existing('after')}",
        "before_differs": f"staged AND NOT {is_existing('before')}",
        "left_out": f"staged IS NULL AND NOT {is_existing('made')}",
    }


def of_staged(key: Sequence[str], row: StructType, is_recomputed: str) -> dict[str, str]:
    """Return the conditions of the rules that need no published row, but maybe `made`, where it is recomputed."""
    keeps_key = (same(f"key.k{n}", f"after.{quote(name)}", row[name].dataType) for n, name in enumerate(key))
    # Staged rows are compared exactly, but a published row may have the entries of a map in another order.
    made, after = (identical(image, row) for image in ("made", "after"))
    return {
        "loses_its_key": f"after IS NOT NULL AND NOT ({' AND '.join(keeps_key)})",
        "not_joined": f"staged AND {is_recomputed} AND NOT ({made} <=> {after})",
    }


def judge_lines(
    lines: DataFrame,
    key: Sequence[str],
    types: Sequence[DataType],
    conditions: Mapping[str, str],
    rules: Mapping[str, str],
    *,
    are_many: bool,
    may_be_absent: bool,
) -> Verdict:
    """
    Judge lines by their `key` (struct<k0, …>) and the conditions of the rules.

    Args:
        types: The types of the key columns.
        are_many: Whether to judge only the lines that violate a rule, or that have the key of another line.
    """
    flags = (f"coalesce({conditions[rule]}, FALSE) AS {rule}" for rule in rules)
    batch = lines.selectExpr(*key_columns(types), *flags)
    if are_many:
        batch = suspects(batch, key, rules, may_be_absent=may_be_absent).limit(limits.JUDGED_IN_PROCESS)
    return judged(batch, key, rules, in_process=is_alike_in_pandas(types), may_be_absent=may_be_absent)
