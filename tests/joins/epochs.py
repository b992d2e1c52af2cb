"""Many epochs of a join as one Spark job: the functions of the product, put together as the driver does."""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from lakehouse.values.compare import common_type, plain_schema
from lakehouse.values.net_changes import key_struct, net
from lakehouse.values.sqltext import quote
from pipelines.binding.bound import as_input
from pipelines.joins.groups import changed_groups
from pipelines.joins.kernel import change_set, null_reference, reference, touched_keys
from pipelines.joins.pairing import change_set_of_pairs
from pipelines.language import Input, Link, ResolvedQuery, Source, bind, parse
from pipelines.language.statement.statement import Produced

from .claims import CHANGE_TYPE
from .scoped import scoped, scoped_rows, scoped_types, unscoped

NO_KINDS: Mapping[str, str] = {}


def bound(
    sql: str,
    keys: Mapping[str, Sequence[str]],
    schemas: Mapping[str, StructType],
    kinds: Mapping[str, str] = NO_KINDS,
    results: Collection[str] = (),
) -> ResolvedQuery:
    """
    Take a statement over named sources through the product's own reading. They are tables, unless `kinds` says
    something else, or `results` that they are results whose rows may lack a side.
    """
    sources = {
        name: Source(key=key, kind=kinds.get(name, "table")) for name, key in keys.items() if name not in results
    }
    made = {name: Produced(tuple(keys[name]), may_be_absent=True) for name in results}
    columns = {name: schema.fieldNames() for name, schema in schemas.items()}
    return bind(parse("joined", sql, sources, made), columns)


def key_types(join: ResolvedQuery, schemas: Mapping[str, StructType]) -> list[tuple[DataType, ...]]:
    """Give for each input the types in which its key is compared; a reference is of its key's own type."""
    own = [_own_types(item, schemas[item.source]) for item in join.inputs]
    if join.pairing is not None:
        return [*own, value_types(join, schemas)]
    members = [own[place] for place in join.members]
    shared = members[0]
    for other in members[1:]:
        shared = tuple(common_type(one, two) for one, two in zip(shared, other, strict=True))
    assert None not in shared
    return [shared if place in join.members else kinds for place, kinds in enumerate(own)]


def _own_types(item: Input, schema: StructType) -> tuple[DataType, ...]:
    if item.grouping is None:
        return tuple(schema[name].dataType for name in item.source_key)
    values = values_of(item.grouping.rows, schema)
    return tuple(values[name].dataType if name in values.fieldNames() else IntegerType() for name in item.key)


def value_types(join: ResolvedQuery, schemas: Mapping[str, StructType]) -> tuple[DataType, ...]:
    """Give the types of the values of a pairing, which are columns, or structs of a column for `<=>`."""
    assert join.pairing is not None
    over = join.inputs[join.pairing.over]
    schema = schemas[over.source] if over.query is None else values_of(over, schemas[over.source])
    found = []
    for expression, is_null_safe in zip(join.pairing.values[0], join.pairing.null_safe, strict=True):
        (kind,) = (field.dataType for field in schema if expression.endswith(f".{quote(field.name)}"))
        found.append(StructType([StructField("value", kind)]) if is_null_safe else kind)
    return tuple(found)


def values_of(item: Input, schema: StructType) -> StructType:
    """Give the columns of a subquery that are columns of its source, under its names."""
    assert item.query is not None
    named = {quote(item.alias, field.name): field for field in schema}
    pairs = zip(item.columns, item.query.values, strict=True)
    return StructType([StructField(name, named[value].dataType) for name, value in pairs if value in named])


class Epochs:
    """What `kernel` asks of its sources, answered for all epochs at once."""

    def __init__(
        self,
        join: ResolvedQuery,
        types: Sequence[Sequence[DataType]],
        feeds: Mapping[str, DataFrame],
        rows: Mapping[str, DataFrame],
    ) -> None:
        self.join = join
        self.types = types
        self.feeds = feeds
        self.tables = rows

    def changes(self, place: int) -> DataFrame | None:
        item = self.join.inputs[place]
        rows = item.ungrouped
        feed = as_input(self.feeds[item.source], rows, [CHANGE_TYPE.name])
        kinds = {name: feed.schema[name].dataType for name in rows.columns}
        types = self.types[place] if rows is item else [kinds[name] for name in rows.key]
        changes = net(feed, rows.key, types, kinds, may_be_absent=rows.may_be_absent)
        if item.grouping is None:
            return changes
        held = as_input(self.tables[item.source], rows)
        return changed_groups(changes, held, item, item.grouping, self.types[place], types)

    def changed_keys(self, place: int) -> DataFrame | None:
        return self.changes(place).select("key")

    def referring(self, place: int, wanted: Sequence[tuple[Link, DataFrame]]) -> DataFrame:
        return reduce(DataFrame.unionAll, (self._referring(link, keys) for link, keys in wanted))

    def _referring(self, link: Link, keys: DataFrame) -> DataFrame:
        item = self.join.inputs[link.over]
        same_key = f"{reference(link, self.types[link.input])} = referenced.key"
        rows = as_input(self.tables[item.source], item).alias(item.alias).where(f"NOT {null_reference(link)}")
        found = rows.join(keys.alias("referenced"), on=F.expr(same_key), how="left_semi")
        key = F.expr(key_struct(item.key, self.types[link.over])).alias("key")
        return found.select(key)

    def rows(self, wanted: Mapping[int, Callable[[], DataFrame]]) -> dict[int, DataFrame]:
        """Read the rows of each input with one of its keys, with the columns that the join uses."""
        return {place: self._rows(place, keys) for place, keys in wanted.items()}

    def _rows(self, place: int, keys: Callable[[], DataFrame]) -> DataFrame:
        item = self.join.inputs[place]
        wanted = as_input(self.tables[item.source], item)
        same_key = F.expr(f"{key_struct(item.key, self.types[place], 'source.')} = wanted.key")
        return wanted.alias("source").join(keys().alias("wanted"), on=same_key, how="left_semi")

    def materialize(self, name: str, frame: DataFrame) -> DataFrame:
        """Leave the frame as it is; the driver puts it into its stage."""
        return frame


class StagedEpochs(Epochs):
    """Epochs of joins that read a frame many times: each is computed once, as the driver does."""

    def materialize(self, name: str, frame: DataFrame) -> DataFrame:
        return known(frame)


def known(frame: DataFrame) -> DataFrame:
    """Compute a frame now, so that what is made of it does not compute it again; the driver puts it into its stage."""
    schema = plain_schema(frame.schema.fields)
    plain = frame.select(*(F.col(field.name).cast(field.dataType) for field in schema))
    return frame.sparkSession.createDataFrame(plain.toArrow(), schema)


def change_sets(
    join: ResolvedQuery,
    types: Sequence[Sequence[DataType]],
    feeds: Mapping[str, DataFrame],
    rows: Mapping[str, DataFrame],
    scope: Sequence[str],
) -> DataFrame:
    whole, kinds = scoped(join, scope), scoped_types(join, types, scope)
    feeds, rows = (scoped_rows(frames, join, scope) for frames in (feeds, rows))
    sources = (StagedEpochs if join.pairing else Epochs)(whole, kinds, feeds, rows)
    if join.pairing is not None:
        found = change_set_of_pairs(whole, kinds, sources)
        assert found is not None
    else:
        touched = touched_keys(whole, sources)
        assert touched is not None
        found = change_set(whole, kinds, sources, touched)
    return unscoped(found, join, scope, ("before", "after"))
