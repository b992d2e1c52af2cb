"""The changelogs of recorded cases, whole and cut into epochs, all of one kind and type of join as one Spark job."""

import random
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from pipelines.joins.changelog import emitted
from pipelines.joins.kernel import touched_keys
from pipelines.joins.meaning import meaning
from pipelines.joins.segments import changelog_of_pairs
from pipelines.joins.timeline import placed, positions, timeline
from pipelines.language import ResolvedQuery, Semantics
from tests.joins.claims import literal
from tests.joins.epochs import Epochs, bound, key_types, known
from tests.joins.schemas import LONG, STRING, TIMESTAMP, columns
from tests.joins.scoped import number_of, scoped, scoped_changes, scoped_columns, scoped_rows, scoped_types, unscoped
from tests.joins.statements import SIDES, statement
from tests.joins.vectors import Case, Logged, put

ROW = columns(key=STRING, value=STRING)
SCOPE = ("_case", "_cut", "_epoch")
SCOPES = [StructField(name, IntegerType()) for name in SCOPE]
KEY = StructField("key", StructType([StructField("k0", StringType())]))
CHANGES = StructType([*SCOPES, *columns(version=LONG, at=TIMESTAMP), KEY, *columns(old=ROW, new=ROW)])
ROWS = StructType([*SCOPES, *ROW])
CUTS = ("whole", "cut at random", "one record an epoch")
ZERO = datetime(2000, 1, 1, tzinfo=UTC)
VERSIONS = 2**30
"""More than the versions of any history."""


class Histories(Epochs):
    """What a timeline asks of its sources, answered for all epochs of all cases at once."""

    def __init__(
        self,
        join: ResolvedQuery,
        types: Sequence[Sequence[Any]],
        changes: Mapping[str, DataFrame],
        rows: Mapping[str, DataFrame],
        scope: Sequence[str],
    ) -> None:
        super().__init__(scoped(join, scope), scoped_types(join, types, scope), {}, scoped_rows(rows, join, scope))
        self.unscoped, self.scope = join, scope
        self.recorded = {name: _one_after_another(frame, scope) for name, frame in changes.items()}
        order = positions(dict(enumerate(self.recorded[source] for source in join.sources)))
        self.order = known(
            order.withColumn("at", F.expr(f"at - make_dt_interval(0, CAST(version div {VERSIONS} AS INT))"))
        )

    def changes(self, place: int) -> DataFrame | None:
        source = self.join.inputs[place].source
        changes = placed(self.recorded[source], self.order, self.join.sources.index(source))
        return changes.select("key", "position", "old", "new")

    def changed_keys(self, place: int) -> DataFrame | None:
        return self.changes(place).select("key").distinct()


class StagedHistories(Histories):
    """Histories of joins that read a frame many times: each is computed once, as the driver does."""

    def materialize(self, name: str, frame: DataFrame) -> DataFrame:
        """Compute the frame."""
        return known(frame)


def changelog(histories: Histories, columns: StructType, semantics: Semantics) -> DataFrame:
    """Give the changelog of every epoch: the scope columns, what `emitted` gives, and `at`, the time of the change."""
    join, types, scope = histories.join, histories.types, histories.scope
    columns = scoped_columns(histories.unscoped, columns, scope)
    if join.pairing is not None:
        found = changelog_of_pairs(join, types, histories, histories.order, columns)
        assert found is not None
    else:
        touched = touched_keys(join, histories)
        assert touched is not None
        rows = emitted(timeline(join, types, histories, touched), join, columns, semantics)
        found = rows.join(histories.order.select("position", "at"), on="position", how="inner")
    return unscoped(found, histories.unscoped, scope, ("old", "new"))


def _one_after_another(changes: DataFrame, scope: Sequence[str]) -> DataFrame:
    """Number the versions of all histories, and move each history to an hour of its own: one total order."""
    number = number_of(scope)
    return scoped_changes(changes, scope).withColumns(
        {
            "version": F.expr(f"CAST({number} AS BIGINT) * {VERSIONS} + version"),
            "at": F.expr(f"at + make_dt_interval(0, {number})"),
        }
    )


def changelogs(
    spark: SparkSession, kind: str, how: str, cases: Sequence[Case], semantics: Semantics
) -> list[dict[str, list[Logged]]]:
    """Compute the changelog of every case three times: in one epoch, cut at random, and with one record an epoch."""
    sides = SIDES[kind]
    changes: dict[str, list[tuple]] = {side: [] for side in sides}
    rows: dict[str, list[tuple]] = {side: [] for side in sides}
    for number, case in enumerate(cases):
        for cut, ends in enumerate(ends_of(case)):
            _record(number, cut, case, ends, semantics, changes, rows)
    changed = {side: literal(spark, changes[side], CHANGES) for side in sides}
    held = {side: literal(spark, rows[side], ROWS) for side in sides}
    if kind == "table_table_chain":
        logged = _chain(how, changed, held, semantics)
    else:
        logged = changelog(_histories(statement(kind, how), sides, changed, held), ROW, semantics)
    found: list[dict[str, list[Logged]]] = [{cut: [] for cut in CUTS} for _ in cases]
    for row in logged.select(
        *SCOPE, "at", "cause", "op", "key.key", "old.value", F.col("new.value").alias("new")
    ).collect():
        after = round((row["at"].astimezone(UTC) - ZERO).total_seconds())
        found[row["_case"]][CUTS[row["_cut"]]].append(
            Logged(after, row["cause"], row["op"], row["key"], row["value"], row["new"])
        )
    return [
        {cut: sorted(logged, key=lambda one: (one.after, one.key.encode())) for cut, logged in case.items()}
        for case in found
    ]


def ends_of(case: Case) -> list[list[int]]:
    """Cut a case into epochs in three ways: after which records one ends."""
    numbers = [record.seq for record in case.input]
    chosen = random.Random(case.id)
    some = sorted(chosen.sample(numbers, chosen.randint(1, len(numbers))))
    return [numbers[-1:], sorted({*some, numbers[-1]}), numbers]


def _record(
    number: int,
    cut: int,
    case: Case,
    ends: Sequence[int],
    semantics: str,
    changes: Mapping[str, list[tuple]],
    rows: Mapping[str, list[tuple]],
) -> None:
    tables: dict[str, dict[str, str]] = {side: {} for side in changes}
    epoch = 0
    for record in case.input:
        scope = (number, cut, epoch)
        table = tables[record.side]
        if record.key is not None:
            old = table.get(record.key)
            put(table, record.key, record.value)
            if semantics != "strict" or old != record.value:
                images = tuple(None if value is None else (record.key, value) for value in (old, record.value))
                at = ZERO + timedelta(seconds=record.seq)
                changes[record.side].append((*scope, record.seq, at, (record.key,), *images))
        if record.seq in ends:
            for side, held in tables.items():
                rows[side] += [(*scope, key, value) for key, value in held.items()]
            epoch += 1


def _histories(
    sql: str, sources: Sequence[str], changes: Mapping[str, DataFrame], rows: Mapping[str, DataFrame]
) -> Histories:
    schemas = dict.fromkeys(sources, ROW)
    join = bound(sql, dict.fromkeys(sources, ("key",)), schemas)
    types = key_types(join, schemas)
    return Histories(join, types, {name: changes[name] for name in sources}, {n: rows[n] for n in sources}, SCOPE)


def _chain(
    how: str, changes: Mapping[str, DataFrame], rows: Mapping[str, DataFrame], semantics: Semantics
) -> DataFrame:
    """Write (a join b) join c as two joins: the changelog of the first is what changes on the left of the second."""
    first_how, second_how = how.split("_")
    first = _histories(statement("table_table", first_how, ("a", "b")), ("a", "b"), changes, rows)
    logged = changelog(first, ROW, semantics)
    both = logged.select(
        *SCOPE,
        F.col("position").alias("version"),
        "at",
        F.struct(F.col("key.key").alias("k0")).alias("key"),
        "old",
        "new",
    )
    held = known(meaning([rows["a"], rows["b"]], first.unscoped, SCOPE))
    second = _histories(
        statement("table_table", second_how, ("ab", "c")),
        ("ab", "c"),
        {"ab": known(both), "c": changes["c"]},
        {"ab": held, "c": rows["c"]},
    )
    return changelog(second, ROW, semantics)
