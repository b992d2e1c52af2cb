"""The KTable of a changelog source: its definition, its address, and the version at which joins read it."""

from collections.abc import Iterator
from dataclasses import dataclass, replace

from pyspark.sql.types import BooleanType, MapType, StructField, StructType

from lakehouse.errors.address import Address
from lakehouse.errors.errors import Fault, ForeignWriter, NotLoaded, PipelineFileError
from lakehouse.tables.table import Table, at_rest, get
from lakehouse.values.compare import char_type, common_type, contains, incomparable, plain_schema
from lakehouse.values.recorded import STATE
from lakehouse.values.sqltext import quote
from pipelines.binding.condition_check import condition_faults
from pipelines.binding.workspace import Workspace
from pipelines.language import Changelog, bind_changelog, changelog_fingerprint
from pipelines.language.names import DELETED, ORDER


@dataclass(frozen=True, kw_only=True)
class BoundKTable:
    """
    A changelog source with all facts that depend on its table.

    Args:
        spec: How its rows are read, over real column names.
        definition: The fingerprint of its definition in the pipeline file.
        source: Its table, pinned.
        columns: The KTable's columns: the key, the other columns of the source, `_deleted` and `_order`.
        result: The address of the KTable.
    """

    spec: Changelog
    definition: str
    source: Table
    columns: StructType
    result: Address

    @property
    def sources(self) -> tuple[Table, ...]:
        """The table that it reads, as a tuple for the sake of `BoundJoin.sources`."""
        return (self.source,)

    def used(self, source: str) -> tuple[str, ...]:
        """Return the columns of the source that the KTable uses: all of them."""
        return self.spec.columns

    @property
    def statement(self) -> str:
        """No statement defines it, but the options of its source."""
        return ""

    @property
    def columns_remedy(self) -> str:
        """The remedy if the columns of the KTable differ from those of its source."""
        return _rebuild(self.result)


def ktable_address(workspace: Workspace, source: str) -> Address:
    """Return the address of the KTable of a source."""
    return workspace.table(source + STATE)


def bind_ktable(workspace: Workspace, source: str) -> BoundKTable:
    """
    Pin a changelog source to its newest version and resolve its options in the file against its columns.

    Raises:
        LakejoinError: The source does not exist.
        PipelineFileError: A column is unknown or has an unsuitable type, or the tombstone condition is invalid.
    """
    table = get(workspace.engine, workspace.source(source))
    changelog = bind_changelog(source, workspace.file.sources[source], table.schema.fieldNames())
    faults = [
        *_type_faults(changelog, table),
        *condition_faults(workspace, source, "tombstone", changelog.tombstone, table),
    ]
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)
    own = [StructField(DELETED, BooleanType()), StructField(ORDER, table.schema[changelog.order].dataType)]
    return BoundKTable(
        spec=changelog,
        definition=changelog_fingerprint(workspace.file, source, workspace.deviations),
        source=table,
        columns=plain_schema([*(table.schema[name] for name in changelog.columns), *own]),
        result=ktable_address(workspace, source),
    )


def pinned_ktable(workspace: Workspace, source: str) -> Table:
    """
    Return the KTable of a source as joins read it: without deleted rows, at its last committed epoch.

    Its version is the version in the ledger, or a later one if only commits without data lie between: Delta can read
    old versions only for a limited time.

    Raises:
        NotLoaded: The KTable has no committed epoch yet.
        ForeignWriter: Its table is not the table that the ledger names.
    """
    last = workspace.ledger.of(source).committed
    if last is None or last.result.version is None:
        raise NotLoaded(
            source,
            "this changelog source is not loaded yet",
            expected="a committed epoch: joins read the KTable that lakejoin builds from this source",
            hint="run `lakejoin run`, which loads it before the joins that read it",
        )
    table = get(workspace.engine, ktable_address(workspace, source))
    if table.id != last.result.id:
        raise ForeignWriter(
            table.address.label,
            "the KTable of a changelog source was replaced by another table",
            expected=f"the table with id {last.result.id}",
            found=f"id {table.id}",
            hint=_rebuild(table.address),
        )
    table = at_rest(workspace.engine, table, last.result.version)
    shown = StructType([field for field in table.schema if field.name not in (DELETED, ORDER)])
    address = replace(table.address, label=source)  # joins know only the source's name
    return replace(table, address=address, schema=shown, where=f"NOT {quote(DELETED)}")


def _rebuild(address: Address) -> str:
    return (
        f"drop {address.path or address.table} and run `lakejoin backfill`, which loads it again from the current "
        "source and reconciles the joins that read it"
    )


def _type_faults(changelog: Changelog, table: Table) -> Iterator[Fault]:
    path = f"sources.{changelog.source}"
    for name in incomparable(table.schema):
        yield Fault(path, f"{name} is {_type(table, name)}, which cannot be compared", "store it as a string")
    for name in changelog.columns:
        declared = char_type(table.schema[name])
        if declared is not None:
            problem = f"{name} is {declared.upper()}, and the KTable of a changelog source cannot have CHAR columns"
            yield Fault(path, problem, f"ALTER TABLE {table.address.sql} ALTER COLUMN {quote(name)} TYPE STRING")
    for name in changelog.key:
        kind = table.schema[name].dataType
        if common_type(kind, kind) is None:
            yield Fault(f"{path}.key", f"{name} is {_type(table, name)}, which cannot be a key", "choose another key")
    if contains(table.schema[changelog.order].dataType, MapType):
        problem = f"{changelog.order} is {_type(table, changelog.order)}, which cannot be ordered"
        yield Fault(f"{path}.order_by", problem, "choose another column")


def _type(table: Table, name: str) -> str:
    return table.schema[name].dataType.simpleString()
