"""Recorded joins of a stream with a table, whole and cut into epochs, all of one kind and type as one Spark job."""

from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import LongType, StructField, StructType

from pipelines.joins.kernel import KeyTypes
from pipelines.joins.lookup import as_rows, emitted, ignores_null_values, look_up
from pipelines.joins.meaning import without_unmatched
from pipelines.joins.timeline import versions
from pipelines.language import ResolvedQuery, Semantics
from pipelines.language.names import ALWAYS, POSITION
from tests.joins.changelogs import CUTS, KEY, ROW, SCOPE, SCOPES, ends_of
from tests.joins.claims import literal
from tests.joins.epochs import bound, key_types
from tests.joins.schemas import columns
from tests.joins.scoped import scoped, scoped_changes, scoped_types
from tests.joins.statements import statement
from tests.joins.vectors import Case, Logged, put

KINDS = {"stream_table": "table", "stream_global_table": "global_table"}
"""The kinds of join with a stream, and what the other side is."""

PLACE = StructField(POSITION, LongType())
CHANGED_AT = StructField("position", LongType())
STREAM = StructType([*SCOPES, PLACE, *ROW])
CHANGES = StructType([*SCOPES, CHANGED_AT, KEY, *columns(old=ROW, new=ROW)])
ROWS = StructType([*SCOPES, *ROW])
EMITTED = "emitted"
"""What a stream does where a table upserts."""


def emissions(
    spark: SparkSession, kind: str, how: str, cases: Sequence[Case], semantics: Semantics
) -> list[dict[str, list[Logged]]]:
    """
    Compute what every case emits: in one epoch, cut at random, and with one record an epoch. What a global table holds
    depends on the cut, so that with one there is only the last way.
    """
    cuts = CUTS if kind == "stream_table" else CUTS[-1:]
    schemas = {"left": ROW, "right": ROW}
    kinds = {"left": "stream", "right": KINDS[kind]}
    join = bound(statement(kind, how), dict.fromkeys(schemas, ("key",)), schemas, kinds)
    whole, types = scoped(join, SCOPE), scoped_types(join, key_types(join, schemas), SCOPE)
    stream: list[tuple] = []
    changes: list[tuple] = []
    rows: list[tuple] = []
    for number, case in enumerate(cases):
        for cut in cuts:
            _record(number, CUTS.index(cut), case, stream, changes, rows)
    table = versions(
        scoped_changes(literal(spark, changes, CHANGES), SCOPE) if kind == "stream_table" else None,
        literal(spark, rows, ROWS),
        whole.inputs[1],
        types[1],
        beginning=ALWAYS,
    )
    new_rows: DataFrame = literal(spark, stream, STREAM)
    if ignores_null_values(join, semantics):
        new_rows = new_rows.where("value IS NOT NULL")
    found: list[dict[str, list[Logged]]] = [{cut: [] for cut in cuts} for _ in cases]
    for position, row in stream_rows(new_rows, whole, types, {1: table}).select("position", "row").collect():
        if row is not None:
            made = Logged(position, "left", EMITTED, row["key"], None, row["value"])
            found[row["_case"]][CUTS[row["_cut"]]].append(made)
    return [{cut: sorted(made, key=lambda one: one.after) for cut, made in case.items()} for case in found]


def recorded(case: Case) -> list[Logged]:
    return [Logged(output.after, "left", EMITTED, output.key, None, output.value) for output in case.output]


def kept_since_kip_962(case: Case, outputs: Sequence[Logged]) -> list[Logged]:
    """
    Leave out what an engine before 4.2.0 drops: a left join with a global table, where the mapped key alone is null.
    KIP-962 keeps these rows, and so does lakejoin.
    """
    if not (case.engine < "kafka-streams 4.2" and case.join == "stream_global_table" and case.type == "left"):
        return list(outputs)
    dropped = {
        record.seq
        for record in case.input
        if record.side == "left" and record.key is not None and '"fk": null' in (record.value or "")
    }
    return [output for output in outputs if output.after not in dropped]


def _record(number: int, cut: int, case: Case, stream: list, changes: list, rows: list) -> None:
    ends = ends_of(case)[cut]
    table: dict[str, str] = {}
    epoch = 0
    for record in case.input:
        scope = (number, cut, epoch)
        if record.side == "left":
            stream.append((*scope, record.seq, record.key, record.value))
        elif record.key is not None:
            old = table.get(record.key)
            put(table, record.key, record.value)
            images = tuple(None if value is None else (record.key, value) for value in (old, record.value))
            changes.append((*scope, record.seq, (record.key,), *images))
        if record.seq in ends:
            rows += [(*scope, key, value) for key, value in table.items()]
            epoch += 1


def stream_rows(stream: DataFrame, join: ResolvedQuery, types: KeyTypes, tables: Mapping[int, DataFrame]) -> DataFrame:
    rows = as_rows(stream, join.inputs[0])
    for link in join.links:
        rows = look_up(without_unmatched(rows, link, join), link, join, types, tables[link.input])
    return emitted(rows, join)
