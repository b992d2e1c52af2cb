"""Hold the result of a join of tables against the checksum that its last epoch recorded, in one scan of the result."""

import uuid
from dataclasses import replace

from lakehouse.errors.conditions import reading_whole
from lakehouse.errors.errors import AnotherRun, CannotContinue, Drifted, LakejoinError, NotLoaded, Remedy
from lakehouse.ledger.entries import VERIFIED, Entry, JoinHistory
from lakehouse.publish.ownership import run_of
from lakehouse.tables.delta_log import UPKEEP_OPERATIONS
from lakehouse.tables.table import Table, commits_since, get, read
from lakehouse.values.checksums import checksum_of, has_checksum
from lakehouse.values.recorded import Checksum
from pipelines.binding.workspace import Workspace
from pipelines.plan.decide import check_is_still
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch


class NoChecksum(LakejoinError):
    """The ledger has no checksum of a result."""

    code = "NO_CHECKSUM"


def verify_quickly(workspace: Workspace, name: str) -> JoinReport:
    """
    Compare the newest version of a result with the checksum in the ledger; no source is read.

    A result that has its checksum holds exactly the rows that lakejoin wrote, whatever else has happened to the table.
    A row of the ledger records when that was seen.

    Returns:
        The report; `counts` has rows.

    Raises:
        Drifted: The result has another checksum.
        AnotherRun: An epoch of the join was published meanwhile.
        NotLoaded: The join has no epoch.
        NoChecksum: The last epoch recorded no checksum.
    """
    watch, ledger = Stopwatch(), workspace.ledger
    with watch.step("verify"):
        history = ledger.of(name)
        last, recorded = _recorded(workspace, name, history)
        table = get(workspace.engine, workspace.table(name))
        check_is_still(name, "the result table", table.id, last.result.id, Remedy("{reconcile}", name))
        with reading_whole(name, name):
            found = checksum_of(read(workspace.spark, table.address, table.version))
        if found != recorded:
            _refuse_meanwhile(name, last, ledger.of(name))
            raise _drifted(workspace, history, table, last, found)
    reason = f"{name} at version {table.version} against the checksum of epoch {last.epoch}"
    verified = replace(last, step=VERIFIED, run_id=uuid.uuid4().hex, reason=reason, message="", counts={})
    ledger.append(replace(verified, seconds=dict(watch.seconds)))
    return JoinReport(
        join=name,
        outcome="done",
        epoch=last.epoch,
        strategy="verify",
        reason=reason,
        counts={"rows": found.rows},
        seconds=dict(watch.seconds),
        details=(f"{found.rows:,} rows have the recorded checksum",),
    )


def _recorded(workspace: Workspace, name: str, history: JoinHistory) -> tuple[Entry, Checksum]:
    last = history.committed
    if last is None:
        raise NotLoaded(name, "the join has not run yet", hint=Remedy("{load}", name))
    if last.checksum is not None:
        return last, last.checksum
    table = get(workspace.engine, workspace.table(name))
    has_none = not has_checksum(list(table.schema))
    full = f"run `lakejoin verify --select {name}`, which recomputes the join"
    raise NoChecksum(
        name,
        "the ledger has no checksum of this result",
        expected="a checksum that its last epoch recorded",
        found="text under a collation: equal values may be different bytes"
        if has_none
        else f"none of epoch {last.epoch}",
        hint=full if has_none else Remedy(f"{full}, or {{reconcile}}: it records a checksum", name),
    )


def _refuse_meanwhile(name: str, last: Entry, history: JoinHistory) -> None:
    """Raise AnotherRun if an epoch was published, or is being published, while the result was read."""
    newest = history.committed
    if history.open is not None or newest is None or newest.epoch != last.epoch:
        raise AnotherRun(
            name,
            "an epoch was being published while the result was read",
            hint=Remedy("{run}, which finishes an interrupted epoch, then verify again", name),
        )


def _drifted(workspace: Workspace, history: JoinHistory, table: Table, last: Entry, found: Checksum) -> Drifted:
    """Return the error for a result with another checksum; it names other commits that the log still shows."""
    recorded, version, name = last.checksum, last.result.version, last.join
    assert recorded is not None
    assert version is not None
    try:
        commits = commits_since(workspace.engine, table, version)
    except CannotContinue:  # the log has been cleaned up
        commits = []
    own = history.run_ids(with_abandoned=True)
    others = [
        f"{commit.operation} in version {commit.version}{' by an abandoned epoch' if run_of(commit) in own else ''}"
        for commit in commits
        if run_of(commit) != last.run_id and commit.operation not in UPKEEP_OPERATIONS
    ]
    return Drifted(
        name,
        f"the result does not have the checksum of epoch {last.epoch}: its rows have changed since",
        expected=f"{_in_words(recorded)}, recorded with version {version}",
        found=", ".join([f"{_in_words(found)} in version {table.version}", *others]),
        hint=f"run `lakejoin verify --select {name}` to compare row by row, then "
        f"`lakejoin backfill --select {name}` to reconcile the result",
    )


def _in_words(checksum: Checksum) -> str:
    return f"{checksum.rows:,} rows, xor {checksum.xor}, sum {checksum.sum}"
