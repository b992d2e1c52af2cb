"""
The ledger: one Delta table with a row for each step of an epoch, never updated in place.

    publishing  ->  committed            the usual course of an epoch
    publishing  ->  broken  -> abandoned the commit changed other rows than were staged; the user decided
    publishing  ->  slice, slice, ...  ->  committed     a backfill in slices of the key space
    rejected                             a gate failed; uses up no number

The *publishing* row decides which run publishes an epoch. It is appended under its own application id with the epoch as
its version, so only one of two concurrent runs has a row. Progress is read from the ledger only. "Last" means the
highest epoch, never the latest row.

The storage is the parent of the ledger's folder. Paths of targets and stages in the storage are relative to it, so that
a lake can be moved or copied.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import takewhile
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import Row

from lakehouse import limits
from lakehouse.address import Address, absolute_from, relative_to
from lakehouse.commit_identity import CommitIdentity
from lakehouse.conditions import is_conflict, is_missing, is_of_spark
from lakehouse.entries import (
    ABANDONED,
    CLOSING,
    COMMITTED,
    PUBLISHING,
    SLICE,
    Entry,
    JoinHistory,
    Slice,
    SourceVersions,
    StreamPosition,
    TargetVersions,
    UsedColumn,
)
from lakehouse.errors import AnotherRun, LedgerForgot
from lakehouse.refusals import refusal, refuse_forgetting
from lakehouse.session import INTERPRETED, settings
from lakehouse.tables import create, history, table_detail
from lakehouse.times import utc
from lakehouse.writing import write

NAME = "lakejoin_ledger"

ATTEMPTS = 5


COMPACTED = {"delta.autoOptimize.autoCompact": "true"}
"""Each step adds a file, and every run reads all files: Delta compacts fifty files into one."""

SCHEMA = """
    join_name STRING, epoch BIGINT, step STRING, run_id STRING, at TIMESTAMP, strategy STRING, reason STRING,
    definition STRING,
    sources ARRAY<STRUCT<name: STRING, id: STRING, from_version: BIGINT, to_version: BIGINT,
                         from_epoch: BIGINT, to_epoch: BIGINT,
                         columns: ARRAY<STRUCT<path: ARRAY<STRING>, type: STRING>>,
                         commit: STRUCT<time: TIMESTAMP, transaction: STRING>>>,
    targets ARRAY<STRUCT<name: STRING, path: STRING, table_name: STRING, id: STRING, base_version: BIGINT,
                         version: BIGINT>>,
    stage STRING, counts MAP<STRING, BIGINT>, seconds MAP<STRING, DOUBLE>, message STRING, clocks MAP<STRING, BIGINT>,
    positions ARRAY<STRUCT<time: BIGINT, watermarks: MAP<STRING, BIGINT>>>,
    slices ARRAY<STRUCT<condition: STRING, rows: BIGINT, where: STRING>>, slice BIGINT
"""


class Ledger:
    """
    The ledger of one storage.

    Args:
        spark: Our session.
        address: The ledger table's address.
    """

    def __init__(self, spark: SparkSession, address: Address) -> None:
        self._spark = spark
        self._address = address
        self._storage = address.path.rpartition("/")[0]

    @cached_property
    def id(self) -> str:
        """
        The table id of the ledger, which every fence contains. The ledger is created if it does not exist.

        Raises:
            CannotContinue: A table property lets Delta forget which epochs were written to the ledger.
        """
        known = table_detail(self._spark, self._address)
        if known is None:
            create(self._spark, self._address, _frame(self._spark, {}).schema, (), properties=COMPACTED)
            known = table_detail(self._spark, self._address)
        assert known is not None
        refuse_forgetting(NAME, self._address, known["properties"])
        return str(known["id"])

    def of(self, join: str) -> JoinHistory:
        """Read the history of a join, older rows on demand; it is empty if the ledger does not exist yet."""
        newest = self._rows(
            lambda rows: rows.where(_of(join)).orderBy(F.desc("epoch"), F.desc("at")).limit(limits.LEDGER_ROWS + 1)
        )
        return self._history(join, newest)

    def of_all(self) -> dict[str, JoinHistory]:
        """Read the histories of all joins together, by the name of the join."""
        place = F.row_number().over(Window.partitionBy("join_name").orderBy(F.desc("epoch"), F.desc("at")))
        newest = self._rows(
            lambda rows: (
                rows.where(F.col("step") != SLICE)
                .withColumn("place", place)
                .where(f"place <= {limits.LEDGER_ROWS + 1}")
            )
        )
        found: dict[str, list[Entry]] = {}
        for entry in newest:
            found.setdefault(entry.join, []).append(entry)
        return {join: self._history(join, entries) for join, entries in found.items()}

    def slices_done(self, entry: Entry) -> set[int]:
        """Return the numbers of the slices that are written, for an epoch in slices."""
        rows = self._rows(lambda rows: rows.where(_of(entry.join, slices=True)).where(F.col("epoch") == entry.epoch))
        return {row.slice for row in rows if row.run_id == entry.run_id and row.slice is not None}

    def _history(self, join: str, newest: list[Entry]) -> JoinHistory:
        """Build a history from the newest rows of a join; read all rows if these contain no committed epoch."""
        if len(newest) <= limits.LEDGER_ROWS:
            return JoinHistory(tuple(newest))
        oldest = newest[0].epoch  # `newest` may lack rows of this epoch
        recent = tuple(entry for entry in newest if entry.epoch > oldest)
        if not any(entry.step == COMMITTED for entry in recent):
            return JoinHistory(tuple(self._rows(lambda rows: rows.where(_of(join)))))
        return JoinHistory(
            recent, lambda: tuple(self._rows(lambda rows: rows.where(_of(join)).where(F.col("epoch") <= oldest)))
        )

    def _rows(self, wanted: Callable[[DataFrame], DataFrame]) -> list[Entry]:
        """Read rows, ordered by epoch and by the time at which they were written."""
        try:
            found = wanted(self._spark.sql(f"SELECT * FROM {self._address.sql}")).collect()
        except PySparkException as error:
            if is_missing(error):
                return []
            raise
        return sorted((_entry(row, self._storage) for row in found), key=lambda entry: (entry.epoch, entry.at))

    def append(self, entry: Entry) -> Entry:
        """
        Append one step and check that it is the step that takes effect.

        Raises:
            AnotherRun: The row of another run takes effect for this epoch.
            LedgerForgot: A row existed but is gone; the next epoch gets a number that was never used.
        """
        entry = self._write(entry)
        if not self._exists(entry):
            self._refuse(entry)
        return entry

    def _write(self, entry: Entry) -> Entry:
        entry = replace(entry, at=datetime.now(UTC))
        frame = _frame(self._spark, _row(entry, self._storage))
        # A ledger of an earlier version of lakejoin lacks newer columns.
        writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
        fence = f"{self.id}/{entry.join}"
        if entry.step in (PUBLISHING, *CLOSING):
            app = fence + ("/closed" if entry.step in CLOSING else "")
            writer = writer.option("txnAppId", app).option("txnVersion", str(entry.epoch))
        writer = writer.option("userMetadata", _user_metadata(entry))
        to = self._address
        for _ in range(ATTEMPTS):
            try:
                with settings(self._spark, INTERPRETED):
                    write(
                        f"ledger: {entry.step} epoch {entry.epoch} of {entry.join}",
                        lambda: writer.save(to.path) if to.path else writer.saveAsTable(to.table),
                    )
                break
            except Exception as error:
                if "CONCURRENT_TRANSACTION" in str(error):
                    break  # another run appended the same step concurrently; the caller reads back whose row exists
                if not is_conflict(error):
                    if is_of_spark(error):
                        raise refusal(error, to, entry.epoch, entry.join) from error
                    raise
        return entry

    def _exists(self, entry: Entry) -> bool:
        """
        Return whether a step is in the ledger: Delta silently skips an append under a used transaction id.

        The history of the ledger is cheap to read. If our commit is not among the newest, the rows decide.
        """
        newest = history(self._spark, self._address, limits.COMMITS_AT_ONCE)
        # A commit before a RESTORE or DELETE proves nothing: its row may be gone.
        own = takewhile(lambda commit: commit.operation == "WRITE" or not commit.changes_data, newest)
        if any(commit.metadata == _user_metadata(entry) for commit in own):
            return True
        return any(known.run_id == entry.run_id and known.step == entry.step for known in self._rivals(entry))

    def _rivals(self, entry: Entry) -> list[Entry]:
        """Read the rows that may exist instead of a step."""
        steps = CLOSING if entry.step in CLOSING else (entry.step,)
        own = (F.col("epoch") == entry.epoch) & F.col("step").isin(*steps)
        return self._rows(lambda rows: rows.where(_of(entry.join)).where(own))

    def _refuse(self, entry: Entry) -> None:
        """
        Raise the error for a step that is not in the ledger.

        Raises:
            AnotherRun, LedgerForgot: As in `append`. Delta keeps the number of a transaction when RESTORE or DELETE
                removes its row from the ledger.
        """
        rivals = self._rivals(entry)
        if not rivals:
            above = self._skip_used(entry)
            raise LedgerForgot(
                entry.join,
                f"rows of epoch {entry.epoch} are missing from the ledger",
                expected=f"{entry.step} by run {entry.run_id}, or a row of another run",
                found=f"neither, although Delta recorded one; the next epoch is {above + 1}",
                hint=f"run `lakejoin backfill --select {entry.join}` to continue from the current tables",
            )
        raise AnotherRun(
            entry.join,
            f"epoch {entry.epoch} belongs to another run",
            expected=f"{entry.step} by run {entry.run_id}",
            found=", ".join(f"{rival.step} by run {rival.run_id}" for rival in rivals),
            hint=f"let that run finish, then run `lakejoin run --select {entry.join}`, which continues from the ledger",
        )

    def _skip_used(self, entry: Entry) -> int:
        """Append an abandoned epoch with an unused number, to skip numbers that the ledger lost; return its number."""
        message = f"rows of epoch {entry.epoch} were missing from the ledger; numbers up to this one may have been used"
        above, step = entry.epoch, 1
        while True:
            above, step = above + step, 2 * step
            if self._exists(self._write(replace(entry, epoch=above, step=ABANDONED, message=message))):
                return above


def _of(join: str, *, slices: bool = False) -> Column:
    """Return the condition for the rows of a join: those about whole epochs, or those about single slices."""
    return (F.col("join_name") == join) & ((F.col("step") == SLICE) == slices)


def _user_metadata(entry: Entry) -> str:
    """Return the user metadata of a commit to the ledger."""
    return f"{entry.run_id} {entry.step} {entry.epoch} {entry.join}"


def _frame(spark: SparkSession, row: Mapping[str, object]) -> DataFrame:
    """
    Build a frame of one row from JSON, which is a literal of the plan.

    `createDataFrame` from rows would start Python workers.
    """
    return spark.sql("SELECT 1").select(F.from_json(F.lit(json.dumps(row)), SCHEMA).alias("row")).select("row.*")


def _row(entry: Entry, storage: str) -> dict[str, object]:
    assert entry.at is not None
    return {
        "join_name": entry.join,
        "epoch": entry.epoch,
        "step": entry.step,
        "run_id": entry.run_id,
        "at": entry.at.isoformat(),
        "strategy": entry.strategy,
        "reason": entry.reason,
        "definition": entry.definition,
        "sources": list(map(_source_row, entry.sources)),
        "targets": [
            {
                "name": target.address.label,
                "path": relative_to(storage, target.address.path),
                "table_name": target.address.table,
                "id": target.id,
                "base_version": target.base_version,
                "version": target.version,
            }
            for target in entry.targets
        ],
        "stage": relative_to(storage, entry.stage),
        "counts": dict(entry.counts),
        "seconds": dict(entry.seconds),
        "message": entry.message,
        "clocks": dict(entry.clocks),
        "positions": [{"time": position.time, "watermarks": dict(position.watermarks)} for position in entry.positions],
        "slices": [asdict(part) for part in entry.slices],
        "slice": entry.slice,
    }


def _source_row(source: SourceVersions) -> dict[str, object]:
    commit = source.commit
    time = None if commit.time is None else commit.time.isoformat()
    return {**asdict(source), "commit": {"time": time, "transaction": commit.transaction}}


def _entry(row: Row, storage: str) -> Entry:
    return Entry(
        join=row["join_name"],
        epoch=row["epoch"],
        step=row["step"],
        run_id=row["run_id"],
        strategy=row["strategy"],
        reason=row["reason"],
        definition=row["definition"],
        sources=tuple(map(_source, row["sources"])),
        targets=tuple(
            TargetVersions(
                Address(t["name"], absolute_from(storage, t["path"] or ""), t["table_name"] or ""),
                t["id"],
                t["base_version"],
                t["version"],
            )
            for t in row["targets"]
        ),
        stage=absolute_from(storage, row["stage"] or ""),
        counts=dict(row["counts"] or {}),
        seconds=dict(row["seconds"] or {}),
        message=row["message"] or "",
        clocks=dict(_later(row, "clocks") or {}),
        positions=tuple(map(_position, _later(row, "positions") or ())),
        slices=tuple(
            Slice(part["condition"], part["rows"], part["where"] or "") for part in (_later(row, "slices") or ())
        ),
        slice=_later(row, "slice"),
        at=utc(row["at"]),
    )


def _later(row: Row, name: str) -> Any:
    """Return the value of a column, or None if a ledger of an earlier version of lakejoin lacks the column."""
    return row.asDict().get(name)


def _source(row: Row) -> SourceVersions:
    values = row.asDict()
    columns = (UsedColumn(tuple(column["path"]), column["type"]) for column in values.get("columns") or ())
    commit = values.get("commit")
    time = None if commit is None or commit["time"] is None else utc(commit["time"])
    return SourceVersions(
        row["name"],
        row["id"],
        row["from_version"],
        row["to_version"],
        values.get("from_epoch") or 0,
        values.get("to_epoch") or 0,
        tuple(columns),
        CommitIdentity(time, "" if commit is None else commit["transaction"] or ""),
    )


def _position(row: Row) -> StreamPosition:
    return StreamPosition(row["time"], dict(row["watermarks"] or {}))
