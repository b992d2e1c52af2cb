"""The KTable of a changelog source: what it is, where it lies, and at which version joins read it."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace

from pyspark.sql.types import BooleanType, MapType, StructField, StructType

from lakehouse.address import Address
from lakehouse.entries import STATE
from lakehouse.errors import Fault, ForeignWriter, LakejoinError, NotLoaded, PipelineFileError
from lakehouse.sqltext import quote
from lakehouse.tables import Table, at_rest, get
from lakehouse.values import char_type, common_type, contains, incomparable, plain_schema
from pipelines.binding.condition_check import condition_faults
from pipelines.binding.workspace import Workspace
from pipelines.spec import Changelog, bind_changelog, changelog_fingerprint
from pipelines.spec.names import DELETED, ORDER


@dataclass(frozen=True)
class BoundKTable:
    """
    A changelog source with everything that its table tells.

    Args:
        spec: How its rows are read, over real column names.
        definition: Fingerprint of its definition in the pipeline file.
        source: Its table, pinned.
        columns: The KTable's columns: the key, the other columns of the source, `_deleted` and `_order`.
        result: Where the KTable lies.
    """

    spec: Changelog
    definition: str
    source: Table
    columns: StructType
    result: Address

    @property
    def sources(self) -> tuple[Table, ...]:
        """The one table that it reads, as `BoundJoin` names several."""
        return (self.source,)

    def used(self, source: str) -> tuple[str, ...]:
        """Name the columns of the source that the KTable takes: all of them."""
        return self.spec.columns

    @property
    def reshaped(self) -> str:
        """Say what helps where the KTable has other columns than its source."""
        return _rebuild(self.result)


def ktable_address(workspace: Workspace, source: str) -> Address:
    """Address the KTable of a source."""
    return workspace.table(source + STATE)


def bind_ktable(workspace: Workspace, source: str) -> BoundKTable:
    """
    Pin a changelog source to its newest version and resolve what the file says of it against its columns.

    Raises:
        LakejoinError: The source does not exist.
        PipelineFileError: A column is unknown, or of a type that cannot serve.
    """
    table = get(workspace.spark, workspace.source(source))
    changelog = bind_changelog(source, workspace.file.sources[source], table.schema.fieldNames())
    faults = [
        *_type_faults(changelog, table),
        *condition_faults(workspace, source, "tombstone", changelog.tombstone, table),
    ]
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)
    own = [StructField(DELETED, BooleanType()), StructField(ORDER, table.schema[changelog.order].dataType)]
    return BoundKTable(
        changelog,
        changelog_fingerprint(workspace.file, source, workspace.deviations),
        table,
        plain_schema([*(table.schema[name] for name in changelog.columns), *own]),
        ktable_address(workspace, source),
    )


def pinned_ktable(workspace: Workspace, source: str) -> Table:
    """
    Look up the KTable of a source as joins read it: without what is deleted, at its last committed epoch.

    Its version is the one that the ledger names, or a later one if only commits without data lie between: old versions
    are readable for a time only.

    Raises:
        NotLoaded: It has no epoch yet.
        ForeignWriter: Its table is not the one that the ledger names.
    """
    last = workspace.ledger.of(source).committed
    if last is None or last.result.version is None:
        raise NotLoaded(
            source,
            "this changelog source is not loaded yet",
            expected="a committed epoch of it, for joins read the table that lakejoin makes of it",
            hint="run `lakejoin run`, which loads it before the joins that read it",
        )
    table = get(workspace.spark, ktable_address(workspace, source))
    if table.id != last.result.id:
        raise ForeignWriter(
            table.address.label,
            "the table that lakejoin keeps of a changelog source was replaced by another one",
            expected=f"the table with id {last.result.id}",
            found=f"id {table.id}",
            hint=_rebuild(table.address),
        )
    table = at_rest(workspace.spark, table, last.result.version)
    shown = StructType([field for field in table.schema if field.name not in (DELETED, ORDER)])
    address = replace(table.address, label=source)  # joins know the source alone
    return replace(table, address=address, schema=shown, where=f"NOT {quote(DELETED)}")


@contextmanager
def ktable_remedy(workspace: Workspace, source: str) -> Iterator[None]:
    """
    Let errors name the way on that a KTable has: a backfill of all that reads it, for it cannot be selected itself.

    It shares its protocol with joins, and so their errors; where a hint of these names a command, it is for joins.
    """
    try:
        yield
    except LakejoinError as error:
        if not isinstance(error, PipelineFileError):
            error.hint = for_ktable(error.hint)
            error.args = (error.message,)
        raise


def for_ktable(hint: str) -> str:
    """Put the way on that a KTable has in the place of that of a join."""
    if hint.startswith("drop "):
        return hint
    hint = re.sub(r"`lakejoin run --select [^`]*`", "`lakejoin run`", hint)
    return re.sub(r"((run|compare it by) )?`lakejoin (backfill|verify).*", RECONCILED, hint)


RECONCILED = (
    "run `lakejoin backfill`: it reconciles the table that is kept of this source with the source as it is now, "
    "and the joins that read it"
)
"""The way on of a KTable."""


def _rebuild(address: Address) -> str:
    return (
        f"drop {address.path or address.table}; `lakejoin backfill` then loads it anew from the source as it is now, "
        "and reconciles the joins that read it"
    )


def _type_faults(changelog: Changelog, table: Table) -> Iterator[Fault]:
    path = f"sources.{changelog.source}"
    for name in incomparable(table.schema):
        yield Fault(path, f"{name} is {_type(table, name)}, which has no comparison", "keep it as a string")
    for name in changelog.columns:
        declared = char_type(table.schema[name])
        if declared is not None:
            problem = (
                f"{name} is {declared.upper()}, and the table that lakejoin keeps of this source has no CHAR columns"
            )
            yield Fault(path, problem, f"ALTER TABLE {table.address.sql} ALTER COLUMN {quote(name)} TYPE STRING")
    for name in changelog.key:
        kind = table.schema[name].dataType
        if common_type(kind, kind) is None:
            yield Fault(f"{path}.key", f"{name} is {_type(table, name)}, which cannot be a key", "choose another key")
    if contains(table.schema[changelog.order].dataType, MapType):
        problem = f"{changelog.order} is {_type(table, changelog.order)}, which has no order"
        yield Fault(f"{path}.order_by", problem, "choose another column")


def _type(table: Table, name: str) -> str:
    return table.schema[name].dataType.simpleString()
