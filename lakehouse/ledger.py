"""
The ledger: one Delta table with a row for each step that an epoch takes, never updated in place.

    publishing  ->  committed            the way of a good epoch
    publishing  ->  broken  -> abandoned what the commit changed is not what was staged; a person decided
    publishing  ->  slice, slice, ...  ->  committed     a backfill that goes slice by slice of the key space
    rejected                             a gate failed; uses up no number

The *publishing* row decides who publishes an epoch: it is appended under an application id of its own with the epoch as
its version, so that of two runs one row exists. Progress is read from here only. "Last" is the highest epoch, never the
latest row.

Paths of targets and stages that lie in the ledger's own folder's parent, the storage, are kept relative to it: a lake
may be moved or copied.
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
"""Each step is a file of its own, and every run reads all: Delta makes one of fifty."""

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
        The ledger's table id, which every fence names. The ledger is created if it is not there.

        Raises:
            CannotContinue: Delta is set to forget which epochs were written to it.
        """
        known = table_detail(self._spark, self._address)
        if known is None:
            create(self._spark, self._address, _frame(self._spark, {}).schema, (), properties=COMPACTED)
            known = table_detail(self._spark, self._address)
        assert known is not None
        refuse_forgetting(NAME, self._address, known["properties"])
        return str(known["id"])

    def of(self, join: str) -> JoinHistory:
        """Read what is known of a join, its newest rows first; nothing where the ledger does not exist yet."""
        newest = self._rows(
            lambda rows: rows.where(_of(join)).orderBy(F.desc("epoch"), F.desc("at")).limit(limits.LEDGER_ROWS + 1)
        )
        return self._history(join, newest)

    def of_all(self) -> dict[str, JoinHistory]:
        """Read what is known of all joins, by their names, at once."""
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
        """Tell which slices of an epoch that goes slice by slice are written."""
        rows = self._rows(lambda rows: rows.where(_of(entry.join, slices=True)).where(F.col("epoch") == entry.epoch))
        return {row.slice for row in rows if row.run_id == entry.run_id and row.slice is not None}

    def _history(self, join: str, newest: list[Entry]) -> JoinHistory:
        """Make a history of the newest rows of a join: a whole one where these are all, or hold no committed epoch."""
        if len(newest) <= limits.LEDGER_ROWS:
            return JoinHistory(tuple(newest))
        oldest = newest[0].epoch  # of which rows may be missing
        recent = tuple(entry for entry in newest if entry.epoch > oldest)
        if not any(entry.step == COMMITTED for entry in recent):
            return JoinHistory(tuple(self._rows(lambda rows: rows.where(_of(join)))))
        return JoinHistory(
            recent, lambda: tuple(self._rows(lambda rows: rows.where(_of(join)).where(F.col("epoch") <= oldest)))
        )

    def _rows(self, wanted: Callable[[DataFrame], DataFrame]) -> list[Entry]:
        """Read rows in the order of their epochs, and in this in which they were written."""
        try:
            found = wanted(self._spark.sql(f"SELECT * FROM {self._address.sql}")).collect()
        except PySparkException as error:
            if is_missing(error):
                return []
            raise
        return sorted((_entry(row, self._storage) for row in found), key=lambda entry: (entry.epoch, entry.at))

    def append(self, entry: Entry) -> Entry:
        """
        Append one step and make sure that it is the one that counts.

        Raises:
            AnotherRun: The row that counts for this epoch is that of another run.
            LedgerForgot: There is no such row, though there was one; the next epoch gets a number that was never used.
        """
        entry = self._write(entry)
        if not self._is_there(entry):
            self._refuse(entry)
        return entry

    def _write(self, entry: Entry) -> Entry:
        entry = replace(entry, at=datetime.now(UTC))
        frame = _frame(self._spark, _row(entry, self._storage))
        # A ledger of an earlier version of lakejoin lacks columns that came later.
        writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
        fence = f"{self.id}/{entry.join}"
        if entry.step in (PUBLISHING, *CLOSING):
            app = fence + ("/closed" if entry.step in CLOSING else "")
            writer = writer.option("txnAppId", app).option("txnVersion", str(entry.epoch))
        writer = writer.option("userMetadata", _mark(entry))
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
                    break  # another run appended the same step at the same time: whose row it is, is read back
                if not is_conflict(error):
                    if is_of_spark(error):
                        raise refusal(error, to, entry.epoch, entry.join) from error
                    raise
        return entry

    def _is_there(self, entry: Entry) -> bool:
        """
        Read a step back: an append under a transaction id that was used is skipped without a word.

        The ledger's own history tells at little cost; where our commit is not among the newest, its rows decide.
        """
        newest = history(self._spark, self._address, limits.COMMITS_AT_ONCE)
        # A commit before RESTORE or DELETE says nothing: its row may be gone.
        own = takewhile(lambda commit: commit.operation == "WRITE" or not commit.changes_data, newest)
        if any(commit.metadata == _mark(entry) for commit in own):
            return True
        return any(known.run_id == entry.run_id and known.step == entry.step for known in self._rivals(entry))

    def _rivals(self, entry: Entry) -> list[Entry]:
        """Read the rows that may be there in the place of a step."""
        steps = CLOSING if entry.step in CLOSING else (entry.step,)
        own = (F.col("epoch") == entry.epoch) & F.col("step").isin(*steps)
        return self._rows(lambda rows: rows.where(_of(entry.join)).where(own))

    def _refuse(self, entry: Entry) -> None:
        """
        Say why a step is not there.

        Raises:
            AnotherRun, LedgerForgot: As `append`. Delta keeps the number of a transaction when RESTORE or DELETE takes
                its row out of the ledger.
        """
        rivals = self._rivals(entry)
        if not rivals:
            above = self._skip_used(entry)
            raise LedgerForgot(
                entry.join,
                f"rows of epoch {entry.epoch} are gone from the ledger",
                expected=f"{entry.step} by run {entry.run_id}, or a row of another run in its place",
                found=f"neither, though Delta knows that there was one; the next epoch is {above + 1}",
                hint=f"run `lakejoin backfill --select {entry.join}` to go on from the tables as they are",
            )
        raise AnotherRun(
            entry.join,
            f"epoch {entry.epoch} belongs to another run",
            expected=f"{entry.step} by run {entry.run_id}",
            found=", ".join(f"{rival.step} by run {rival.run_id}" for rival in rivals),
            hint=f"let that run finish; `lakejoin run --select {entry.join}` again picks up what it left",
        )

    def _skip_used(self, entry: Entry) -> int:
        """Append an abandoned epoch with a number that was never used, for those that the ledger lost; give it."""
        message = f"rows of epoch {entry.epoch} were gone from the ledger; numbers up to this one may have been used"
        above, step = entry.epoch, 1
        while True:
            above, step = above + step, 2 * step
            if self._is_there(self._write(replace(entry, epoch=above, step=ABANDONED, message=message))):
                return above


def _of(join: str, *, slices: bool = False) -> Column:
    """Pick the rows of a join that are about epochs as a whole, or those about single slices."""
    return (F.col("join_name") == join) & ((F.col("step") == SLICE) == slices)


def _mark(entry: Entry) -> str:
    """Give what a commit of the ledger carries as its user metadata."""
    return f"{entry.run_id} {entry.step} {entry.epoch} {entry.join}"


def _frame(spark: SparkSession, row: Mapping[str, object]) -> DataFrame:
    """
    Make a frame of one row. As JSON it is a literal of the plan; `createDataFrame` of rows would start Python workers.
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
        "positions": [{"time": passed.time, "watermarks": dict(passed.watermarks)} for passed in entry.positions],
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
        positions=tuple(map(_passed, _later(row, "positions") or ())),
        slices=tuple(
            Slice(part["condition"], part["rows"], part["where"] or "") for part in (_later(row, "slices") or ())
        ),
        slice=_later(row, "slice"),
        at=utc(row["at"]),
    )


def _later(row: Row, name: str) -> Any:
    """Give a column that a ledger of an earlier version of lakejoin may lack."""
    return row.asDict().get(name)


def _source(row: Row) -> SourceVersions:
    given = row.asDict()
    columns = (UsedColumn(tuple(column["path"]), column["type"]) for column in given.get("columns") or ())
    commit = given.get("commit")
    time = None if commit is None or commit["time"] is None else utc(commit["time"])
    return SourceVersions(
        row["name"],
        row["id"],
        row["from_version"],
        row["to_version"],
        given.get("from_epoch") or 0,
        given.get("to_epoch") or 0,
        tuple(columns),
        CommitIdentity(time, "" if commit is None else commit["transaction"] or ""),
    )


def _passed(row: Row) -> StreamPosition:
    return StreamPosition(row["time"], dict(row["watermarks"] or {}))
