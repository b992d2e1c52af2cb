"""
Joins of a stream with tables: each row of the stream meets the tables as they were at its time.

    rows of the stream ─► look-up in each table as it was at their position ─► SELECT list ─► stage: result
                                   ▲
    feeds of the tables ─► changes of every commit, in the order of time ─► versions

The first epoch reads the stream's snapshot, which meets the tables as they are then; later epochs read the feed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import NamedTuple

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as F

from expectations.gate import stream_facts
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.errors.errors import DuplicateKey
from lakehouse.ledger.entries import Entry, StreamPosition
from lakehouse.publish.stage import Deferred, Stage
from lakehouse.publish.writes import RESULT_PART, AppendInPlace, with_rows
from lakehouse.tables.table import read_rows
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.epochs.lookup.gate import gate_lookups
from pipelines.epochs.lookup.reading import StreamSources
from pipelines.epochs.sources.duplicate_keys import duplicates_in_changes, duplicates_in_table, refuse_keys
from pipelines.epochs.sources.reading import check_looked_up
from pipelines.epochs.sources.scratch import Scratch, via_driver_or_stage
from pipelines.epochs.streams.kind import StreamKind
from pipelines.epochs.streams.new_rows import NewRows
from pipelines.joins.lookup import NULL_KEY, as_rows, emitted, look_up
from pipelines.joins.meaning import PRESENT, without_unmatched
from pipelines.joins.watermarks import as_number
from pipelines.language import STREAM_COLUMNS
from pipelines.language.names import ALWAYS, HAS_VALUE, VERSION
from pipelines.plan.request import Request
from pipelines.plan.values import APPENDED, Computed

EPOCH, POSITION = STREAM_COLUMNS

MADE = {"rows": "count(1)", "appended": f"count_if({PRESENT})", "null_keys": f"count_if({NULL_KEY})"}
"""What is counted of the rows that look-ups return, as SQL by name."""


@dataclass(frozen=True)
class LookupKind(StreamKind):
    """A join of a stream with tables; it buffers nothing."""

    def prepare(self, request: Request) -> Prepared[BoundJoin]:
        """See `Kind.prepare`; many rows are not staged, unless expectations would compute them again and again."""
        prepared = super().prepare(request)
        plan = prepared.plan
        declared = self.workspace.file.joins[self.name].expectations
        is_large = plan.stream.new_bytes > limits.STAGED_STREAM_BYTES and not plan.via_driver
        if plan.strategy not in ("load", "incremental") or declared or not is_large:
            return prepared
        result = AppendInPlace(plan.result, RESULT_PART)
        return replace(prepared, plan=replace(plan, writes=(*plan.writes[:-1], result)))

    def compute_epoch(self, epoch: Epoch[BoundJoin], stage: Stage) -> Computed:
        """
        See `StreamKind.compute_epoch`; the part of the stage is `result`.

        Returns:
            The clocks after the epoch: for each source the greatest time that was read and, if other joins read the
            result, for each watermarked column, as `stream.column`, its greatest value. The positions that the epoch
            passed; a load passes one, the end, at 0. Counts: read (new rows of the stream, and feed rows of the
            tables), null_values (rows of the stream without a value), null_keys (feed rows of tables without a key, and
            rows of the stream that an inner join drops for a null key), ignored_changes (updated or deleted rows that
            were skipped), behind_cut (rows and changes that came too late for their place in the order), looked_up,
            files, and appended.

        Raises:
            CannotContinue: A commit of the stream changed or deleted rows, or the column that orders rows is null.
            DuplicateKey: A table holds a key twice.
        """
        workspace, plan = self.workspace, epoch.plan
        assert plan.strategy in ("load", "incremental", "reset"), plan.strategy
        size = sum(table.size for table in epoch.bound.sources[1:])
        return via_driver_or_stage(
            workspace, plan, size, stage, lambda scratch: Lookups(workspace, epoch, scratch).put()
        )

    def epoch_rows(self, epoch: Epoch[BoundJoin], scratch: Scratch) -> DataFrame:
        """See `StreamKind.epoch_rows`."""
        return Lookups(self.workspace, epoch, scratch).rows()

    def gate_sources(self, epoch: Epoch[BoundJoin], stage: Stage, entry: Entry) -> Verdict:
        """See `StreamKind.gate_sources`: look up the rows of the stream once more."""
        return gate_lookups(self.workspace, epoch, stage, entry)


class Lookups:
    """The look-ups of one epoch."""

    def __init__(self, workspace: Workspace, epoch: Epoch[BoundJoin], scratch: Scratch) -> None:
        self._workspace, self._bound, self._plan, self._scratch = workspace, epoch.bound, epoch.plan, scratch
        self._sources = StreamSources(workspace, epoch, scratch)
        self._is_deferred = isinstance(epoch.plan.writes[-1], AppendInPlace)
        self._new_rows = NewRows(workspace, epoch, is_observed=not self._is_deferred)

    def put(self) -> Computed:
        """Put the rows of the result into the stage, or defer them there after a look at their counts."""
        found = self._look_up()
        made = self._defer(found.rows) if self._is_deferred else self._stage(found.rows)
        counts = self._counts(made)
        writes = (with_rows(self._plan.writes[-1], counts[APPENDED]),)
        positions, greatest = self._walked(found.new_rows)
        return Computed(counts, writes, clocks=self._clocks(greatest), positions=positions)

    def rows(self) -> DataFrame:
        """Return the rows of the result, with `_epoch` and `_position`."""
        return _present(self._look_up().rows)

    def _stage(self, found: DataFrame) -> Mapping[str, int]:
        """Write the rows into the stage; return the counts of MADE."""
        observation = Observation()
        self._scratch.stage.put("result", _present(found.observe(observation, *_aggregates(MADE))))
        return dict(observation.get)

    def _defer(self, found: DataFrame) -> Mapping[str, int]:
        """Count the rows, and leave their query in the stage; return the counts of MADE."""
        facts = stream_facts(self._plan.epoch, *STREAM_COLUMNS)
        of_present = {f"present_{name}": f"{sql} FILTER (WHERE {PRESENT})" for name, sql in facts.items()}
        looked = found.agg(*_aggregates(MADE | of_present)).collect()[0].asDict()
        known = {name: looked[f"present_{name}"] for name in facts}
        self._scratch.stage.deferred["result"] = Deferred(_present(found), facts, known)
        return {name: looked[name] for name in MADE}

    def _look_up(self) -> "_LookedUp":
        bound, sources = self._bound, self._sources
        for place, changes in sources.twice.items():
            item = self._bound.join.inputs[place]
            refuse_keys(item.source, item.key, duplicates_in_changes(changes))
        whole, new_rows = self._new_rows.frame, self._new_rows.frame.drop(HAS_VALUE)
        if self._scratch.via_driver or not all(sources.is_met_whole(link.input) for link in bound.join.links):
            whole = new_rows = sources.looked_up.materialize("new_rows", new_rows)
            self._new_rows.facts()
        rows = as_rows(new_rows, bound.join.inputs[0])
        for number, link in enumerate(bound.join.links):
            rows = without_unmatched(rows, link, bound.join)
            if number and link.over and not sources.is_met_whole(link.input):
                rows = sources.looked_up.materialize(f"met_{number}", rows)
            to_all = sources.is_sent_to_all(link.input)
            rows = look_up(rows, link, bound.join, bound.types, sources.versions(link, rows), broadcast=to_all)
        own = [field for field in bound.columns if field.name not in STREAM_COLUMNS]
        # Spark copies each row that it observes: single columns, not a struct.
        found = emitted(rows, bound.join).select(
            *(F.col(f"row.{quote(field.name)}").cast(field.dataType).alias(field.name) for field in own),
            F.lit(self._plan.epoch).cast("bigint").alias(EPOCH),
            F.col("position").alias(POSITION),
            F.expr("row IS NOT NULL").alias(PRESENT),
            F.col("null_key").alias(NULL_KEY),
        )
        return _LookedUp(found, whole)

    def _counts(self, made: Mapping[str, int]) -> dict[str, int]:
        """
        Check the rows, and return the counts of the epoch.

        Raises:
            CannotContinue: As `NewRows.facts` raises it.
            DuplicateKey: A table holds a key twice.
        """
        facts = self._new_rows.facts()
        if made["rows"] != self._new_rows.number:
            self._refuse_twice(made["rows"])
        looked_up = check_looked_up(self._bound, self._sources.looked_up)
        counts = self._sources.looked_up.counts
        return {
            **counts,
            **facts,
            "looked_up": counts["looked_up"] + looked_up,
            "read": counts["read"] + facts["read"],
            "null_keys": counts["null_keys"] + made["null_keys"],
            "behind_cut": facts["behind_cut"] + self._sources.behind_cut,
            "appended": made["appended"],
        }

    def _clocks(self, greatest: Mapping[str, int]) -> dict[str, int]:
        """Return the clocks of sources and watermarked columns after the epoch, from the greatest values of these."""
        before = self._plan.stream.clocks
        clocks, newest = {**before, **self._sources.newest_time}, self._new_rows.newest_time
        if newest is not None:
            clocks[self._new_rows.source] = newest
        clocks = {name: max(time, before.get(name, time)) for name, time in clocks.items()}
        return clocks | {name: far for name, far in greatest.items() if far != ALWAYS}

    def _walked(self, new_rows: DataFrame) -> tuple[tuple[StreamPosition, ...], dict[str, int]]:
        """Return the positions with the watermarks of the result, and the greatest values of watermarked columns."""
        watermarks = self._bound.join.looking_up
        clocks = [f"{self._new_rows.source}.{watermark.time.column}" for watermark in watermarks]
        far = [self._plan.stream.clocks.get(clock, ALWAYS) for clock in clocks]
        found: list[StreamPosition] = []
        for step in self._steps(new_rows):
            before, far = far, [max(one, step.newest_time.get(n, one)) for n, one in enumerate(far)]
            moved = {
                name: far[n] - watermarks[n].lateness
                for name, n in self._bound.join.carried
                if far[n] > before[n] or (not found and far[n] != ALWAYS)  # the first position records all watermarks
            }
            found.append(StreamPosition(step.time, moved))
        return tuple(found), dict(zip(clocks, far, strict=True))

    def _steps(self, new_rows: DataFrame) -> list["_Step"]:
        """Return the positions of the stream in their order."""
        upstream = self._new_rows.upstream
        columns = {watermark.time.column.lower(): n for n, watermark in enumerate(self._bound.join.looking_up)}

        def numbered(watermarks: Mapping[str, int]) -> dict[int, int]:
            return {columns[name]: watermark for name, watermark in watermarks.items() if name in columns}

        if self._plan.strategy != "incremental":
            found = self._greatest_values(new_rows).get(None, {}) if upstream is None else numbered(upstream.watermarks)
            return [_Step(0, found)]
        if upstream is not None:
            return [_Step(position.time, numbered(position.watermarks)) for position in upstream.positions]
        greatest = self._greatest_values(new_rows)
        return [_Step(time, greatest.get(commit.version, {})) for commit, time in self._new_rows.commits()]

    def _greatest_values(self, new_rows: DataFrame) -> dict[int | None, dict[int, int]]:
        """Return the greatest values of the watermarked columns by commit; for a load, of all rows under None."""
        watermarks = self._bound.join.looking_up
        if not watermarks:
            return {}
        schema = self._new_rows.table.schema
        names = [(watermark.time.column, schema[watermark.time.column].dataType) for watermark in watermarks]
        greatest = [F.max(F.expr(as_number(quote(name), kind))).alias(f"m{n}") for n, (name, kind) in enumerate(names)]
        is_load = self._plan.strategy != "incremental"
        rows = new_rows.agg(F.lit(None), *greatest) if is_load else new_rows.groupBy(VERSION).agg(*greatest)
        return {
            row[0]: {n: row[n + 1] for n in range(len(watermarks)) if row[n + 1] is not None} for row in rows.collect()
        }

    def _refuse_twice(self, made: int) -> None:
        for index in range(1, len(self._bound.join.inputs)):
            item, table = self._bound.join.inputs[index], self._bound.table(index)
            rows = read_rows(self._workspace.spark, table, table.version)
            twice = duplicates_in_table(rows, item.key, may_be_absent=item.may_be_absent)
            refuse_keys(table.address.label, item.key, twice)
        raise DuplicateKey(
            self._bound.join.name,
            "a row of the stream met more than one row of a table",
            expected="at most one row for each key of a table",
            found=f"{made} rows for {self._new_rows.number} rows of the stream",
        )


def _present(found: DataFrame) -> DataFrame:
    """Return those rows of `Lookups` that are in the result."""
    return found.where(PRESENT).drop(PRESENT, NULL_KEY)


def _aggregates(facts: Mapping[str, str]) -> list[Column]:
    return [F.expr(sql).alias(name) for name, sql in facts.items()]


class _LookedUp(NamedTuple):
    """
    What look-ups return.

    Args:
        rows: A row for each row of the stream: that of the result, PRESENT (whether it is in the result) and NULL_KEY.
        new_rows: The rows of the stream.
    """

    rows: DataFrame
    new_rows: DataFrame


class _Step(NamedTuple):
    """A position of the stream: its time, and the greatest values of the watermarked columns, by number."""

    time: int
    newest_time: Mapping[int, int]
