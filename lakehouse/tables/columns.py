"""The columns of a table that lakejoin maintains, beside those that its definition makes: what differs, what helps."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as T

from lakehouse.session.session import settings
from lakehouse.session.writing import write
from lakehouse.tables.creation import column_mapping, set_properties
from lakehouse.tables.table import KEY, Table
from lakehouse.values.compare import INTEGRAL, char_type, contains, names_in, type_sql
from lakehouse.values.sqltext import Address, quote


@dataclass(frozen=True, kw_only=True)
class Evolution:
    """
    What gives a table other columns, as ALTER TABLE does it: the commits change no row. Readers of the change feed read
    across those that add columns.

    Args:
        added: The new columns, each with the column after which it stands; None for the first.
        widened: The columns that get a wider type.
        dropped: The columns that go.
    """

    added: tuple[tuple[T.StructField, str | None], ...] = ()
    widened: tuple[T.StructField, ...] = ()
    dropped: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.added or self.widened or self.dropped)

    def __str__(self) -> str:
        parts = (
            ("adds ", [quote(field.name) for field, _ in self.added]),
            ("widens ", [quote(field.name) for field in self.widened]),
            ("drops ", [quote(name) for name in self.dropped]),
        )
        return ", ".join(f"{does}{' and '.join(names)}" for does, names in parts if names)


def differences(expected: T.StructType, found: T.StructType) -> tuple[str, ...]:
    """Describe each column of a table that is missing, unexpected, or of another type, regardless of their order."""
    return tuple(_differences(expected, found))


def _differences(expected: T.StructType, found: T.StructType) -> Iterator[str]:
    here, there = _by_name(expected), _by_name(found)
    for name, column in there.items():
        if name not in here:
            yield f"unexpected column {_shown(column)}"
        elif _type(column) != _type(here[name]):
            yield f"column {_shown(column)} should be {_type(here[name])}"
    for name, column in here.items():
        if name not in there:
            yield f"missing column {_shown(column)}"


def listed(schema: T.StructType) -> str:
    """Format columns with their types."""
    return ", ".join(map(_shown, schema))


def evolution(expected: T.StructType, table: Table) -> Evolution | None:
    """
    Return what gives a table the expected columns by ALTER TABLE; None if that cannot, and only an overwrite does.

    Types are widened if the table has type widening on, and columns dropped under column mapping: lakejoin turns
    neither on, because other readers of the table may not support it.
    """
    here, there = _by_name(expected), _by_name(table.schema)
    others = [here[name] for name, column in there.items() if name in here and _type(column) != _type(here[name])]
    gone = [column.name for name, column in there.items() if name not in here]
    may_widen = table.properties.get("delta.enableTypeWidening", "").lower() == "true"
    if others and not (may_widen and all(_widens(there[each.name.lower()], each) for each in others)):
        return None
    if gone and not _is_mapped(table):
        return None
    names = [None, *(field.name for field in expected)]
    added = [(field, names[place]) for place, field in enumerate(expected) if field.name.lower() not in there]
    return Evolution(added=tuple(added), widened=tuple(others), dropped=tuple(gone))


def why_not_overwritten(expected: T.StructType, table: Table, key: Sequence[str]) -> str:
    """
    Return why not even an overwrite may give a table of lakejoin the expected columns; empty if it may.

    Args:
        key: The key of the expected rows.
    """
    here, there = _by_name(expected), _by_name(table.schema)
    if KEY not in table.properties:
        return "lakejoin has not created the table"
    if list(table.key) != list(key):
        return "the key changes"
    for name in (*table.key, *(table.clustered_by or ())):
        pair = [columns.get(name.lower()) for columns in (here, there)]
        if None in pair or len({_type(column) for column in pair if column is not None}) > 1:
            return f"{quote(name)} is of the key or the layout of the table"
    return ""


def lacks_mapping(expected: T.StructType, table: Table) -> bool:
    """Return whether the name of an expected column needs column mapping, which a table does not have."""
    return bool(column_mapping(names_in(expected))) and not _is_mapped(table)


def evolve(spark: SparkSession, address: Address, change: Evolution, user_metadata: str) -> None:
    """Change the columns of a table, in commits with the metadata of an epoch; new columns are null in all rows."""
    allow_types(spark, address, [*(field for field, _ in change.added), *change.widened])
    changes = []
    if change.added:
        columns = (
            f"{quote(field.name)} {type_sql(field.dataType)} {'FIRST' if after is None else f'AFTER {quote(after)}'}"
            for field, after in change.added
        )
        changes.append(f"ADD COLUMNS ({', '.join(columns)})")
    changes += [f"ALTER COLUMN {quote(field.name)} TYPE {type_sql(field.dataType)}" for field in change.widened]
    if change.dropped:
        changes.append(f"DROP COLUMNS ({', '.join(map(quote, change.dropped))})")
    with settings(spark, {"spark.databricks.delta.commitInfo.userMetadata": user_metadata}):
        for each in changes:
            altered = partial(spark.sql, f"ALTER TABLE {address.sql} {each}")
            write(f"alter {address.label}", altered, address.path)


def allow_types(spark: SparkSession, address: Address, fields: Sequence[T.StructField]) -> None:
    """Turn on the features of a table that the types of new columns need, which ALTER TABLE does not do itself."""
    if any(contains(field.dataType, T.TimestampNTZType) for field in fields):
        set_properties(spark, address, {"delta.feature.timestampNtz": "supported"})


def as_columns(rows: DataFrame, schema: T.StructType) -> DataFrame:
    """Return the rows of a table as they are once it has the columns of a schema: those that it lacks are null."""
    found = {name.lower() for name in rows.columns}

    def column(field: T.StructField) -> Column:
        value = F.col(quote(field.name)) if field.name.lower() in found else F.lit(None)
        return value.cast(field.dataType).alias(field.name)

    return rows.select(*map(column, schema))


def _is_mapped(table: Table) -> bool:
    return table.properties.get("delta.columnMapping.mode", "none").lower() != "none"


def _widens(found: T.StructField, expected: T.StructField) -> bool:
    """Return whether Delta widens a type to another one without rewriting files."""
    if char_type(found) or char_type(expected):
        return False
    old, new = found.dataType, expected.dataType
    if isinstance(old, INTEGRAL) and isinstance(new, INTEGRAL):
        return INTEGRAL.index(type(old)) < INTEGRAL.index(type(new))
    if isinstance(old, INTEGRAL) and isinstance(new, T.DecimalType):
        return new.precision - new.scale >= (20 if isinstance(old, T.LongType) else 10)  # as Delta has it
    if isinstance(old, T.DecimalType) and isinstance(new, T.DecimalType):
        return new.scale >= old.scale and new.precision - new.scale >= old.precision - old.scale
    pairs = ((T.FloatType, T.DoubleType), (T.DateType, T.TimestampNTZType))
    is_small = isinstance(old, INTEGRAL) and not isinstance(old, T.LongType)
    return (is_small and isinstance(new, T.DoubleType)) or any(
        isinstance(old, narrow) and isinstance(new, wide) for narrow, wide in pairs
    )


def _by_name(schema: T.StructType) -> dict[str, T.StructField]:
    return {field.name.lower(): field for field in schema}


def _type(field: T.StructField) -> str:
    return char_type(field) or field.dataType.simpleString()


def _shown(field: T.StructField) -> str:
    return f"{quote(field.name)} {_type(field)}"
