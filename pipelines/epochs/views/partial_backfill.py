"""Backfill a part of a result, at the source versions of its last epoch."""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.errors import AnalysisException

from lakehouse.errors.errors import ForeignWriter, LakejoinError, NotLoaded, Remedy
from lakehouse.ledger.entries import Entry
from lakehouse.publish.ownership import check_history, check_target
from lakehouse.tables.table import find, get, read, read_feed
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import Epoch, Prepared
from pipelines.joins.difference import Subset
from pipelines.language import Condition, bind_condition
from pipelines.plan.decide import check_definition, check_is_still
from pipelines.plan.values import SourceRange


class BadCondition(LakejoinError):
    """`--where` is not a valid condition on the columns of a result."""

    exit_code = 2
    code = "BAD_CONDITION"


def the_only_join(workspace: Workspace, names: Sequence[str]) -> str:
    """
    Return the one selected join, which the condition is about.

    Raises:
        BadCondition: The selection is not one join; a condition is about the columns of one result.
    """
    if len(names) != 1:
        raise BadCondition(
            workspace.file.pipeline,
            "`--where` is a condition on the columns of one result",
            found=f"the joins {', '.join(names)}",
            hint="select one join with `--select`",
        )
    return names[0]


def plan_subset(workspace: Workspace, prepared: Prepared[BoundJoin], where: str) -> Prepared[BoundJoin]:
    """
    Plan the reconciliation of a part of a result.

    The plan reads the sources at the versions of the last epoch, so that afterwards the whole result equals the join at
    the versions in the ledger. Foreign writes to the result are accepted in this part only.

    Args:
        prepared: The backfill of the whole result.
        where: A condition on the columns of the result.

    Raises:
        BadCondition: `where` is not a valid condition.
        NotLoaded: The result does not exist yet.
        CannotContinue: Only a backfill of the whole result can help; a subclass says why.
    """
    bound, last, name = prepared.epoch.bound, prepared.history.committed, prepared.plan.join
    if last is None or prepared.plan.result.is_new:
        raise NotLoaded(
            name, "the result does not exist yet: no part can be reconciled", hint=Remedy("{reconcile}", name)
        )
    check_definition(name, bound.definition, last.definition, Remedy("{reconcile}", name))
    check_is_still(name, "the result table", prepared.plan.result.id, last.result.id, Remedy("{reconcile}", name))
    if bound.changelog is not None:
        _check_changelog(workspace, bound, prepared, last)
    condition = condition_of(workspace, bound, where, prepared.plan.result.base_version)
    _check_rest(workspace, bound, prepared, last, condition)
    plan = replace(
        prepared.plan,
        reason=f"backfill-where: requested by the user: {' '.join(where.split())}",
        sources=tuple(SourceRange.nothing_after(source) for source in last.sources),
        where=condition.sql,
    )
    return replace(prepared, plan=plan, bound=at_recorded(bound, last.sources))


def _check_changelog(workspace: Workspace, bound: BoundJoin, prepared: Prepared[BoundJoin], last: Entry) -> None:
    assert bound.changelog is not None
    name, recorded = bound.join.name, last.changelog
    if recorded is None or recorded.version is None:
        raise NotLoaded(name, "the last epoch kept no changelog", hint=Remedy("{reconcile}", name))
    found = find(workspace.engine, bound.changelog)
    check_is_still(name, "the changelog", None if found is None else found.id, recorded.id, Remedy("{reconcile}", name))
    assert found is not None
    check_target(workspace.engine, found, recorded, prepared.history.run_ids(), name)


def subset_of(workspace: Workspace, epoch: Epoch[BoundJoin], *conditions: Condition) -> Subset | None:
    """
    Return the part of a result that an epoch reconciles; None for the whole result.

    Args:
        conditions: Added to the condition in the plan, which the user asked for; they limit the part to a slice.
    """
    plan, bound = epoch.plan, epoch.bound
    asked = [condition_of(workspace, bound, plan.where, plan.result.base_version)] if plan.where else []
    return Subset((*conditions, *asked), bound.join.key) if conditions or asked else None


def condition_of(workspace: Workspace, bound: BoundJoin, where: str, version: int) -> Condition:
    """
    Resolve a condition on the columns of a result, and let Spark check it.

    Raises:
        BadCondition: It is not a valid condition.
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
            "`--where` is not a valid condition on the rows of the result",
            expected=f"a condition on the columns {', '.join(columns)}",
            found=wrong,
        )
    return condition


def _check_rest(
    workspace: Workspace, bound: BoundJoin, prepared: Prepared[BoundJoin], last: Entry, condition: Condition
) -> None:
    """Check that the part of the result that stays as it is has no foreign writes."""
    recorded, version = last.result.version, prepared.plan.result.base_version
    check_history(workspace.engine, get(workspace.engine, bound.result), last.result, bound.join.name)
    if recorded is None or version <= recorded:
        return
    written = read_feed(workspace.spark, bound.result, recorded, version, bound.columns.fieldNames())
    outside = written.where(f"NOT coalesce({condition.sql}, false)").count()
    if outside:
        raise ForeignWriter(
            bound.join.name,
            "a foreign write changed rows of this table that do not meet the condition",
            expected=f"no such change after version {recorded}",
            found=f"{outside} rows in its change feed up to version {version}",
            hint=Remedy("widen the condition, or {reconcile}", bound.join.name),
        )
