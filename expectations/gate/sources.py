"""
The sources of a join of tables as an epoch pinned them: evaluates the join again for some keys.

    keys of result rows ──► rows of the tables that key the result ──► rows that these refer to ──► statement

It evaluates the plain statement over only the rows that the keys need. It relies on no other property of joins.
"""

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import DataType

from expectations.gate.by_key import (
    NO_LITERALS,
    Lookup,
    check_rows,
    driver_copies,
    trusted,
    with_keys,
)
from expectations.gate.statement import Statement
from lakehouse import limits
from lakehouse.values.compare import is_collated, type_sql
from lakehouse.values.driver_rows import TooLarge, to_driver
from lakehouse.values.net_changes import key_struct, no_reference, null_key
from lakehouse.values.pruning import Pruning
from lakehouse.values.sqltext import numbered


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
        may_be_absent: Whether parts of a key may be null, but not all of them: a row may lack a side of a join.
        old: Reads the rows of the changed keys as they were before the epoch; None without a feed.
    """

    rows: DataFrame
    key: tuple[str, ...]
    types: tuple[DataType, ...]
    changed: DataFrame | None = None
    size: int = 0
    may_be_absent: bool = False
    old: Callable[[], DataFrame] | None = None

    @property
    def keyed(self) -> DataFrame:
        """The rows that have a key; the others take no part in the join."""
        return self.rows.where(f"NOT {null_key(self.key, may_be_absent=self.may_be_absent)}")


@dataclass(frozen=True)
class Reference:
    """
    A reference from one input to the key of another input.

    Args:
        input: The index in FROM of the referenced input.
        over: The index in FROM of the input that refers to it; of several, the one whose rows are found from its rows.
        expressions: For each key column of the referenced input, the Spark SQL that equals it.
        null_safe: The positions of the expressions for which null is a value.
        own: If other inputs have a part in it: the positions of the expressions over `over`; else empty.
    """

    input: int
    over: int
    expressions: tuple[str, ...]
    null_safe: tuple[int, ...] = ()
    own: tuple[int, ...] = ()


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
        salt: Chooses the samples; each run has another one.
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
    def may_be_absent(self) -> bool:
        """Whether parts of the keys of the inputs that key the result may be null."""
        return any(self.inputs[place].may_be_absent for place in self.members)

    @property
    def share(self) -> int:
        """The number of rows of the result that are checked for each changed source."""
        return limits.LEFT_OUT_ROWS // max(1, sum(item.changed is not None for item in self.inputs))

    def pruning(self, keys: DataFrame, place: int | None = None) -> Pruning:
        """
        Return the pruning of keys; without literals if the sources are small enough to do without them.

        Args:
            keys: The keys.
            place: The index in FROM of the input in which they are looked up; None for keys of the result.

        Raises:
            ReadsDiffer: The predicate does not hold for a key.
        """
        if self.size <= limits.LITERAL_BYTES:
            return NO_LITERALS
        is_of_result = place is None or place in self.members
        absent = self.may_be_absent if is_of_result else self.inputs[place or 0].may_be_absent
        return trusted(keys, may_be_absent=absent)

    def joined(self, keys: DataFrame, known: Pruning | None) -> DataFrame:
        """
        Evaluate the join for some rows of the result.

        Args:
            keys: The distinct keys of the rows, as `key` (struct<k0, …>).
            known: The pruning of these keys; None for small sources.

        Returns:
            The columns of SELECT for the rows with these keys; for small sources all rows.

        Raises:
            ReadsDiffer: The literals do not find the rows with the keys.
        """
        if known is None:
            return self.statement.over([item.keyed for item in self.inputs])
        found: dict[int, DataFrame] = {}
        rows = {place: self.inputs[place].rows for place in self._read_whole()}
        wanted = {place: (keys, self._literals(place, keys, known)) for place in self.members}
        with ThreadPoolExecutor() as pool:
            checks = []
            while wanted:
                checks.append(pool.submit(self._check, wanted))
                rows |= {place: self._rows(place, *some) for place, some in wanted.items()}
                found |= zip(rows, driver_copies(list(rows.values())), strict=True)
                rows = {}
                further = [item for item in self.references if self._is_next(item, wanted, found)]
                referred = driver_copies([self._referred(found, item).distinct() for item in further])
                wanted = {
                    item.input: (some, self._literals(item.input, some))
                    for item, some in zip(further, referred, strict=True)
                }
            for check in checks:
                check.result()
        return self.statement.over([found[place] for place in range(len(self.inputs))])

    def _is_next(self, reference: Reference, wanted: Mapping[int, object], found: Mapping[int, DataFrame]) -> bool:
        """Return whether the rows that the last query has read are the last ones to look up a reference."""
        if reference.own:
            return reference.input not in found and all(place in found for place in range(reference.input))
        return reference.over in wanted and reference.input not in found

    def _read_whole(self) -> list[int]:
        """
        Return the referenced inputs that cost less to read whole than by key: small ones that refer only to such ones.

        Nothing has to be read before them, so that they come with the first query. They are small together, so that the
        driver can hold them beside the other rows. The statement may see rows to which no row refers, as it does when
        it is evaluated over whole tables.
        """
        whole, most = list[int](), min(limits.SMALL_BYTES, limits.WHOLE_BYTES)
        for reference in reversed(self.references):
            further = [item.input for item in self.references if item.over == reference.input]
            together = sum(self.inputs[place].size for place in (*whole, reference.input))
            if together <= most and set(further) <= set(whole):
                whole.append(reference.input)
        return whole

    def touched(self) -> DataFrame | None:
        """
        Return the keys of result rows that the changes of the sources can affect.

        Returns:
            `key` (struct<k0, …>) of all these rows, or of `share` rows for each changed source; None if no source
            changed, or if the keys are too large for the driver.
        """
        reached = self.affected()
        frames = [reached[member].select("key") for member in self.members if member in reached]
        if not frames:
            return None
        touched = reduce(DataFrame.unionAll, frames).distinct()
        try:  # collected, so that no later plan reads the sources again
            return touched if self.are_small else to_driver(touched).frame
        except TooLarge:
            return None

    def affected(self) -> dict[int, DataFrame]:
        """
        Return the keys of the rows of each input that changed, or that refer to a row that changed, step by step.

        Returns:
            By input `key` (struct<k0, …>) and `cause` of all these rows, or of a share of them for each changed source.
        """
        changed = {n: self._shared(item.changed) for n, item in enumerate(self.inputs) if item.changed is not None}
        reached = {
            place: keys.select("key", F.lit(place).alias("cause"))
            for place, keys in zip(changed, self._collected(*changed.values()), strict=True)
        }
        for place in reversed(dict.fromkeys(reference.over for reference in self.references)):
            references = [item for item in self.references if item.over == place and item.input in reached]
            if references:
                (found,) = self._collected(self._shared_by_cause(self._referring(place, references, reached)))
                reached[place] = reached[place].unionAll(found) if place in reached else found
        return reached

    def referring_to(self, place: int, keys: DataFrame) -> DataFrame:
        """
        Find the rows of the input that keys the result which refer to some rows of an input, step by step.

        Args:
            place: The index in FROM of the input.
            keys: The keys of its rows, as `key`.

        Returns:
            `key` of these rows, and maybe of others.
        """
        references = {reference.input: reference for reference in self.references}
        found = keys.select("key", F.lit(place).alias("cause"))
        while place in references:
            (found,) = self._collected(found.distinct())
            over = references[place].over
            found, place = self._referring(over, [references[place]], {place: found}), over
        return found.select("key")

    def check_reads(self, wanted: Mapping[int, DataFrame]) -> None:
        """
        Check that the literals of some keys find the same rows of inputs as a join on the key.

        Args:
            wanted: Distinct keys by input, as `key` (struct<k0, …>).

        Raises:
            ReadsDiffer: They find different rows.
        """
        self._check({place: (keys, self._literals(place, keys)) for place, keys in wanted.items()})

    def _collected(self, *frames: DataFrame) -> list[DataFrame]:
        """Collect frames to the driver; return those of small sources as they are."""
        return list(frames) if self.are_small else driver_copies(frames)

    def _shared(self, keys: DataFrame) -> DataFrame:
        """Sample the share of one changed source from its keys; return all keys for small sources."""
        return keys if self.are_small else keys.orderBy(F.xxhash64("key", F.lit(self.salt))).limit(self.share)

    def _shared_by_cause(self, keys: DataFrame) -> DataFrame:
        """Sample from keys (`key`, `cause`) the share of each cause; return all keys for small sources."""
        if self.are_small:
            return keys
        each = Window.partitionBy("cause").orderBy(F.xxhash64("key", F.lit(self.salt)))
        return keys.withColumn("number", F.row_number().over(each)).where(f"number <= {self.share}").drop("number")

    def _literals(self, place: int, keys: DataFrame, known: Pruning | None = None) -> Pruning:
        """
        Return the literals with which to find keys in an input; none if a join alone costs no more.

        That is so if the table is small, or if ranges that cover many keys skip few of its files.
        """
        size = self.inputs[place].size
        if size <= limits.LITERAL_BYTES:
            return NO_LITERALS
        known = self.pruning(keys, place) if known is None else known
        return NO_LITERALS if known.keys is None and size <= limits.SCANNED_BYTES else known

    def _check(self, wanted: Mapping[int, tuple[DataFrame, Pruning]]) -> None:
        """Check that the literals and the keys find the same rows of inputs, except those with a large table."""
        lookups = []
        for place, (keys, known) in wanted.items():
            item = self.inputs[place]
            if item.size <= limits.SCANNED_BYTES:
                name, own = self.statement.aliases[place], key_struct(item.key, item.types)
                joined = partial(_with_keys, key=item.key, own=own)
                lookups.append(Lookup(name, item.rows, item.key, keys, known, joined))
        check_rows(lookups, self.salt)

    def _rows(self, place: int, keys: DataFrame, known: Pruning) -> DataFrame:
        """Read the rows of an input that have one of the keys."""
        item = self.inputs[place]
        return with_keys(item.keyed, item.key, key_struct(item.key, item.types), keys, known)

    def _referred(self, found: Mapping[int, DataFrame], reference: Reference) -> DataFrame:
        """Return the keys to which rows refer; for parts from several inputs, those to which joined rows refer."""
        nothing = no_reference(reference.expressions, reference.null_safe)
        if reference.own:
            before = self.statement.up_to(reference.input, f"IF({nothing}, NULL, {self._key_sql(reference)})")
            return before.over([found[place] for place in range(reference.input)]).where("key IS NOT NULL")
        named = found[reference.over].alias(self.statement.aliases[reference.over]).where(f"NOT {nothing}")
        return named.select(F.expr(self._key_sql(reference)).alias("key"))

    def _referring(self, place: int, references: Sequence[Reference], reached: Mapping[int, DataFrame]) -> DataFrame:
        """
        Find the rows of an input that refer to some keys, by one scan for all references that a hash compares.

        Args:
            place: The index in FROM of the input.
            references: The references from it.
            reached: For each referenced input the keys, as `key` and `cause`.

        Returns:
            `key` of the rows and `cause`. A hash compares most keys. A collision adds a row that need not be checked.
        """
        hashed = [reference for reference in references if self._is_hashed(reference)]
        groups = [hashed] if hashed else []
        groups += [[reference] for reference in references if reference not in hashed]
        return reduce(DataFrame.unionAll, (self._referring_by(place, group, reached) for group in groups))

    def _referring_by(self, place: int, references: Sequence[Reference], reached: Mapping[int, DataFrame]) -> DataFrame:
        """Find the rows that refer to some keys by one reference, or by several that a hash compares."""

        def compared(number: int, key: str) -> str:
            return f"xxhash64({number}, {key})" if self._is_hashed(references[number]) else key

        item = self.inputs[place]
        rows = item.keyed.alias(self.statement.aliases[place])
        refers_to = (compared(number, self._own_sql(reference)) for number, reference in enumerate(references))
        referring = rows.selectExpr(
            f"{key_struct(item.key, item.types)} AS key", f"explode(array({', '.join(refers_to)})) AS refers_to"
        )
        wanted = [
            reached[reference.input].selectExpr(f"{compared(number, _own_key(reference))} AS refers_to", "cause")
            for number, reference in enumerate(references)
        ]
        causes = F.broadcast(reduce(DataFrame.unionAll, wanted))
        return referring.join(causes, on="refers_to", how="inner").select("key", "cause")

    def _is_hashed(self, reference: Reference) -> bool:
        """Return whether equal keys have equal hashes, which is not so for text under a collation."""
        return not any(map(is_collated, self.inputs[reference.input].types))

    def _own_sql(self, reference: Reference) -> str:
        """Return the SQL of the parts of the key over the input that refers; mostly of the whole key."""
        kinds, expressions = self.inputs[reference.input].types, reference.expressions
        parts = reference.own or range(len(expressions))
        return numbered(f"CAST({expressions[part]} AS {type_sql(kinds[part])})" for part in parts)

    def _key_sql(self, reference: Reference) -> str:
        kinds = self.inputs[reference.input].types
        parts = zip(reference.expressions, kinds, strict=True)
        return numbered(f"CAST({part} AS {type_sql(kind)})" for part, kind in parts)


def _own_key(reference: Reference) -> str:
    """Return the SQL of what `_own_sql` refers to, over the keys of the referenced input."""
    return numbered(f"key.k{part}" for part in reference.own) if reference.own else "key"


def _with_keys(rows: DataFrame, keys: DataFrame, key: Sequence[str], own: str) -> DataFrame:
    """Filter rows to the given keys by a join alone."""
    return with_keys(rows, key, own, keys, NO_LITERALS)
