"""A table with a column of each type, in files of several kinds, for the tests of readers."""

from lakehouse.address import Address
from lakehouse.engine import Engine
from lakehouse.session import settings
from lakehouse.tables import Table, find
from tests.lake import Lake
from tests.test_value_properties import MAPS, POOLS

EARLY = ("0001-01-01", "1582-10-10", "1677-09-21")
"""Days that Spark may shift, or that nanoseconds cannot hold."""
NEVER_DIRECTLY = {"CHAR(4)", "ARRAY<STRING>", *MAPS}
"""Types that Spark reads always."""
COLUMNS = {f"c{number}": kind for number, kind in enumerate(POOLS | MAPS) if "`" not in kind}

READABLE = [name for name, kind in COLUMNS.items() if kind not in NEVER_DIRECTLY]


def late(kind: str) -> list[str]:
    """Return the values of a type that delta-rs may read, and that literals can express."""
    pool = (POOLS | MAPS)[kind]
    return [
        value
        for value in pool
        if not any(day in value for day in EARLY) and not value.startswith(("CAST(X", "'\ufffd"))
    ]


def typed_table(lake: Lake, timestamps: str) -> Table:
    """
    Create a table with a column of each type, in several files, with deletion vectors, updated, restored, compacted.

    Args:
        lake: Where to create it.
        timestamps: The physical type of its timestamps, as Spark names it.
    """
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS.items())
    lake.create("t", f"n INT, {columns}", enableDeletionVectors="true")

    def insert(first: int) -> None:
        rows = []
        for n in range(first, first + 5):
            pools = map(late, COLUMNS.values())
            values = ("NULL" if n % 7 == 6 or not pool else pool[n % len(pool)] for pool in pools)
            rows.append(f"SELECT {n}, {', '.join(values)}")
        lake.sql(f"INSERT INTO {{t}} {' UNION ALL '.join(rows)}", "t")

    with settings(lake.spark, {"spark.sql.parquet.outputTimestampType": timestamps}):
        for first in (0, 5):
            insert(first)
        lake.sql("OPTIMIZE {t}", "t")
        for first in (10, 15):
            insert(first)
    lake.sql("DELETE FROM {t} WHERE n % 5 = 3", "t")
    lake.sql("UPDATE {t} SET c2 = NULL WHERE n % 6 = 1", "t")
    lake.sql("DELETE FROM {t} WHERE n > 1", "t")
    lake.sql("RESTORE TABLE {t} TO VERSION AS OF 7", "t")
    return found(lake, "t")


def found(lake: Lake, name: str) -> Table:
    table = find(Engine.of(lake.spark), Address(name, lake.path(name)))
    assert table is not None
    return table
