"""
Judge rows by rules with Great Expectations: a batch has a column for each rule that a row may violate.

The rules for a change set are here, too: what each means, and the SQL condition of a line that violates it.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, StructType

from expectations.gate.by_key import own_key
from expectations.validation import Verdict, validated
from lakehouse import limits
from lakehouse.values.compare import comparable, identical, same
from lakehouse.values.sqltext import quote

UNLIKE_IN_PANDAS = (FloatType, DoubleType, StructType, ArrayType)
"""Key types whose equality differs between pandas and Spark."""

KEYLESS = "keyless"
KEY_RULES = {KEYLESS: "a part of the key is present"}
"""The rule for keys of which parts may be null, but not all."""

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
LOADED_RULES = {
    "missing": "the result has every row that the join computes from its sources",
    "surplus": "the result has no row that the join does not compute from its sources",
    "differs": "a row of the result equals the row that the join computes from its sources",
}


def is_alike_in_pandas(types: Iterable[DataType]) -> bool:
    """Return whether pandas and Spark agree on the equality of values of these types."""
    return not any(isinstance(data_type, UNLIKE_IN_PANDAS) for data_type in types)


def key_columns(types: Iterable[DataType]) -> list[str]:
    """Return the SQL of the key columns of a batch, `key_0` and so on, from `key` (struct<k0, …>)."""
    return [f"{comparable(f'key.k{part}', data_type)} AS key_{part}" for part, data_type in enumerate(types)]


def judged(
    batch: DataFrame, key: Sequence[str], rules: Mapping[str, str], *, in_process: bool, may_be_absent: bool = False
) -> Verdict:
    """
    Judge a batch: the key of each row is present and unique, and no row violates a further rule.

    Args:
        batch: The key of each row as `key_0` and so on, and for each rule a column with whether the row violates it.
        key: The names of the key columns in messages.
        rules: The columns of the further rules, each with the text of the rule.
        in_process: Whether this process judges the rows instead of Spark.
        may_be_absent: Whether parts of a key may be null.

    Raises:
        GateErrored: A rule could not be evaluated; a gate never passes then.
    """
    names = {f"key_{n}": name for n, name in enumerate(key)}  # a key column's own name may hold dots or backticks

    def expected() -> list[Any]:
        import great_expectations.expectations as gxe

        from expectations.own import ExpectKeyToBePresent, ExpectOneChangePerKey

        return [
            *(ExpectKeyToBePresent(key_columns=[column]) for column in names if not may_be_absent),
            ExpectOneChangePerKey(key_columns=list(names)),
            *(gxe.ExpectColumnValuesToBeInSet(column=rule, value_set=[False]) for rule in rules),
        ]

    return validated("change set", batch, expected, partial(_finding, names=names, rules=rules), in_process=in_process)


def judged_rows(
    rows: DataFrame, conditions: Mapping[str, str], rules: Mapping[str, str], examples: Callable[[], Iterable[str]]
) -> Verdict:
    """Judge rows without a key by the SQL conditions of rows that violate a rule; add examples to the findings."""
    flags = (F.expr(condition).alias(rule) for rule, condition in conditions.items())
    batch = rows.select(F.monotonically_increasing_id().alias("key_0"), *flags)
    verdict = judged(batch.limit(limits.ROWS_ON_DRIVER), ["row"], rules, in_process=True)
    return verdict if verdict.passed else Verdict((*verdict.findings, *examples()))


def suspects(batch: DataFrame, key: Sequence[str], rules: Iterable[str], *, may_be_absent: bool = False) -> DataFrame:
    """
    Return what may violate a rule of `judged` in a large batch, found by one pass, so that few rows are judged.

    The columns are those of the batch. The second row of a key stands for both: it is returned twice.
    """
    parts, broken = [f"key_{part}" for part in range(len(key))], list(rules)
    # Rows are numbered rather than grouped: most keys are unique, and Spark would aggregate them before each exchange.
    same_key = Window.partitionBy(*parts).orderBy(*parts)
    numbered = batch.select(*parts, *broken, F.row_number().over(same_key).alias("number"))
    absent = [] if may_be_absent else [f"{part} IS NULL" for part in parts]
    rows = numbered.where(" OR ".join(["number = 2", *absent, *broken]))
    return rows.select(*parts, *broken, F.explode(F.expr("array_repeat(1, IF(number = 2, 2, 1))"))).drop("col")


def _finding(result: Any, names: Mapping[str, str], rules: Mapping[str, str]) -> str:
    settings = result.expectation_config
    number = (result.result or {}).get("unexpected_count")
    rows = f" ({number} rows)" if number is not None else ""
    if "column" in settings.kwargs:
        return f"{rules[settings.kwargs['column']]}{rows}"
    columns = ", ".join(names[column] for column in settings.kwargs["key_columns"])
    words = "the key is present" if settings.type.endswith("to_be_present") else "one change per key"
    return f"{words}: {columns}{rows}"


def staged_lines(changes: DataFrame, key: Sequence[str]) -> DataFrame:
    """Return the lines of a staged change set: `key` (struct<k0, …>), `op`, `before`, `after` and `staged`, true."""
    return changes.selectExpr(f"{own_key(key, 'key.')} AS key", "op", "before", "after", "TRUE AS staged")


def with_published(is_existing: Callable[[str], str]) -> dict[str, str]:
    """Return the conditions of the rules that need `existing`, given the condition that an image is equal to it."""
    return {
        "unnecessary_tombstone": "op = 'delete' AND existing IS NULL",
        "update_of_nothing": "op = 'update' AND existing IS NULL",
        "insert_of_present": "op = 'insert' AND existing IS NOT NULL",
        "changes_nothing": f"op = 'update' AND {is_existing('after')}",
        "before_differs": f"staged AND NOT {is_existing('before')}",
        "left_out": f"staged IS NULL AND NOT {is_existing('computed')}",
    }


def of_staged(key: Sequence[str], row: StructType, is_recomputed: str) -> dict[str, str]:
    """Return the conditions of the rules that need no published row, but maybe `computed`, where it is recomputed."""
    keeps_key = (same(f"key.k{n}", f"after.{quote(name)}", row[name].dataType) for n, name in enumerate(key))
    # Staged rows are compared exactly, but a published row may have the entries of a map in another order.
    computed, after = (identical(image, row) for image in ("computed", "after"))
    return {
        "loses_its_key": f"after IS NOT NULL AND NOT ({' AND '.join(keeps_key)})",
        "not_joined": f"staged AND {is_recomputed} AND NOT ({computed} <=> {after})",
    }


def of_loaded(row: StructType) -> dict[str, str]:
    """Return the conditions of `LOADED_RULES`, for lines with `existing` and `computed`."""
    computed, existing = (identical(image, row) for image in ("computed", "existing"))
    return {
        "missing": "existing IS NULL AND computed IS NOT NULL",
        "surplus": "computed IS NULL AND existing IS NOT NULL",
        "differs": f"existing IS NOT NULL AND computed IS NOT NULL AND NOT ({computed} <=> {existing})",
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

    If they `are_many`, only the lines that violate a rule, or that have the key of another line, are judged.
    """
    flags = (f"coalesce({conditions[rule]}, FALSE) AS {rule}" for rule in rules)
    batch = lines.selectExpr(*key_columns(types), *flags)
    if are_many:
        batch = suspects(batch, key, rules, may_be_absent=may_be_absent).limit(limits.ROWS_ON_DRIVER)
    return judged(batch, key, rules, in_process=is_alike_in_pandas(types), may_be_absent=may_be_absent)
