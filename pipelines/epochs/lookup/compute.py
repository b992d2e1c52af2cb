"""
Compute one epoch of a join of a stream with tables.

    rows of the stream ─► look-up in each table as it was at their position ─► SELECT list ─► stage: result
                                   ▲
    feeds of the tables ─► changes of every commit, in the order of time ─► versions

The first epoch reads the stream's snapshot, which meets the tables as they are then; later epochs read the feed.
"""

from collections.abc import Mapping
from functools import cached_property, partial
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from expectations.gate import stream_facts
from lakehouse.errors.errors import DuplicateKey
from lakehouse.ledger.entries import StreamPosition
from lakehouse.publish.stage import Deferred, Stage
from lakehouse.publish.writes import AppendInPlace, with_rows
from lakehouse.tables.table import read_rows
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch
from pipelines.epochs.lookup.reading import StreamSources
from pipelines.epochs.sources.duplicate_keys import duplicates_in_changes, duplicates_in_table, refuse_keys
from pipelines.epochs.sources.reading import check_looked_up
from pipelines.epochs.sources.scratch import Scratch, via_driver_or_stage
from pipelines.epochs.streams.new_rows import NewRows
from pipelines.joins.lookup import NULL_KEY, as_rows, emitted, look_up
from pipelines.joins.meaning import PRESENT, without_unmatched
from pipelines.joins.watermarks import as_number
from pipelines.plan.values import APPENDED, Computed
from pipelines.spec import STREAM_COLUMNS
from pipelines.spec.statement.added_columns import HAS_VALUE, VERSION
from pipelines.spec.statement.semantics import ALWAYS

EPOCH, POSITION = STREAM_COLUMNS

MADE = {"rows": "count(1)", "appended": f"count_if({PRESENT})", "null_keys": f"count_if({NULL_KEY})"}
"""What is counted of the rows that look-ups return, as SQL by name."""


def compute_stream(workspace: Workspace, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
    """
    Compute an epoch of a join with a stream into the stage's part `result`.

    Returns:
        The clocks after the epoch: for each source the greatest time that was read and, if other joins read the result,
        for each watermarked column, as `stream.column`, its greatest value. The positions that the epoch passed; a load
        passes one, the end, at 0. Counts: read (new rows of the stream, and feed rows of the tables), null_values (rows
        of the stream without a value), null_keys (feed rows of tables without a key, and rows of the stream that an
        inner join drops for a null key), ignored_changes (updated or deleted rows that were skipped), behind_cut (rows
        and changes that came too late for their place in the order), looked_up, files, and appended.

    Raises:
        CannotContinue: A commit of the stream changed or deleted rows, or the column that orders rows is null.
        DuplicateKey: A table holds a key twice.
        FeedUnavailable, SchemaBroken: A feed cannot be read; `conditions.reading`, which wraps this call, raises them.
    """
    bound, plan = epoch.bound, epoch.plan
    assert plan.strategy in ("load", "incremental", "reset"), plan.strategy
    size = sum(table.size for table in bound.sources[1:])
    return via_driver_or_stage(workspace, plan, size, stage, partial(_compute, workspace, epoch))


class Lookups:
    """The look-ups of one epoch."""

    def __init__(self, workspace: Workspace, epoch: Epoch[BoundJoin], scratch: Scratch) -> None:
        self._workspace, self._bound, self._plan = workspace, epoch.bound, epoch.plan
        self.sources = StreamSources(workspace, epoch, scratch)
        self._is_deferred = isinstance(epoch.plan.writes[-1], AppendInPlace)
        self.new_rows = NewRows(workspace, epoch, is_observed=not self._is_deferred)
        self._via_driver = scratch.via_driver
        self._observation = Observation()
        self._made: Mapping[str, int] = {}
        self._new_rows = self.new_rows.frame

    def put(self, stage: Stage) -> None:
        """Put the rows of the result into the stage, or defer them there after a look at their counts."""
        found = self._all_rows()
        if not self._is_deferred:
            stage.put("result", _present(found.observe(self._observation, *_aggregates(MADE))))
            self._made = dict(self._observation.get)
            return
        facts = stream_facts(self._plan.epoch, *STREAM_COLUMNS)
        of_present = {f"present_{name}": f"{sql} FILTER (WHERE {PRESENT})" for name, sql in facts.items()}
        looked = found.agg(*_aggregates(MADE | of_present)).collect()[0].asDict()
        self._made = {name: looked[name] for name in MADE}
        stage.deferred["result"] = Deferred(_present(found), facts, {name: looked[f"present_{name}"] for name in facts})

    def rows(self) -> DataFrame:
        """Return the rows of the result, with `_epoch` and `_position`."""
        return _present(self._all_rows())

    def _all_rows(self) -> DataFrame:
        """Return a row for each row of the stream: that of `rows`, whether it is in the result, and null_key."""
        bound, sources = self._bound, self.sources
        for source, changes in sources.twice.items():
            refuse_keys(source, sources.key_of(source), duplicates_in_changes(changes))
        new_rows = self.new_rows.frame.drop(HAS_VALUE)
        if self._via_driver or not all(sources.is_met_whole(link.input) for link in bound.join.links):
            new_rows = self._new_rows = sources.looked_up.materialize("new_rows", new_rows)
            self.new_rows.facts()
        rows = as_rows(new_rows, bound.join.inputs[0])
        for number, link in enumerate(bound.join.links):
            rows = without_unmatched(rows, link, bound.join)
            if number and link.over and not sources.is_met_whole(link.input):
                rows = sources.looked_up.materialize(f"met_{number}", rows)
            to_all = sources.is_sent_to_all(link.input)
            rows = look_up(rows, link, bound.join, bound.types, sources.versions(link, rows), broadcast=to_all)
        own = [field for field in bound.columns if field.name not in STREAM_COLUMNS]
        # Spark copies each row that it observes: single columns, not a struct.
        return emitted(rows, bound.join).select(
            *(F.col(f"row.{quote(field.name)}").cast(field.dataType).alias(field.name) for field in own),
            F.lit(self._plan.epoch).cast("bigint").alias(EPOCH),
            F.col("position").alias(POSITION),
            F.expr("row IS NOT NULL").alias(PRESENT),
            F.col("null_key").alias(NULL_KEY),
        )

    def counts(self) -> dict[str, int]:
        """
        Return the counts of the epoch; its rows have been read.

        Raises:
            CannotContinue: As `NewRows.facts` raises it.
            DuplicateKey: A table holds a key twice.
        """
        facts = self.new_rows.facts()
        if self._made["rows"] != self.new_rows.number:
            self._refuse_twice()
        looked_up = check_looked_up(self._bound, self.sources.looked_up)
        counts = self.sources.looked_up.counts
        return {
            **counts,
            **facts,
            "looked_up": counts["looked_up"] + looked_up,
            "read": counts["read"] + facts["read"],
            "null_keys": counts["null_keys"] + self._made["null_keys"],
            "behind_cut": facts["behind_cut"] + self.sources.behind_cut,
            "appended": self._made["appended"],
        }

    def clocks(self) -> dict[str, int]:
        """Return the clocks of sources and watermarked columns after the epoch; its rows have been read."""
        clocks, new_rows = {**self._plan.stream.clocks, **self.sources.newest_time}, self.new_rows.newest_time
        if new_rows is not None:
            clocks[self.new_rows.source] = new_rows
        clocks = {name: max(time, self._plan.stream.clocks.get(name, time)) for name, time in clocks.items()}
        return clocks | {name: far for name, far in self._walked[1].items() if far != ALWAYS}

    @property
    def positions(self) -> tuple[StreamPosition, ...]:
        """The positions that the epoch passed, with the watermarks of the result; the rows have been read."""
        return self._walked[0]

    @cached_property
    def _walked(self) -> tuple[tuple[StreamPosition, ...], dict[str, int]]:
        """The passed positions, and the greatest values of the watermarked columns after all of them."""
        watermarks = self._bound.join.looking_up
        clocks = [f"{self.new_rows.source}.{watermark.time.column}" for watermark in watermarks]
        far = [self._plan.stream.clocks.get(clock, ALWAYS) for clock in clocks]
        found: list[StreamPosition] = []
        for step in self._steps():
            before, far = far, [max(one, step.newest_time.get(n, one)) for n, one in enumerate(far)]
            moved = {
                name: far[n] - watermarks[n].lateness
                for name, n in self._bound.join.carried
                if far[n] > before[n] or (not found and far[n] != ALWAYS)  # the first position records all watermarks
            }
            found.append(StreamPosition(step.time, moved))
        return tuple(found), dict(zip(clocks, far, strict=True))

    def _steps(self) -> list["_Step"]:
        """Return the positions of the stream in their order."""
        upstream = self.new_rows.upstream
        columns = {watermark.time.column.lower(): n for n, watermark in enumerate(self._bound.join.looking_up)}

        def numbered(watermarks: Mapping[str, int]) -> dict[int, int]:
            return {columns[name]: watermark for name, watermark in watermarks.items() if name in columns}

        if self._plan.strategy != "incremental":
            return [
                _Step(
                    0, numbered(upstream.watermarks) if upstream is not None else self._greatest_values().get(None, {})
                )
            ]
        if upstream is not None:
            return [_Step(position.time, numbered(position.watermarks)) for position in upstream.positions]
        greatest = self._greatest_values()
        return [_Step(time, greatest.get(commit.version, {})) for commit, time in self.new_rows.commits()]

    def _greatest_values(self) -> dict[int | None, dict[int, int]]:
        """Return the greatest values of the watermarked columns by commit; for a load, of all rows under None."""
        watermarks = self._bound.join.looking_up
        if not watermarks:
            return {}
        kinds = self.new_rows.table.schema
        names = [(watermark.time.column, kinds[watermark.time.column].dataType) for watermark in watermarks]
        greatest = [F.max(F.expr(as_number(quote(name), kind))).alias(f"m{n}") for n, (name, kind) in enumerate(names)]
        is_load = self._plan.strategy != "incremental"
        rows = self._new_rows.agg(F.lit(None), *greatest) if is_load else self._new_rows.groupBy(VERSION).agg(*greatest)
        return {
            row[0]: {n: row[n + 1] for n in range(len(watermarks)) if row[n + 1] is not None} for row in rows.collect()
        }

    def _refuse_twice(self) -> None:
        for place in range(1, len(self._bound.join.inputs)):
            item, table = self._bound.join.inputs[place], self._bound.table(place)
            rows = read_rows(self._workspace.spark, table, table.version)
            twice = duplicates_in_table(rows, item.key, may_be_absent=item.may_be_absent)
            refuse_keys(table.address.label, item.key, twice)
        raise DuplicateKey(
            self._bound.join.name,
            "a row of the stream met more than one row of a table",
            expected="at most one row for each key of a table",
            found=f"{self._made['rows']} rows for {self.new_rows.number} rows of the stream",
        )


def _present(found: DataFrame) -> DataFrame:
    """Return those rows of `Lookups` that are in the result."""
    return found.where(PRESENT).drop(PRESENT, NULL_KEY)


def _aggregates(facts: Mapping[str, str]) -> list[Column]:
    return [F.expr(sql).alias(name) for name, sql in facts.items()]


def _compute(workspace: Workspace, epoch: Epoch[BoundJoin], scratch: Scratch) -> Computed:
    lookups = Lookups(workspace, epoch, scratch)
    lookups.put(scratch.stage)
    counts = lookups.counts()
    writes = (with_rows(epoch.plan.writes[-1], counts[APPENDED]),)
    return Computed(counts, writes, lookups.clocks(), lookups.positions)


class _Step(NamedTuple):
    """A position of the stream: its time, and the greatest values of the watermarked columns, by their places."""

    time: int
    newest_time: Mapping[int, int]
