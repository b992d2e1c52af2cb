"""
Any value of any Delta type, under any settings of the application: a result is what plain Spark SQL makes of it. The
tables hold a column of each type, as key, reference, value and inside expressions, under names of any characters.
"""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from lakehouse.session.session import own_session
from lakehouse.values.sqltext import quote, text
from tests.cases import cases
from tests.exact import WAYS, application, held, plain
from tests.lake import Lake, only

BAD = "CAST(X'{}' AS STRING)"
TEXTS = [
    *map(text, ("", " ", "a", "ab", "${name}", "${env:HOME}", "x\\y", "\\u0041", "it's", '"', "`", "$", "%_", "é😀")),
    "concat('a', chr(0), 'b')",
    BAD.format("C328"),
    BAD.format("FF41"),
    "'\ufffd'",
]
TIMES = (
    "0001-01-01 00:00:00",
    "1582-10-10 12:00:00",
    "1677-09-21 00:12:43.145223",
    "1969-12-31 23:59:59.999999",
    "2026-03-29 02:30:00.000001",
    "9999-12-31 23:59:59.999999",
)
POOLS: Mapping[str, list[str]] = {
    "TINYINT": ["-128Y", "0Y", "127Y"],
    "SMALLINT": ["-32768S", "1S", "32767S"],
    "INT": ["-2147483647", "0", "2147483647"],
    "BIGINT": ["-9223372036854775807L", "4611686018427387904L", "4611686018427387905L", "9223372036854775807L"],
    "FLOAT": ["float('NaN')", "float('-Infinity')", "float(0.1)", "float('-0.0')"],
    "DOUBLE": ["double('NaN')", "double('Infinity')", "1.5D", "double('4.9E-324')", "double('-0.0')"],
    "DECIMAL(38, 0)": [f"{'9' * 38}BD", f"-{'9' * 38}BD", f"{'9' * 37}8BD", "0BD"],
    "DECIMAL(38, 37)": ["0.0000000000000000000000000000000000001BD", "-9.9999999999999999999999999999999999999BD"],
    "STRING": TEXTS,
    "VARCHAR(12)": TEXTS,
    "CHAR(4)": ["'ab'", "'abcd'", "''", "'$'", "'é'"],
    "BINARY": ["X''", "X'00'", "X'C328'", "X'24' || X'7B'"],
    "BOOLEAN": ["true", "false"],
    "DATE": [f"DATE'{time[:10]}'" for time in TIMES],
    "TIMESTAMP": [f"TIMESTAMP'{time}'" for time in TIMES],
    "TIMESTAMP_NTZ": [f"TIMESTAMP_NTZ'{time}'" for time in TIMES],
    "STRUCT<`a b`: INT, t: STRING>": ["named_struct('a b', NULL, 't', '${x}')", "named_struct('a b', 1, 't', NULL)"],
    "ARRAY<STRING>": ["array(NULL, 'a')", "array('a', NULL)", "array()", f"array({BAD.format('C328')})"],
}
"""Values of the types that can be keys, as Spark SQL."""

MAPS: Mapping[str, list[str]] = {
    "MAP<STRING, INT>": [
        "map('z', 1, 'y', 2, 'x', 3, 'w', 4, 'v', 5, 'u', 6)",
        "map('u', 6, 'v', 5, 'w', 4, 'x', 3, 'y', 2, 'z', 1)",
        "map()",
        "map('${x}', NULL)",
    ],
    "MAP<DATE, ARRAY<STRING>>": [
        "map(DATE'1582-10-10', array('a'), DATE'0001-01-01', NULL, DATE'2000-01-01', array(), DATE'1999-01-01', NULL, "
        "DATE'1998-01-01', array('\ufffd'))"
    ],
    "STRUCT<m: MAP<INT, STRING>>": ["named_struct('m', map(5, 'e', 4, 'd', 3, 'c', 2, 'b', 1, 'a'))"],
}
"""Values of types that cannot be keys."""

ROWS = 8
KINDS, VALUES = list(POOLS), [*POOLS, *(kind for kind in MAPS if kind not in POOLS)]


NAMES = ("$", "${x}", "{0}", "a.b", "it's", '"', "\\", "\\u0041", "`", "x y", "é😀", "%s", "--", "/*", "\0", ",;()=")
"""What names of columns end in."""


def named(pools: Iterable[str], prefix: str) -> dict[str, str]:
    return {f"{prefix}{number}{NAMES[number % len(NAMES)]}": kind for number, kind in enumerate(pools)}


class Typed(Lake):
    """Tables with a column of each type as value, and of some as key, whose rows are drawn at random."""

    def __init__(
        self, spark: SparkSession, folder: Path, random: Random, keys: Sequence[str], values: Sequence[str]
    ) -> None:
        super().__init__(spark, folder)
        self._random = random
        self.keys, self.values = named(keys, "k"), named(values, "v")

    def make(self) -> None:
        columns = ", ".join(f"{quote(name)} {kind}" for name, kind in (self.keys | self.values).items())
        for name in ("left", "right", "further", "events", "answers", "log"):
            self.create(name, f"n INT, seq INT, {columns}", **{"columnMapping.mode": "name"})
            self.insert(name, range(ROWS))

    def drawn(self) -> str:
        pools = [(POOLS | MAPS)[kind] for kind in self.values.values()]
        return ", ".join("NULL" if self._random.random() < 0.1 else self._random.choice(pool) for pool in pools)

    def key(self, number: int) -> str:
        return ", ".join(POOLS[kind][number % len(POOLS[kind])] for kind in self.keys.values())

    def insert(self, name: str, numbers: range, seq: int = 0) -> None:
        rows = [f"SELECT {number}, {seq}, {self.key(number)}, {self.drawn()}" for number in numbers]
        self.sql(f"INSERT INTO {{{name}}} {' UNION ALL '.join(rows)}", name)

    def change(self) -> None:
        for name in ("left", "right", "further"):
            for number in self._random.sample(range(ROWS), 3):
                column = self._random.choice(list(self.values))
                value = self._random.choice([*(POOLS | MAPS)[self.values[column]], "NULL"])
                self.spark.sql(f"UPDATE {self.at(name)} SET {quote(column)} = {value} WHERE n = {number}")
            self.sql(f"DELETE FROM {{{name}}} WHERE n = {self._random.randrange(ROWS)}", name)
            number = self._random.randrange(ROWS, 2 * ROWS)
            self.sql(f"DELETE FROM {{{name}}} WHERE n = {number}", name)
            self.insert(name, range(number, number + 1))
        for name in ("events", "answers", "log"):
            self.insert(name, range(self._random.randrange(ROWS), ROWS + 1), seq=1)


class Case(NamedTuple):
    sql: str
    sources: dict[str, Any]
    plain: str
    own: tuple[str, ...] = ()


def shown(alias: str, prefix: str, values: Iterable[str]) -> str:
    """List columns of an input, each also inside an expression."""
    plain_ones = [f"{alias}.{quote(name)} AS {quote(prefix + name)}" for name in values]
    texts = [f"CAST({alias}.{quote(name)} AS STRING) AS {quote(f'{prefix}t_{name}')}" for name in values]
    json = f"to_json(struct({', '.join(f'{alias}.{quote(name)}' for name in values)})) AS {prefix}j"
    return ", ".join([*plain_ones, *texts, json])


def same(left: str, right: str, key: Iterable[str]) -> str:
    return " AND ".join(f"{left}.{quote(name)} = {right}.{quote(name)}" for name in key)


STREAMED, PAIRED = ("_epoch", "_position"), ("_epoch", "_position", "_left_row", "_right_row")


def case(join: str, keys: Sequence[str], values: Sequence[str]) -> Case:
    key = ["n", *keys]
    own, both = ", ".join(f"l.{quote(name)}" for name in key), f"{shown('l', 'l', values)}, {shown('r', 'r', values)}"
    meets = f"r ON {same('l', 'r', key)}"
    whole = [name.replace("${", "$${") for name in key]  # as the file writes it
    stream, ordered = {"key": "n", "kind": "stream"}, {"key": whole, "kind": "changelog", "order_by": "seq"}
    if join == "by_key":
        sql = f"SELECT {own}, {both} FROM left l LEFT JOIN right {meets}"
        return Case(sql, {"left": whole, "right": [*whole]}, sql)
    if join == "looked_up":
        sql = f"SELECT l.n, {both} FROM left l LEFT JOIN right {meets}"
        return Case(sql, {"left": "n", "right": whole}, sql)
    if join == "star":
        sql = (
            f"SELECT l.n, {both}, {shown('f', 'f', values)} FROM left l LEFT JOIN right {meets} "
            f"LEFT JOIN further f ON {same('r', 'f', key)}"
        )
        return Case(sql, {"left": "n", "right": whole, "further": [*whole]}, sql)
    if join == "events_looked_up":
        sql = f"SELECT {own}, {shown('l', 'l', values)} FROM events l LEFT JOIN right {meets}"
        return Case(sql, {"events": stream, "right": whole}, sql, STREAMED)
    if join == "two_streams":
        sql = f"SELECT {own}, {both} FROM events l JOIN answers {meets}"
        streams = {name: stream | {"watermarks": {"n": 2 * ROWS}} for name in ("events", "answers")}
        return Case(sql, streams, sql, PAIRED)
    sql = f"SELECT {own}, {both} FROM log l LEFT JOIN right {meets}"
    latest = "(SELECT * FROM log WHERE (n, seq) IN (SELECT n, max(seq) FROM log GROUP BY n))"
    return Case(sql, {"log": ordered, "right": [*whole]}, sql.replace("FROM log", f"FROM {latest}"))


JOINS = ("by_key", "looked_up", "star", "events_looked_up", "two_streams", "of_changelog")


def holds(
    spark: SparkSession,
    folder: Path,
    join: str,
    keys: Sequence[str],
    values: Sequence[str],
    seed: int = 0,
    *,
    changelog: bool = False,
) -> None:
    """Load a join of random rows, change these, and compare each time with plain Spark SQL."""
    if join == "of_changelog":  # refused by name: a KTable would keep them without their length
        keys, values = ([kind for kind in kinds if not kind.startswith("CHAR")] or ["INT"] for kinds in (keys, values))
    lake = Typed(own_session(spark, "UTC"), folder, Random(seed), keys, values)  # names that hold `${` stay as they are
    lake.make()
    wanted = case(join, list(lake.keys), list(lake.values))
    options: dict[str, Any] = {"changelog": True} if changelog and not wanted.own else {}
    pipeline = lake.pipeline(wanted.sql, wanted.sources, **options)
    pipeline.run(lake.spark)
    assert held(lake, without=wanted.own) == plain(lake, wanted.plain)
    lake.change()
    assert pipeline.run(lake.spark)[-1].strategy == "incremental"
    assert held(lake, without=wanted.own) == plain(lake, wanted.plain)


@pytest.mark.slow
@cases(
    "join, way, part",
    ("star", "literals", 2),
    ("events_looked_up", "small", 2),
    ("two_streams", "many", 0),
    ("of_changelog", "small", 1),
    *(("by_key", "literals", part) for part in range(3)),
    *(("looked_up", "many", part) for part in range(3)),
    *(("star", "many", part) for part in (0, 1)),
    *(("events_looked_up", "small", part) for part in (0, 1)),
    *(("two_streams", "small", part) for part in (1, 2)),
    *(("of_changelog", "literals", part) for part in (0, 2)),
)
def test_a_result_is_what_spark_makes_of_any_values(spark, tmp_path, monkeypatch, join, way, part):
    """Every kind of join with every type as value, and as key or reference."""
    WAYS[way](monkeypatch)
    keys = KINDS[part + (3 if join in ("looked_up", "star") else 0) :: 6]
    holds(spark, tmp_path, join, keys, VALUES[part::3])


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(
    join=st.sampled_from(JOINS),
    way=st.sampled_from(sorted(WAYS)),
    keys=st.lists(st.sampled_from(KINDS), min_size=1, max_size=4, unique=True),
    values=st.lists(st.sampled_from(VALUES), min_size=1, max_size=6, unique=True),
    seed=st.integers(),
    changelog=st.booleans(),
)
def test_a_result_is_what_spark_makes_of_any_values_on_any_way(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    join: str,
    way: str,
    keys: list[str],
    values: list[str],
    seed: int,
    changelog: bool,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        WAYS[way](patch)
        holds(spark, tmp_path_factory.mktemp("any"), join, keys, values, seed, changelog=changelog)


APPLICATIONS: tuple[dict[str, str], ...] = (
    {},
    {"spark.sql.legacy.castComplexTypesToString.enabled": "true"},
    {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"},
    {"spark.sql.parquet.outputTimestampType": "INT96", "spark.sql.parquet.int96RebaseModeInWrite": "LEGACY"},
    {"spark.sql.parquet.datetimeRebaseModeInWrite": "LEGACY", "spark.sql.parquet.datetimeRebaseModeInRead": "LEGACY"},
    {"spark.sql.parser.escapedStringLiterals": "true"},
    {"spark.sql.parser.quotedRegexColumnNames": "true"},
    {"spark.sql.variable.substitute": "true", "spark.sql.ansi.doubleQuotedIdentifiers": "true"},
    {"spark.sql.timestampType": "TIMESTAMP_NTZ"},
    {"spark.sql.ansi.enabled": "false", "spark.sql.storeAssignmentPolicy": "LEGACY"},
    {"spark.sql.decimalOperations.allowPrecisionLoss": "false"},
    {"spark.sql.function.concatBinaryAsString": "true", "spark.sql.function.eltOutputAsString": "true"},
    {"spark.sql.jsonGenerator.ignoreNullFields": "false"},
    {"spark.sql.legacy.timeParserPolicy": "LEGACY"},
    {"spark.sql.mapKeyDedupPolicy": "LAST_WIN", "spark.sql.legacy.disableMapKeyNormalization": "true"},
    {"spark.sql.readSideCharPadding": "false", "spark.sql.legacy.charVarcharAsString": "true"},
    {"spark.sql.session.timeZone": "Pacific/Auckland", "spark.sql.datetime.java8API.enabled": "false"},
    {"spark.sql.caseSensitive": "true", "spark.sql.retainGroupColumns": "false"},
    {"spark.sql.sources.partitionOverwriteMode": "DYNAMIC", "spark.sql.runSQLOnFiles": "false"},
    {
        "spark.databricks.delta.properties.defaults.appendOnly": "true",
        "spark.databricks.delta.properties.defaults.dataSkippingNumIndexedCols": "0",
        "spark.databricks.delta.properties.defaults.setTransactionRetentionDuration": "interval 1 days",
        "spark.databricks.delta.commitInfo.userMetadata": "of the application",
        "spark.databricks.delta.history.metricsEnabled": "false",
    },
)
"""Settings that a Spark application may have, each of which changes a value, a table or a plan if nobody resists it."""

SENSITIVE = (
    "SELECT l.k, CAST(l.s AS STRING) AS s, l.at, CAST(l.at AS STRING) AS t, l.x / 3 AS third, l.b || unhex('41') AS b, "
    r"to_json(struct(l.s, r.w)) AS j, to_timestamp(l.day, 'yyyy-M-d') AS day, '${env:HOME}\\x' AS odd, size(r.a) AS n, "
    'l.c, map(l.k, "m") AS m, r.W AS w, l.old FROM left l LEFT JOIN right r ON l.r = r.k'
)


@pytest.fixture(scope="module")
def sensitive(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = Lake(spark, tmp_path_factory.mktemp("sensitive"))
    columns = "s STRUCT<a: INT, b: STRING>, at TIMESTAMP, x DECIMAL(38, 18), b BINARY, day STRING, c CHAR(3), old DATE"
    lake.create("left", f"k INT, r STRING, {columns}")
    lake.create("right", "k STRING, w STRING, a ARRAY<INT>", r"('${r}', 'x', NULL), ('x\\y', 'y', array(1))")
    for number, key in enumerate(("'${r}'", r"'x\\y'", "NULL")):
        lake.sql(
            f"INSERT INTO {{left}} VALUES ({number}, {key}, named_struct('a', NULL, 'b', NULL), "
            "TIMESTAMP'2026-01-01 00:00:00.123456', 1.000000000000000001, X'C328', '2026-1-2', 'ab', DATE'1582-10-10')"
        )
    return lake


def follows(lake: Lake, first: Mapping[str, str], second: Mapping[str, str]) -> None:
    """Load under one application, go on under another, and compare with plain Spark SQL."""
    pipeline = lake.pipeline(SENSITIVE)
    with application(first):
        pipeline.run(lake.spark)
    assert held(lake) == plain(lake, SENSITIVE)
    lake.sql("INSERT INTO {left} SELECT k + 10, r, s, at, x, b, day, c, old FROM {left}")
    lake.sql("UPDATE {right} SET w = concat(w, w)")
    with application(second):
        assert only(pipeline.run(lake.spark)).strategy == "incremental"
        only(pipeline.verify(lake.spark))
    assert held(lake) == plain(lake, SENSITIVE)


@pytest.mark.slow
@pytest.mark.parametrize("number", [3, 4])
def test_two_runs_under_two_applications_give_the_result_of_one(sensitive: Lake, tmp_path: Path, number: int) -> None:
    """All settings at once, but for those that exclude each other."""
    union = {name: value for settings in APPLICATIONS[number::2] for name, value in settings.items()}
    follows(sensitive.copy(tmp_path / "lake"), union, APPLICATIONS[1] | APPLICATIONS[2])


@pytest.mark.slow
@settings(max_examples=25, suppress_health_check=list(HealthCheck))
@given(first=st.sampled_from(APPLICATIONS), second=st.sampled_from(APPLICATIONS))
def test_two_runs_under_any_two_applications_give_the_result_of_one(sensitive, tmp_path_factory, first, second):
    follows(sensitive.copy(tmp_path_factory.mktemp("two") / "lake"), first, second)
