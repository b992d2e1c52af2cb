"""Whether a table has a key more than once, found without shuffling all its keys if they are numbers close together."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.values.compare import INTEGRAL, comparable
from lakehouse.values.net_changes import null_key
from lakehouse.values.sqltext import quote

PACKED = 64
"""Neighbouring numbers that one word of bits holds."""


def has_repeated_keys(rows: DataFrame, key: Sequence[str], *, may_be_absent: bool = False) -> bool:
    """
    Return whether several rows have the same key; rows without a key do not count.

    If a part of the key is an integer, its values are marked in words of 64 bits, one word for each 64 neighbouring
    numbers. A word in which fewer bits are set than rows were marked has a key more than once. Keys that are dense, as
    generated ones are, need few words: of 4 million rows 0.5 s instead of 2.7 s for grouping by the whole key.

    Args:
        may_be_absent: Whether parts of a key may be null. Each row is then counted, because a null has no bit.
    """
    kinds = {name: rows.schema[name].dataType for name in key}
    integers = [] if may_be_absent else [name for name in key if isinstance(kinds[name], INTEGRAL)]
    packed = integers[-1] if integers else None
    parts = [F.expr(comparable(quote(name), kind)) for name, kind in kinds.items() if name != packed]
    if packed is None:
        bits = F.lit(1)  # each group has the rows of one key
    else:
        number = f"CAST({quote(packed)} AS BIGINT)"
        parts.append(F.expr(f"shiftright({number}, 6)"))
        bits = F.expr(f"bit_count(bit_or(shiftleft(1L, CAST({number} & {PACKED - 1} AS INT))))")
    named = [part.alias(f"k{place}") for place, part in enumerate(parts)]
    keyed = rows.where(f"NOT {null_key(key, may_be_absent=may_be_absent)}")
    groups = keyed.groupBy(*named).agg(F.count(F.lit(1)).alias("rows"), bits.alias("keys"))
    # An aggregate, because a limit runs a job for each few partitions that are empty.
    return bool(groups.agg(F.count_if(F.expr("rows > keys")).alias("repeated")).collect()[0]["repeated"])
