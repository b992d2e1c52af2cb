"""A join of the pipeline file bound to the tables as they are: real columns, key types, the result's columns."""

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, StructType

from lakehouse.address import Address
from lakehouse.errors import Fault, PipelineFileError
from lakehouse.sqltext import quote
from lakehouse.tables import Table, get, read
from lakehouse.values import common_type, incomparable, plain_schema
from pipelines.joins.meaning import meaning
from pipelines.spec import Input, TableJoin, bind, fingerprint, parse
from pipelines.workspace import Workspace


@dataclass(frozen=True)
class BoundJoin:
    """
    A join with everything that its tables tell.

    Args:
        join: The join over real column names.
        definition: Fingerprint of its definition in the pipeline file.
        sources: The source tables at their pinned versions, left before right.
        types: The types in which key parts are compared.
        columns: The result's columns: the key, then the others in the order of the SELECT list.
        result: Where the result lies.
    """

    join: TableJoin
    definition: str
    sources: tuple[Table, Table]
    types: tuple[DataType, ...]
    columns: StructType
    result: Address

    @property
    def sides(self) -> tuple[tuple[str, Input, Table], ...]:
        """Both sides: what stages call it, its place in the join, its table."""
        left, right = self.sources
        return (("left", self.join.left, left), ("right", self.join.right, right))


def bind_join(workspace: Workspace, name: str) -> BoundJoin:
    """
    Pin a join's sources to their newest versions and resolve its statement against their columns.

    Raises:
        LakejoinError: A source does not exist.
        PipelineFileError: A column is unknown, or of a type that cannot be compared.
    """
    source_specs = workspace.file.sources
    statement = parse(name, workspace.file.joins[name].sql, source_specs)
    with ThreadPoolExecutor() as side_by_side:
        found = side_by_side.map(lambda source: get(workspace.spark, workspace.source(source)), statement.sources)
        tables = dict(zip(statement.sources, found, strict=True))
    join = bind(statement, {source: table.schema.fieldNames() for source, table in tables.items()})
    left, right = tables[join.left.source], tables[join.right.source]
    types = _key_types(workspace, join, left.schema, right.schema)
    schema = _result_schema(workspace, join, left, right)
    ordered = [schema[key] for key in join.key] + [field for field in schema if field.name not in join.key]
    return BoundJoin(
        join, fingerprint(workspace.file, name), (left, right), types, plain_schema(ordered), workspace.table(name)
    )


def rows_of(workspace: Workspace, side: Input, table: Table, version: int) -> DataFrame:
    """Read a source at a version, with only the columns that the join uses."""
    rows = read(workspace.spark, table.address, version)
    return rows.select(*(F.col(quote(column)) for column in side.columns))


def _key_types(workspace: Workspace, join: TableJoin, left: StructType, right: StructType) -> tuple[DataType, ...]:
    types, faults = [], []
    for here, there in zip(join.left.key, join.right.key, strict=True):
        kinds = left[here].dataType, right[there].dataType
        kind = common_type(*kinds)
        if kind is None:
            problem = (
                f"ON: {join.left.alias}.{here} is {kinds[0].simpleString()} and"
                f" {join.right.alias}.{there} is {kinds[1].simpleString()}: these do not compare one to one as a key"
            )
            faults.append(Fault(f"joins.{join.name}.sql", problem, "give both key columns one type in their tables"))
        else:
            types.append(kind)
    for side, schema in ((join.left, left), (join.right, right)):
        for column in incomparable(StructType([schema[name] for name in side.columns])):
            problem = f"{side.alias}.{column} is {schema[column].dataType.simpleString()}, which has no comparison"
            faults.append(Fault(f"joins.{join.name}.sql", problem, "leave the column out or extract what you need"))
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)
    return tuple(types)


def _result_schema(workspace: Workspace, join: TableJoin, left: Table, right: Table) -> StructType:
    try:
        rows = [rows_of(workspace, s, table, table.version) for s, table in ((join.left, left), (join.right, right))]
        schema = meaning(rows[0], rows[1], join).schema
    except AnalysisException as error:
        fault = Fault(f"joins.{join.name}.sql", f"Spark refuses it: {str(error).strip().splitlines()[0]}")
        raise PipelineFileError(workspace.file.pipeline, [fault]) from error
    faults = [
        Fault(f"joins.{join.name}.sql", f"SELECT: {name} has a type without comparison", "cast it")
        for name in incomparable(schema)
    ]
    if faults:
        raise PipelineFileError(workspace.file.pipeline, faults)
    return schema
