"""A batch of rows, each with the rules that it breaks, held to them by Great Expectations."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.types import ArrayType, DataType, DoubleType, FloatType, StructType

from expectations.validation import Verdict, validated

UNLIKE_IN_PANDAS = (FloatType, DoubleType, StructType, ArrayType)
"""Key types that pandas tells apart otherwise than Spark does."""


def is_alike_in_pandas(kinds: Iterable[DataType]) -> bool:
    """Tell whether pandas tells values of these types apart as Spark does."""
    return not any(isinstance(kind, UNLIKE_IN_PANDAS) for kind in kinds)


def judged(batch: DataFrame, key: Sequence[str], rules: Mapping[str, str], *, in_process: bool) -> Verdict:
    """
    Hold a batch to its rules: the key is there in each row and in none twice, and no row breaks another rule.

    Args:
        batch: `key_0` and so on with the key of each row, and for each rule a column, whether the row breaks it.
        key: What messages call the columns of the key.
        rules: The columns of the other rules, each with its words.
        in_process: Whether the rows are judged in this process.

    Raises:
        GateErrored: A rule could not be evaluated.
    """
    names = {f"key_{n}": name for n, name in enumerate(key)}  # a key column's own name may hold dots or backticks

    def expected() -> list[Any]:
        import great_expectations.expectations as gxe

        from expectations.own import ExpectKeyToBePresent, ExpectOneChangePerKey

        return [
            *(ExpectKeyToBePresent(key_columns=[column]) for column in names),
            ExpectOneChangePerKey(key_columns=list(names)),
            *(gxe.ExpectColumnValuesToBeInSet(column=rule, value_set=[False]) for rule in rules),
        ]

    return validated("change set", batch, expected, partial(_finding, names=names, rules=rules), in_process=in_process)


def _finding(result: Any, names: Mapping[str, str], rules: Mapping[str, str]) -> str:
    settings = result.expectation_config
    number = (result.result or {}).get("unexpected_count")
    rows = f" ({number} rows)" if number is not None else ""
    if "column" in settings.kwargs:
        return f"{rules[settings.kwargs['column']]}{rows}"
    columns = ", ".join(names[column] for column in settings.kwargs["key_columns"])
    words = "the key is present" if settings.type.endswith("to_be_present") else "one change per key"
    return f"{words}: {columns}{rows}"
