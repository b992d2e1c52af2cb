"""
Rows that Delta's batch change feed does not hand on as the table holds them.

The feed passes through objects of Java and Scala. A map of more than four entries comes with its entries in another
order, and a text whose bytes are not valid UTF-8 comes with replacement characters. Such rows are looked up in the
table, at the versions before and after the commits that wrote them:

    rows of the feed that may be distorted ─► their forms ─┐
    table at a version, table at the version before ───────┴─► rows with one of these forms, more or fewer than before
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructType

from lakehouse import limits
from lakehouse.errors import FeedUnavailable, reconcile_hint
from lakehouse.feed import FEED_COLUMNS
from lakehouse.pruning import pruning
from lakehouse.sqltext import numbered, quote
from lakehouse.tables import Table, read_rows
from lakehouse.values import PRUNABLE, as_valid_text, identical

ENTRIES_IN_ORDER = 4
"""A map of so many entries keeps their order on its way through Scala."""


TYPE, VERSION, TIMESTAMP = FEED_COLUMNS
ADDED = f"{TYPE} = 'insert'"


def distortion(columns: Mapping[str, DataType]) -> str:
    """
    Return the SQL that tells whether a row of a feed may differ from the row that its table holds; it is never null.

    Args:
        columns: The columns of the row, with their types.
    """
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
    The rows of a feed, those that may be distorted taken from the table.

    Args:
        spark: Our session.
        table: The table.
        feed: Columns of the table, then `_change_type`, `_commit_version` and `_commit_timestamp`.
        after: The version after which the feed begins.
        to: The last version of it.
    """

    spark: SparkSession
    table: Table
    feed: DataFrame
    after: int
    to: int

    @cached_property
    def _rows(self) -> DataFrame:
        """
        The feed behind a generator, which Spark pushes no filter through.

        A filter that reaches Delta's scan of a feed is evaluated twice, on the values of the table and on what became
        of them, and a row stays only if it meets the filter both times.
        """
        row = F.struct(*(F.col(quote(name)) for name in self.feed.columns))
        return self.feed.select(F.explode(F.array(row)).alias("row")).select("row.*")

    def netted(self) -> DataFrame:
        """Return rows that net to the same changes as the feed; all that were looked up bear its last version."""
        commits = self._commits
        if not commits:
            return self.feed
        return self._with([self._looked_up(self.after, self.to, self._bad, commits[-1])])

    def commit_by_commit(self) -> DataFrame:
        """
        Return rows that net to the same changes as those of the feed within each commit.

        Raises:
            FeedUnavailable: More commits than `MOST_COMMITS` hold such rows, or the table does not hold what they show.
        """
        commits = self._commits
        if not commits:
            return self.feed
        self._refuse_many(commits)
        each = (self._looked_up(commit[VERSION] - 1, commit[VERSION], self._of(commit), commit) for commit in commits)
        return self._with(list(each))

    def inserted(self) -> DataFrame:
        """
        Return the feed of a stream: the rows that were added, each with its own commit, and the other rows as they are.

        Rows of equal values that came in several commits, written otherwise, may bear each other's commit.

        Raises:
            FeedUnavailable: The table does not hold what the feed shows, or rows were changed or deleted as well, in
                more commits than `MOST_COMMITS`.
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
        """The commits with rows that may be distorted, oldest first, with how many they added and how many others."""
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
                "its change feed does not show all values as they are: maps of more than four entries, or text that "
                "is not valid UTF-8",
                expected=f"at most {limits.DISTORTED_COMMITS} commits with such values, to look up in the table",
                found=f"{len(commits)} commits between versions {self.after} and {self.to}",
                hint=reconcile_hint(),
            )

    def _of(self, commit: Row) -> DataFrame:
        return self._bad.where(f"{VERSION} = {commit[VERSION]}")

    def _with(self, looked_up: Sequence[DataFrame]) -> DataFrame:
        return reduce(DataFrame.unionAll, [self._rows.where(f"NOT {self._condition}"), *looked_up])

    def _looked_up(self, before: int, at: int, bad: DataFrame, commit: Row) -> DataFrame:
        """Return what came and went between two versions of the rows with the forms of some of the feed."""
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
        Compare the rows of two versions that have the form of one of some rows of the feed.

        Returns:
            `form`, the values as `v0` and so on, the same as they group as `c0` and so on, and `surplus`: how many
            more there are at the later version; never 0.
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
        """See that the table holds as many more rows of each form, or fewer, as the feed shows."""
        weight = "IF(_change_type IN ('insert', 'update_postimage'), 1, -1)"
        shown = bad.select(self._form, F.expr(weight).alias("weight"))
        both = shown.unionAll(found.select("form", -F.col("weight")))
        different = both.groupBy("form").agg(F.sum("weight").alias("weight")).where("weight <> 0")
        examples = different.select(F.expr("make_valid_utf8(to_json(form))")).limit(1).collect()
        if examples:
            raise FeedUnavailable(
                self.table.address.label,
                "its change feed shows rows that the table does not hold",
                expected="the rows of the table, but for the order of entries of maps and for invalid UTF-8",
                found=f"{', '.join(self._columns)}: {examples[0][0]}",
                hint=reconcile_hint(),
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
        """Find literals that skip files, from columns that the feed shows as they are and that are never null there."""
        sound = [
            name for name, kind in self._columns.items() if isinstance(kind, PRUNABLE) and not _distorted("", kind)
        ]
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
        """Repeat each row so many times, with `copy`: its number among the copies of its form."""
        repeated = rows.withColumn("each", F.explode(F.expr(f"array_repeat(1, CAST({number} AS INT))"))).drop("each")
        return repeated.withColumn("copy", F.row_number().over(Window.partitionBy("form").orderBy(*order)))
