"""
The sources of a join of tables as an epoch pinned them: evaluates the join again for some keys.

    keys of result rows ──► rows of the tables that key the result ──► rows that these refer to ──► statement

It evaluates the plain statement over only the rows that the keys need. It relies on no other property of joins.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from expectations.gate.by_key import (
    NO_LITERALS,
    InputTable,
    Lookup,
    ReadsDiffer,
    check_rows,
    driver_copies,
    driver_copy,
    trusted,
)
from expectations.gate.sampling import sample_of
from expectations.gate.statement import PlainStatement
from lakehouse import limits
from lakehouse.values.compare import is_collated, type_sql
from lakehouse.values.driver_rows import TooLarge, to_driver
from lakehouse.values.net_changes import no_reference
from lakehouse.values.pruning import Pruning
from lakehouse.values.sqltext import numbered, quote, struct


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
class GateSources:
    """
    The sources of a join of tables.

    Args:
        inputs: The inputs in the order of FROM.
        members: The indexes of the inputs that have the key of the result.
        references: The references to the other inputs, each after the reference to the input that refers.
        size: The size of their tables in bytes.
        salt: Chooses the samples; each run has another one.
    """

    statement: PlainStatement
    inputs: Sequence[InputTable]
    members: Sequence[int]
    references: Sequence[Reference] = ()
    size: int = limits.LITERAL_BYTES + 1
    salt: str = ""

    @property
    def are_small(self) -> bool:
        """Whether the sources are small enough to be read whole."""
        return self.size <= limits.SMALL_BYTES

    @property
    def are_joined_at_once(self) -> bool:
        """
        Whether one query over whole tables costs less than look-ups level by level: it broadcasts the referenced ones.

        Without references the look-ups have one level.
        """
        referenced = [table.size for index, table in enumerate(self.inputs) if index not in self.members]
        is_small = self.size <= limits.SCANNED_BYTES and sum(referenced) <= limits.BROADCAST_BYTES
        return bool(referenced) and is_small

    @property
    def may_be_absent(self) -> bool:
        """Whether parts of the keys of the inputs that key the result may be null."""
        return any(self.inputs[index].may_be_absent for index in self.members)

    @property
    def share(self) -> int:
        """The number of rows of the result that are checked for each changed source."""
        return limits.LEFT_OUT_ROWS // max(1, sum(table.changed is not None for table in self.inputs))

    def pruning(self, keys: DataFrame, index: int | None = None) -> Pruning:
        """
        Return the pruning of keys; without literals if the sources are small enough to do without them.

        Args:
            index: The index in FROM of the input in which they are looked up; None for keys of the result.

        Raises:
            ReadsDiffer: The predicate does not hold for a key.
        """
        if self.size <= limits.LITERAL_BYTES:
            return NO_LITERALS
        is_of_result = index is None or index in self.members
        may_be_absent = self.may_be_absent if is_of_result else self.inputs[index or 0].may_be_absent
        return trusted(keys, may_be_absent=may_be_absent)

    def made(
        self, keys: DataFrame, literals: Pruning | None, row: StructType, *, level_by_level: bool = False
    ) -> DataFrame:
        """
        Evaluate the join for some rows of the result.

        Args:
            keys: The distinct keys of the rows, as `key` (struct<k0, …>).
            literals: The pruning of these keys; None for small sources.
            row: The columns of the result.
            level_by_level: Whether sources that could be joined at once are read by literals, which are then checked.

        Returns:
            `made` (struct of the columns of the result) of the rows with these keys; for small sources of all rows.

        Raises:
            ReadsDiffer: The literals do not find the rows with the keys.
        """
        columns = {field.name: f"CAST({quote(field.name)} AS {type_sql(field.dataType)})" for field in row}
        if literals is None:
            tables = [table.keyed for table in self.inputs]
        elif self.are_joined_at_once and not level_by_level:
            tables = [
                table.with_keys(keys, NO_LITERALS) if index in self.members else F.broadcast(table.keyed)
                for index, table in enumerate(self.inputs)
            ]
        else:
            tables = self._read(keys, literals)
        return self.statement.over(tables).selectExpr(f"{struct(columns)} AS made")

    def unlike_literals(self, keys: DataFrame) -> tuple[str, ...]:
        """
        Return how the literals by which a join reads large tables miss rows that these sources, joined at once, have.

        A gate that found a fault explains it so. It costs the look-ups level by level, with their checks.
        """
        if self.size <= limits.LITERAL_BYTES or not self.are_joined_at_once:
            return ()
        try:
            keys = driver_copy(keys.distinct())
            self._read(keys, self.pruning(keys))
        except ReadsDiffer as differing:
            return (str(differing),)
        return ()

    def _read(self, keys: DataFrame, literals: Pruning) -> list[DataFrame]:
        """Read the rows of all inputs that the rows of the result with some keys need."""
        read: dict[int, DataFrame] = {}
        to_read = {index: self.inputs[index].rows for index in self._read_whole()}
        lookups = {index: (keys, self._literals(index, keys, literals)) for index in self.members}
        with ThreadPoolExecutor() as pool:
            checks = []
            while lookups:
                checks.append(pool.submit(self._check, lookups))
                to_read |= {index: self.inputs[index].with_keys(*lookup) for index, lookup in lookups.items()}
                read |= zip(to_read, driver_copies(list(to_read.values())), strict=True)
                to_read = {}
                references = [reference for reference in self.references if self._is_next(reference, lookups, read)]
                referred = driver_copies([self._referred(read, reference).distinct() for reference in references])
                lookups = {
                    reference.input: (keys, self._literals(reference.input, keys))
                    for reference, keys in zip(references, referred, strict=True)
                }
            for check in checks:
                check.result()
        return [read[index] for index in range(len(self.inputs))]

    def _is_next(self, reference: Reference, lookups: Mapping[int, object], read: Mapping[int, DataFrame]) -> bool:
        """Return whether the last query has read the last rows that are needed to look up a reference."""
        if reference.own:
            return reference.input not in read and all(index in read for index in range(reference.input))
        return reference.over in lookups and reference.input not in read

    def _read_whole(self) -> list[int]:
        """
        Return the referenced inputs that cost less to read whole than by key: small ones that refer only to such ones.

        Nothing has to be read before them, so that they come with the first query. They are small together, so that the
        driver can hold them beside the other rows. The statement may see rows to which no row refers, as it does when
        it is evaluated over whole tables.
        """
        whole, most = list[int](), min(limits.SMALL_BYTES, limits.WHOLE_BYTES)
        for reference in reversed(self.references):
            referred = {other.input for other in self.references if other.over == reference.input}
            size = sum(self.inputs[index].size for index in (*whole, reference.input))
            if size <= most and referred <= set(whole):
                whole.append(reference.input)
        return whole

    def touched(self) -> DataFrame | None:
        """
        Return the keys of result rows that the changes of the sources can affect.

        Returns:
            `key` (struct<k0, …>) of all these rows, or of `share` rows for each changed source; None if no source
            changed, or if the keys are too large for the driver.
        """
        affected = self.affected()
        frames = [affected[member].select("key") for member in self.members if member in affected]
        if not frames:
            return None
        keys = reduce(DataFrame.unionAll, frames).distinct()
        try:  # collected, so that no later plan reads the sources again
            return keys if self.are_small else to_driver(keys).frame
        except TooLarge:
            return None

    def affected(self) -> dict[int, DataFrame]:
        """
        Return the keys of the rows of each input that changed, or that refer to a row that changed, step by step.

        Returns:
            By input `key` (struct<k0, …>) and `cause` of all these rows, or of a share of them for each changed source.
        """
        changed = {n: self._share_of(table.changed) for n, table in enumerate(self.inputs) if table.changed is not None}
        affected = {
            index: keys.select("key", F.lit(index).alias("cause"))
            for index, keys in zip(changed, self._collected(*changed.values()), strict=True)
        }
        for index in reversed(dict.fromkeys(reference.over for reference in self.references)):
            references = [one for one in self.references if one.over == index and one.input in affected]
            if references:
                (keys,) = self._collected(self._share_of_causes(self._referring(index, references, affected)))
                affected[index] = affected[index].unionAll(keys) if index in affected else keys
        return affected

    def referring_to(self, index: int, keys: DataFrame) -> DataFrame:
        """
        Find the rows of the input that keys the result which refer to some rows of an input, step by step.

        Args:
            index: The index in FROM of the input.
            keys: The keys of its rows, as `key`.

        Returns:
            `key` of these rows, and maybe of others.
        """
        references = {reference.input: reference for reference in self.references}
        keys = keys.select("key", F.lit(index).alias("cause"))
        while index in references:
            (keys,) = self._collected(keys.distinct())
            over = references[index].over
            keys, index = self._referring(over, [references[index]], {index: keys}), over
        return keys.select("key")

    def check_reads(self, keys: Mapping[int, DataFrame]) -> None:
        """
        Check that the literals of some keys find the same rows of inputs as a join on the key.

        Args:
            keys: Distinct keys by input, as `key` (struct<k0, …>).

        Raises:
            ReadsDiffer: They find different rows.
        """
        self._check({index: (some, self._literals(index, some)) for index, some in keys.items()})

    def _collected(self, *frames: DataFrame) -> list[DataFrame]:
        """Collect frames to the driver; return those of small sources as they are."""
        return list(frames) if self.are_small else driver_copies(frames)

    def _share_of(self, keys: DataFrame) -> DataFrame:
        """Sample the share of one changed source from its keys; return all keys for small sources."""
        return keys if self.are_small else sample_of(keys, self.salt, self.share)

    def _share_of_causes(self, keys: DataFrame) -> DataFrame:
        """Sample from keys (`key`, `cause`) the share of each cause; return all keys for small sources."""
        if self.are_small:
            return keys
        each = Window.partitionBy("cause").orderBy(F.xxhash64("key", F.lit(self.salt)))
        return keys.withColumn("number", F.row_number().over(each)).where(f"number <= {self.share}").drop("number")

    def _literals(self, index: int, keys: DataFrame, literals: Pruning | None = None) -> Pruning:
        """
        Return the literals with which to find keys in an input; none if a join alone costs no more.

        That is so if the table is small, or if ranges that cover many keys skip few of its files.
        """
        size = self.inputs[index].size
        if size <= limits.LITERAL_BYTES:
            return NO_LITERALS
        literals = self.pruning(keys, index) if literals is None else literals
        return NO_LITERALS if literals.keys is None and size <= limits.SCANNED_BYTES else literals

    def _check(self, lookups: Mapping[int, tuple[DataFrame, Pruning]]) -> None:
        """Check that the literals and the keys find the same rows of inputs, except those with a large table."""
        tables = ((self.statement.aliases[index], self.inputs[index], *lookup) for index, lookup in lookups.items())
        checked = [
            Lookup(alias, table.rows, table.key, keys, literals, table.joined)
            for alias, table, keys, literals in tables
            if table.size <= limits.SCANNED_BYTES
        ]
        check_rows(checked, self.salt)

    def _referred(self, read: Mapping[int, DataFrame], reference: Reference) -> DataFrame:
        """Return the keys to which rows refer; for parts from several inputs, those to which joined rows refer."""
        nothing = no_reference(reference.expressions, reference.null_safe)
        if reference.own:
            before = self.statement.up_to(reference.input, f"IF({nothing}, NULL, {self._key_sql(reference)})")
            return before.over([read[index] for index in range(reference.input)]).where("key IS NOT NULL")
        rows = read[reference.over].alias(self.statement.aliases[reference.over]).where(f"NOT {nothing}")
        return rows.selectExpr(f"{self._key_sql(reference)} AS key")

    def _referring(self, index: int, references: Sequence[Reference], affected: Mapping[int, DataFrame]) -> DataFrame:
        """
        Find the rows of an input that refer to some keys, by one scan for all references that a hash compares.

        Args:
            index: The index in FROM of the input.
            references: The references from it.
            affected: For each referenced input the keys, as `key` and `cause`.

        Returns:
            `key` of the rows and `cause`. A hash compares most keys. A collision adds a row that need not be checked.
        """
        hashed = [reference for reference in references if self._is_hashed(reference)]
        groups = [hashed] if hashed else []
        groups += [[reference] for reference in references if reference not in hashed]
        return reduce(DataFrame.unionAll, (self._referring_by(index, group, affected) for group in groups))

    def _referring_by(
        self, index: int, references: Sequence[Reference], affected: Mapping[int, DataFrame]
    ) -> DataFrame:
        """Find the rows that refer to some keys by one reference, or by several that a hash compares."""

        def compared(number: int, key: str) -> str:
            return f"xxhash64({number}, {key})" if self._is_hashed(references[number]) else key

        table = self.inputs[index]
        rows = table.keyed.alias(self.statement.aliases[index])
        refers_to = (compared(n, self._key_sql(reference, reference.own)) for n, reference in enumerate(references))
        referring = rows.selectExpr(f"{table.key_sql} AS key", f"explode(array({', '.join(refers_to)})) AS refers_to")
        keys = [
            affected[reference.input].selectExpr(f"{compared(n, _parts_of_key(reference))} AS refers_to", "cause")
            for n, reference in enumerate(references)
        ]
        causes = F.broadcast(reduce(DataFrame.unionAll, keys))
        return referring.join(causes, on="refers_to", how="inner").select("key", "cause")

    def _is_hashed(self, reference: Reference) -> bool:
        """Return whether equal keys have equal hashes, which is not so for text under a collation."""
        return not any(map(is_collated, self.inputs[reference.input].types))

    def _key_sql(self, reference: Reference, own: Sequence[int] = ()) -> str:
        """Return the SQL of a referenced key over the inputs that refer, or of its `own` parts alone."""
        types, expressions = self.inputs[reference.input].types, reference.expressions
        parts = own or range(len(expressions))
        return numbered(f"CAST({expressions[part]} AS {type_sql(types[part])})" for part in parts)


def _parts_of_key(reference: Reference) -> str:
    """Return the SQL of the parts of `key` that the input that refers has itself; mostly all."""
    return numbered(f"key.k{part}" for part in reference.own) if reference.own else "key"
