"""Compare the result of a join of tables with the recomputed join, and count missing and surplus rows."""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import Drifted, SchemaBroken
from lakehouse.ledger.entries import Entry
from lakehouse.tables.table import find, get, read
from lakehouse.values.checksums import Compared, compare_checksums
from lakehouse.values.recorded import Checksum
from lakehouse.values.sqltext import Address, quote
from pipelines.binding.bind import bind_join
from pipelines.binding.bound import BoundJoin, at_recorded
from pipelines.binding.workspace import Workspace
from pipelines.epochs.comparison import Published, Total, compare
from pipelines.epochs.preflight import check_columns
from pipelines.epochs.views.reconcile import compare_with_join, expected_rows
from pipelines.joins.changelog import last_rows
from pipelines.joins.difference import bag_difference
from pipelines.plan.decide import check_definition
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch


@dataclass(frozen=True)
class _VerifiedTable:
    """
    The table that is compared with its join.

    Args:
        bound: The join, with its sources at the versions to join.
        last: The epoch whose versions these are; None for the newest versions.
        is_earlier: Whether the version was asked for.
    """

    bound: BoundJoin
    address: Address
    version: int
    last: Entry | None
    is_earlier: bool = False


def verify_tables(workspace: Workspace, name: str, against: str = "", published: Published | None = None) -> JoinReport:
    """
    Recompute a join of tables and compare it with a version of its result, or with another table; see
    `commands.verify`.

    Raises:
        Drifted: Rows differ; the message has the numbers and examples.
        LakejoinError: A table does not exist, or versions are no longer readable.
    """
    watch = Stopwatch()
    with watch.step("verify"):
        with reading(name):
            table = _table_to_verify(workspace, name, against, published)
            bound, address, version = table.bound, table.address, table.version
            expected = expected_rows(workspace, bound)
            found = _select_columns(read(workspace.spark, address, version), bound, address)
            sums = compare_with_join(workspace, bound, found)
        total = _differences(bound, sums, expected, found)
        versions = ", ".join(f"{table.address.label} at {table.version}" for table in bound.sources)
        if total.missing or total.surplus:
            lost, strange = f"{total.missing:,} rows are missing", f"{total.surplus:,} do not belong there"
            raise _drifted(name, f"the table has drifted: {lost}, {strange}", f"the join of {versions}", total)
        _check_checksum(table, sums.other)
        is_logged = _check_changelog(workspace, table, found)
    last = table.last
    which = "the sources as they are now" if last is None else f"epoch {last.epoch}"
    return JoinReport(
        join=name,
        outcome="done",
        epoch=last.epoch if last else 0,
        strategy="verify",
        reason=f"{address.label} at version {version} against {which}: {versions}",
        counts={"missing": 0, "surplus": 0, "expected": sums.rows},
        seconds=dict(watch.seconds),
        details=(
            f"{sums.rows:,} rows equal the recomputed join",
            *(["the changelog agrees with them"] if is_logged else []),
        ),
    )


def _table_to_verify(workspace: Workspace, name: str, against: str, published: Published | None) -> _VerifiedTable:
    """Find the table to compare, and the versions of the sources that it should be the join of."""
    bound = bind_join(workspace, name)
    found = None if against else find(workspace.engine, bound.result)
    newest = -1 if found is None else found.version  # before the ledger, which has every epoch up to it
    history = workspace.ledger.of(name)
    last = published.entry if published is not None else None if against else history.committed
    if last is None:
        address = _address(workspace, against) if against else bound.result
        return _VerifiedTable(bound, address, get(workspace.engine, address).version, None)
    hint = f"run `lakejoin backfill --select {name}`, or compare a table as it is by `--against`"
    check_definition(name, bound.definition, last.definition, hint)
    version = last.result.newest
    if published is not None:
        version = published.version
    elif history.open is None:
        version = max(version, newest)
    schema = read(workspace.spark, bound.result, version).schema
    check_columns(name, "result", bound.columns, schema, bound.columns_remedy)
    return _VerifiedTable(at_recorded(bound, last.sources), bound.result, version, last, published is not None)


def _check_changelog(workspace: Workspace, table: _VerifiedTable, found: DataFrame) -> bool:
    """Compare the result with the last rows of its changelog, if an epoch wrote one; return whether one did."""
    bound, logged = table.bound, None if table.last is None else table.last.changelog
    if logged is None or logged.version is None or bound.changelog is None:
        return False
    if table.is_earlier and get(workspace.engine, bound.changelog).id != logged.id:  # the changelog began anew
        return False
    with reading(bound.join.name):
        changelog = read(workspace.spark, bound.changelog, logged.version)
        last = last_rows(changelog, bound.columns, bound.join.key)
        sums = compare_checksums(found, last, bound.join.key)
    total = _differences(bound, sums, found, last)
    if total.missing or total.surplus:
        raise _drifted(
            bound.join.name,
            f"the last changelog rows differ from the result: {total.missing:,} rows of the result are missing, "
            f"{total.surplus:,} are not in it",
            f"the rows of {table.address.label} at version {table.version}",
            total,
        )
    return True


def _check_checksum(table: _VerifiedTable, found: Checksum) -> None:
    """Check that the ledger has the checksum of a result whose rows are right, if it recorded one."""
    name, last = table.bound.join.name, table.last
    if last is not None and last.checksum is not None and last.checksum != found:
        raise Drifted(
            name,
            f"the rows equal the recomputed join, but the ledger has another checksum of epoch {last.epoch}",
            expected=f"{found}",
            found=f"{last.checksum}",
            hint=f"run `lakejoin backfill --select {name}`, which records the checksum anew",
        )


def _differences(bound: BoundJoin, sums: Compared, expected: DataFrame, found: DataFrame) -> Total:
    """Compare rows with the rows found, row by row, in the parts whose checksums differ."""
    if not sums.differing:
        return Total(0, 0, ())
    differs = sums.predicate(list(expected.schema), bound.join.key)
    return compare(bound.join.name, bag_difference(expected.where(differs), found.where(differs)))


def _drifted(name: str, problem: str, expected: str, total: Total) -> Drifted:
    hint = f"run `lakejoin backfill --select {name}` to reconcile it"
    return Drifted(name, problem, expected=expected, found="; ".join(total.examples), hint=hint)


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
