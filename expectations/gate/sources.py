"""
The sources of a join of tables as an epoch pinned them: evaluates the join again for some keys.

    keys of result rows ──► rows of the tables that key the result ──► rows that these refer to ──► statement

It evaluates the plain statement over only the rows that the keys need. It relies on no other property of joins.
"""

from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from expectations.gate.by_key import NO_LITERALS, check_rows, driver_copy, trusted, with_keys
from expectations.gate.statement import Statement
from lakehouse import limits
from lakehouse.changes import key_struct, null_key
from lakehouse.pruning import Pruning
from lakehouse.small import TooLarge, to_driver
from lakehouse.sqltext import numbered
from lakehouse.values import type_sql


@dataclass(frozen=True)
class Rows:
    """
    An input of a join.

    Args:
        rows: Its rows at the pinned version, with the columns that the statement uses.
        key: Its key columns.
        types: The types in which the key columns are compared.
        changed: The keys that changed in the epoch, as `key` (struct<k0, …>); None without changes.
        size: The size of its table in bytes.
    """

    rows: DataFrame
    key: tuple[str, ...]
    types: tuple[DataType, ...]
    changed: DataFrame | None = None
    size: int = 0


@dataclass(frozen=True)
class Reference:
    """
    A reference from one input to the key of another input.

    Args:
        input: The index in FROM of the referenced input.
        over: The index in FROM of the input that refers to it.
        expressions: For each key column of the referenced input, the Spark SQL that equals it.
    """

    input: int
    over: int
    expressions: tuple[str, ...]


@dataclass(frozen=True)
class Sources:
    """
    The sources of a join of tables.

    Args:
        statement: The join.
        inputs: The inputs in the order of FROM.
        members: The indexes of the inputs that have the key of the result.
        references: The references to the other inputs, each after the reference to the input that refers.
        size: The size of their tables in bytes.
        salt: A text that is another one for each run, so that a sample of the rows is not the same rows each time.
    """

    statement: Statement
    inputs: Sequence[Rows]
    members: Sequence[int]
    references: Sequence[Reference] = ()
    size: int = limits.LITERAL_BYTES + 1
    salt: str = ""

    @property
    def are_small(self) -> bool:
        """Whether the sources are small enough to be read whole."""
        return self.size <= limits.SMALL_BYTES

    @property
    def share(self) -> int:
        """The number of rows of the result that are checked for each changed source."""
        return limits.LEFT_OUT_ROWS // max(1, sum(item.changed is not None for item in self.inputs))

    def pruning(self, keys: DataFrame) -> Pruning:
        """
        Return the pruning of keys; without literals if the sources are small enough to do without them.

        Raises:
            LiteralsMiss: The predicate does not hold for a key.
        """
        return trusted(keys) if self.size > limits.LITERAL_BYTES else NO_LITERALS

    def joined(self, keys: DataFrame, known: Pruning | None) -> DataFrame:
        """
        Evaluate the join for some rows of the result.

        Args:
            keys: The distinct keys of the rows, without nulls, as `key` (struct<k0, …>).
            known: The pruning of these keys; None for small sources.

        Returns:
            The columns of SELECT for the rows with these keys; for small sources all rows.

        Raises:
            LiteralsMiss: The literals do not find the rows with the keys.
        """
        if known is None:
            whole = [item.rows.where(f"NOT {null_key(item.key)}") for item in self.inputs]
            return self.statement.over(whole)
        with ThreadPoolExecutor() as pool:
            checks = [pool.submit(self._check, place, keys, known) for place in self.members]
            rows = [self._rows(place, keys, known) for place in self.members]
            tables = dict(zip(self.members, pool.map(driver_copy, rows), strict=True))
            for reference in self.references:
                wanted = driver_copy(self._referred(tables[reference.over], reference).distinct())
                known = self.pruning(wanted)
                checks.append(pool.submit(self._check, reference.input, wanted, known))
                tables[reference.input] = driver_copy(self._rows(reference.input, wanted, known))
            for check in checks:
                check.result()
        return self.statement.over([tables[place] for place in range(len(self.inputs))])

    def touched(self) -> DataFrame | None:
        """
        Return the keys of result rows that the changes of the sources can affect.

        Returns:
            `key` (struct<k0, …>) of all these rows, or of `share` rows for each changed source; None if no source
            changed, or if the keys are too large for the driver.
        """
        changed = [(place, item.changed) for place, item in enumerate(self.inputs) if item.changed is not None]
        found = [self._touched_by(place, keys) for place, keys in changed]
        frames = [frame for frame in found if frame is not None]
        if not frames:
            return None
        touched = reduce(DataFrame.unionAll, frames).distinct()
        try:  # collected, because a limit may select other rows each time it is evaluated
            return touched if self.are_small else to_driver(touched).frame
        except TooLarge:
            return None

    def _touched_by(self, place: int, changed: DataFrame) -> DataFrame | None:
        """Return the keys of result rows that the changes of one input can affect, at most `share` of large sources."""
        touched = {place: [self._shared(changed)]}
        for reference in reversed(self.references):
            if reference.input in touched:
                keys = reduce(DataFrame.unionAll, touched[reference.input]).distinct()
                keys = keys if self.are_small else driver_copy(keys)
                touched.setdefault(reference.over, []).append(self._shared(self._referring(reference, keys)))
        frames = [frame for member in self.members for frame in touched.get(member, ())]
        return self._shared(reduce(DataFrame.unionAll, frames).distinct()) if frames else None

    def _shared(self, keys: DataFrame) -> DataFrame:
        """Limit keys to the share of one changed source; return all keys for small sources."""
        return keys if self.are_small else keys.limit(self.share)

    def _check(self, place: int, keys: DataFrame, known: Pruning) -> None:
        """Check that the literals and the keys find the same rows of an input, unless its table is large."""
        item = self.inputs[place]
        if item.size <= limits.SCANNED_BYTES:
            name, own = self.statement.aliases[place], key_struct(item.key, item.types)
            joined = partial(with_keys, key=item.key, own=own, known=NO_LITERALS)
            check_rows(name, item.rows, item.key, keys, known, lambda rows, some: joined(rows, keys=some))

    def _rows(self, place: int, keys: DataFrame, known: Pruning) -> DataFrame:
        """Read the rows of an input that have one of the keys."""
        item = self.inputs[place]
        rows = item.rows.where(f"NOT {null_key(item.key)}")
        return with_keys(rows, item.key, key_struct(item.key, item.types), keys, known)

    def _referred(self, rows: DataFrame, reference: Reference) -> DataFrame:
        """Return the keys to which rows refer."""
        nothing = " OR ".join(f"({part}) IS NULL" for part in reference.expressions)
        named = rows.alias(self.statement.aliases[reference.over]).where(f"NOT ({nothing})")
        return named.select(F.expr(self._key_sql(reference)).alias("key"))

    def _referring(self, reference: Reference, keys: DataFrame) -> DataFrame:
        """Read the keys of the rows that refer to one of the keys."""
        item = self.inputs[reference.over]
        alias = self.statement.aliases[reference.over]
        rows = item.rows.where(f"NOT {null_key(item.key)}").alias(alias)
        shown = rows.select(
            F.expr(key_struct(item.key, item.types)).alias("key"), F.expr(self._key_sql(reference)).alias("refers_to")
        )
        found = shown.join(F.broadcast(_named(keys, "refers_to")), on="refers_to", how="left_semi")
        return found.select("key")

    def _key_sql(self, reference: Reference) -> str:
        kinds = self.inputs[reference.input].types
        parts = zip(reference.expressions, kinds, strict=True)
        return numbered(f"CAST({part} AS {type_sql(kind)})" for part, kind in parts)


def _named(keys: DataFrame, name: str) -> DataFrame:
    return keys.select(F.col("key").alias(name))
