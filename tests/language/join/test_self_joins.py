"""A stream joined with itself: one table on both sides, under one name or two."""

import pytest

from pipelines.commands.explain import explain
from pipelines.language import (
    Input,
    PipelineFile,
    ResolvedQuery,
    Source,
    Statement,
    Time,
    Watermark,
    Within,
    bind,
    parse,
)
from tests.cases import cases
from tests.language.examples import complaints
from tests.pipeline_files import content

MINUTE = 60_000_000
HOUR = 60 * MINUTE
COLUMNS = ["id", "tailnum", "t", "origin", "dest", "crew"]
ON = "a.tailnum = b.tailnum AND b.t BETWEEN a.t AND a.t + INTERVAL 3 HOURS"
HOWS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]


def stream(**options: object) -> Source:
    given = {"kind": "stream", "key": "id", "watermarks": {"t": "15 minutes"}, **options}
    return Source.model_validate({name: option for name, option in given.items() if option is not None})


ONE = {"departures": stream()}
TWO = {"departures": stream(table="main.a.departures"), "starts": stream(table="main.a.departures")}


def consecutive(join: str = "JOIN", on: str = ON, right: str = "departures", items: str = "a.dest, b.id") -> str:
    return f"SELECT {items} FROM departures a {join} {right} b ON {on}"


def bound(sql: str, sources: dict[str, Source]) -> ResolvedQuery:
    return bind(parse("j", sql, sources), dict.fromkeys(sources, COLUMNS))


def told(sql: str, sources: dict[str, Source]) -> str:
    file = content({name: source.model_dump() for name, source in sources.items()}, {"j": sql})
    return " ".join(explain(PipelineFile.model_validate(file), "j").text().split())


@pytest.mark.parametrize("join", HOWS)
@pytest.mark.parametrize(("sources", "right"), [(ONE, "departures"), (TWO, "starts")])
def test_it_is_a_join_of_two_streams(join, sources, right):
    """Of every type, with one source or with two for one table."""
    statement = parse("j", consecutive(join, right=right), sources)
    assert (statement.kind, statement.is_self_join, statement.key) == ("stream-stream", True, ())


@pytest.mark.parametrize("join", HOWS)
@pytest.mark.parametrize(("sources", "right"), [(ONE, "departures"), (TWO, "starts")])
def test_both_sides_have_the_columns_that_either_uses(join, sources, right):
    """So that a row is the same row on both: what identifies it is made of these columns, in the table's order."""
    used = ("id", "tailnum", "t", "dest")
    found = bound(consecutive(join, right=right), sources)
    assert found.inputs == (Input("departures", "a", (), used), Input(right, "b", (), used))


def test_streams_that_are_not_one_have_the_columns_that_they_use():
    sources = {"departures": stream(), "starts": stream()}
    found = bound(consecutive(right="starts"), sources)
    assert [item.columns for item in found.inputs] == [("tailnum", "t", "dest"), ("id", "tailnum", "t")]


def test_each_side_has_its_own_watermark_and_bounds():
    """The column has one name on both, and two places."""
    window = bound(consecutive(), ONE).window
    assert window is not None
    assert window.watermarks == (
        Watermark(Time(0, "t"), 15 * MINUTE, "interval"),
        Watermark(Time(1, "t"), 15 * MINUTE, "interval"),
    )
    assert set(window.bounds) == {Within(1, 0, 0), Within(0, 1, 3 * HOUR, "interval")}
    assert window.equalities == (("`a`.`tailnum`", "`b`.`tailnum`"),)


def test_bounds_of_the_other_direction_are_of_the_other_side():
    """What lies before is told from what lies after by the aliases alone."""
    window = bound(
        consecutive(on="a.tailnum = b.tailnum AND a.t - b.t BETWEEN INTERVAL 0 HOURS AND INTERVAL 3 HOURS"), ONE
    ).window
    assert window is not None
    assert {(one.greater, one.lesser, one.allowance) for one in window.bounds} == {(0, 1, 0), (1, 0, 3 * HOUR)}


def test_several_watermarks_are_of_each_side():
    """All of the left, then all of the right."""
    sources = {"departures": stream(watermarks={"t": "15 minutes", "crew": "1 hour"})}
    window = bound(consecutive(), sources).window
    assert window is not None
    assert [mark.time for mark in window.watermarks] == [Time(0, "t"), Time(0, "crew"), Time(1, "t"), Time(1, "crew")]
    assert {(one.greater, one.lesser) for one in window.bounds} == {(2, 0), (0, 2)}


def test_what_on_asks_of_one_side_is_not_asked_of_the_other():
    """Though both sides have the column."""
    window = bound(consecutive(on=f"{ON} AND a.origin = 'JFK'"), ONE).window
    assert window is not None
    assert window.one_sided == ("(`a`.`origin` = 'JFK')", "TRUE")


@pytest.mark.parametrize("column", ["id", "dest"])
def test_a_column_without_alias_could_be_of_either_side(column):
    """The key shows that without a schema, the others with one."""
    (fault,) = complaints(lambda: bound(consecutive(items=f"{column} AS x"), ONE))
    assert f"`{column}` is a column of both sides | write `a.{column}` or `b.{column}`" in fault


def test_an_unknown_column_is_told_once():
    (fault,) = complaints(lambda: bound(consecutive(items="a.id, destt"), ONE))
    assert fault == "departures has no column `destt` | did you mean `dest`?"


@cases(
    "options",
    {"watermarks": {"t": "10 minutes"}},
    {"watermarks": {"t": "15 minutes", "crew": "15 minutes"}},
    {"order_by": "id"},
    {"null_value": "dest IS NULL"},
    {"ignore_changes": True},
    {"table": "main.a.starts"},
    {"table": None, "path": "main.a.departures"},
    {"table": None},
)
def test_two_sources_are_one_stream_if_they_are_one_table_and_taken_alike(options):
    """Else a row may count on one side and not on the other."""
    sources = {"departures": TWO["departures"], "starts": stream(**{"table": "main.a.departures", **options})}
    assert not parse("j", consecutive(right="starts"), sources).is_self_join


def test_two_sources_in_one_folder_are_one_stream():
    """As the file writes the folder; the columns of the key do not matter, which a stream does not have."""
    sources = {"departures": stream(path="d"), "starts": stream(path="d", key="tailnum")}
    assert parse("j", consecutive(right="starts"), sources).is_self_join


def test_two_sources_without_an_address_lie_apart():
    assert not parse("j", consecutive(right="starts"), {"departures": stream(), "starts": stream()}).is_self_join


def test_a_table_that_refers_to_itself_is_no_self_join_of_streams():
    """Its rows wait nowhere."""
    statement: Statement = parse("j", "SELECT e.* FROM e LEFT JOIN e AS m ON e.boss = m.id", {"e": Source(key="id")})
    assert not statement.is_self_join


def test_explain_names_the_sides_by_their_aliases():
    """The source is the same, and told once."""
    source = stream(null_value="dest IS NULL", order_by="id")
    text = told(consecutive("LEFT JOIN", f"{ON} AND a.origin = 'JFK'"), {"departures": source})
    assert "a and b are one stream: its rows match within time bounds, and the result is a stream" in text
    assert "pairs that do not satisfy it do not match; an unmatched row of a has nulls for b" in text
    assert "a row also matches itself if it satisfies ON with itself" in text
    assert text.count("a row that satisfies `dest IS NULL` has no value") == 1
    assert "rows and changes are ordered by their own time: departures.id -" in text
    assert "at the same time a comes first" in told(consecutive(), ONE)
