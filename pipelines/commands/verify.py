"""Compare the result of a join with what it should be, and count what a backfill would change; write nothing."""

import uuid
from collections.abc import Collection
from typing import Any

from lakehouse.errors.conditions import as_known, reading
from lakehouse.errors.errors import LakejoinError
from lakehouse.tables.table import get
from pipelines.binding.workspace import Workspace
from pipelines.commands.published import BadRange, published_at
from pipelines.commands.side_by_side import number_of_threads, own_workspace, side_by_side
from pipelines.epochs.kind import Kind
from pipelines.epochs.kinds import kind_of
from pipelines.epochs.targets import check_tables
from pipelines.epochs.views.partial_backfill import the_only_join
from pipelines.language import fingerprint
from pipelines.plan.request import Backfill, Request, WrongOptions
from pipelines.plan.values import Resume
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch


def verify_join(
    workspace: Workspace, name: str, against: str = "", *, version: int | None = None, quick: bool = False
) -> JoinReport:
    """
    Recompute a join and compare it with its result; for a join with a stream replay the recorded epochs instead.

    `counts` has the rows expected, missing and surplus (both 0 if the table is correct) and, for a join with a stream,
    the epochs that were replayed; with `quick` only rows.

    Args:
        against: A table to compare instead of the result: its dotted name, or its path, which contains a slash and is
            relative to the pipeline file. It is compared with the join of the newest versions of the sources; so is a
            result without a committed epoch. Otherwise the newest version of the result is compared with the join of
            the sources at the versions of the last committed epoch; while an epoch is open, the version that it made.
        version: An earlier version of the result, which is compared with the join of the sources at the versions of the
            last epoch that it holds. Whether the newest version is as its last epoch left it is then not asked.
        quick: Whether to compare only the checksum of the newest version of the result with the checksum in the ledger,
            which reads no source; a success is recorded in the ledger.

    Raises:
        Drifted: Rows differ; the message has the numbers and examples, with `quick` the checksums.
        ForeignWriter: The rows are right, but a table of the join is not as its last epoch left it.
        WrongOptions: Two of `against`, `version` and `quick` are given.
        BadRange: The version does not exist, holds no whole epoch, or holds one of another definition.
    """
    if bool(against) + (version is not None) + quick > 1:
        raise WrongOptions(name, "--against, --version and --quick exclude each other", hint="choose one of them")
    kind = kind_of(workspace, name)
    with kind.explaining_errors():
        if quick:
            return kind.verify_quickly()
        if version is not None:
            return _verify_version(kind, version)
        report = kind.verify(against)
    if not against:
        check_tables(workspace, name, workspace.ledger.of(name))
    return report


def verify_joins(
    workspace: Workspace,
    select: Collection[str] | None = None,
    against: str = "",
    *,
    version: int | None = None,
    quick: bool = False,
    threads: int | None = None,
) -> list[JoinReport]:
    """Verify joins as `verify_join` does, in `threads`; an error of one goes into its report, and the others follow."""
    names = workspace.joins(select)
    number = number_of_threads(workspace, threads, names)

    def verify(name: str) -> JoinReport:
        try:
            with own_workspace(workspace, number) as own:
                return verify_join(own, name, against, version=version, quick=quick)
        except Exception as error:  # whatever it is, the other joins follow
            return JoinReport(join=name, outcome="failed", error=as_known(error, name))

    return side_by_side(names, number, verify, interrupt=workspace.engine.interrupt_others)


def _verify_version(kind: Kind[Any], version: int) -> JoinReport:
    """Verify an earlier version, whose faults no command mends and of which the newest version may be free."""
    workspace, name = kind.workspace, kind.name
    try:
        with reading(name):
            result = get(workspace.engine, workspace.table(name))  # before the ledger, which has every epoch up to it
            definition = fingerprint(workspace.file, name, workspace.deviations)
            published = published_at(name, version, workspace.ledger.of(name), result, definition)
        return kind.verify(published=published)
    except BadRange:
        raise
    except LakejoinError as error:
        select = f"--select {name}"
        error.advise(
            f"this is about version {version} only: `lakejoin verify {select}` compares the newest one, and "
            f"`lakejoin history {select}` lists the epochs"
        )
        raise


def dry_run_joins(
    workspace: Workspace, select: Collection[str] | None = None, where: str | None = None
) -> list[JoinReport]:
    """
    Count what a backfill of joins, or of the rows of one result that meet `where`, would change.

    Each join is computed from the current results of the joins that it reads, not from what their own backfill would
    write, into a stage that is deleted. No table and no row of the ledger is written.
    """
    names = workspace.joins(select)
    if where is not None:
        names = [the_only_join(workspace, names)]
    return [_dry_run(workspace, name, Request(Backfill(where=where))) for name in names]


def _dry_run(workspace: Workspace, name: str, request: Request) -> JoinReport:
    watch, kind = Stopwatch(), kind_of(workspace, name)
    try:
        with kind.explaining_errors():
            with watch.step("plan"), reading(name):
                prepared = kind.prepare(request)
            plan = prepared.plan
            if isinstance(plan.route, Resume):
                reason = f"{plan.reason}; a backfill finishes this epoch first"
                return JoinReport(join=name, outcome="nothing", epoch=plan.epoch, reason=reason, dry_run=True)
            with watch.step("compute"), reading(name):
                stage = workspace.dry_run_stage(name, plan.epoch, uuid.uuid4().hex)
                try:
                    counts = kind.count(prepared.epoch, stage)
                finally:
                    stage.delete()
    except Exception as error:  # whatever it is, the other joins follow
        return JoinReport(join=name, outcome="failed", error=as_known(error, name), dry_run=True)
    return JoinReport(
        join=name,
        outcome="done",
        epoch=plan.epoch,
        strategy=plan.strategy,
        reason=plan.reason,
        counts=counts,
        seconds=dict(watch.seconds),
        dry_run=True,
    )
