"""Check the tables of a join and gather the facts for planning its next epoch; this module only reads."""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from difflib import unified_diff
from typing import Generic

from pyspark.sql.types import StructType

from lakehouse.errors.conditions import refuse_forgetting
from lakehouse.errors.errors import FeedUnavailable, Remedy, SchemaBroken
from lakehouse.ledger.entries import JoinHistory
from lakehouse.publish.ownership import FENCED, check_target, run_of
from lakehouse.publish.writes import TargetVersions
from lakehouse.tables.columns import Evolution, differences, evolution, lacks_mapping, listed, why_not_overwritten
from lakehouse.tables.identity import columns_in, commit_identity, target_identity
from lakehouse.tables.table import CHANGE_FEED, Table, find
from lakehouse.values.sqltext import Address
from pipelines.binding.bound import Bound, BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.epoch import B
from pipelines.epochs.since import since
from pipelines.joins.changelog import changelog_schema
from pipelines.plan.values import Redefined, SourceFacts


@dataclass(frozen=True)
class Preflight(Generic[B]):
    """
    What exists before the next epoch is planned; a table that does not exist is None.

    Args:
        bound: None if an epoch is open, which needs no source and no pipeline file.
        beside: The changelog or the buffered rows; None also for a join without them.
    """

    history: JoinHistory
    bound: B | None
    result: Table | None = None
    beside: Table | None = None


def look(
    workspace: Workspace,
    name: str,
    result: Address,
    beside: Address | None,
    bind: Callable[[Callable[[], tuple[Table | None, JoinHistory]]], B],
) -> Preflight[B]:
    """
    Look at the tables and the ledger of a join in parallel.

    Args:
        beside: The address of its changelog or its buffered rows; None if it has none.
        bind: Binds the join; the argument returns the result and the history, which are read anyway.
    """
    with ThreadPoolExecutor() as executor:
        finding_result = executor.submit(find, workspace.engine, result)
        finding_beside = None if beside is None else executor.submit(find, workspace.engine, beside)
        known = executor.submit(workspace.ledger.of, name)
        binding = executor.submit(bind, lambda: (finding_result.result(), known.result()))
        history = known.result()
        if history.open is not None:  # a missing source must not stop the run that finishes the epoch
            return Preflight(history, None)
        other = None if finding_beside is None else finding_beside.result()
        bound = _not_behind(workspace, binding.result(), history)
        return Preflight(history, bound, finding_result.result(), other)


def _not_behind(workspace: Workspace, bound: B, history: JoinHistory) -> B:
    """
    Return a join whose pinned sources are not older than its last epoch: another run may have read them further.

    Such a source is read at the recorded version, as far as the table still is the one that this run has pinned.
    """
    last = history.committed
    if last is None or not (workspace.versions.sources or workspace.versions.results):
        return bound
    recorded = {versions.name: versions for versions in last.sources}

    def not_behind(table: Table) -> Table:
        before = recorded.get(table.address.label)
        if before is None or before.id != table.id or before.to_version <= table.version:
            return table
        now = find(workspace.engine, table.address)
        if now is None or now.id != table.id or now.version < before.to_version:
            return table
        return replace(table, version=before.to_version, commits=now.commits)

    return bound.over(not_behind)


NO_GAPS: Mapping[str, str] = {}


def target_of(address: Address, table: Table | None) -> TargetVersions:
    """Return a table that an epoch writes, as it is now; the epoch creates it if `table` is None."""
    if table is None:
        return TargetVersions.of_new(address)
    return TargetVersions(address, table.id, table.version, commit=target_identity(table, table.version))


def used_columns(bound: Bound, result: Table | None, *, evolves: bool = False) -> dict[str, tuple[str, ...]]:
    """
    Return the columns, by source, whose changes matter to the next epoch.

    None are returned if the result has other columns than the join makes and does not get these: `check_result` then
    raises an error with the remedy, which an error about a source's column would hide.
    """
    if result is not None and not evolves and differences(bound.columns, result.schema):
        return {}
    return {table.address.label: bound.used(table.address.label) for table in bound.sources}


def source_facts(
    workspace: Workspace,
    join: str,
    table: Table,
    history: JoinHistory,
    used: Mapping[str, Sequence[str]],
    *,
    backfill: bool,
    gap: str = "",
) -> SourceFacts:
    """
    Gather what has happened to a source since the last epoch.

    Args:
        table: The source's table, pinned.
        used: The columns whose changes matter, by source.
        backfill: Whether to ignore the recorded versions.
        gap: Why the feed could not be read, if an attempt has just shown it.

    Raises:
        FeedUnavailable: Its change feed is off.
        CannotContinue: It no longer has the version that the last epoch read.
    """
    name, last = table.address.label, history.committed
    if not table.feed_on:
        raise _feed_off(table, join, is_loaded=last is not None)
    recorded = next((s for s in last.sources if s.name == name), None) if last and not backfill else None
    commit, columns = commit_identity(table, table.version), columns_in(table.schema, used.get(name, ()))
    defined = workspace.file.sources.get(name)
    again = defined is not None and defined.on_recreated_source == "reconcile"
    facts = SourceFacts(name, table.id, table.version, columns=columns, commit=commit, may_be_recreated=again)
    if recorded is None:
        return facts
    happened, defined_join = since(workspace.engine, table, recorded), workspace.file.joins.get(join)
    if happened.is_recreated:
        return facts
    may_be_older = again or (defined_join is not None and defined_join.refresh == "full")
    if happened.older is not None and not may_be_older:
        raise happened.older
    if happened.is_restored or happened.older is not None:
        return replace(facts, is_restored=True)
    if happened.missing is not None:
        return replace(facts, gap=f"{happened.missing.problem}: {happened.missing.found}")
    changed = [commit.changed_rows for commit in happened.commits]
    return replace(
        facts,
        data_versions=tuple(commit.version for commit in happened.commits),
        gap=(gap or happened.unrecorded) if happened.commits else "",
        changed_rows=None if None in changed else sum(number or 0 for number in changed),
        changed=happened.changed if name in used else "",
    )


def _feed_off(table: Table, join: str, *, is_loaded: bool) -> FeedUnavailable:
    """Return the error for a source whose feed is off: what has changed since the last epoch is not recorded."""
    on = f"ALTER TABLE {table.address.sql} SET TBLPROPERTIES ({CHANGE_FEED} = true)"
    hint = Remedy(on + (", then {reconcile}" if is_loaded else ""), join)
    return FeedUnavailable(table.address.label, "its change feed is off", hint=hint)


def check_changelog(
    workspace: Workspace,
    bound: BoundJoin,
    changelog: Table,
    history: JoinHistory,
    *,
    backfill: bool,
    evolves: bool = False,
) -> None:
    """Check that the changelog is unchanged since the last epoch and has, unless it evolves, the expected columns."""
    last = history.committed
    recorded = last.changelog if last is not None else None
    if recorded is not None and recorded.version is not None and not backfill:
        check_target(workspace.engine, changelog, recorded, history.run_ids(), bound.join.name)
    if not evolves:
        columns = changelog_schema(bound.columns)
        check_columns(bound.join.name, "changelog", columns, changelog.schema, bound.columns_remedy)


def check_result(
    workspace: Workspace,
    name: str,
    bound: Bound,
    result: Table,
    history: JoinHistory,
    *,
    backfill: bool,
    evolves: bool = False,
) -> None:
    """Check that the result is unchanged since the last epoch and has, unless it evolves, the columns of the join."""
    last = history.committed
    if last is not None and last.result.version is not None and not backfill:
        check_target(workspace.engine, result, last.result, history.run_ids(), name)
    if not result.feed_on:
        raise FeedUnavailable(
            name,
            "the change feed of the result is off",
            hint=f"ALTER TABLE {bound.result.sql} SET TBLPROPERTIES ({CHANGE_FEED} = true)",
        )
    refuse_forgetting(name, result.address, result.properties)
    if not evolves:
        check_columns(name, "result", bound.columns, result.schema, bound.columns_remedy)


def change_of_columns(
    bound: BoundJoin, result: Table, changelog: Table | None, *, has_expectations: bool
) -> Evolution | None:
    """
    Return what gives the result and its changelog the columns of the statement; None if only an overwrite does.

    Args:
        has_expectations: Whether rows of the result are judged in the stage, which an overwrite does without.

    Raises:
        SchemaBroken: Neither ALTER TABLE nor an overwrite gives the tables of the join their columns.
    """
    tables = [(result, bound.columns)]
    if changelog is not None:
        tables.append((changelog, changelog_schema(bound.columns)))
    differ = [column for table, columns in tables for column in differences(columns, table.schema)]
    if not differ:
        return Evolution()
    why = why_not_overwritten(bound.columns, result, bound.join.key)
    if not why and any(lacks_mapping(columns, table) for table, columns in tables):
        why = "the name of a column needs column mapping"
    changes = [evolution(columns, table) for table, columns in tables]
    change = None if None in changes else next(filter(None, changes))
    if not why and change is None and bound.changelog is not None:
        why = "the rows that the changelog has already cannot get other columns"
    if not why and change is None and has_expectations:
        why = "the result has to be overwritten, and the `expectations` of the join judge staged rows"
    if why:
        raise SchemaBroken(
            bound.join.name,
            f"the columns of the result cannot become those of the statement: {why}",
            expected=listed(bound.columns),
            found="; ".join(differ),
            hint=bound.rebuild_remedy,
        )
    return change


def check_columns(join: str, which: str, columns: StructType, found: StructType, hint: str) -> None:
    """
    Check that a table, named `which` in messages, has the expected columns.

    Raises:
        SchemaBroken: A column is missing, unexpected, or of another type.
    """
    differ = differences(columns, found)
    if differ:
        raise SchemaBroken(
            join,
            f"the {which} does not have the expected columns",
            expected=listed(columns),
            found="; ".join(differ),
            hint=hint,
        )


def check_earlier_columns(bound: BoundJoin, result: Table) -> None:
    """Check that the join still makes each column of its result, beside new ones; raise SchemaBroken if not."""
    earlier = {name.lower() for name in result.schema.fieldNames()}
    kept = StructType([field for field in bound.columns if field.name.lower() in earlier])
    check_columns(bound.join.name, "result", kept, result.schema, bound.columns_remedy)


def seen_changes(bound: BoundJoin, result: Table | None, history: JoinHistory) -> Redefined | None:
    """
    Describe what a changed definition changes, as far as the result and the ledger show it, with the remedy.

    None is returned if the last epoch had this definition, or if no result or no epoch exists to compare with.
    """
    last = history.committed
    if result is None or last is None or last.definition == bound.definition:
        return None
    columns = differences(bound.columns, result.schema)
    read = [table.address.label for table in (*bound.sources, *bound.logs.values())]
    before = [source.name for source in last.sources]
    added = [f"it now reads {name}" for name in read if name not in before]
    removed = [f"it no longer reads {name}" for name in before if name not in read]
    changes = (*columns, *added, *removed, *_changed_lines(last.statement, bound.statement))
    return Redefined(changes, bound.columns_remedy if columns else None)


def _changed_lines(before: str, now: str) -> list[str]:
    """Return the lines in which two statements differ, as in a diff; none if the earlier one is not known."""
    old, new = ([" ".join(line.split()) for line in text.strip().splitlines()] for text in (before, now))
    if not before:
        return []
    lines = [*unified_diff(old, new, n=0, lineterm="")][2:]  # after the names of two files
    return [f"{line[0]} {line[1:]}" for line in lines if line[0] in "+-"]


def is_only_created(table: Table, history: JoinHistory) -> bool:
    """Return whether a run created the table and stopped there: it is empty, and no committed epoch wrote it."""
    last = history.committed
    is_ours = last is not None and last.result.id == table.id
    return (
        not is_ours
        and table.commits[-1].operation == "CREATE TABLE"
        and not any(commit.changes_data and run_of(commit) != FENCED for commit in table.commits)
    )
