"""
The ledger: one Delta table with a row for each step of an epoch, never updated in place.

    publishing  ->  committed            the usual course of an epoch
    publishing  ->  broken  -> abandoned the commit changed other rows than were staged; the user decided
    publishing  ->  slice, slice, ...  ->  committed     a backfill in slices of the key space
    rejected                             a gate failed; uses up no number
    refused                              a run could not continue without a person; uses up no number
    verified                             the result of the committed epoch has its checksum
    begun       ->  complete, incomplete a whole run, about no join: the cut to which it brought all of them

The *publishing* row decides which run publishes an epoch. It is appended under its own application id with the epoch as
its version, so only one of two concurrent runs has a row. Progress is read from the ledger only. "Last" means the
highest epoch, never the latest row.

The storage is the parent of the ledger's folder. Paths of targets and stages in the storage are relative to it, so that
a lake can be moved or copied.

delta-rs reads the table and appends to it where it may, else Spark does. Both read a query in SQL that both understand.
delta-rs appends without a Spark job; because it does not look at application transactions by itself, the look at the
transaction and the commit happen under one lock, and a commit that meets another one fails instead of moving behind it.
"""

import json
import logging
import sys
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from functools import cached_property
from itertools import takewhile
from threading import Lock
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.errors.conditions import (
    first_line,
    is_conflict,
    is_missing,
    is_of_spark,
    refusal,
    refuse_forgetting,
)
from lakehouse.errors.errors import AnotherRun, LedgerForgot, Remedy
from lakehouse.ledger.entries import ABANDONED, CLOSING, COMMITTED, PUBLISHING, SLICE, VERIFIED, Entry, JoinHistory
from lakehouse.ledger.rows import SCHEMA, arrow_schema, entry_of, row_of, row_of_run, run_of
from lakehouse.ledger.runs import RUN_STEPS, Run
from lakehouse.session.engine import Engine
from lakehouse.session.session import INTERPRETED, settings
from lakehouse.session.writing import write
from lakehouse.tables.creation import create
from lakehouse.tables.delta_log import Log, open_log
from lakehouse.tables.table import history, table_detail
from lakehouse.values.sqltext import Address, text

log = logging.getLogger(__name__)

NAME = "lakejoin_ledger"

_OF_RUNS = f"step IN ({', '.join(map(text, RUN_STEPS))})"
"""The condition for rows about whole runs."""

_OF_EPOCHS = f"step NOT IN ('{SLICE}', '{VERIFIED}') AND NOT {_OF_RUNS}"
"""The condition for rows about whole epochs: neither about a slice, nor about a verification, nor about a run."""

_ENTRIES, _SLICES = f"join_name = {{join}} AND {_OF_EPOCHS}", f"join_name = {{join}} AND step = '{SLICE}'"
"""The conditions for the rows of a join about whole epochs, and for its rows about single slices."""

_ATTEMPTS = 5

_Transaction = tuple[str, int]
"""The application id and the version under which a row is appended at most once."""

_COMPACTED = {"delta.autoOptimize.autoCompact": "true"}
"""Each step adds a file, and every run reads all files: Spark compacts fifty files into one."""

_WRITABLE_FEATURES = frozenset({"appendOnly", "changeDataFeed", "deletionVectors", "invariants"})
"""The features of the tables to which delta-rs may append: those of a ledger as lakejoin creates it."""

_HIGHEST_PLAIN_WRITER = 4
"""The highest version of a writer's protocol without a list of features."""


_creating, _appending = Lock(), Lock()
"""Joins that run side by side have a `Ledger` each; one creates the table, and none changes a session's settings when
another does."""


class Ledger:
    """The ledger of one storage."""

    def __init__(self, engine: Engine, address: Address) -> None:
        self._engine, self._address = engine, address
        self._storage = address.path.rpartition("/")[0]

    @cached_property
    def id(self) -> str:
        """
        The table id of the ledger, which every fence contains. The ledger is created if it does not exist, and raises
        CannotContinue if a table property lets Delta forget which epochs were written to it.
        """
        with _creating:
            facts = _facts(self._engine, self._address)
            if facts is None:
                create(self._engine.spark, self._address, SCHEMA, (), properties=_COMPACTED)
                facts = _facts(self._engine, self._address)
        assert facts is not None
        refuse_forgetting(NAME, self._address, facts[1])
        return facts[0]

    def of(self, join: str) -> JoinHistory:
        """Read the history of a join, older rows on demand; it is empty if the ledger does not exist yet."""
        return self._history(join, self._rows(_ENTRIES, join, limits.LEDGER_ROWS + 1))

    def of_all(self) -> dict[str, JoinHistory]:
        """Read the histories of all joins together, by the name of the join."""
        entries: dict[str, list[Entry]] = {}
        for entry in self._rows(_OF_EPOCHS, newest=limits.LEDGER_ROWS + 1, of_each=True):
            entries.setdefault(entry.join, []).append(entry)
        return {join: self._history(join, rows) for join, rows in entries.items()}

    def last_verified(self, join: str) -> Entry | None:
        """Return the newest row that says that the result of a join had its checksum; None if no row does."""
        return next(iter(self._rows(f"join_name = {{join}} AND step = '{VERIFIED}'", join, 1)), None)

    def all_verified(self) -> dict[str, Entry]:
        """Return the rows of `last_verified` for all joins, by the name of the join."""
        return {entry.join: entry for entry in self._rows(f"step = '{VERIFIED}'", newest=1, of_each=True)}

    def runs(self, newest: int, begins: str = "") -> list[Run]:
        """Return so many of the newest rows about whole runs, newest first, whose id begins with a text."""
        condition = f"{_OF_RUNS} AND left(run_id, {len(begins)}) = {{join}}" if begins else _OF_RUNS
        rows = _read(self._engine, self._address, condition, begins, newest, of_each=False)
        runs = (run_of(row, self._storage) for row in rows)
        return sorted(runs, key=lambda run: run.at or datetime.min.replace(tzinfo=UTC), reverse=True)

    def append_run(self, run: Run) -> None:
        """Append a row about a whole run; if it cannot be written, this is a warning: the rows of its epochs are."""
        row = row_of_run(replace(run, at=datetime.now(UTC)), self._storage)
        try:
            _ = self.id  # creates the table
            self._add(f"ledger: {run.step} run {run.id}", row, None, f"{run.id} {run.step}")
        except Exception as error:
            if not is_of_spark(error) and not _is_of_delta_rs(error):
                raise
            log.warning("the run %s was not recorded as %s: %s", run.id, run.step, first_line(error))

    def slices_done(self, entry: Entry) -> set[int]:
        """Return the numbers of the slices that are written, for an epoch in slices."""
        rows = self._rows(f"{_SLICES} AND epoch = {entry.epoch}", entry.join)
        return {row.slice for row in rows if row.run_id == entry.run_id and row.slice is not None}

    def _history(self, join: str, newest: list[Entry]) -> JoinHistory:
        """Build a history from the newest rows of a join; read all rows if these contain no committed epoch."""
        if len(newest) <= limits.LEDGER_ROWS:
            return JoinHistory(tuple(newest))
        oldest = newest[0].epoch  # `newest` may lack rows of this epoch
        recent = tuple(entry for entry in newest if entry.epoch > oldest)
        if not any(entry.step == COMMITTED for entry in recent):
            return JoinHistory(tuple(self._rows(_ENTRIES, join)))
        return JoinHistory(recent, lambda: tuple(self._rows(f"{_ENTRIES} AND epoch <= {oldest}", join)))

    def _rows(self, condition: str, join: str = "", newest: int | None = None, *, of_each: bool = False) -> list[Entry]:
        """Read rows, ordered by epoch and by the time at which they were written."""
        rows = _read(self._engine, self._address, condition, join, newest, of_each)
        return sorted((entry_of(row, self._storage) for row in rows), key=lambda entry: (entry.epoch, entry.at))

    def append(self, entry: Entry) -> Entry:
        """
        Append one step and check that it is the step that takes effect.

        Raises:
            AnotherRun: The row of another run takes effect for this epoch.
            LedgerForgot: A row existed but is gone; the next epoch gets a number that was never used.
        """
        entry, is_written = self._write(entry)
        if not is_written and not self._exists(entry):
            self._refuse(entry)
        return entry

    def _write(self, entry: Entry) -> tuple[Entry, bool]:
        """Append a step; return it with its time, and whether its row is known to have been written."""
        entry = replace(entry, at=datetime.now(UTC))
        transaction = None
        if entry.step in (PUBLISHING, *CLOSING):
            application = f"{self.id}/{entry.join}" + ("/closed" if entry.step in CLOSING else "")
            transaction = application, entry.epoch
        what = f"ledger: {entry.step} epoch {entry.epoch} of {entry.join}"
        row, metadata = row_of(entry, self._storage), _user_metadata(entry)
        try:
            return entry, self._add(what, row, transaction, metadata)
        except Exception as error:
            if is_of_spark(error) or _is_of_delta_rs(error):
                raise refusal(error, self._address, entry.epoch, entry.join) from error
            raise

    def _add(self, what: str, row: Mapping[str, Any], transaction: _Transaction | None, metadata: str) -> bool:
        """Append a row; return whether it is known to have been written: Spark does not tell."""
        opened, _ = open_log(self._engine, self._address)
        if opened is not None and _is_writable(opened):
            return write(what, lambda: _append(opened, row, transaction, metadata), opened.location)
        _append_by_spark(self._engine.spark, self._address, what, row, transaction, metadata)
        return False

    def _exists(self, entry: Entry) -> bool:
        """
        Return whether a step is in the ledger, as an append under a used transaction id is skipped: by the newest
        commits, which are cheap to read, else by the rows.
        """
        # A commit before a RESTORE or DELETE proves nothing: its row may be gone.
        commits = history(self._engine, self._address, limits.COMMITS_AT_ONCE)
        own = takewhile(lambda commit: commit.operation == "WRITE" or not commit.changes_data, commits)
        if any(commit.metadata == _user_metadata(entry) for commit in own):
            return True
        return any(row.run_id == entry.run_id and row.step == entry.step for row in self._rivals(entry))

    def _rivals(self, entry: Entry) -> list[Entry]:
        steps = CLOSING if entry.step in CLOSING else (entry.step,)
        listed = ", ".join(map(text, steps))
        return self._rows(f"{_ENTRIES} AND epoch = {entry.epoch} AND step IN ({listed})", entry.join)

    def _refuse(self, entry: Entry) -> None:
        """Raise AnotherRun, or LedgerForgot if RESTORE or DELETE removed a row whose transaction Delta still knows."""
        rivals = self._rivals(entry)
        if not rivals:
            above = self._skip_used(entry)
            raise LedgerForgot(
                entry.join,
                f"rows of epoch {entry.epoch} are missing from the ledger",
                expected=f"{entry.step} by run {entry.run_id}, or a row of another run",
                found=f"neither, although Delta recorded one; the next epoch is {above + 1}",
                hint=Remedy("{reconcile}", entry.join),
            )
        raise AnotherRun(
            entry.join,
            f"epoch {entry.epoch} belongs to another run",
            expected=f"{entry.step} by run {entry.run_id}",
            found=", ".join(f"{rival.step} by run {rival.run_id}" for rival in rivals),
            hint=Remedy("let that run finish, then {run}, which continues from the ledger", entry.join),
        )

    def _skip_used(self, entry: Entry) -> int:
        """Append an abandoned epoch with an unused number, to skip numbers that the ledger lost; return its number."""
        message = f"rows of epoch {entry.epoch} were missing from the ledger; numbers up to this one may have been used"
        above, step = entry.epoch, 1
        while True:
            above, step = above + step, 2 * step
            skipped, is_written = self._write(replace(entry, epoch=above, step=ABANDONED, message=message))
            if is_written or self._exists(skipped):
                return above


def _user_metadata(entry: Entry) -> str:
    return f"{entry.run_id} {entry.step} {entry.epoch} {entry.join}"


def _facts(engine: Engine, address: Address) -> tuple[str, Mapping[str, str]] | None:
    """Return the id and the properties of the table; None if it does not exist."""
    opened, why = open_log(engine, address)
    if opened is not None:
        return opened.id, opened.properties
    detail = table_detail(engine.spark, address) if why else None
    return None if detail is None else (str(detail["id"]), dict(detail["properties"]))


def _read(
    engine: Engine, address: Address, condition: str, join: str, newest: int | None, of_each: bool
) -> list[dict[str, Any]]:
    """
    Read rows by column, with maps as dicts; none if the table does not exist. In the condition `{join}` stands for the
    name of the join; if `newest` is a number, so many rows with the highest epochs are read, `of_each` join if wanted.
    """
    opened, why = open_log(engine, address)
    if opened is not None:
        quoted = "'" + join.replace("'", "''") + "'"
        try:
            return _read_by_delta_rs(opened, _query("ledger", condition.format(join=quoted), newest, of_each))
        except Exception as error:
            if not _is_of_delta_rs(error):
                raise
            log.debug("delta-rs cannot read the ledger: %s", error)
    elif not why:
        return []
    query = _query(address.sql, condition.format(join=text(join)), newest, of_each)
    try:
        return [row.asDict(recursive=True) for row in engine.spark.sql(query).collect()]
    except PySparkException as error:
        if is_missing(error):
            return []
        raise


def _query(table: str, condition: str, newest: int | None, of_each: bool) -> str:
    rows, order = f"FROM {table} WHERE {condition}", "ORDER BY epoch DESC, at DESC"
    if newest is None or not of_each:
        return f"SELECT * {rows}" + ("" if newest is None else f" {order} LIMIT {newest}")
    numbered = f"SELECT *, row_number() OVER (PARTITION BY join_name {order}) AS number {rows}"
    return f"SELECT * FROM ({numbered}) numbered WHERE number <= {newest}"


def _read_by_delta_rs(opened: Log, query: str) -> list[dict[str, Any]]:
    import pyarrow
    from deltalake import QueryBuilder

    rows = pyarrow.table(QueryBuilder().register("ledger", opened.table).execute(query).read_all())
    return list(rows.to_pylist(maps_as_pydicts="strict"))


def _append_by_spark(
    spark: SparkSession, to: Address, what: str, row: Mapping[str, Any], used: _Transaction | None, metadata: str
) -> None:
    # A literal of the plan, from JSON: a frame from rows would start Python workers.
    literal = F.from_json(F.lit(json.dumps(row, default=datetime.isoformat)), SCHEMA)
    frame = spark.sql("SELECT 1").select(literal.alias("row")).select("row.*")
    writer = frame.write.format("delta").mode("append").option("mergeSchema", "true")
    if used is not None:
        writer = writer.option("txnAppId", used[0]).option("txnVersion", str(used[1]))
    writer = writer.option("userMetadata", metadata)
    save = (lambda: writer.save(to.path)) if to.path else (lambda: writer.saveAsTable(to.table))
    for attempt in range(1, _ATTEMPTS + 1):
        try:
            with _appending, settings(spark, INTERPRETED):
                write(what, save, to.path)
            return
        except Exception as error:
            if "CONCURRENT_TRANSACTION" in str(error):
                return  # another run appended the same step concurrently; the caller reads back whose row exists
            if not is_conflict(error) or attempt == _ATTEMPTS:
                raise


def _is_writable(opened: Log) -> bool:
    protocol = opened.table.protocol()
    if protocol.writer_features is None:
        return bool(protocol.min_writer_version <= _HIGHEST_PLAIN_WRITER)
    return _WRITABLE_FEATURES.issuperset(protocol.writer_features)


def _append(opened: Log, row: Mapping[str, Any], transaction: _Transaction | None, metadata: str) -> bool:
    """Append a row; return whether it was appended. The caller holds the lock of the table."""
    import pyarrow
    from deltalake import CommitProperties, Transaction, write_deltalake
    from deltalake.exceptions import CommitFailedError

    rows = pyarrow.Table.from_pylist([dict(row)], schema=arrow_schema())
    properties = CommitProperties(
        custom_metadata={"userMetadata": metadata},
        max_commit_retries=0,
        app_transactions=None if transaction is None else [Transaction(*transaction)],
    )
    for attempt in range(1, _ATTEMPTS + 1):
        table = opened.files.delta_table(opened.folder)
        used = None if transaction is None else table.transaction_version(transaction[0])
        if transaction is not None and used is not None and used >= transaction[1]:
            return False
        try:
            write_deltalake(table, rows, mode="append", schema_mode="merge", commit_properties=properties)
            break
        except CommitFailedError:
            if attempt == _ATTEMPTS:
                raise
    _compact(table)
    return True


def _compact(table: Any) -> None:
    """Compact the files of the ledger if they are many; another writer's commit does it later."""
    from deltalake.exceptions import CommitFailedError

    if len(table.file_uris()) > limits.LEDGER_FILES:
        try:
            table.optimize.compact()
        except CommitFailedError as error:
            log.debug("the ledger was not compacted: %s", error)


def _is_of_delta_rs(error: Exception) -> bool:
    if "deltalake" not in sys.modules:
        return False
    from deltalake.exceptions import DeltaError

    return isinstance(error, DeltaError | OSError)
