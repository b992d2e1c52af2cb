"""Many independent histories as one Spark job: columns that name a history are parts of every key of a join."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, IntegerType, StructField, StructType

from lakehouse.values.net_changes import null_key
from lakehouse.values.sqltext import quote, row_struct, struct
from pipelines.joins.kernel import KeyTypes
from pipelines.language import Input, InputQuery, Link, Output, Pairing, ResolvedQuery, Step

RADIX = 256
"""More than the values of any column of a scope but the first."""


def scoped(join: ResolvedQuery, scope: Sequence[str]) -> ResolvedQuery:
    """
    Return a join whose inputs, keys, references and result begin with the columns of a scope. The result of a pairing
    has them twice: for the left and for the right input. The input of a stream has no key.
    """
    shift = len(scope)
    inputs = tuple(_scoped_input(item, scope) for item in join.inputs)
    steps = tuple(
        Step(step.how, _and(_equal(_any_of(join, scope, range(place)), _any_of(join, scope, [place])), step.on))
        for place, step in enumerate(join.steps, start=1)
    )
    pairing = join.pairing and _scoped_pairing(join, join.pairing, scope)
    if join.pairing is None:
        added = list(zip(scope, _any_of(join, scope, range(len(inputs))), strict=True))
        key = (*scope, *join.key) if join.key else ()
    else:
        left, right = join.pairing.places
        added = [
            *zip(_left(scope), _any_of(join, scope, [left]), strict=True),
            *zip(_right(scope), _any_of(join, scope, [right]), strict=True),
        ]
        of_left, of_right = join.keys_of_sides
        key = (*_left(scope), *of_left, *_right(scope), *of_right)
    return replace(
        join,
        inputs=inputs,
        steps=steps,
        links=tuple(_scoped_link(join, link, scope) for link in join.links),
        outputs=(*(Output(name, sql) for name, sql in added), *join.outputs),
        key=key,
        carried=tuple((name, place + shift) for name, place in join.carried),
        pairing=pairing,
    )


def _scoped_input(item: Input, scope: Sequence[str]) -> Input:
    return replace(
        item,
        key=(*scope, *item.key) if item.key else (),
        columns=(*scope, *item.columns),
        query=item.query and _scoped_query(item.alias, item.query, scope),
        grouping=item.grouping and replace(item.grouping, rows=_scoped_input(item.grouping.rows, scope)),
    )


def _scoped_query(alias: str, query: InputQuery, scope: Sequence[str]) -> InputQuery:
    values = (*(quote(alias, name) for name in scope), *query.values)
    return replace(query, key=(*scope, *query.key), columns=(*scope, *query.columns), values=values)


def scoped_types(join: ResolvedQuery, types: KeyTypes, scope: Sequence[str]) -> list[tuple[DataType, ...]]:
    """Return the types of the keys of a scoped join, and of the values of a pairing."""
    whole: list[DataType] = [IntegerType()] * len(scope)
    found = [(*whole, *kinds) if kinds else () for kinds in types]
    if join.pairing is not None and _is_shared_by_nulls(join.pairing):
        value = StructType([StructField("value", IntegerType())])
        found[len(join.inputs)] = (*[value] * len(scope), *types[len(join.inputs)])
    return found


def scoped_columns(join: ResolvedQuery, columns: StructType, scope: Sequence[str]) -> StructType:
    names = scope if join.pairing is None else (*_left(scope), *_right(scope))
    return StructType([*(StructField(name, IntegerType()) for name in names), *columns])


def unscoped(rows: DataFrame, join: ResolvedQuery, scope: Sequence[str], images: Sequence[str]) -> DataFrame:
    """Return changes of a scoped join with the scope as columns, and without it in `key` and in the rows of images."""
    names = [output.name for output in join.outputs]
    sides = [scope] if join.pairing is None else [_left(scope), _right(scope)]
    found = (
        F.expr(f"coalesce({', '.join(quote('key', one) for one in of_sides)})").alias(name)
        for name, of_sides in zip(scope, zip(*sides, strict=True), strict=True)
    )
    plain = {image: F.expr(f"IF({image} IS NULL, NULL, {row_struct(names, f'{image}.')})") for image in images}
    return rows.select(*found, "*").withColumns({"key": F.expr(row_struct(join.key, "key.")), **plain})


def scoped_rows(rows: Mapping[str, DataFrame], join: ResolvedQuery, scope: Sequence[str]) -> dict[str, DataFrame]:
    """Return the rows of each source, in which the scope is null where the whole key is: such rows take no part."""
    found = dict(rows)
    for item in join.inputs:
        if item.may_be_absent:
            keyless = null_key(item.source_key, may_be_absent=True)
            columns = {name: F.expr(f"IF({keyless}, NULL, {quote(name)})") for name in scope}
            found[item.source] = rows[item.source].withColumns(columns)
    return found


def scoped_changes(changes: DataFrame, scope: Sequence[str]) -> DataFrame:
    """Return changes, which have the scope as columns, with it in `key` (struct<k0, …>), `old` and `new` as well."""
    kinds = {name: [field.name for field in changes.schema[name].dataType] for name in ("key", "old", "new")}
    parts = [*map(quote, scope), *(quote("key", name) for name in kinds["key"])]
    key = struct({f"k{number}": part for number, part in enumerate(parts)})
    rows = {
        image: struct({**{name: quote(name) for name in scope}, **{name: quote(image, name) for name in kinds[image]}})
        for image in ("old", "new")
    }
    images = {image: F.expr(f"IF({image} IS NULL, NULL, {row})") for image, row in rows.items()}
    return changes.withColumns({"key": F.expr(key), **images})


def number_of(scope: Sequence[str]) -> str:
    """Return the SQL of a number for the values of the columns of a scope; it raises where two might have the same."""

    def below_radix(name: str) -> str:
        error = f"CAST(raise_error('{name} has {RADIX} values or more') AS INT)"
        return f"IF({quote(name)} < {RADIX}, {quote(name)}, {error})"

    return reduce(lambda number, name: f"({number} * {RADIX} + {below_radix(name)})", scope[1:], quote(scope[0]))


def _scoped_link(join: ResolvedQuery, link: Link, scope: Sequence[str]) -> Link:
    """
    Return a reference whose first parts are the scope. The input through which a reference with parts from several
    inputs is followed may be absent where it compares its parts by `<=>`. Then the scope comes from any input before,
    and is not followed.
    """
    over, sql = link.over, _any_of(join, scope, [link.over])
    own = (part for part, place in enumerate(link.overs) if place == link.over)
    if link.overs and set(own) <= set(link.null_safe):
        over = min(set(link.overs) - {link.over})
        sql = _any_of(join, scope, range(link.input))
    return replace(
        link,
        expressions=(*sql, *link.expressions),
        null_safe=tuple(part + len(scope) for part in link.null_safe),
        overs=(*[over] * len(scope), *link.overs) if link.overs else (),
    )


def _scoped_pairing(join: ResolvedQuery, pairing: Pairing, scope: Sequence[str]) -> Pairing:
    places = (pairing.over, pairing.right)
    values = []
    for place, own in zip(places, pairing.values, strict=True):
        sql = _any_of(join, scope, [place])
        if _is_shared_by_nulls(pairing):
            nulls = " AND ".join(f"{value} IS NULL" for value in own)
            sql = [f"IF({nulls}, NULL, {one})" for one in sql]
        values.append((*sql, *own))
    return replace(
        pairing,
        on=_and(_equal(*(_any_of(join, scope, [place]) for place in pairing.places)), pairing.on),
        values=(values[0], values[1]),
        null_safe=(*[_is_shared_by_nulls(pairing)] * len(scope), *pairing.null_safe),
    )


def _is_shared_by_nulls(pairing: Pairing) -> bool:
    """Return whether rows of the left input may have nulls as values because they look up no row."""
    return pairing.over != pairing.left and all(pairing.null_safe)


def _any_of(join: ResolvedQuery, scope: Sequence[str], places: Sequence[int]) -> list[str]:
    """Return the SQL of the scope of the first of some inputs that has a row."""
    columns = ([quote(join.inputs[place].alias, name) for place in places] for name in scope)
    return [of[0] if len(of) == 1 else f"coalesce({', '.join(of)})" for of in columns]


def _equal(one: Sequence[str], other: Sequence[str]) -> str:
    return " AND ".join(f"{left} = {right}" for left, right in zip(one, other, strict=True))


def _and(scopes: str, on: str) -> str:
    return f"{scopes} AND ({on})" if scopes else on


def _left(scope: Sequence[str]) -> list[str]:
    return [f"_left{name}" for name in scope]


def _right(scope: Sequence[str]) -> list[str]:
    return [f"_right{name}" for name in scope]
