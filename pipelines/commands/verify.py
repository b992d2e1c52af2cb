"""Compare a table with its recomputed join, and count missing and surplus rows."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.address import Address
from lakehouse.conditions import reading
from lakehouse.errors import Drifted, LakejoinError, SchemaBroken
from lakehouse.sqltext import quote
from lakehouse.tables import get, read
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.binding.workspace import Workspace
from pipelines.epochs.comparison import counted, examples_of
from pipelines.epochs.preflight import check_columns
from pipelines.epochs.replay import verify_stream
from pipelines.epochs.tables.reconcile import expected_rows
from pipelines.joins.changelog import last_rows
from pipelines.joins.difference import bag_difference
from pipelines.plan.checks import check_definition
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch
from pipelines.spec import is_stream


def verify_join(workspace: Workspace, name: str, against: str = "") -> JoinReport:
    """
    Recompute a join and compare it with its result; for a join with a stream replay the recorded epochs instead.

    Args:
        workspace: The workspace of the pipeline.
        name: The join.
        against: A table to compare instead of the result: its dotted name, or its path, which contains a slash and is
            relative to the pipeline file. It is compared with the join of the newest versions of the sources; so is a
            result without a committed epoch. Otherwise result and sources are read at the versions of the last
            committed epoch.

    Returns:
        The report; `counts` has the rows expected (of the join), missing and surplus (both 0 if the table is correct).

    Raises:
        Drifted: Rows differ; the message has the numbers and examples.
        LakejoinError: A table does not exist, or versions are no longer readable.
    """
    if is_stream(workspace.file, name):
        if against:
            raise LakejoinError(
                name,
                "no other table can be compared: the result of a join with a stream depends on the order of arrival",
                hint=f"`lakejoin verify --select {name}` replays its recorded epochs",
            )
        return verify_stream(workspace, name)
    watch = Stopwatch()
    with watch.step("verify"), reading(name):
        bound = bind_join(workspace, name)
        last = None if against else workspace.ledger.of(name).committed
        if last is not None:
            hint = f"run `lakejoin backfill --select {name}`, or compare a table as it is by `--against`"
            check_definition(name, bound.definition, last.definition, hint)
        if last is not None and last.result.version is not None:
            bound = at_recorded(bound, last.sources)
            address, version = bound.result, last.result.version
            schema = read(workspace.spark, address, version).schema
            check_columns(name, "result", bound.columns, schema, bound.columns_remedy)
            which = f"epoch {last.epoch}"
        else:
            address = _address(workspace, against) if against else bound.result
            version = get(workspace.engine, address).version
            which = "the sources as they are now"
        expected = expected_rows(workspace, bound)
        found = _select_columns(read(workspace.spark, address, version), bound, address)
        counts, examples = _compare(expected, found)
        logged = None if last is None else last.changelog
        replayed = None
        if logged is not None and logged.version is not None and bound.changelog is not None:
            changelog = read(workspace.spark, bound.changelog, logged.version)
            replayed, replay_examples = _compare(found, last_rows(changelog, bound.columns, bound.join.key))
    versions = ", ".join(f"{table.address.label} at {table.version}" for table in bound.sources)
    reason = f"{address.label} at version {version} against {which}: {versions}"
    if counts["missing"] or counts["surplus"]:
        raise Drifted(
            name,
            f"the table has drifted: {counts['missing']:,} rows are missing, {counts['surplus']:,} do not belong there",
            expected=f"the join of {versions}",
            found="; ".join(examples),
            hint=f"run `lakejoin backfill --select {name}` to reconcile it",
        )
    if replayed is not None and (replayed["missing"] or replayed["surplus"]):
        raise Drifted(
            name,
            f"the last changelog rows differ from the result: {replayed['missing']:,} rows of the result are missing, "
            f"{replayed['surplus']:,} are not in it",
            expected=f"the rows of {address.label} at version {version}",
            found="; ".join(replay_examples),
            hint=f"run `lakejoin backfill --select {name}` to reconcile it",
        )
    return JoinReport(
        join=name,
        outcome="done",
        epoch=last.epoch if last else 0,
        strategy="verify",
        reason=reason,
        counts=counts,
        seconds=dict(watch.seconds),
        details=(
            f"{counts['expected']:,} rows equal the recomputed join",
            *(["the changelog agrees with them"] if replayed is not None else []),
        ),
    )


def _address(workspace: Workspace, against: str) -> Address:
    if "/" in against:
        return Address(against, path=workspace.path(against))
    return Address.by_name(against, against)


def _select_columns(found: DataFrame, bound: BoundJoin, address: Address) -> DataFrame:
    """Select the columns of the join, and raise SchemaBroken if the table lacks one or has it with another type."""
    existing = {field.name.lower(): field for field in found.schema}
    wrong = [
        f"{field.name} {field.dataType.simpleString()}"
        for field in bound.columns
        if field.name.lower() not in existing
        or existing[field.name.lower()].dataType.simpleString().lower() != field.dataType.simpleString().lower()
    ]
    if wrong:
        raise SchemaBroken(
            address.label,
            "its columns differ from those of the join",
            expected=", ".join(wrong),
            found=", ".join(f"{field.name} {field.dataType.simpleString()}" for field in found.schema),
            hint="compare a table that has the columns of the SELECT list",
        )
    return found.select(*(F.col(quote(name)) for name in bound.columns.fieldNames()))


def _compare(expected: DataFrame, found: DataFrame) -> tuple[dict[str, int], list[str]]:
    counts, examples = counted(bag_difference(expected, found))
    counts["expected"] = expected.count()
    return counts, examples_of(examples)
