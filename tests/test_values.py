"""
Values arrive in a result as their tables hold them: CHAR, `${...}`, backslashes, large maps, invalid UTF-8, old dates.
Each test is named in the table of `tests/README.md`, with what was wrong before.
"""

from collections.abc import Callable
from typing import Any

import pytest

from lakehouse import limits
from lakehouse.errors.errors import DefinitionChanged, FeedUnavailable, LakejoinError, PipelineFileError
from lakehouse.session import session as sessions
from pipelines.binding.workspace import Workspace
from pipelines.commands.plan import preview
from tests.cases import cases
from tests.exact import WAYS, application, held, plain
from tests.lake import Lake, only
from tests.recorded import Recorded

POSITIONS = ("_epoch", "_position")
STREAM = {"left": {"key": "k", "kind": "stream"}, "right": "k"}
BIG = "map('z', 1, 'y', 2, 'x', 3, 'w', 4, 'v', 5, '{}', 6)"
BAD = "CAST(X'{}' AS STRING)"


@pytest.fixture(params=[way if way == "literals" else pytest.param(way, marks=pytest.mark.slow) for way in WAYS])
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    WAYS[request.param](monkeypatch)
    return str(request.param)


# CHAR


def pad(lake: Lake) -> None:
    lake.create("left", "k CHAR(4), c CHAR(5), r CHAR(4), s STRUCT<a: CHAR(3)>, v STRING")
    lake.create("right", "k CHAR(4), w CHAR(8)", "('b', 'x'), ('d', 'y')")
    lake.create("wide", "k CHAR(8), w STRING", "('b', 'x'), ('d', 'y')")
    rows = "('a', 'ab', 'b', named_struct('a', 'p'), 'q'), ('b', 'abcde', NULL, NULL, NULL), ('d', '', 'b', NULL, 'ab')"
    lake.sql(f"INSERT INTO {{left}} VALUES {rows}")


@pytest.fixture
def padded(recorded: Recorded) -> Lake:
    return recorded(pad)


CHANGES = (
    "UPDATE {left} SET v = 'changed' WHERE k = 'a'",
    "INSERT INTO {left} VALUES ('e', 'ab', 'd', NULL, 'new')",
    "UPDATE {right} SET w = 'xx' WHERE k = 'b'",
    "DELETE FROM {left} WHERE k = 'b'",
)
AS_TEXT = (
    "SELECT l.k, l.c, l.s, l.v, r.w FROM left l LEFT JOIN right r ON l.k = r.k "
    "WHERE rtrim(l.c) <> 'none' AND CAST(l.c AS STRING) <> 'ab' AND l.c <> 'abcde'",
    "SELECT l.k, concat(l.c, '|') AS c, length(r.w) AS n, l.s.a AS a, CASE WHEN l.c IS NULL THEN 1 END AS one "
    "FROM left l LEFT JOIN right r ON l.r = r.k",
)


@pytest.mark.parametrize("sql", AS_TEXT, ids=["table-table", "foreign-key"])
@pytest.mark.slow
def test_char_columns_are_padded_text_on_every_way(padded: Lake, sql: str, way: str) -> None:
    pipeline = padded.pipeline(sql)
    pipeline.run(padded.spark)
    assert held(padded) == plain(padded, sql)
    for change in CHANGES:
        padded.sql(change)
    assert only(pipeline.run(padded.spark)).strategy == "incremental"
    assert held(padded) == plain(padded, sql)
    only(pipeline.verify(padded.spark))


@pytest.mark.deep
def test_char_columns_are_padded_text_in_a_join_with_a_stream(padded: Lake) -> None:
    sql = "SELECT l.k, l.c, l.v, r.w FROM left l LEFT JOIN right r ON l.r = r.k"
    pipeline = padded.pipeline(sql, STREAM)
    pipeline.run(padded.spark)
    padded.sql("INSERT INTO {left} VALUES ('e', 'ab', 'd', NULL, 'new')")
    pipeline.run(padded.spark)
    assert held(padded, without=POSITIONS) == plain(padded, sql)
    only(pipeline.verify(padded.spark))


PADDED = (
    ("SELECT l.k, r.w FROM left l LEFT JOIN right r ON l.k = r.k WHERE l.c = 'ab'", "WHERE: l.c is CHAR(5)"),
    ("SELECT l.k, r.w FROM left l LEFT JOIN right r ON l.k = r.k WHERE 'ab' < l.c", "WHERE: l.c is CHAR(5)"),
    ("SELECT l.k, r.w FROM left l LEFT JOIN right r ON l.k = r.k AND l.c IN ('ab', 'b')", "ON: l.c is CHAR(5)"),
    ("SELECT l.k, CASE l.c WHEN 'ab' THEN 1 END AS x FROM left l JOIN right r ON l.k = r.k", "SELECT: l.c is"),
    ("SELECT l.k, CASE WHEN l.c = 'ab' THEN 1 END AS x FROM left l JOIN right r ON l.k = r.k", "SELECT: l.c is"),
    ("SELECT l.k, nullif(l.c, 'ab') AS x FROM left l JOIN right r ON l.k = r.k", "SELECT: l.c is"),
    ("SELECT l.k, l.c BETWEEN 'a' AND 'b' AS x FROM left l JOIN right r ON l.k = r.k", "SELECT: l.c is"),
    ("SELECT l.k, r.w FROM left l LEFT JOIN wide r ON l.r = r.k", "ON: l.r is CHAR(4)"),
    ("SELECT l.k, l.c = r.w AS x FROM left l LEFT JOIN right r ON l.k = r.k", "SELECT: l.c is CHAR(5)"),
)
"""Statements that compare CHAR columns as Spark pads them, each with what the message says."""
PADDED_IN_A_SUBQUERY = (
    (
        "SELECT l.k, r.w FROM (SELECT k, (c) AS d FROM left) l JOIN right r ON l.k = r.k WHERE l.d = 'ab'",
        "WHERE: l.d is",
    ),
    ("SELECT l.k, r.w FROM (SELECT k FROM left WHERE c = 'ab') l JOIN right r ON l.k = r.k", "FROM: l.c is CHAR(5)"),
)


@pytest.mark.parametrize("kind", ["table", "stream"])
def test_comparisons_that_pad_char_columns_are_refused_before_anything_is_written(padded: Lake, kind: str) -> None:
    sources = {"left": {"key": "k", "kind": kind}, "right": "k", "wide": "k"}
    before = padded.versions()
    for written, clause in (*PADDED, *(PADDED_IN_A_SUBQUERY if kind == "table" else ())):
        sql = written if kind == "table" else written.replace("ON l.k = r.k", "ON l.r = r.k")
        pipeline = padded.pipeline(sql, {name: key for name, key in sources.items() if name in sql})
        with pytest.raises(PipelineFileError) as refused:
            preview(Workspace.open(padded.spark, pipeline.file, padded.folder), "result", ())
        assert clause in refused.value.message
        assert "rtrim(" in refused.value.message
    with pytest.raises(PipelineFileError):
        pipeline.run(padded.spark)
    assert padded.versions() == before


@pytest.mark.deep
def test_a_refused_comparison_runs_as_the_message_says(padded: Lake) -> None:
    """`rtrim(c)` finds what plain Spark SQL finds by `c`."""
    refused = "SELECT l.k, l.c, r.w FROM left l LEFT JOIN right r ON l.k = r.k WHERE l.c = 'ab'"
    with pytest.raises(PipelineFileError, match=r"rtrim\(l\.c\)"):
        padded.pipeline(refused).run(padded.spark)
    pipeline = padded.pipeline(refused.replace("WHERE l.c", "WHERE rtrim(l.c)"))
    pipeline.run(padded.spark)
    padded.sql("INSERT INTO {left} VALUES ('e', 'ab', 'd', NULL, 'new')")
    pipeline.run(padded.spark)
    assert len(held(padded)) == 2
    assert held(padded) == plain(padded, refused)


@pytest.mark.deep
def test_a_changelog_source_with_a_char_column_is_refused_with_what_helps(lake: Lake) -> None:
    lake.create("left", "k INT, op CHAR(3), seq INT", "(1, 'u', 1), (2, 'd', 2)")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    sources = {
        "left": {"key": "k", "kind": "changelog", "order_by": "seq", "tombstone": "rtrim(op) = 'd'"},
        "right": "k",
    }
    pipeline = lake.pipeline("SELECT l.k, r.w FROM left l LEFT JOIN right r ON l.k = r.k", sources)
    with pytest.raises(PipelineFileError, match="ALTER COLUMN `op` TYPE STRING"):
        pipeline.run(lake.spark)
    lake.sql("ALTER TABLE {left} ALTER COLUMN `op` TYPE STRING")
    pipeline.run(lake.spark)
    assert [row[0] for row in lake.rows()] == [1]


# Texts that Spark could read as something else


ODD = ("${name}", "${env:HOME}", "x\\y", "\\u0041", "it's", '"q"', "a`b", "$", "{}", "%_", "é😀", "a\0b", "", " ")


def odd_keys(lake: Lake, prefix: str) -> Any:
    return lake.spark.createDataFrame([(text, f"{prefix}{n}") for n, text in enumerate(ODD)], "k STRING, v STRING")


@pytest.mark.deep
@cases(
    "inherited",
    pytest.param({}, marks=pytest.mark.slow),
    {"spark.sql.parser.escapedStringLiterals": "true"},
    ids=["plain", "escaped"],
)
def test_keys_with_dollars_and_backslashes_are_looked_up_as_they_are(lake, way, inherited):
    """`${name}` was looked up as the empty string, and `x\\y` not at all under an application's setting."""
    lake.create("left", "k STRING, r STRING")
    lake.create("right", "k STRING, v STRING")
    texts = odd_keys(lake, "v")
    texts.selectExpr("concat(k, '!') AS k", "k AS r").write.format("delta").mode("append").save(lake.path("left"))
    sql = "SELECT l.k, l.r, r.v, r.k AS rk FROM left l LEFT JOIN right r ON l.r = r.k"
    pipeline = lake.pipeline(sql)
    with application(inherited):
        pipeline.run(lake.spark)
        texts.write.format("delta").mode("append").save(lake.path("right"))
        pipeline.run(lake.spark)
        assert held(lake) == plain(lake, sql)
        lake.sql("UPDATE {right} SET v = concat(v, '+')")
        lake.sql("DELETE FROM {right} WHERE k = ''")
        pipeline.run(lake.spark)
        assert held(lake) == plain(lake, sql)
        only(pipeline.verify(lake.spark))


@pytest.mark.slow
def test_a_changelog_source_keeps_keys_with_dollars_once(lake: Lake) -> None:
    lake.create("left", "k STRING, v STRING, seq INT")
    lake.create("right", "k STRING, w STRING")
    sources = {"left": {"key": "k", "kind": "changelog", "order_by": "seq"}, "right": "k"}
    sql = "SELECT l.k, l.v, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(sql, sources)
    for number in range(3):
        rows = odd_keys(lake, f"v{number}-").selectExpr("k", "v", f"{number} AS seq")
        rows.write.format("delta").mode("append").save(lake.path("left"))
        pipeline.run(lake.spark)
    assert [row[1] for row in lake.rows()] == [row[1] for row in sorted(odd_keys(lake, "v2-").collect(), key=repr)]


@pytest.mark.deep
def test_a_stream_meets_keys_with_dollars(lake: Lake, way: str) -> None:
    lake.create("left", "k STRING, v STRING")
    lake.create("right", "k STRING, v STRING")
    odd_keys(lake, "w").write.format("delta").mode("append").save(lake.path("right"))
    sql = "SELECT l.k, l.v, r.v AS w FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(sql, STREAM)
    pipeline.run(lake.spark)
    odd_keys(lake, "v").write.format("delta").mode("append").save(lake.path("left"))
    pipeline.run(lake.spark)
    assert held(lake, without=POSITIONS) == plain(lake, sql)


def test_a_statement_holds_no_variables(standard: Lake) -> None:
    """`${env:HOME}` in a statement was the folder of whoever ran it."""
    sql = "SELECT l.k, '${env:HOME}' AS x, '${spark.app.name}' AS y FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = standard.pipeline(sql)
    pipeline.run(standard.spark)
    standard.sql("UPDATE {left} SET v = 'b' WHERE k = 1")
    pipeline.run(standard.spark)
    assert {row[1:] for row in standard.rows()} == {("${env:HOME}", "${spark.app.name}")}


def test_no_run_goes_on_where_texts_cannot_be_kept_as_they_are(standard: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sessions.FIXED, "spark.sql.variable.substitute", "not a boolean")
    with pytest.raises(LakejoinError, match=r"spark\.sql\.variable\.substitute cannot be set"):
        standard.pipeline().run(standard.spark)


def test_a_setting_that_the_runtime_keeps_is_part_of_the_definition(loaded, monkeypatch):
    """A static setting cannot be set by any session; the result was not made under its value."""
    monkeypatch.setitem(sessions.FIXED, "spark.sql.warehouse.dir", "elsewhere")
    with pytest.raises(DefinitionChanged):
        loaded.pipeline().run(loaded.spark)
    loaded.pipeline().backfill(loaded.spark)
    loaded.sql("UPDATE {left} SET v = 'b' WHERE k = 1")
    assert only(loaded.pipeline().run(loaded.spark)).strategy == "incremental"


# What Delta's change feed does not show as it is


def damaged(lake: Lake) -> Callable[[str, str, str], str]:
    """Create tables with values that the feed distorts, and give a function that writes a row of them."""
    columns = "k INT, m MAP<STRING, INT>, a ARRAY<MAP<STRING, INT>>, t STRING, d DATE, at TIMESTAMP"
    lake.create("left", f"{columns}, r INT")
    lake.create("right", columns)

    def row(key: str, last: str, octets: str) -> str:
        big = BIG.format(last)
        old = "DATE'1582-10-10', TIMESTAMP'1582-10-10 00:00:00'"
        return f"{key}, {big}, array({big}, NULL), {BAD.format(octets)}, {old}"

    return row


SHOWN = (
    "l.m, l.t, l.d, l.at, CAST(l.m AS STRING) AS ms, to_json(l.a) AS aj, r.m AS rm, CAST(r.m AS STRING) AS rms, "
    "hex(r.t) AS rt, r.d AS rd, map_keys(r.m) AS rk"
)


BY_KEY = f"SELECT l.k, {SHOWN} FROM left l LEFT JOIN right r ON l.k = r.k"
BY_REFERENCE = f"SELECT l.k, {SHOWN} FROM left l LEFT JOIN right r ON l.r = r.k"


@cases(
    "join, changelog",
    (BY_KEY, False),
    pytest.param(BY_REFERENCE, True, marks=pytest.mark.slow),
    pytest.param(BY_KEY, True, marks=pytest.mark.slow),
    pytest.param(BY_REFERENCE, False, marks=pytest.mark.slow),
    ids=["by_key", "by_reference-changelog", "by_key-changelog", "by_reference"],
)
@pytest.mark.deep
def test_values_that_the_feed_distorts_come_from_the_table(lake: Lake, join: str, way: str, changelog: bool) -> None:
    row = damaged(lake)
    pipeline = lake.pipeline(join, changelog=changelog)
    lake.sql(f"INSERT INTO {{left}} SELECT {row('1', 'u', 'C328')}, 2")
    lake.sql(f"INSERT INTO {{right}} SELECT {row('2', 'u', 'C328')}")
    pipeline.run(lake.spark)
    lake.sql(f"INSERT INTO {{left}} SELECT {row('2', 'q', 'FF41')}, 2")
    lake.sql(f"UPDATE {{right}} SET m = {BIG.format('p')}, t = {BAD.format('C329')} WHERE k = 2")
    lake.sql(f"INSERT INTO {{right}} SELECT {row('1', 't', 'FE')}")
    assert only(pipeline.run(lake.spark)).strategy == "incremental"
    assert held(lake) == plain(lake, join)
    lake.sql("UPDATE {right} SET m = map('a', 1) WHERE k = 2")
    lake.sql("UPDATE {left} SET t = '\ufffd is valid' WHERE k = 1")
    lake.sql("DELETE FROM {right} WHERE k = 1")
    assert only(pipeline.run(lake.spark)).strategy == "incremental"
    assert held(lake) == plain(lake, join)
    only(pipeline.verify(lake.spark))


@pytest.mark.slow
def test_a_stream_shows_values_that_the_feed_distorts_as_they_are(lake: Lake, way: str) -> None:
    row = damaged(lake)
    sql = f"SELECT l.k, {SHOWN} FROM left l LEFT JOIN right r ON l.r = r.k"
    pipeline = lake.pipeline(sql, STREAM)
    lake.sql(f"INSERT INTO {{right}} SELECT {row('2', 'u', 'C328')}")
    lake.sql(f"INSERT INTO {{left}} SELECT {row('1', 'u', 'C328')}, 2")
    pipeline.run(lake.spark)
    lake.sql(f"UPDATE {{right}} SET m = {BIG.format('p')} WHERE k = 2")
    lake.sql(f"INSERT INTO {{left}} SELECT {row('2', 'u', 'C328')}, 3")
    lake.sql(f"INSERT INTO {{left}} SELECT {row('3', 'q', 'FF')}, 3 UNION ALL SELECT 4, NULL, NULL, 'x', NULL, NULL, 2")
    pipeline.run(lake.spark)
    expected = "SELECT l.k, l.m, l.t, l.d, l.at, CAST(l.m AS STRING) AS ms, to_json(l.a) AS aj FROM left l"
    beside = ("rm", "rms", "rt", "rd", "rk", *POSITIONS)
    assert held(lake, without=beside) == plain(lake, expected)
    only(pipeline.verify(lake.spark))


@pytest.mark.slow
def test_too_many_distorted_commits_of_a_table_begin_the_result_anew(lake, monkeypatch):
    """A stream meets each version of a row; the command that the message names goes on to a right result."""
    monkeypatch.setattr(limits, "DISTORTED_COMMITS", 1)
    row = damaged(lake)
    sql = "SELECT l.k, r.m AS rm, r.t AS rt FROM left l LEFT JOIN right r ON l.r = r.k"
    pipeline = lake.pipeline(sql, STREAM)
    lake.sql(f"INSERT INTO {{right}} SELECT {row('2', 'u', 'C328')}")
    pipeline.run(lake.spark)
    for last in ("p", "q"):
        lake.sql(f"UPDATE {{right}} SET m = {BIG.format(last)} WHERE k = 2")
    lake.sql(f"INSERT INTO {{left}} SELECT {row('1', 'u', 'C328')}, 2")
    with pytest.raises(FeedUnavailable, match="backfill --reset --select result") as refused:
        pipeline.run(lake.spark)
    assert "at most 1 commits" in refused.value.message
    pipeline.backfill(lake.spark, remedy="reset")
    assert held(lake, without=POSITIONS) == plain(lake, sql)


@pytest.mark.slow
def test_a_changelog_source_keeps_values_that_the_feed_distorts(lake: Lake) -> None:
    row = damaged(lake)
    sources = {"left": {"key": "t", "kind": "changelog", "order_by": "r"}, "right": "k"}
    sql = "SELECT l.t, l.m, l.d, r.d AS rd FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(sql, sources)
    lake.sql(f"INSERT INTO {{left}} SELECT {row('1', 'u', 'C328')}, 1 UNION ALL SELECT {row('2', 'v2', 'C329')}, 1")
    pipeline.run(lake.spark)
    lake.sql(f"INSERT INTO {{left}} SELECT {row('3', 's', 'C328')}, 2")
    pipeline.run(lake.spark)
    assert held(lake) == plain(lake, sql + " WHERE l.k > 1")


@pytest.mark.slow
def test_two_joins_read_one_changelog_source_as_the_table_that_is_kept_of_it(lake: Lake) -> None:
    """Its own rows are read under the same versions; no join takes them for rows of that table."""
    lake.create("left", "k INT, v STRING, gone BOOLEAN, seq INT", "(1, 'a', false, 1), (2, 'b', false, 1)")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    source = {"key": "k", "kind": "changelog", "order_by": "seq", "tombstone": "gone"}
    sql = "SELECT l.k, l.v, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(sql, {"left": source, "right": "k"}, further={"other": sql})
    pipeline.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (2, NULL, true, 2)")
    assert {report.outcome for report in pipeline.run(lake.spark)} == {"done"}
    assert lake.rows("result") == lake.rows("other") == [(1, "a", "x")]


@pytest.mark.slow
def test_a_distorted_event_that_changes_later_is_added_once_as_it_came(lake: Lake) -> None:
    """`ignore_changes` passes over the later row, whatever its values; one that came in the same run is not lost."""
    lake.create("left", "k INT, m MAP<STRING, INT>, x INT", f"(1, {BIG.format('u')}, 1)")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    sources = {"left": {"key": "k", "kind": "stream", "ignore_changes": True}, "right": "k"}
    sql = "SELECT l.k, CAST(l.m AS STRING) AS m, l.x, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(sql, sources)
    pipeline.run(lake.spark)
    lake.sql("UPDATE {left} SET x = 2 WHERE k = 1")
    lake.sql(f"INSERT INTO {{left}} VALUES (2, {BIG.format('v2')}, 1)")
    lake.sql("UPDATE {left} SET x = 2 WHERE k = 2")
    report = only(pipeline.run(lake.spark))
    assert (report.counts["appended"], report.counts["ignored_changes"]) == (1, 2)
    assert [row[:3] for row in lake.rows()] == [
        (1, "{z -> 1, y -> 2, x -> 3, w -> 4, v -> 5, u -> 6}", 1),
        (2, "{z -> 1, y -> 2, x -> 3, w -> 4, v -> 5, v2 -> 6}", 1),
    ]
    only(pipeline.verify(lake.spark))


@pytest.mark.slow
def test_a_stream_meets_rows_of_a_changelog_source_that_the_feed_distorts(lake: Lake) -> None:
    row = damaged(lake)
    lake.create("events", "id INT, t STRING")
    sources = {"left": {"key": "t", "kind": "changelog", "order_by": "r"}, "events": {"key": "id", "kind": "stream"}}
    sql = "SELECT e.id, CAST(l.m AS STRING) AS m, l.k FROM events e LEFT JOIN left l ON e.t = l.t"
    pipeline = lake.pipeline(sql, sources)
    lake.sql(f"INSERT INTO {{left}} SELECT {row('1', 'u', 'C328')}, 1 UNION ALL SELECT {row('2', 'q', 'FF')}, 1")
    pipeline.run(lake.spark)
    lake.sql(f"INSERT INTO {{left}} SELECT {row('3', 's', 'C328')}, 2")
    lake.sql(f"INSERT INTO {{events}} SELECT 1, {BAD.format('C328')} UNION ALL SELECT 2, {BAD.format('FF')}", "events")
    pipeline.run(lake.spark)
    met = {
        1: ("{z -> 1, y -> 2, x -> 3, w -> 4, v -> 5, s -> 6}", 3),
        2: ("{z -> 1, y -> 2, x -> 3, w -> 4, v -> 5, q -> 6}", 2),
    }
    assert {found[0]: found[1:3] for found in lake.rows()} == met
    only(pipeline.verify(lake.spark))


@pytest.mark.slow
def test_two_streams_show_values_that_the_feed_distorts_as_they_are(lake: Lake) -> None:
    columns = "k INT, m MAP<STRING, INT>, t STRING, at TIMESTAMP"
    lake.create("left", columns)
    lake.create("right", columns)
    streams = {name: {"key": "k", "kind": "stream", "watermarks": {"at": "1 day"}} for name in ("left", "right")}
    sql = (
        "SELECT l.k, l.m, CAST(r.m AS STRING) AS rm, r.t FROM left l JOIN right r "
        "ON l.k = r.k AND r.at BETWEEN l.at - INTERVAL 1 DAY AND l.at + INTERVAL 1 DAY"
    )
    pipeline = lake.pipeline(sql, streams)
    pipeline.run(lake.spark)
    for number, octets in enumerate(("C328", "FF", "41")):
        for side in ("left", "right"):
            values = f"{number}, {BIG.format(number)}, {BAD.format(octets)}, TIMESTAMP'2026-01-01 00:00:00'"
            lake.sql(f"INSERT INTO {{{side}}} SELECT {values}")
    pipeline.run(lake.spark)
    shown = held(lake)
    assert [row[:4] for row in shown] == plain(lake, sql)
    only(pipeline.verify(lake.spark))


# Settings of the application


@cases(
    "inherited",
    {"spark.sql.legacy.castComplexTypesToString.enabled": "true"},
    {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MILLIS"},
    ids=lambda settings: next(iter(settings)),
)
@pytest.mark.deep
def test_a_setting_of_the_application_changes_no_value(lake: Lake, inherited: dict[str, str]) -> None:
    columns = "k INT, s STRUCT<a: INT, b: INT>, at TIMESTAMP"
    lake.create("left", columns, "(1, named_struct('a', NULL, 'b', NULL), TIMESTAMP'2026-01-01 00:00:00.123456')")
    lake.create("right", "k INT, w STRING", "(1, 'x')")
    sql = "SELECT l.k, CAST(l.s AS STRING) AS s, l.at, r.w FROM left l LEFT JOIN right r ON l.k = r.k"
    pipeline = lake.pipeline(sql)
    with application(inherited):
        pipeline.run(lake.spark)
    lake.sql("INSERT INTO {left} VALUES (2, NULL, TIMESTAMP'2026-01-01 00:00:00.654321')")
    pipeline.run(lake.spark)
    with application(inherited):
        lake.sql("UPDATE {right} SET w = 'y'")
        pipeline.run(lake.spark)
    assert held(lake) == plain(lake, sql)
    only(pipeline.verify(lake.spark))
