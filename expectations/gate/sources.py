"""
The sources of a join of tables as an epoch pinned them: evaluates the join again for some keys.

    keys of result rows ──► rows of the tables that key the result ──► rows that these refer to ──► statement

It evaluates the plain statement over only the rows that the keys need. It relies on no other property of joins.
"""

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

from pyspark.sql import DataFrame
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
from lakehouse import limits
from lakehouse.values.compare import type_sql
from lakehouse.values.net_changes import no_reference, null_key
from lakehouse.values.pruning import Pruning
from lakehouse.values.sqltext import numbered, quote, struct

NUMBER, STAYS = (f"_lakejoin_{name}" for name in ("number", "stays"))
"""Working columns: the rows of a group, and whether it stays."""


@dataclass(frozen=True)
class PlainGroups:
    """
    How an input groups rows: it has one row for each value of its key among them.

    Args:
        keyless: The SQL condition of a row that takes no part, because it has no key of its own.
        values: The other columns, each with its aggregates in Spark SQL.
        having: Whether a group is a row of the input, in the same form; None if all are.
    """

    key: tuple[str, ...]
    keyless: str
    values: tuple[tuple[str, str], ...]
    having: str | None

    def over(self, rows: DataFrame) -> DataFrame:
        """Return the rows of the input."""
        keyed = rows.where(f"NOT {self.keyless} AND NOT {null_key(self.key)}").groupBy(*map(quote, self.key))
        number, stays = F.count(F.lit(1)).alias(NUMBER), F.expr(self.having or "TRUE").alias(STAYS)
        groups = keyed.agg(number, stays, *(F.expr(sql).alias(name) for name, sql in self.values))
        return groups.where(STAYS).select(*map(quote, self.key), *(quote(name) for name, _ in self.values))


@dataclass(frozen=True)
class PlainQuery:
    """
    An input in Spark SQL over its source.

    Args:
        alias: The alias by which the expressions qualify the columns of the source.
        columns: The name of each column and its value.
        where: The filter; None for none.
        groups: How it groups these rows; None if it does not.
    """

    alias: str
    columns: tuple[tuple[str, str], ...]
    where: str | None
    groups: PlainGroups | None = None

    def over(self, rows: DataFrame, *further: str) -> DataFrame:
        """Return the rows of the input that rows of the source make, with further columns of these, unless grouped."""
        values = [F.expr(sql).alias(name) for name, sql in self.columns]
        source = rows.alias(self.alias)
        taken = (source if self.where is None else source.filter(self.where)).select(*values, *further)
        return taken if self.groups is None else self.groups.over(taken)


@dataclass(frozen=True)
class PlainStatement:
    """
    A join in Spark SQL, its columns qualified by the aliases of the inputs and quoted.

    Args:
        aliases: The aliases of the inputs, in the order of FROM.
        steps: For each input except the first the type of join and the condition of ON.
        outputs: The columns of SELECT: the name in the result and the expression.
    """

    aliases: tuple[str, ...]
    steps: tuple[tuple[str, str], ...]
    where: str | None
    outputs: tuple[tuple[str, str], ...]

    def up_to(self, index: int, key: str) -> "PlainStatement":
        """Return the part of the statement before an input, without WHERE, which selects a `key` given as SQL."""
        steps = self.steps[: index - 1]
        return replace(self, aliases=self.aliases[:index], steps=steps, where=None, outputs=(("key", key),))

    def over(self, tables: Sequence[DataFrame]) -> DataFrame:
        """Evaluate the statement over the rows of the inputs; return the columns of SELECT."""
        first, *others = (table.alias(alias) for table, alias in zip(tables, self.aliases, strict=True))
        joined = first
        for table, (how, on) in zip(others, self.steps, strict=True):
            joined = joined.join(table, on=F.expr(on), how=how)
        if self.where is not None:
            joined = joined.where(self.where)
        return joined.selectExpr(*(f"{sql} AS {quote(name)}" for name, sql in self.outputs))


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
        return limits.SEARCHED_ROWS // max(1, sum(table.changed is not None for table in self.inputs))

    def pruning(self, keys: DataFrame, index: int | None = None) -> Pruning:
        """Return the pruning of keys of an input, or of the result; no literals for small sources. See `trusted`."""
        if self.size <= limits.LITERAL_BYTES:
            return NO_LITERALS
        is_of_result = index is None or index in self.members
        may_be_absent = self.may_be_absent if is_of_result else self.inputs[index or 0].may_be_absent
        return trusted(keys, may_be_absent=may_be_absent)

    def computed(
        self, keys: DataFrame, literals: Pruning | None, row: StructType, *, level_by_level: bool = False
    ) -> DataFrame:
        """
        Evaluate the join for some rows of the result; return them as `computed`, a struct of the columns of the result.

        Args:
            keys: The distinct keys of the rows, as `key` (struct<k0, …>).
            literals: The pruning of these keys; None for small sources, of which all rows are returned.
            level_by_level: Whether sources that could be joined at once are read by literals, which are then checked.

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
        return self.statement.over(tables).selectExpr(f"{struct(columns)} AS computed")

    def unlike_literals(self, keys: DataFrame) -> tuple[str, ...]:
        """
        Explain a fault by how the literals by which a join reads large tables miss rows that these sources have.

        It costs the look-ups level by level, with their checks.
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

        They come with the first query, since nothing has to be read before them, and are small together, so that the
        driver can hold them. The statement may see rows to which no row refers, as it does over whole tables.
        """
        whole, most = list[int](), min(limits.SMALL_BYTES, limits.WHOLE_BYTES)
        for reference in reversed(self.references):
            referred = {other.input for other in self.references if other.over == reference.input}
            size = sum(self.inputs[index].size for index in (*whole, reference.input))
            if size <= most and referred <= set(whole):
                whole.append(reference.input)
        return whole

    def check_reads(self, keys: Mapping[int, DataFrame]) -> None:
        """Raise ReadsDiffer if the literals of distinct keys, by input, and a join on the key find different rows."""
        self._check({index: (wanted, self._literals(index, wanted)) for index, wanted in keys.items()})

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
            before = self.statement.up_to(reference.input, f"IF({nothing}, NULL, {self.referenced_key(reference)})")
            return before.over([read[index] for index in range(reference.input)]).where("key IS NOT NULL")
        rows = read[reference.over].alias(self.statement.aliases[reference.over]).where(f"NOT {nothing}")
        return rows.selectExpr(f"{self.referenced_key(reference)} AS key")

    def referenced_key(self, reference: Reference, own: Sequence[int] = ()) -> str:
        """Return the SQL of a referenced key over the inputs that refer, or of its `own` parts alone."""
        types, expressions = self.inputs[reference.input].types, reference.expressions
        parts = own or range(len(expressions))
        return numbered(f"CAST({expressions[part]} AS {type_sql(types[part])})" for part in parts)
