"""
The version ranges in which a change feed is read, the commits that it lacks, and the rows that it distorts.

The feed passes through Java and Scala objects. A map of more than four entries loses the order of its entries, and
invalid UTF-8 in a text becomes replacement characters. These rows are looked up in the table, at the versions before
and after the commits that wrote them:

    rows of the feed that may be distorted ─► their forms ─┐
    table at a version, table at the version before ───────┴─► rows with one of these forms whose number differs
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from pyspark.sql import Column, DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StringType, StructField, StructType

from lakehouse import limits
from lakehouse.errors.errors import FeedUnavailable, Remedy
from lakehouse.session.engine import Engine
from lakehouse.tables.columns import as_columns
from lakehouse.tables.delta_log import Commit
from lakehouse.tables.table import CHANGE_FEED, FEED_COLUMNS, Table, commits_since, read_rows
from lakehouse.values.compare import as_valid_text, identical, skips_files
from lakehouse.values.pruning import pruning
from lakehouse.values.sqltext import numbered, quote

_SPLITTING = frozenset({"RENAME COLUMN", "DROP COLUMNS", "CHANGE COLUMN", "CHANGE COLUMNS"})
"""Operations across which the feed of any column is not readable, only before and after them (pitfall 18)."""

_PRUNING_COLUMNS = 4
"""Columns. A scan for distorted rows skips files by the values of at most this many columns."""

_ENTRIES_IN_ORDER = 4
"""Entries. A map of at most this many entries keeps their order in Scala."""

_TYPE, _VERSION, _TIMESTAMP = FEED_COLUMNS
_ADDED = f"{_TYPE} = 'insert'"


def feed_ranges(engine: Engine, table: Table, after: int, to: int) -> list[tuple[int, int]]:
    """
    Split a version range at the commits across which the feed cannot be read, into ranges (after, to] in order. A split
    range omits its parts without data; a range without any data stays whole. The engine is used only if the range
    begins before the commits that `table` holds.

    Raises:
        FeedUnavailable: A commit of the range is missing from the log.
    """
    parts: list[list[Commit]] = [[]]
    for commit in commits_since(engine, table, after):
        if commit.version > to:
            break
        if commit.operation in _SPLITTING or _turns_feed(commit) is not None:
            parts.append([])
        else:
            parts[-1].append(commit)
    with_data = [part for part in parts if any(commit.changes_data for commit in part)]
    if len(parts) == 1 or not with_data:
        return [(after, to)]
    return [(part[0].version - 1, part[-1].version) for part in with_data]


def unrecorded(commits: Sequence[Commit]) -> str:
    """
    Describe the first of the commits, oldest first, whose changes the feed lacks because it was off; return "" if none
    is found. They follow a version at which the feed was on.
    """
    off: Commit | None = None
    for commit in commits:
        turned = _turns_feed(commit)
        if turned is not None:
            off = None if turned else commit
        elif off is not None and commit.changes_data:
            return (
                f"its change feed was off from version {off.version} on, so it lacks {commit.operation} in version "
                f"{commit.version}"
            )
    return ""


def _turns_feed(commit: Commit) -> bool | None:
    """Return True if a commit turns the change feed on, False if it turns it off, None if it does neither."""
    if commit.operation not in ("SET TBLPROPERTIES", "UNSET TBLPROPERTIES"):
        return None
    properties = json.loads(commit.parameters.get("properties", "[]"))
    named = next((name for name in properties if name.lower() == CHANGE_FEED.lower()), None)
    if named is None:
        return None
    return commit.operation == "SET TBLPROPERTIES" and str(properties[named]).lower() == "true"


def distortion(columns: Mapping[str, DataType]) -> str:
    """Return the SQL predicate for rows of a feed that may differ from the rows of the table; it is never null."""
    return _any(_distorted(quote(name), data_type) for name, data_type in columns.items()) or "FALSE"


def _any(conditions: Iterable[str]) -> str:
    return " OR ".join(f"coalesce({condition}, FALSE)" for condition in conditions if condition)


def _distorted(value: str, data_type: DataType, depth: int = 0) -> str:
    """Return the SQL condition that a value is distorted; empty if values of its type never are."""
    if isinstance(data_type, StringType):
        return f"contains({value}, '\ufffd')"
    if isinstance(data_type, ArrayType):
        element = f"x{depth}"
        inner = _distorted(element, data_type.elementType, depth + 1)
        return inner and f"exists({value}, {element} -> coalesce({inner}, FALSE))"
    if isinstance(data_type, StructType):
        return _any(_distorted(f"{value}.{quote(field.name)}", field.dataType, depth) for field in data_type)
    if isinstance(data_type, MapType):
        keys = _distorted(f"map_keys({value})", ArrayType(data_type.keyType), depth)
        values = _distorted(f"map_values({value})", ArrayType(data_type.valueType), depth)
        return " OR ".join([f"size({value}) > {_ENTRIES_IN_ORDER}", *filter(None, (keys, values))])
    return ""


@dataclass(frozen=True)
class Repair:
    """The feed of the versions (after, to], in which rows of the table replace the rows that may be distorted."""

    spark: SparkSession
    table: Table
    feed: DataFrame
    after: int
    to: int

    @cached_property
    def _rows(self) -> DataFrame:
        # Spark pushes no filter through a generator. Delta's scan of a feed evaluates a pushed filter twice, on the
        # values of the table and on the distorted values, and keeps a row only if it meets the filter both times.
        row = F.struct(*(F.col(quote(name)) for name in self.feed.columns))
        return self.feed.select(F.explode(F.array(row)).alias("row")).select("row.*")

    def netted(self) -> DataFrame:
        """Return rows with the same net changes as the feed; looked-up rows have the version of their last commit."""
        commits = self._commits
        if not commits:
            return self.feed
        return self._with([self._looked_up(self.after, self.to, self._bad, commits[-1])])

    def commit_by_commit(self) -> DataFrame:
        """
        Return rows with the same net changes as the feed within each commit. Raise FeedUnavailable if too many commits
        have rows that may be distorted, or the feed shows rows that the table does not hold.
        """
        commits = self._commits
        if not commits:
            return self.feed
        self._refuse_many(commits)
        return self._with([self._looked_up_in(commit, self._of(commit)) for commit in commits])

    def inserted(self) -> DataFrame:
        """
        Return the feed of a stream: the inserted rows, each with its own commit, and the other rows unchanged. Rows
        that differ only in what the feed distorts may have each other's commit. Raise FeedUnavailable as
        `commit_by_commit` does, for too many commits only if distorted rows were updated or deleted.
        """
        commits = self._commits
        if not commits:
            return self.feed
        others = self._rows.where(f"NOT ({self._condition} AND {_ADDED})")
        if sum(commit["others"] for commit in commits):
            self._refuse_many(commits)
            with_inserts = (commit for commit in commits if commit["added"])
            each = (self._looked_up_in(commit, self._of(commit).where(_ADDED)) for commit in with_inserts)
            return reduce(DataFrame.unionAll, [others, *each])
        added = self._difference(self.after, self.to, self._bad).where("surplus > 0")
        rows = self._copies(added, "surplus", *(f"c{n}" for n in range(len(self._columns))))
        of_form = self._bad.groupBy(self._form, _VERSION).agg(
            F.max(_TIMESTAMP).alias(_TIMESTAMP), F.count("*").alias("n")
        )
        seen = self._copies(of_form, "n", _VERSION).drop("n")
        both = rows.alias("row").join(seen.alias("seen"), F.expr("row.form <=> seen.form AND row.copy = seen.copy"))
        values = (F.col(f"row.v{n}").alias(name) for n, name in enumerate(self._columns))
        return others.unionAll(
            both.select(*values, F.lit("insert").alias(_TYPE), f"seen.{_VERSION}", f"seen.{_TIMESTAMP}")
        )

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
        forms = (as_valid_text(quote(name), data_type) for name, data_type in self._columns.items())
        return F.expr(numbered(forms)).alias("form")

    @property
    def _commits(self) -> Sequence[Row]:
        """The commits with rows that may be distorted, oldest first, with their numbers of inserts and other rows."""
        facts = (
            F.max(F.unix_micros(_TIMESTAMP)).alias("at"),
            F.count_if(F.expr(_ADDED)).alias("added"),
            F.count_if(F.expr(f"NOT ({_ADDED})")).alias("others"),
        )
        return self._bad.groupBy(_VERSION).agg(*facts).orderBy(_VERSION).collect()

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
        return self._bad.where(f"{_VERSION} = {commit[_VERSION]}")

    def _with(self, looked_up: Sequence[DataFrame]) -> DataFrame:
        return reduce(DataFrame.unionAll, [self._rows.where(f"NOT {self._condition}"), *looked_up])

    def _looked_up_in(self, commit: Row, bad: DataFrame) -> DataFrame:
        return self._looked_up(commit[_VERSION] - 1, commit[_VERSION], bad, commit)

    def _looked_up(self, before: int, at: int, bad: DataFrame, commit: Row) -> DataFrame:
        """Return the inserts and deletes between two versions of the table, of rows with the form of a feed row."""
        different = self._difference(before, at, bad)
        copies = different.withColumn("copy", F.explode(F.expr("array_repeat(1, CAST(abs(surplus) AS INT))")))
        return copies.select(
            *(F.col(f"v{n}").alias(name) for n, name in enumerate(self._columns)),
            F.expr("IF(surplus > 0, 'insert', 'delete')").alias(_TYPE),
            F.lit(commit[_VERSION]).cast("bigint").alias(_VERSION),
            F.expr(f"timestamp_micros({commit['at']}L)").alias(_TIMESTAMP),
        )

    def _difference(self, before: int, at: int, bad: DataFrame) -> DataFrame:
        """
        Compare the rows of two versions that have the form of one of the given feed rows. Return `form`, the values as
        `v0`, ..., in a form for grouping as `c0`, ..., and `surplus`: how many more the later version has; never 0.
        """
        wanted, pruned = bad.select(self._form).distinct(), self._pruned(bad)
        sides = [self._at(at, 1, pruned)] + ([] if before < 0 else [self._at(before, -1, pruned)])
        rows = reduce(DataFrame.unionAll, sides).alias("row")
        of_form = rows.join(wanted.alias("wanted"), on=F.expr("row.form <=> wanted.form"), how="left_semi")
        self._refuse_others(bad, of_form)
        groups = [f"c{n}" for n in range(len(self._columns))]
        firsts = (F.first(name).alias(name) for name in ("form", *(f"v{n}" for n in range(len(self._columns)))))
        return of_form.groupBy(*groups).agg(*firsts, F.sum("weight").alias("surplus")).where("surplus <> 0")

    def _refuse_others(self, bad: DataFrame, of_form: DataFrame) -> None:
        """Check that the number of rows of each form changed in the table as the feed shows."""
        weight = "IF(_change_type IN ('insert', 'update_postimage'), 1, -1)"
        shown = bad.select(self._form, F.expr(weight).alias("weight"))
        both = shown.unionAll(of_form.select("form", -F.col("weight")))
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
        columns = self._columns
        fields = [StructField(name, data_type) for name, data_type in columns.items()]
        rows = as_columns(read_rows(self.spark, self.table, version), StructType(fields))
        rows = rows if predicate is None else rows.where(predicate)
        return rows.select(
            self._form,
            *(F.expr(identical(quote(name), columns[name])).alias(f"c{n}") for n, name in enumerate(columns)),
            *(F.col(quote(name)).alias(f"v{n}") for n, name in enumerate(columns)),
            F.lit(weight).alias("weight"),
        )

    def _pruned(self, bad: DataFrame) -> str | None:
        """Return what skips files, by columns that are neither distorted nor null in these rows; None if none is."""
        columns = self._columns
        sound = [name for name in columns if skips_files(columns[name]) and not _distorted("", columns[name])]
        sound = sound[:_PRUNING_COLUMNS]
        if not sound:
            return None
        nulls = bad.agg(*(F.count_if(F.col(quote(name)).isNull()).alias(f"n{n}") for n, name in enumerate(sound)))
        whole = [name for name, count in zip(sound, nulls.collect()[0], strict=True) if not count]
        if not whole:
            return None
        keys = bad.select(F.expr(numbered(map(quote, whole))).alias("key")).distinct()
        return pruning(keys).predicate(whole)

    @staticmethod
    def _copies(rows: DataFrame, number: str, *order: str) -> DataFrame:
        """Repeat each row `number` times, and add `copy`: its number among the rows of its form."""
        repeated = rows.withColumn("each", F.explode(F.expr(f"array_repeat(1, CAST({number} AS INT))"))).drop("each")
        return repeated.withColumn("copy", F.row_number().over(Window.partitionBy("form").orderBy(*order)))
