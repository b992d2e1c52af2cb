"""Choose samples by a hash with a salt, so that each run checks other rows."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.values.sqltext import text


def in_sample(expressions: str, salt: str, share: int) -> str:
    """Return the SQL condition that chooses about one in `share` rows by expressions, as Spark SQL."""
    return "TRUE" if share == 1 else f"pmod(xxhash64({expressions}, {text(salt)}), {share}) = 0"


def sample_of(keys: DataFrame, salt: str, most: int) -> DataFrame:
    """Return at most `most` rows of `key` and further columns, chosen by their `key`."""
    return keys.orderBy(F.xxhash64("key", F.lit(salt))).limit(most)
