"""The tables that benchmarks join, and the changes that come to them."""

from dataclasses import dataclass, field
from typing import Literal

from tests.lake import Lake

Shape = Literal["recent", "uniform", "skewed"]
Width = Literal["narrow", "wide"]

ROWS_PER_FILE = 100_000
WIDE = 30
"""Columns of a wide result."""
RECENT = 0.02
"""The part of the key range that is new: there changes of shape `recent` lie."""
KINDS = (
    "pmod(xxhash64(id, {n}, {salt}), 100000)",
    "concat('value ', pmod(xxhash64(id, {n}, {salt}), 5000))",
    "CAST(pmod(xxhash64(id, {n}, {salt}), 1000000) / 100.0 AS DECIMAL(12, 2))",
    "date_add(DATE'2020-01-01', CAST(pmod(xxhash64(id, {n}, {salt}), 1500) AS INT))",
    "timestamp_seconds(1600000000 + pmod(xxhash64(id, {n}, {salt}), 50000000))",
    "pmod(xxhash64(id, {n}, {salt}), 1000) / 7.0D",
)


@dataclass(frozen=True)
class Source:
    """A source table. Its keys are even numbers, so that there is room for new rows between them."""

    name: str
    rows: int
    values: int
    references: dict[str, str] = field(default_factory=dict)

    @property
    def columns(self) -> list[str]:
        return ["id", *self.references, *(f"{self.name}_{n}" for n in range(self.values))]

    @property
    def files(self) -> int:
        return max(self.rows // ROWS_PER_FILE, 1)

    @property
    def updated(self) -> list[str]:
        """Name the columns that an update changes."""
        return self.columns[len(self.references) + 1 :][:3]

    def select(self, rows: str, salt: int = 0, also: str = "") -> str:
        values = [KINDS[n % len(KINDS)].format(n=n, salt=salt) for n in range(self.values)]
        columns = ", ".join(
            f"{value} AS {name}"
            for name, value in zip(self.columns, ["id", *self.references.values(), *values], strict=True)
        )
        return f"SELECT {columns}{', ' + also if also else ''} FROM ({rows})"


@dataclass(frozen=True)
class Workload:
    """Source tables, the join over them, and how many changes each source gets in a round."""

    sources: tuple[Source, ...]
    sql: str
    changes: dict[str, int]
    shape: Shape

    @property
    def keys(self) -> dict[str, str]:
        return {source.name: "id" for source in self.sources}

    def query(self, lake: Lake, first: str = "") -> str:
        """Give the join over the tables of a lake as they are now, or over a query in place of the first table."""
        tables = {source.name: lake.at(source.name) for source in self.sources}
        if first:
            tables[self.sources[0].name] = f"({first})"
        return self.sql.format(**tables)

    def statement(self) -> str:
        return self.sql.format(**{source.name: source.name for source in self.sources})

    def fill(self, lake: Lake) -> None:
        for source in self.sources:
            rows = f"SELECT id * 2 AS id, id AS n FROM range(0, {source.rows}, 1, {source.files})"
            properties = "'delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true'"
            lake.spark.sql(
                f"CREATE TABLE {lake.at(source.name)} USING delta TBLPROPERTIES ({properties}) AS {source.select(rows)}"
            )

    def change(self, lake: Lake, turn: int) -> None:
        """Change every source that has changes, in one commit each: 80 % updates, 15 % inserts, 5 % deletes."""
        for source in self.sources:
            count = self.changes.get(source.name, 0)
            if count:
                self._change_source(lake, source, count, turn)

    def update_neighbours(self, lake: Lake, turn: int, count: int) -> None:
        """Update one column of so many neighbouring new rows of the first source by one commit, a quick one."""
        first = self.sources[0]
        newest = max(int(first.rows * RECENT), count)
        low = first.rows - newest + turn * count % (newest - count + 1)
        lake.spark.sql(
            f"UPDATE {lake.at(first.name)} SET {first.updated[0]} = {KINDS[0].format(n=0, salt=turn)} "
            f"WHERE id BETWEEN {2 * low} AND {2 * (low + count - 1)}"
        ).collect()

    def changed_keys(self, lake: Lake, turn: int) -> list[int]:
        """Give the keys of the first source that a round changes."""
        first = self.sources[0]
        return [row["id"] for row in lake.spark.sql(self._drawn(first, self.changes[first.name], turn)).collect()]

    def _change_source(self, lake: Lake, source: Source, count: int, turn: int) -> None:
        """Change one source by one commit."""
        names = ", ".join(source.columns)
        updated = ", ".join(f"t.{name} = s.{name}" for name in source.updated)
        changed = source.select(self._drawn(source, count, turn), turn, "op")
        lake.spark.sql(
            f"MERGE INTO {lake.at(source.name)} t USING ({changed}) s "
            "ON t.id = s.id "
            "WHEN MATCHED AND s.op = 'delete' THEN DELETE "
            f"WHEN MATCHED AND s.op = 'update' THEN UPDATE SET {updated} "
            f"WHEN NOT MATCHED AND s.op = 'insert' THEN INSERT ({names}) VALUES ({names})"
        ).collect()

    def _drawn(self, source: Source, count: int, turn: int) -> str:
        """Give a query of the rows to change: `id`, `n`, `op`; other rows in each turn, and in each source."""
        rows, shift = source.rows, turn * len(self.sources) + self.sources.index(source)
        if self.shape == "recent":  # as orders are: the newest, and one old one
            newest = max(int(rows * RECENT), count)
            step = newest / count
            spread = f"{rows - newest} + floor(i * {step}D)"
            new = f"2 * ({rows} + {turn} * {count} + i)"
        else:
            step = rows / count
            few_high = f"greatest(i, floor({rows} * pow(i / {count}, 4)))"
            spread = few_high if self.shape == "skewed" else f"floor(i * {step}D)"
            new = "2 * n + 1"
        place = f"{spread} + {shift % max(int(step), 1)}"
        if self.shape == "recent" and count > 1:
            place = f"IF(i = 0, {turn}, {place})"
        op = "CASE WHEN i % 20 < 16 THEN 'update' WHEN i % 20 < 19 THEN 'insert' ELSE 'delete' END"
        drawn = f"SELECT i, {op} AS op, CAST({place} AS BIGINT) AS n FROM (SELECT id AS i FROM range({count}))"
        return f"SELECT IF(op = 'insert', CAST({new} AS BIGINT), n * 2) AS id, n, op FROM ({drawn})"
