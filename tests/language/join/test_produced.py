"""What a join gives those that read its result: a key, or a stream with the times that go on with a watermark."""

import pytest

from pipelines.language import Source, Statement, Time, Watermark, bind, parse
from pipelines.language.statement.outputs import carried, produced
from pipelines.language.statement.statement import UPSTREAM, Produced
from tests.cases import cases
from tests.language.examples import complaints

MINUTE = 60_000_000
SOURCES = {
    "orders": Source(kind="stream", key="id", watermarks={"Placed": "5 minutes", "paid": "1 hour"}),
    "deliveries": Source(kind="stream", key="id", watermarks={"at": "5 minutes", "seen": "5 minutes"}),
    "untimed": Source(kind="stream", key="id"),
    "shops": Source(key="shop"),
}
COLUMNS = {
    "orders": ["id", "placed", "paid", "shop"],
    "deliveries": ["id", "order_id", "at", "seen"],
    "untimed": ["id", "at"],
    "shops": ["shop", "name", "opened"],
}
TABLE = "FROM orders o LEFT JOIN shops s ON o.shop = s.shop"
STREAMS = (
    "FROM orders o {} JOIN deliveries d ON o.id = d.order_id AND d.at BETWEEN o.placed AND o.placed + INTERVAL 1 DAY"
)
INNER = STREAMS.format("")


def times(sql: str, joins: dict[str, Produced] | None = None) -> list[tuple[str, str]]:
    """The outputs that carry a watermark, each with the column whose values it has."""
    statement = parse("j", sql, SOURCES, joins or {})
    return [(output, f"{statement.sides[time.input].alias}.{time.column}") for output, time in carried(statement)]


@cases(
    "items, expected",
    ("o.id, o.placed", [("placed", "o.Placed")]),
    ("O.PLACED AS `when`, placed AS again", [("when", "o.Placed"), ("again", "o.Placed")]),
    ("o.*", [("Placed", "o.Placed"), ("paid", "o.paid")]),
    ("* EXCEPT (shop, PLACED)", [("paid", "o.paid")]),
    ("o.* EXCEPT (paid), s.*", [("Placed", "o.Placed")]),
    ("o.id, s.name, s.opened", []),
    ("o.id, o.placed + INTERVAL 1 DAY AS later, date_trunc('hour', o.paid) AS hour", []),
    ("o.id, (o.placed) AS bracketed, CAST(o.paid AS TIMESTAMP) AS cast", []),
    ("o.id, o.placed.seconds AS part, s.placed AS other", []),
)
def test_a_stream_that_looks_up_passes_on_the_times_that_it_selects(items, expected):
    """All of them: nothing waits. Only a plain column has the watermark of its input."""
    assert times(f"SELECT {items} {TABLE}") == expected


@pytest.mark.parametrize("how", ["", "LEFT", "RIGHT", "FULL"])
def test_of_two_streams_only_times_that_a_bound_limits_go_on(how):
    """Rows that wait may leave with any value of the others."""
    sql = f"SELECT o.id AS order_id, o.placed, o.paid, d.at AS delivered, d.seen {STREAMS.format(how)}"
    assert times(sql) == [("placed", "o.Placed"), ("delivered", "d.at")]
    assert times(sql.replace("o.id AS order_id, o.placed, o.paid, d.at AS delivered, d.seen", "o.*, d.seen")) == [
        ("Placed", "o.Placed")
    ]


def test_where_of_an_inner_join_limits_too_and_of_no_other():
    """As it counts as ON."""
    where = "SELECT o.id, o.paid, d.seen {} WHERE d.seen BETWEEN o.paid AND o.paid + INTERVAL 1 HOUR"
    assert times(where.format(INNER)) == [("paid", "o.paid"), ("seen", "d.seen")]
    assert times(where.format(STREAMS.format("LEFT"))) == []


def test_the_lesser_side_of_a_bound_is_not_limited_by_it():
    """Each bound limits the one time that lies above."""
    on = "d.at >= o.placed AND o.paid >= d.at - INTERVAL 1 HOUR"
    assert times(f"SELECT o.placed, o.paid, d.at FROM orders o JOIN deliveries d ON {on}") == [
        ("paid", "o.paid"),
        ("at", "d.at"),
    ]


SAME = {
    "a": Source(kind="stream", key="t", watermarks={"t": "5 minutes"}),
    "b": Source(kind="stream", key="t", watermarks={"T": "5 minutes"}),
}


@cases(
    "items, expected",
    ("t", ()),
    ("*", ()),
    ("t AS x, a.x AS y", ()),
    ("a.t", ("t",)),
    ("b.*", ("T",)),
    ("a.t AS x, b.t AS y", ("x", "y")),
)
@pytest.mark.parametrize("how", ["", "LEFT", "RIGHT", "FULL"])
def test_a_merged_column_of_using_carries_none(how, items, expected):
    """It may be of either side; one with an alias is of its own."""
    statement = parse("j", f"SELECT {items} FROM a {how} JOIN b USING (t)", SAME)
    assert produced(statement, SAME).times == expected
    bound = bind(statement, {"a": ["t", "x"], "b": ["y", "t"]})
    assert tuple(sorted(name.lower() for name, _ in bound.carried)) == tuple(name.lower() for name in expected)


def test_a_join_of_tables_gives_its_key():
    """And nothing else; so does one of tables with a result."""
    tables = {"a": Source(key="id"), "b": Source(key="id")}
    made = produced(parse("j", "SELECT a.id AS x, b.v FROM a JOIN b ON a.id = b.id", tables), tables)
    assert made == Produced(("x",))
    reader = parse("k", "SELECT j.x FROM j JOIN a ON j.x = a.id", tables, {"j": made})
    assert (reader.sides[0].kind, reader.sides[0].is_result, produced(reader, tables)) == ("join", False, made)


@cases(
    "sql, added",
    (f"SELECT o.id {TABLE}", ("_epoch", "_position")),
    (f"SELECT o.id {INNER}", ("_epoch", "_position", "_left_row", "_right_row")),
)
def test_a_result_that_is_a_stream_says_so_and_has_the_columns_that_were_added(sql, added):
    """It has no key; the added columns are of no use to a statement."""
    made = produced(parse("j", sql, SOURCES), SOURCES)
    assert made == Produced((), is_stream=True, added=added)
    reader = parse("k", "SELECT j.* FROM j JOIN shops s ON j.id = s.shop", SOURCES, {"j": made})
    assert (reader.reads_stream, reader.kind, reader.sides[0].is_result) == (True, "stream-table", True)
    bound = bind(reader, {"j": ["id", *added], "shops": ["shop"]})
    assert [output.name for output in bound.outputs] == ["id"]
    assert complaints(
        lambda: bind(
            parse("k", "SELECT j._epoch AS e FROM j JOIN shops s ON j.id = s.shop", SOURCES, {"j": made}),
            {"j": ["id", *added], "shops": ["shop"]},
        )
    ) == ["j has no column `_epoch` | "]


@pytest.mark.parametrize(("sources", "is_ordered"), [(("orders", "shops"), True), (("shops",), False), ((), False)])
def test_a_result_whose_rows_order_by_orders_says_so(sources, is_ordered):
    """All inputs have it, or it is not their order."""
    given = {
        name: source.model_copy(update={"order_by": "nr"}) if name in sources else source
        for name, source in SOURCES.items()
    }
    assert produced(parse("j", f"SELECT o.id {TABLE}", given), given).is_ordered is is_ordered


def chain() -> tuple[dict[str, Produced], list[Statement]]:
    """Two streams, whose result looks up, and what that gives meets a stream again."""
    sqls = {
        "one": f"SELECT o.id, o.placed AS p, o.paid, d.at AS a, o.shop {INNER}",
        "two": "SELECT n.id, n.p AS q, n.paid, n.a, s.name FROM one n LEFT JOIN shops s ON n.shop = s.shop",
        "three": "SELECT n.*, d.seen FROM Two n JOIN deliveries d ON d.seen BETWEEN n.q AND n.q + INTERVAL 1 DAY",
    }
    made: dict[str, Produced] = {}
    statements = []
    for name, sql in sqls.items():
        statements.append(parse(name, sql, SOURCES, made))
        made[name] = produced(statements[-1], SOURCES)
    return made, statements


def test_a_chain_of_three_hands_watermarks_on_from_level_to_level():
    """Those that each level carries, under its names; the joins say how far they are."""
    made, statements = chain()
    assert [one.times for one in made.values()] == [("p", "a"), ("q", "a"), ("q", "seen")]
    assert statements[1].sides[0].times == (("p", UPSTREAM), ("a", UPSTREAM))
    assert statements[2].sides[0].times == (("q", UPSTREAM), ("a", UPSTREAM))


def test_the_definition_has_what_is_given_and_what_goes_on():
    """By the real names of columns, with the place of its watermark; the lateness of a given one is of no use."""
    _, statements = chain()
    columns = {
        **COLUMNS,
        "one": ["id", "p", "paid", "a", "shop", "_epoch", "_position", "_left_row", "_right_row"],
        "two": ["ID", "Q", "PAID", "A", "name", "_epoch", "_position"],
    }
    one, two, three = (bind(statement, columns) for statement in statements)
    assert one.carried == (("p", 0), ("a", 2))
    assert one.watermarks == (
        Watermark(Time(0, "placed"), 5 * MINUTE, "interval"),
        Watermark(Time(0, "paid"), 60 * MINUTE, "interval"),
        Watermark(Time(1, "at"), 5 * MINUTE, "interval"),
        Watermark(Time(1, "seen"), 5 * MINUTE, "interval"),
    )
    assert two.window is None
    assert two.watermarks == two.looking_up
    assert two.looking_up == (
        Watermark(Time(0, "p"), 0, is_from_upstream=True),
        Watermark(Time(0, "a"), 0, is_from_upstream=True),
    )
    assert two.carried == (("q", 0), ("a", 1))
    assert three.looking_up == ()
    assert three.watermarks[:2] == (
        Watermark(Time(0, "Q"), 0, is_from_upstream=True),
        Watermark(Time(0, "A"), 0, is_from_upstream=True),
    )
    assert three.carried == (("Q", 0), ("seen", 3))


@cases(
    "sql",
    f"SELECT o.id, O.PLACED AS x, o.paid AS y, s.* {TABLE}",
    f"SELECT o.* EXCEPT (shop) {TABLE}",
    f"SELECT o.*, d.at AS z, d.seen AS w {INNER}",
    f"SELECT placed, at AS b {INNER}",
    f"SELECT o.id AS x, d.id AS y {INNER}",
    "SELECT u.id, s.shop FROM untimed u JOIN shops s ON u.id = s.shop",
)
def test_what_shows_without_a_schema_is_what_the_definition_carries(sql):
    """The same outputs, whatever case the file writes them in."""
    statement = parse("j", sql, SOURCES)
    bound = bind(statement, COLUMNS)
    found = {(output.lower(), time.input, time.column.lower()) for output, time in carried(statement)}
    marks = {name: bound.watermarks[number].time for name, number in bound.carried}
    assert {(name.lower(), time.input, time.column.lower()) for name, time in marks.items()} == found
    assert set(marks) <= {output.name for output in bound.outputs}


def test_a_time_that_nothing_limits_bounds_no_later_join():
    """The message says where it would have a watermark."""
    made, _ = chain()
    sql = "SELECT n.id FROM one n JOIN deliveries d ON d.at BETWEEN n.paid AND n.paid + INTERVAL 1 DAY"
    (fault,) = complaints(lambda: parse("k", sql, SOURCES, made))
    assert "`n.paid` has no watermark in the result of one: a time column keeps its watermark only if" in fault
