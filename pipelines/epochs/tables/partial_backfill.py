"""The backfill of a part of a result, at the versions that the result is of."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException

from lakehouse.entries import Entry
from lakehouse.errors import ForeignWriter, LakejoinError, NotLoaded
from lakehouse.feed import read_feed
from lakehouse.publish import check_owner
from lakehouse.tables import get, read
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.binding.workspace import Workspace
from pipelines.epochs.preflight import Prepared, must_be_bound
from pipelines.joins.filter import Subset
from pipelines.plan.checks import check_definition, check_is_still
from pipelines.plan.remedies import backfill_hint
from pipelines.plan.values import EpochPlan, SourceRange
from pipelines.spec import Condition, bind_condition


class BadCondition(LakejoinError):
    """`--where` is no condition on the columns of a result."""

    exit_code = 2
    code = "BAD_CONDITION"


def the_only_join(workspace: Workspace, names: Sequence[str]) -> str:
    """
    Give of the selected joins the one that a condition is about.

    Raises:
        BadCondition: There are several: a condition is about the columns of one.
    """
    if len(names) != 1:
        raise BadCondition(
            workspace.file.pipeline,
            "`--where` is a condition on the columns of one result",
            found=f"the joins {', '.join(names)}",
            hint="name one by `--select`",
        )
    return names[0]


def plan_subset(workspace: Workspace, prepared: Prepared, where: str) -> tuple[EpochPlan, BoundJoin, Subset]:
    """
    Plan the reconciliation of a part of a result.

    The sources are read as the last epoch read them, so that afterwards all of the result is the join at the versions
    that the ledger names. What somebody else wrote to the result may only be in that part.

    Args:
        workspace: Where to work.
        prepared: The backfill of all of it.
        where: A condition on the columns of the result.

    Raises:
        BadCondition: It is none.
        NotLoaded: There is no result yet.
        CannotContinue: Only a backfill of all of it helps; a subclass says why.
        LakejoinError: It is a join with a stream.
    """
    bound, last, name = must_be_bound(prepared), prepared.history.committed, prepared.plan.join
    if bound.streams:
        raise LakejoinError(
            name,
            "of a join with a stream no part can be reconciled: its rows depend on what had arrived when",
            hint=f"`lakejoin backfill --select {name}` appends what the recorded epochs lack",
        )
    if last is None or prepared.plan.strategy == "load":
        raise NotLoaded(name, "there is no result of which a part could be reconciled", hint=backfill_hint(name))
    check_definition(name, bound.definition, last.definition, backfill_hint(name))
    check_is_still(name, "the result table", prepared.plan.result_id, last.result.id, backfill_hint(name))
    if bound.changelog is not None:
        _check_changelog(workspace, bound, prepared, last)
    condition = condition_of(workspace, bound, where, prepared.plan.base_version)
    _check_rest(workspace, bound, prepared, last, condition)
    plan = replace(
        prepared.plan,
        reason=f"backfill-where: asked for by a person: {' '.join(where.split())}",
        sources=tuple(SourceRange.nothing_after(source) for source in last.sources),
    )
    return plan, at_recorded(bound, last.sources), Subset((condition,), bound.join.key)


def _check_changelog(workspace: Workspace, bound: BoundJoin, prepared: Prepared, last: Entry) -> None:
    """See that the changelog is as the last epoch left it."""
    assert bound.changelog is not None
    name, recorded = bound.join.name, last.changelog
    if recorded is None or recorded.version is None:
        raise NotLoaded(name, "the last epoch kept no changelog", hint=backfill_hint(name))
    check_is_still(name, "the changelog", prepared.plan.changelog_id or None, recorded.id, backfill_hint(name))
    changelog = get(workspace.spark, bound.changelog)
    check_owner(workspace.spark, changelog, recorded.version, prepared.history.run_ids(), name)


def condition_of(workspace: Workspace, bound: BoundJoin, where: str, version: int) -> Condition:
    """
    Resolve a condition on the columns of a result, and let Spark see whether it is one.

    Raises:
        BadCondition: It is none.
    """
    name, columns = bound.join.name, bound.columns.fieldNames()
    condition, faults = bind_condition(name, "--where", where, columns)
    wrong = "; ".join(fault.problem + (f" ({fault.hint})" if fault.hint else "") for fault in faults)
    if not wrong:
        try:
            _ = read(workspace.spark, bound.result, version).where(condition.sql).schema
        except AnalysisException as error:
            wrong = str(error).splitlines()[0]
    if wrong:
        raise BadCondition(
            name,
            "`--where` is no condition on the rows of its result",
            expected=f"a condition on the columns {', '.join(columns)}",
            found=wrong,
        )
    return condition


def _check_rest(workspace: Workspace, bound: BoundJoin, prepared: Prepared, last: Entry, condition: Condition) -> None:
    """See that nobody else wrote to that part of the result which stays as it is."""
    recorded, version = last.result.version, prepared.plan.base_version
    if recorded is None or version <= recorded:
        return
    written = read_feed(workspace.spark, bound.result, recorded, version, bound.columns.fieldNames())
    beside = written.where(f"NOT coalesce({condition.sql}, false)").count()
    if beside:
        raise ForeignWriter(
            bound.join.name,
            "somebody else wrote to rows of this table that do not meet the condition",
            expected=f"no such change after version {recorded}",
            found=f"{beside} rows in its change feed up to version {version}",
            hint=f"widen the condition, or {backfill_hint(bound.join.name)}",
        )
