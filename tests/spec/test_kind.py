"""The kind of a join follows from ON and the keys."""

import pytest

from .examples import refusals, taken_apart

TWO = "FROM flights f {join} status s"


@pytest.mark.parametrize(
    ("join", "how"),
    [
        ("JOIN", "inner"),
        ("INNER JOIN", "inner"),
        ("LEFT JOIN", "left"),
        ("LEFT OUTER JOIN", "left"),
        ("RIGHT JOIN", "right"),
        ("FULL JOIN", "full"),
        ("full outer join", "full"),
    ],
)
@pytest.mark.parametrize("condition", ["ON f.flight_id = s.flight_id", "USING (flight_id)"])
def test_keys_that_are_equal_make_a_table_table_join(join, how, condition):
    """All four types of join are there for two tables, with ON and with USING."""
    statement = taken_apart(f"SELECT * FROM flights f {join} status s {condition}")
    assert (statement.how, statement.left.source, statement.right.source) == (how, "flights", "status")
    assert statement.using == (("flight_id",) if condition.startswith("USING") else ())


@pytest.mark.parametrize(
    "on",
    [
        "l.day = c.on_day AND l.number = c.num",
        "c.num = l.number AND c.on_day = l.day",
        "(c.num = (l.number) AND (l.DAY) = C.ON_DAY)",
        "day = on_day AND number = num",
        "l.miles > 5 AND l.day = c.on_day AND c.pilot <> 'x' AND l.number = c.num",
        "l.day = c.on_day AND l.number = c.num AND c.num = l.number",
    ],
)
def test_the_right_key_takes_the_order_of_the_left(on):
    """Parts of a composite key are paired by the equalities, whatever their order and their sides."""
    statement = taken_apart(f"SELECT * FROM legs l JOIN crews c ON {on}")
    assert statement.left.key == ("day", "number")
    assert statement.right.key == ("on_day", "num")


@pytest.mark.parametrize(
    ("sql", "reason"),
    [
        ("FROM flights f JOIN planes p ON f.tailnum = p.tailnum", "`f.tailnum` is not the key of flights"),
        (
            "FROM flights f JOIN planes p ON p.tailnum = upper(f.x)",
            "`upper(f.x)` is not the key of flights",
        ),
        ("FROM planes p RIGHT JOIN flights f ON f.tailnum = p.tailnum", "`f.tailnum` is not the key of flights"),
        ("FROM flights f LEFT JOIN planes p USING (tailnum)", "is not the key of flights"),
        ("FROM legs l JOIN planes p ON l.day = p.tailnum", "`l.day` is not the whole key of legs"),
        ("FROM flights f JOIN flights g ON f.parent = g.flight_id", "`f.parent` is not the key of flights"),
    ],
)
def test_one_key_alone_is_a_foreign_key(sql, reason):
    """A key that equals something else than the other side's key is recognised, and the message says by what."""
    (fault,) = refusals(f"SELECT * {sql}")
    assert reason in fault
    assert "a foreign-key join, not yet supported" in fault


@pytest.mark.parametrize(
    "on",
    [
        "f.carrier = s.state",
        "f.flight_id <=> s.flight_id",
        "f.flight_id = s.flight_id OR f.delay > 3",
        "f.flight_id > s.flight_id",
        "NOT f.flight_id = s.flight_id",
        "CAST(f.flight_id AS INT) = CAST(s.flight_id AS INT)",
        "f.flight_id = s.flight_id + f.delay",
        "unknown.x = other.y",
        "f.flight_id = 5",
        "f.flight_id",
    ],
)
def test_without_equal_keys_nothing_keys_the_result(on):
    """A condition that is no plain equality of the two keys does not make a join that can be kept."""
    (fault,) = refusals(f"SELECT * FROM flights f JOIN status s ON {on}")
    assert "nothing keys the result" in fault
    assert "f.flight_id = s.flight_id" in fault


def test_part_of_a_composite_key_is_not_enough():
    """Every column of both keys must be in the equalities."""
    assert "nothing keys" in refusals("SELECT * FROM legs l JOIN crews c ON l.day = c.on_day")[0]
    assert (
        "not the whole key of legs"
        in refusals("SELECT * FROM legs l JOIN crews c ON l.day = c.on_day AND l.day = c.num")[0]
    )


def test_an_unqualified_key_of_both_sides_is_ambiguous():
    """The message says how to write it."""
    (fault,) = refusals("SELECT * FROM flights f JOIN status s ON flight_id = s.flight_id")
    assert "`flight_id` is a column of both sides" in fault
    assert "`f.flight_id` or `s.flight_id`" in fault


@pytest.mark.parametrize("on", ["ON f.flight_id = g.flight_id", "USING (flight_id)"])
def test_a_table_cannot_meet_itself_on_its_own_key(on):
    """Each row would meet itself, always (KIP-77, KIP-862)."""
    (fault,) = refusals(f"SELECT f.* FROM flights f JOIN flights g {on}")
    assert "a row would always meet itself" in fault


@pytest.mark.parametrize("extra", ["f.delay > 3", "f.carrier = s.state", "f.flight_id <=> s.flight_id", "true"])
def test_a_full_join_takes_the_key_alone(extra):
    """A pair that does not meet a further condition would give two result rows for one key; other types keep one."""
    on = f"ON f.flight_id = s.flight_id AND {extra}"
    (fault,) = refusals(f"SELECT * FROM flights f FULL JOIN status s {on}")
    assert "two result rows for one key" in fault
    for join in ("JOIN", "LEFT JOIN", "RIGHT JOIN"):
        assert refusals(f"SELECT * FROM flights f {join} status s {on}") == []


def test_the_same_equality_twice_is_still_the_key_alone():
    """A repeated equality adds no condition."""
    on = "f.flight_id = s.flight_id AND s.flight_id = f.flight_id"
    assert refusals(f"SELECT * FROM flights f FULL JOIN status s ON {on}") == []
