"""
Rows that Delta's batch change feed distorts.

The feed passes through Java and Scala objects. A map of more than four entries loses the order of its entries, and
invalid UTF-8 in a text becomes replacement characters. These rows are looked up in the table, at the versions before
and after the commits that wrote them:

    rows of the feed that may be distorted ─► their forms ─┐
    table at a version, table at the version before ───────┴─► rows with one of these forms whose number differs
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from lakehouse import limits
from lakehouse.errors.errors import FeedUnavailable
from lakehouse.errors.remedies import Remedy
from lakehouse.tables.feed import FEED_COLUMNS
from lakehouse.tables.table import Table, read_rows
from lakehouse.values.compare import as_valid_text, identical, skips_files
from lakehouse.values.pruning import pruning
from lakehouse.values.sqltext import numbered, quote

ENTRIES_IN_ORDER = 4
"""Entries. A map of at most this many entries keeps their order in Scala."""


TYPE, VERSION, TIMESTAMP = FEED_COLUMNS
ADDED = f"{TYPE} = 'insert'"


def distortion(columns: Mapping[str, DataType]) -> str:
    """Return the SQL predicate for rows of a feed that may differ from the rows of the table; it is never null."""
    found = [_distorted(quote(name), kind) for name, kind in columns.items()]
    return " OR ".join(f"coalesce({sql}, FALSE)" for sql in found if sql) or "FALSE"


def _distorted(value: str, kind: DataType, depth: int = 0) -> str:
    item = f"x{depth}"
    if isinstance(kind, StringType):
        return f"contains({value}, '\ufffd')"
    if isinstance(kind, ArrayType):
        inner = _distorted(item, kind.elementType, depth + 1)
        return inner and f"exists({value}, {item} -> coalesce({inner}, FALSE))"
    if isinstance(kind, StructType):
        fields = [_distorted(f"{value}.{quote(field.name)}", field.dataType, depth) for field in kind]
        return " OR ".join(f"coalesce({field}, FALSE)" for field in fields if field)
    if isinstance(kind, MapType):
        keys = _distorted(f"map_keys({value})", ArrayType(kind.keyType), depth)
        values = _distorted(f"map_values({value})", ArrayType(kind.valueType), depth)
        return " OR ".join([f"size({value}) > {ENTRIES_IN_ORDER}", *filter(None, (keys, values))])
    return ""


@dataclass(frozen=True)
class Repair:
    """
    The feed of the versions (after, to], in which rows of the table replace the rows that may be distorted. It has
    columns of the table, then `_change_type`, `_commit_version` and `_commit_timestamp`.
    """

    spark: SparkSession
    table: Table
    feed: DataFrame
    after: int
    to: int

    @cached_property
    def _rows(self) -> DataFrame:
        """
        The feed behind a generator, through which Spark pushes no filter.

        Delta's scan of a feed evaluates a pushed filter twice, on the values of the table and on the distorted values,
        and keeps a row only if it meets the filter both times.
        """
        row = F.struct(*(F.col(quote(name)) for name in self.feed.columns))
        return self.feed.select(F.explode(F.array(row)).alias("row")).select("row.*")

    def netted(self) -> DataFrame:
        """
        Return rows with the same net changes as the feed; all looked-up rows have the version of the last commit whose
        rows may be distorted.
        """
        commits = self._commits
        if not commits:
            return self.feed
        return self._with([self._looked_up(self.after, self.to, self._bad, commits[-1])])

    def commit_by_commit(self) -> DataFrame:
        """
        Return rows with the same net changes as the feed within each commit.

        Raises:
            FeedUnavailable: More than `limits.DISTORTED_COMMITS` commits have rows that may be distorted, or the feed
                shows rows that the table does not hold.
        """
        commits = self._commits
        if not commits:
            return self.feed
        self._refuse_many(commits)
        each = (self._looked_up(commit[VERSION] - 1, commit[VERSION], self._of(commit), commit) for commit in commits)
        return self._with(list(each))

    def inserted(self) -> DataFrame:
        """
        Return the feed of a stream: the inserted rows, each with its own commit, and the other rows unchanged.

        Rows of different commits may have each other's commit if they differ only in what the feed distorts.

        Raises:
            FeedUnavailable: The feed shows rows that the table does not hold, or it also shows distorted updates or
                deletes and more than `limits.DISTORTED_COMMITS` commits have rows that may be distorted.
        """
        commits = self._commits
        if not commits:
            return self.feed
        others = self._rows.where(f"NOT ({self._condition} AND {ADDED})")
        if sum(commit["others"] for commit in commits):
            self._refuse_many(commits)
            inserts = [(commit, self._of(commit).where(ADDED)) for commit in commits if commit["added"]]
            each = (self._looked_up(commit[VERSION] - 1, commit[VERSION], rows, commit) for commit, rows in inserts)
            return reduce(DataFrame.unionAll, [others, *each])
        added = self._difference(self.after, self.to, self._bad).where("surplus > 0")
        rows = self._copies(added, "surplus", *(f"c{n}" for n in range(len(self._columns))))
        of_form = self._bad.groupBy(self._form, VERSION).agg(F.max(TIMESTAMP).alias(TIMESTAMP), F.count("*").alias("n"))
        seen = self._copies(of_form, "n", VERSION).drop("n")
        both = rows.alias("row").join(seen.alias("seen"), F.expr("row.form <=> seen.form AND row.copy = seen.copy"))
        values = (F.col(f"row.v{n}").alias(name) for n, name in enumerate(self._columns))
        found = both.select(*values, F.lit("insert").alias(TYPE), f"seen.{VERSION}", f"seen.{TIMESTAMP}")
        return others.unionAll(found)

    @property
    def _columns(self) -> dict[str, DataType]:
        return {field.name: field.dataType for field in self.feed.schema if field.name not in FEED_COLUMNS}

    @property
    def _condition(self) -> str:
        return f"({distortion(self._columns)})"

    @property
    def _bad(self) -> DataFrame:
        return self._rows.where(self._condition)

    @property
    def _form(self) -> Column:
        forms = (as_valid_text(quote(name), kind) for name, kind in self._columns.items())
        return F.expr(numbered(forms)).alias("form")

    @property
    def _commits(self) -> Sequence[Row]:
        """The commits with rows that may be distorted, oldest first, with their numbers of inserts and other rows."""
        facts = (
            F.max(F.unix_micros(TIMESTAMP)).alias("at"),
            F.count_if(F.expr(ADDED)).alias("added"),
            F.count_if(F.expr(f"NOT ({ADDED})")).alias("others"),
        )
        return self._bad.groupBy(VERSION).agg(*facts).orderBy(VERSION).collect()

    def _refuse_many(self, commits: Sequence[Row]) -> None:
        if len(commits) > limits.DISTORTED_COMMITS:
            raise FeedUnavailable(
                self.table.address.label,
                "its change feed distorts some values: maps of more than four entries, or text that is not valid UTF-8",
                expected=f"at most {limits.DISTORTED_COMMITS} commits with these values, to look up in the table",
                found=f"{len(commits)} commits between versions {self.after} and {self.to}",
                hint=Remedy("{reconcile}"),
            )

    def _of(self, commit: Row) -> DataFrame:
        return self._bad.where(f"{VERSION} = {commit[VERSION]}")

    def _with(self, looked_up: Sequence[DataFrame]) -> DataFrame:
        return reduce(DataFrame.unionAll, [self._rows.where(f"NOT {self._condition}"), *looked_up])

    def _looked_up(self, before: int, at: int, bad: DataFrame, commit: Row) -> DataFrame:
        """Return the inserts and deletes between two versions of the table, of rows with the form of a feed row."""
        different = self._difference(before, at, bad)
        copies = different.withColumn("copy", F.explode(F.expr("array_repeat(1, CAST(abs(surplus) AS INT))")))
        return copies.select(
            *(F.col(f"v{n}").alias(name) for n, name in enumerate(self._columns)),
            F.expr("IF(surplus > 0, 'insert', 'delete')").alias(TYPE),
            F.lit(commit[VERSION]).cast("bigint").alias(VERSION),
            F.expr(f"timestamp_micros({commit['at']}L)").alias(TIMESTAMP),
        )

    def _difference(self, before: int, at: int, bad: DataFrame) -> DataFrame:
        """
        Compare the rows of two versions that have the form of one of the given feed rows.

        Returns:
            `form`, the values as `v0` and so on, the values in a form for grouping as `c0` and so on, and `surplus`:
            how many more of these rows the later version has; never 0.
        """
        wanted, pruned = bad.select(self._form).distinct(), self._pruned(bad)
        sides = [self._at(at, 1, pruned)] + ([] if before < 0 else [self._at(before, -1, pruned)])
        rows = reduce(DataFrame.unionAll, sides).alias("row")
        found = rows.join(wanted.alias("wanted"), on=F.expr("row.form <=> wanted.form"), how="left_semi")
        self._refuse_others(bad, found)
        groups = [f"c{n}" for n in range(len(self._columns))]
        values = (F.first(f"v{n}").alias(f"v{n}") for n in range(len(self._columns)))
        first_form = F.first("form").alias("form")
        return found.groupBy(*groups).agg(first_form, *values, F.sum("weight").alias("surplus")).where("surplus <> 0")

    def _refuse_others(self, bad: DataFrame, found: DataFrame) -> None:
        """Check that the number of rows of each form changed in the table as the feed shows."""
        weight = "IF(_change_type IN ('insert', 'update_postimage'), 1, -1)"
        shown = bad.select(self._form, F.expr(weight).alias("weight"))
        both = shown.unionAll(found.select("form", -F.col("weight")))
        different = both.groupBy("form").agg(F.sum("weight").alias("weight")).where("weight <> 0")
        examples = different.select(F.expr("make_valid_utf8(to_json(form))")).limit(1).collect()
        if examples:
            raise FeedUnavailable(
                self.table.address.label,
                "its change feed shows rows that the table does not hold",
                expected="the rows of the table, except for the order of map entries and invalid UTF-8",
                found=f"{', '.join(self._columns)}: {examples[0][0]}",
                hint=Remedy("{reconcile}"),
            )

    def _at(self, version: int, weight: int, predicate: str | None) -> DataFrame:
        rows = read_rows(self.spark, self.table, version)
        known = set(rows.columns)
        rows = rows.select(
            *(
                (F.col(quote(name)) if name in known else F.lit(None)).cast(kind).alias(name)
                for name, kind in self._columns.items()
            )
        )
        rows = rows if predicate is None else rows.where(predicate)
        return rows.select(
            self._form,
            *(
                F.expr(identical(quote(name), kind)).alias(f"c{n}")
                for n, (name, kind) in enumerate(self._columns.items())
            ),
            *(F.col(quote(name)).alias(f"v{n}") for n, name in enumerate(self._columns)),
            F.lit(weight).alias("weight"),
        )

    def _pruned(self, bad: DataFrame) -> str | None:
        """Return what skips files, by columns that are neither distorted nor null in these rows; None if none is."""
        sound = [name for name, kind in self._columns.items() if skips_files(kind) and not _distorted("", kind)]
        sound = sound[: limits.DISTORTED_COLUMNS]
        if not sound:
            return None
        nulls = bad.agg(*(F.count_if(F.col(quote(name)).isNull()).alias(f"n{n}") for n, name in enumerate(sound)))
        counts = nulls.collect()[0]
        whole = [name for n, name in enumerate(sound) if not counts[n]]
        if not whole:
            return None
        keys = bad.select(F.expr(numbered(map(quote, whole))).alias("key")).distinct()
        return pruning(keys).predicate(whole)

    @staticmethod
    def _copies(rows: DataFrame, number: str, *order: str) -> DataFrame:
        """Repeat each row `number` times, and add `copy`: its number among the rows of its form."""
        repeated = rows.withColumn("each", F.explode(F.expr(f"array_repeat(1, CAST({number} AS INT))"))).drop("each")
        return repeated.withColumn("copy", F.row_number().over(Window.partitionBy("form").orderBy(*order)))
