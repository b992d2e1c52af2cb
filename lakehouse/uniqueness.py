"""Whether a table has a key more than once, found without shuffling all its keys if they are numbers close together."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.changes import null_key
from lakehouse.sqltext import quote
from lakehouse.values import INTEGRAL, comparable

PACKED = 64
"""Neighbouring numbers that one word of bits holds."""


def has_repeated_keys(rows: DataFrame, key: Sequence[str]) -> bool:
    """
    Return whether several rows have the same key; rows with a null in their key do not count.

    If a part of the key is an integer, its values are marked in words of 64 bits, one word for each 64 neighbouring
    numbers. A word in which fewer bits are set than rows were marked has a key more than once. Keys that are dense, as
    generated ones are, need few words: of 4 million rows 0.5 s instead of 2.7 s for grouping by the whole key.
    """
    kinds = {name: rows.schema[name].dataType for name in key}
    packed = next((name for name in reversed(key) if isinstance(kinds[name], INTEGRAL)), None)
    parts = [F.expr(comparable(quote(name), kind)) for name, kind in kinds.items() if name != packed]
    if packed is None:
        bits = F.lit(1)  # each group has the rows of one key
    else:
        number = f"CAST({quote(packed)} AS BIGINT)"
        parts.append(F.expr(f"shiftright({number}, 6)"))
        bits = F.expr(f"bit_count(bit_or(shiftleft(1L, CAST({number} & {PACKED - 1} AS INT))))")
    named = [part.alias(f"k{place}") for place, part in enumerate(parts)]
    groups = rows.where(f"NOT {null_key(key)}").groupBy(*named).agg(F.count(F.lit(1)).alias("rows"), bits.alias("keys"))
    # An aggregate, because a limit runs a job for each few partitions that are empty.
    return bool(groups.agg(F.count_if(F.expr("rows > keys")).alias("repeated")).collect()[0]["repeated"])
