"""Judge a batch of rows with Great Expectations: the batch has a column for each rule that a row may violate."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, StructType

from expectations.validation import Verdict, validated
from lakehouse.values.compare import comparable

UNLIKE_IN_PANDAS = (FloatType, DoubleType, StructType, ArrayType)
"""Key types whose equality differs between pandas and Spark."""

KEYLESS = "keyless"
KEY_RULES = {KEYLESS: "a part of the key is present"}
"""The rule for keys of which parts may be null, but not all."""


def is_alike_in_pandas(kinds: Iterable[DataType]) -> bool:
    """Return whether pandas and Spark agree on the equality of values of these types."""
    return not any(isinstance(kind, UNLIKE_IN_PANDAS) for kind in kinds)


def key_columns(types: Iterable[DataType]) -> list[str]:
    """Return the SQL of the key columns of a batch, `key_0` and so on, from `key` (struct<k0, …>)."""
    return [f"{comparable(f'key.k{part}', kind)} AS key_{part}" for part, kind in enumerate(types)]


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
        GateErrored: A rule could not be evaluated.
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


def suspects(batch: DataFrame, key: Sequence[str], rules: Iterable[str], *, may_be_absent: bool = False) -> DataFrame:
    """
    Return what may violate a rule of `judged` in a large batch, found by one pass, so that few rows are judged.

    Returns:
        The columns of the batch: a row for each key that violates a further rule or lacks a part that it needs, and two
        rows for each key that occurs more than once.
    """
    parts, broken = [f"key_{part}" for part in range(len(key))], list(rules)
    each = batch.groupBy(*parts).agg(F.count(F.lit(1)).alias("rows"), *(F.bool_or(rule).alias(rule) for rule in broken))
    absent = [] if may_be_absent else [f"{part} IS NULL" for part in parts]
    found = each.where(" OR ".join(["rows > 1", *absent, *broken]))
    return found.select(*parts, *broken, F.explode(F.expr("array_repeat(1, CAST(least(rows, 2) AS INT))"))).drop("col")


def _finding(result: Any, names: Mapping[str, str], rules: Mapping[str, str]) -> str:
    settings = result.expectation_config
    number = (result.result or {}).get("unexpected_count")
    rows = f" ({number} rows)" if number is not None else ""
    if "column" in settings.kwargs:
        return f"{rules[settings.kwargs['column']]}{rows}"
    columns = ", ".join(names[column] for column in settings.kwargs["key_columns"])
    words = "the key is present" if settings.type.endswith("to_be_present") else "one change per key"
    return f"{words}: {columns}{rows}"
