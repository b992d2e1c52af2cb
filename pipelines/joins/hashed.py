"""
States of a result in which one hash stands for the columns that it takes from an input.

A comparison by checksums needs no values. The hashes are computed below the join, so that the wide rows of the sources
are not shuffled.
"""

from collections.abc import Sequence
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructField, StructType

from lakehouse.values.checksums import hash_in_order
from lakehouse.values.sqltext import quote
from pipelines.joins.meaning import meaning
from pipelines.language import Output, ResolvedQuery
from pipelines.language.statement.added_columns import PREFIX


def hashed_meaning(tables: Sequence[DataFrame], join: ResolvedQuery, columns: StructType) -> DataFrame:
    """
    Evaluate a join of tables, with hashes in place of the columns that the result takes from an input unchanged.

    A row that lacks an input has the hash null, as has a row whose columns of that input are all null: in the result
    these rows are equal.

    Returns:
        The key columns, the other columns that are not taken from one input unchanged, and a hash (bigint) for each
        input of which the result has two columns or more.
    """
    taken = _taken(join)
    hashed, outputs = list(tables), {output.name: output for output in join.outputs}
    for place, names in taken.items():
        fields = [StructField(_column_of(join, outputs[name], place), columns[name].dataType) for name in names]
        hashed[place] = tables[place].withColumn(_hash_of(place), F.expr(_hash_sql(fields)))
    hashes = [Output(_hash_of(place), quote(join.inputs[place].alias, _hash_of(place))) for place in taken]
    rest = [outputs[name] for name in _rest(join, columns)]
    return meaning(hashed, replace(join, outputs=(*rest, *hashes)))


def hashed_rows(rows: DataFrame, join: ResolvedQuery, columns: StructType) -> DataFrame:
    """Return rows of a result, in its types, in the form of `hashed_meaning`; further columns stay as they are."""
    hashes = (
        f"{_hash_sql([columns[name] for name in names])} AS {_hash_of(place)}" for place, names in _taken(join).items()
    )
    further = (name for name in rows.columns if name not in columns.fieldNames())
    return rows.selectExpr(*map(quote, _rest(join, columns)), *hashes, *map(quote, further))


def _taken(join: ResolvedQuery) -> dict[int, list[str]]:
    """Return by input the names of the outputs, besides the key, that are columns of it, if these are two or more."""
    taken: dict[int, list[str]] = {}
    for output in join.outputs:
        for place, item in enumerate(join.inputs):
            if output.name not in join.key and _column_of(join, output, place) in item.columns:
                taken.setdefault(place, []).append(output.name)
    return {place: names for place, names in taken.items() if len(names) > 1}


def _column_of(join: ResolvedQuery, output: Output, place: int) -> str:
    """Return the column of an input that an output is, or an empty string."""
    item = join.inputs[place]
    return next((name for name in item.columns if output.expression == quote(item.alias, name)), "")


def _rest(join: ResolvedQuery, columns: StructType) -> list[str]:
    hashed = {name for names in _taken(join).values() for name in names}
    return [name for name in columns.fieldNames() if name not in hashed]


def _hash_of(place: int) -> str:
    return f"{PREFIX}hash_{place}"


def _hash_sql(columns: Sequence[StructField]) -> str:
    """Return the SQL of the hash of some columns, which is null if all of them are null."""
    nothing = " AND ".join(f"{quote(field.name)} IS NULL" for field in columns)
    return f"IF({nothing}, NULL, {hash_in_order(columns)})"
