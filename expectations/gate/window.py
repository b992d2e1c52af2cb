"""
The gate of a join of two streams: checks the appended rows against the new rows and the buffered rows.

    new rows, buffered rows ─► expected pairs, unmatched rows ─┐
    staged rows of the result ─────────────────────────────────┴─► for each row the first rule that it violates

A row that leaves the buffer unmatched is in the result, null-padded, if its side is outer.
"""

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from expectations.gate.rules import judged_rows
from expectations.gate.window_pairs import FACTS, IDS, WindowedJoin, expected_pairs, number_new_rows
from expectations.validation import Verdict
from lakehouse.values.compare import identical, type_sql
from lakehouse.values.net_changes import fields_of
from lakehouse.values.sqltext import row_struct, struct

WINDOW_RULES = {
    "unknown_row": "a result row consists of new or buffered rows",
    "repeated": "no pair and no null-padded row occurs twice",
    "both_buffered": "at least one row of a pair is new in this epoch",
    "not_outer": "a null-padded row belongs to an outer side",
    "on_fails": "ON holds for each pair",
    "wrong_values": "a result row has the values that SELECT computes from its rows",
    "not_joinable": "no row of a pair is late, and the earlier row is still buffered",
    "missing_pair": "the result has each pair of matching rows",
    "has_match": "a null-padded row has no match",
    "still_buffered": "a null-padded row is no longer buffered",
    "missing_unmatched": "an unmatched row that leaves the buffer is in the result, null-padded",
}
VALUES, COPIES, HASH, PADDED, JOINED, OP = (
    f"_lakejoin_{name}" for name in ("values", "copies", "hash", "padded", "joined", "op")
)


def gate_window(staged: DataFrame, state: DataFrame, streams: Sequence[DataFrame], join: WindowedJoin) -> Verdict:
    """
    Check the staged rows (the columns of SELECT, and IDS) that an epoch appends to the result of a join of two streams.

    Missing rows are not checked under `kafka-0.10.2` and `kafka-0.10.0`, which emit an unmatched row at once and its
    matches later.

    Args:
        state: The changes of the buffered rows: `op`, `side`, `row` (the id).
        streams: The new and buffered rows of the left and of the right stream: IDS and FACTS of the stream, and the row
            under its alias. The number in the id is null for a new row.
    """
    values = row_struct(name for name, _ in join.statement.outputs)
    staged = staged.select(*IDS, F.expr(values).alias(VALUES))
    checked = staged.where(join.samples(f"coalesce({IDS[0]}, {IDS[1]})"))
    rows = [number_new_rows(_rows_of_sample(streams[side], checked, side, join), side, join) for side in (0, 1)]
    violations = [_check_rows(checked, rows, join)]
    if join.semantics in ("strict", "kafka"):
        rows, pairs = expected_pairs(rows, streams, join)
        if pairs is not None:
            violations.append(_check_pairs(staged, pairs, join))
        violations += [_check_unmatched(staged, state, rows, pairs, side, join) for side in join.outer_sides]
    violated = reduce(DataFrame.unionAll, violations).where("rule IS NOT NULL")
    conditions = {rule: f"rule = '{rule}'" for rule in WINDOW_RULES}
    return judged_rows(violated, conditions, WINDOW_RULES, lambda: _examples(violated))


def _check_rows(staged: DataFrame, rows: Sequence[DataFrame], join: WindowedJoin) -> DataFrame:
    """Check each staged row by itself: the rows that it consists of, and its values."""
    (_, on), where = join.statement.steps[0], join.statement.where
    joined = staged.withColumn(COPIES, F.count("*").over(Window.partitionBy(*IDS)))
    for side in (0, 1):
        joined = joined.join(rows[side], on=IDS[side], how="left")
    fields = fields_of(staged, VALUES)
    outputs = zip(fields, join.statement.outputs, strict=True)
    computed = struct({field.name: f"CAST({sql} AS {type_sql(field.dataType)})" for field, (_, sql) in outputs})
    are_computed = f"({identical(VALUES, fields)} <=> {identical(computed, fields)})"
    unknown = [f"({row} IS NOT NULL AND {facts} IS NULL)" for row, facts in zip(IDS, FACTS, strict=True)]
    lacking = [f"{IDS[1 - side]} IS NULL" for side in (0, 1) if side not in join.outer_sides]
    is_pair = f"{FACTS[0]} IS NOT NULL AND {FACTS[1]} IS NOT NULL"
    conditions = {
        "unknown_row": f"{' OR '.join(unknown)} OR coalesce({IDS[0]}, {IDS[1]}) IS NULL",
        "repeated": f"{COPIES} > 1",
        "not_outer": " OR ".join(lacking) or "FALSE",
        "both_buffered": f"NOT ({FACTS[0]}.is_new OR {FACTS[1]}.is_new)",
        "on_fails": f"{is_pair} AND NOT coalesce({on}, FALSE)",
        "wrong_values": f"NOT (coalesce({where or 'TRUE'}, FALSE) AND {are_computed})",
    }
    return _violations(joined, conditions, IDS)


def _check_pairs(staged: DataFrame, pairs: DataFrame, join: WindowedJoin) -> DataFrame:
    """Compare the staged pairs with the expected pairs."""
    both = staged.where(f"{IDS[0]} IS NOT NULL AND {IDS[1]} IS NOT NULL").where(join.samples(IDS[0]))
    compared = both.select(*IDS, F.lit(True).alias("staged")).join(pairs, on=list(IDS), how="full")
    conditions = {"not_joinable": "is_selected IS NULL", "missing_pair": "is_selected AND staged IS NULL"}
    return _violations(compared, conditions, IDS)


def _check_unmatched(
    staged: DataFrame,
    state: DataFrame,
    rows: Sequence[DataFrame],
    pairs: DataFrame | None,
    side: int,
    join: WindowedJoin,
) -> DataFrame:
    """Check the rows of an outer side for their null-padded rows."""
    row, other_row, facts, where = IDS[side], IDS[1 - side], FACTS[side], join.statement.where
    checked = join.samples(row)
    padded = staged.where(f"{other_row} IS NULL AND {checked}").select(row, F.lit(True).alias(PADDED)).distinct()
    in_pairs, are_all_pairs = staged.where(f"{other_row} IS NOT NULL AND {checked}").select(row), where is None
    if pairs is not None and join.share == 1:
        in_pairs, are_all_pairs = in_pairs.unionAll(pairs.select(row)), True
    operations = state.where(f"side = {side}").select(F.col("row").alias(row), F.col("op").alias(OP)).where(checked)
    other = join.statement.aliases[1 - side]
    joined = (
        rows[side]
        .where(checked)
        .join(padded, on=row, how="left")
        .join(in_pairs.distinct().withColumn(JOINED, F.lit(True)), on=row, how="left")
        .join(operations, on=row, how="left")
        .withColumn(other, F.lit(None).cast(rows[1 - side].schema[other].dataType))
    )
    matched = f"({JOINED} IS NOT NULL OR {facts}.matched)"
    leaves = f"IF({facts}.is_new, {OP} IS NULL, {OP} <=> 'delete')"
    is_missing = f"{are_all_pairs} AND {PADDED} IS NULL AND {leaves} AND NOT {matched} AND NOT {facts}.is_late"
    conditions = {
        "has_match": f"{PADDED} AND {matched}",
        "still_buffered": f"{PADDED} AND NOT {leaves}",
        "missing_unmatched": f"IF({is_missing}, {where or 'TRUE'}, FALSE)",  # WHERE may raise an error for other rows
    }
    return _violations(joined, conditions, (row,))


def _violations(rows: DataFrame, conditions: Mapping[str, str], ids: Sequence[str]) -> DataFrame:
    """Return for each row `rule`, the first rule whose condition holds, or null; and `example`, its ids as text."""
    cases = " ".join(f"WHEN {condition} THEN '{rule}'" for rule, condition in conditions.items())
    example = f"concat_ws(' and ', {', '.join(f'to_json({row})' for row in ids)})"
    return rows.selectExpr(f"CASE {cases} END AS rule", f"{example} AS example")


def _examples(violated: DataFrame) -> list[str]:
    """Return for each violated rule an example of a row that violates it."""
    rows = violated.groupBy("rule").agg(F.min("example").alias("first")).collect()
    examples = {row["rule"]: row["first"] for row in rows}
    return [f"{words}: violated by {examples[rule]}" for rule, words in WINDOW_RULES.items() if rule in examples]


def _rows_of_sample(rows: DataFrame, staged: DataFrame, side: int, join: WindowedJoin) -> DataFrame:
    """Filter rows of a stream to the checked rows and the rows of checked staged rows."""
    if join.share == 1:
        return rows
    hashes = staged.selectExpr(f"{IDS[side]}.hash AS {HASH}").where(f"{HASH} IS NOT NULL").distinct()
    marked = rows.join(F.broadcast(hashes), on=F.expr(f"{IDS[side]}.hash = {HASH}"), how="left")
    return marked.where(f"{HASH} IS NOT NULL OR {join.samples(IDS[side])}").drop(HASH)
