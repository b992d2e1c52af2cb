"""What a join of tables owes over random histories, whatever its kind: claims that tests make about one or another."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from .histories import History, Row

HISTORY, EPOCH = StructField("_history", IntegerType()), StructField("_epoch", IntegerType())
CHANGE_TYPE = StructField("_change_type", StringType())
SCOPE = [HISTORY.name, EPOCH.name]

Oracle = Callable[[Any], dict[Row, Row]]
"""Evaluates a join over one state of its tables in plain Python."""


@dataclass(frozen=True)
class Change:
    """A changed row of the result: what it was and what it is; None where it was or is absent."""

    op: str
    before: Row | None
    after: Row | None


@dataclass(frozen=True)
class Computed:
    """What the product made of all histories of a kind: by history and epoch, the changes and the meaning by key."""

    histories: list[History]
    changes: dict[tuple[int, int], dict[Row, Change]]
    meanings: dict[tuple[int, int], dict[Row, Row]]


def literal(spark: SparkSession, rows: Sequence[Sequence[Any]], schema: StructType) -> DataFrame:
    """Make a frame that is a literal of its plans: rows made otherwise start Python workers each time they are read."""
    columns = list(zip(*rows, strict=True)) or [()] * len(schema)
    types = to_arrow_schema(schema)
    arrays = [pyarrow.array(column, type=field.type) for column, field in zip(columns, types, strict=True)]
    return spark.createDataFrame(pyarrow.Table.from_arrays(arrays, schema=types), schema)


def difference_of(before: dict[Row, Row], after: dict[Row, Row]) -> dict[Row, Change]:
    changes = {}
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old != new:
            changes[key] = Change("insert" if old is None else "delete" if new is None else "update", old, new)
    return changes


def results_follow(of: Computed, oracle: Oracle) -> None:
    """See that the change sets, applied one after the other, add up to the join as plain Python evaluates it."""
    results: dict[int, dict[Row, Row]] = {}

    def claim(number: int, one: History, at: int) -> tuple[object, object]:
        result = dict(of.meanings.get((number, 0), {})) if at == 0 else results[number]
        for key, change in of.changes.get((number, at), {}).items():
            result.pop(key, None)
            if change.after is not None:
                result[key] = change.after
        results[number] = result
        return oracle(one.states()[at]), result

    _check(of, claim)


def changes_are_differences(of: Computed, oracle: Oracle | None = None) -> None:
    """
    See that a change set holds exactly the rows that differ, as they were and as they are: no row more, no row less.
    Rows are those of a plain Python evaluation, or of the product's own plain query over the tables before and after.
    """

    def claim(number: int, one: History, at: int) -> tuple[object, object]:
        if at == 0:
            return {}, of.changes.get((number, at), {})
        if oracle is None:
            before, after = (of.meanings.get((number, version), {}) for version in (at - 1, at))
        else:
            before, after = (oracle(one.states()[version]) for version in (at - 1, at))
        return difference_of(before, after), of.changes.get((number, at), {})

    _check(of, claim)


def enough_is_tried(of: Computed) -> None:
    """See that there are inserts, updates and deletes, and epochs with changes that net to nothing."""
    ops = Counter(change.op for epoch in of.changes.values() for change in epoch.values())
    assert all(ops[op] >= 10 for op in ("insert", "update", "delete")), ops
    quiet = [
        (number, at)
        for number, one in enumerate(of.histories)
        for at, epoch in enumerate(one.epochs, start=1)
        if any(epoch.feeds) and (number, at) not in of.changes
    ]
    assert len(quiet) > 5


def _check(of: Computed, claim: Callable[[int, History, int], tuple[object, object]]) -> None:
    """See that a claim's two sides are equal in each epoch of each history, or show the script of the first failure."""
    for number, one in enumerate(of.histories):
        for at in range(len(one.epochs) + 1):
            expected, found = claim(number, one, at)
            if expected != found:
                script = "\n  ".join(one.script)
                pytest.fail(f"seed {one.seed!r}, epoch {at}\n  {script}\nexpected {expected}\nfound    {found}")
