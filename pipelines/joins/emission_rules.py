"""
The rules that decide which pieces of a timeline get a changelog row, for each semantics, over `old` and `new`.

    old      new      strict            kafka, kafka-0.10.2                            kafka-0.10.0
    any      present  upsert if it      upsert                                         upsert
                      differs
    present  absent   tombstone         tombstone                                      tombstone
    absent   absent   nothing, ever     by key: tombstone if the other side has a row  tombstone
                                        foreign key, the referenced side changed:
                                          tombstone
                                        foreign key, inner, the referring side
                                          changed: tombstone if its old reference
                                          was not null and differs from the new one

`strict` is stricter than Kafka Streams, whose library (3.9.1) emits tombstones for keys that its result never
contained. The other semantics reproduce the library exactly: KIP-77 for 0.10.2, and the behaviour before it for 0.10.0.
"""

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from lakehouse.values.compare import same, type_sql
from lakehouse.values.sqltext import quote, struct, text
from pipelines.joins.versions import BEGINNING
from pipelines.language import ResolvedQuery, Semantics

UPSERT, TOMBSTONE = "upsert", "tombstone"


def emitted(timeline: DataFrame, join: ResolvedQuery, columns: StructType, semantics: Semantics) -> DataFrame:
    """
    Return the changelog of an epoch: one row for each source change and result key that the rules emit.

    Args:
        timeline: The result of `timeline`.
        columns: The result's columns, for their types.

    Returns:
        `position`, `cause` (the name of the source that changed), `op` (upsert or tombstone), `key` (struct of the key
        columns), `old` and `new` (struct of the result's columns; null if absent).
    """
    in_order = Window.partitionBy("key").orderBy("position")
    pairs = timeline.select(
        "key",
        "position",
        "cause",
        F.lag("row").over(in_order).alias("old"),
        F.col("row").alias("new"),
        "other",
        "reference",
        F.lag("reference").over(in_order).alias("referred"),
    ).where(F.col("position") > BEGINNING)
    sources = ", ".join(text(item.source) for item in join.inputs)
    typed = ((name, f"CAST(key.k{place} AS {type_sql(columns[name].dataType)})") for place, name in enumerate(join.key))
    keys = {name: f"coalesce(new.{quote(name)}, old.{quote(name)}, {part})" for name, part in typed}
    return pairs.where(_emits(join, columns, semantics)).select(
        "position",
        F.expr(f"element_at(array({sources}), cause + 1)").alias("cause"),
        F.expr(f"IF(new IS NULL, '{TOMBSTONE}', '{UPSERT}')").alias("op"),
        F.expr(struct(keys)).alias("key"),
        "old",
        "new",
    )


def _emits(join: ResolvedQuery, columns: StructType, semantics: Semantics) -> str:
    if semantics == "strict":
        return f"NOT {same('old', 'new', columns)}"
    if semantics == "kafka-0.10.0":
        return "TRUE"
    return f"new IS NOT NULL OR old IS NOT NULL OR {_unnecessary(join)}"


def _unnecessary(join: ResolvedQuery) -> str:
    """Return the SQL condition that Kafka Streams emits a tombstone for a key that its result does not contain."""
    if not join.links:
        return "other"
    link = join.links[0]
    by_reference = f"cause = {link.input}"
    if join.steps[0].how != "inner":
        return by_reference
    return f"({by_reference} OR (referred IS NOT NULL AND NOT referred <=> reference))"
