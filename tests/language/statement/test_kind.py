"""The kind of a join follows from ON and the keys."""

import pytest

from pipelines.language import parse
from pipelines.language.sql.dialect import as_written, render
from pipelines.language.sql.vocabulary import ALLOWED
from pipelines.language.statement.columns import NULL_OF_NULL
from pipelines.language.statement.statement import Produced
from tests.cases import cases
from tests.language.examples import SOURCES, complaints, refusals, taken_apart

OF_BOTH = "coalesce(f.flight_id, s.flight_id) AS id"
"""What keys the result of a FULL JOIN."""

TWO = "FROM flights f {join} status s"


@cases(
    "join, how",
    ("JOIN", "inner"),
    ("INNER JOIN", "inner"),
    ("LEFT JOIN", "left"),
    ("LEFT OUTER JOIN", "left"),
    ("RIGHT JOIN", "right"),
    ("FULL JOIN", "full"),
    ("full outer join", "full"),
)
@pytest.mark.parametrize("condition", ["ON f.flight_id = s.flight_id", "USING (flight_id)"])
def test_keys_that_are_equal_make_a_table_table_join(join, how, condition):
    """All four types of join are there for two tables, with ON and with USING."""
    statement = taken_apart(f"SELECT *, {OF_BOTH} FROM flights f {join} status s {condition}")
    assert ([step.how for step in statement.steps], statement.sources) == ([how], ("flights", "status"))
    assert statement.using == (("flight_id",) if condition.startswith("USING") else ())


@cases(
    "on",
    "l.day = c.on_day AND l.number = c.num",
    "c.num = l.number AND c.on_day = l.day",
    "(c.num = (l.number) AND (l.DAY) = C.ON_DAY)",
    "day = on_day AND number = num",
    "l.miles > 5 AND l.day = c.on_day AND c.pilot <> 'x' AND l.number = c.num",
    "l.day = c.on_day AND l.number = c.num AND c.num = l.number",
)
def test_the_right_key_takes_the_order_of_the_left(on):
    """Parts of a composite key are paired by the equalities, whatever their order and their sides."""
    statement = taken_apart(f"SELECT * FROM legs l JOIN crews c ON {on}")
    assert statement.sides[0].key == ("day", "number")
    assert statement.sides[1].key == ("on_day", "num")


def links(sql: str, items: str = "*") -> list[tuple[str, list[str]]]:
    """Each referenced input by its alias, with what refers to it."""
    statement = taken_apart(f"SELECT {items} {sql}")
    return [
        (statement.sides[link.side].alias, [as_written(expression).replace("`", "") for expression in link.expressions])
        for link in statement.keys.links
    ]


def members(sql: str, items: str = "*") -> tuple[list[str], set[frozenset[str]]]:
    """The inputs that key the result, and which of them hold the key, by their aliases."""
    statement = taken_apart(f"SELECT {items} {sql}")
    alias = [side.alias for side in statement.sides]
    complete = {frozenset(alias[place] for place in held) for held in statement.keys.complete}
    return [alias[place] for place in statement.keys.members], complete


@cases(
    "sql, reference",
    ("FROM flights f JOIN planes p ON f.tailnum = p.tailnum", "f.tailnum"),
    ("FROM flights f LEFT JOIN planes p ON p.tailnum = upper(f.x) AND p.seats > f.delay", "upper(f.x)"),
    ("FROM planes p RIGHT JOIN flights f ON f.tailnum = p.tailnum", "f.tailnum"),
    ("FROM planes p JOIN flights f ON p.tailnum = (f.tailnum)", "f.tailnum"),
    ("FROM flights f LEFT JOIN planes p USING (tailnum)", "f.tailnum"),
    ("FROM legs l JOIN planes p ON l.day = p.tailnum", "l.day"),
    ("FROM flights f JOIN planes p ON other = p.tailnum", "other"),
)
def test_one_key_alone_is_a_foreign_key(sql, reference):
    """The other side's key equals an expression: many rows of the one refer to one of the other, whichever is first."""
    assert links(sql) == [("p", [reference])]
    assert taken_apart(f"SELECT * {sql}").kind == "foreign-key"
    keyed, complete = members(sql)
    assert keyed != ["p"]
    assert complete == {frozenset(keyed)}


def test_a_composite_key_takes_an_expression_for_each_column():
    """In the order of the file, whatever the order of the equalities; a further condition takes no part."""
    sql = "FROM flights f LEFT JOIN crews c ON f.day = c.on_day AND f.delay > 1 AND c.num = f.no + 1"
    assert links(sql) == [("c", ["f.no + 1", "f.day"])]
    (step,) = taken_apart(f"SELECT * {sql}").steps
    assert [as_written(condition) for condition in step.further] == ["f.delay > 1"]


def test_a_table_may_refer_to_itself():
    """Employee and manager: one source, two inputs."""
    sql = "FROM flights f LEFT JOIN flights g ON f.parent = g.flight_id"
    assert links(sql) == [("g", ["f.parent"])]
    assert taken_apart(f"SELECT * {sql}").sources == ("flights",)


@cases(
    "sql",
    "FROM flights f RIGHT JOIN planes p ON f.tailnum = p.tailnum",
    "FROM flights f FULL JOIN planes p ON f.tailnum = p.tailnum",
    "FROM planes p LEFT JOIN flights f ON f.tailnum = p.tailnum",
    "FROM planes p FULL JOIN flights f ON f.tailnum = p.tailnum",
)
def test_a_referenced_outer_side_is_paired(sql):
    """One plane has many flights or none: the result has the keys of both."""
    statement = taken_apart(f"SELECT f.flight_id, p.tailnum {sql}")
    assert (statement.kind, set(statement.key)) == ("many-to-many", {"flight_id", "tailnum"})
    (fault,) = refusals(f"SELECT p.tailnum {sql}")
    assert "no key without `f.flight_id`" in fault


@cases(
    "sql, reached",
    (
        "FROM flights f LEFT JOIN status s ON f.flight_id = s.flight_id LEFT JOIN planes p ON s.plane = p.tailnum",
        [("p", ["s.plane"])],
    ),
    (
        "FROM flights f JOIN planes p ON f.tailnum = p.tailnum LEFT JOIN planes q ON p.sister = q.tailnum",
        [("p", ["f.tailnum"]), ("q", ["p.sister"])],
    ),
    (
        "FROM flights f JOIN planes p ON f.a = p.tailnum LEFT JOIN planes q ON f.b = q.tailnum",
        [("p", ["f.a"]), ("q", ["f.b"])],
    ),
    (
        "FROM planes p JOIN crews c ON p.n = c.num AND p.d = c.on_day JOIN flights f ON f.tailnum = p.tailnum",
        [("c", ["p.n", "p.d"]), ("p", ["f.tailnum"])],
    ),
)
def test_a_star_leads_from_input_to_input(sql, reached):
    """From a member, in two steps, the same table twice, and from an input that comes last in FROM."""
    assert links(sql) == reached
    assert taken_apart(f"SELECT * {sql}").kind == "star"


@cases(
    "first, second, on, complete",
    ("JOIN", "JOIN", "f.flight_id", [{"f"}, {"s"}, {"h"}]),
    ("LEFT JOIN", "LEFT JOIN", "f.flight_id", [{"f"}]),
    ("LEFT JOIN", "RIGHT JOIN", "f.flight_id", [{"h"}]),
    ("JOIN", "FULL JOIN", "s.flight_id", [{"f", "h"}, {"s", "h"}]),
    ("FULL JOIN", "LEFT JOIN", "coalesce(f.flight_id, s.flight_id)", [{"f", "s"}]),
    ("FULL JOIN", "FULL JOIN", "nvl(s.flight_id, f.flight_id)", [{"f", "s", "h"}]),
    ("FULL JOIN", "JOIN", "coalesce(f.flight_id, s.flight_id)", [{"f", "s"}, {"h"}]),
)
def test_a_chain_on_one_key(first, second, on, complete):
    """Which columns hold the key follows from the types of join."""
    sql = f"FROM flights f {first} status s ON f.flight_id = s.flight_id {second} hubs h ON {on} = h.hub"
    of_all = "*, coalesce(f.flight_id, s.flight_id, h.hub) AS id"
    assert members(sql, of_all) == (["f", "s", "h"], {frozenset(held) for held in complete})


def test_a_side_that_may_be_missing_is_a_reference_and_no_key():
    """After a FULL JOIN the left column alone is null for some rows: those meet nothing."""
    sql = "FROM flights f FULL JOIN status s ON f.flight_id = s.flight_id LEFT JOIN hubs h ON f.flight_id = h.hub"
    assert links(sql, OF_BOTH) == [("h", ["f.flight_id"])]


@cases(
    "on, values",
    ("f.carrier = s.state", [("f.carrier", "s.state", False)]),
    ("s.state <=> f.carrier", [("f.carrier", "s.state", True)]),
    ("CAST(f.flight_id AS INT) = CAST(s.flight_id AS INT) AND f.delay > s.since", None),
)
def test_other_equalities_pair_rows_in_any_number(on, values):
    """Any equality of the two tables compares the values of their rows; other conditions decide pair by pair."""
    statement = taken_apart(f"SELECT f.flight_id, s.flight_id AS other FROM flights f JOIN status s ON {on}")
    assert (statement.kind, statement.key) == ("many-to-many", ("flight_id", "other"))
    found = [(as_written(e.left), as_written(e.right), e.is_null_safe) for e in statement.keys.pairing.equalities]
    assert found == (values or found)
    assert len(found) == 1


@cases(
    "on",
    "f.flight_id = s.flight_id OR f.delay > 3",
    "f.flight_id > s.flight_id",
    "NOT f.flight_id = s.flight_id",
    "f.flight_id = s.flight_id + f.delay",
    "f.flight_id = 5",
    "f.flight_id",
)
def test_without_an_equality_of_both_tables_rows_cannot_be_found(on):
    """A condition without an equality between columns of one table and of the other is no join that can be kept."""
    (fault,) = refusals(f"SELECT f.flight_id, s.flight_id AS other FROM flights f JOIN status s ON {on}")
    assert "no equality compares columns of flights with columns of status" in fault


def test_columns_that_may_be_an_undeclared_key_are_named():
    """The columns compared may be a key, which the file does not declare; then the result needs no other key."""
    (fault,) = refusals("SELECT f.flight_id FROM flights f JOIN status s ON f.carrier = s.state AND s.since = f.day")
    assert "no key without `s.flight_id`" in fault
    assert "add `s.flight_id AS s_flight_id` as a column of its own" in fault
    assert "if no two rows of status are equal in state, since, declare that as its `key:`" in fault


@cases(
    "on, told",
    ("f.carrier = s.state AND p.seats > s.delay", ""),
    ("f.carrier = s.state AND p.seats = s.delay", ""),
    ("p.seats = s.delay", ""),
    ("p.seats + f.delay = s.delay", "no equality compares columns of flights with columns of status"),
    ("p.seats <=> s.delay", "`p.seats <=> s.delay` may match rows of flights for which planes has no row"),
    ("coalesce(p.seats, 1) = s.delay", "may match rows of flights for which planes has no row"),
    ("p.seats <=> s.delay AND s.state = upper(p.maker)", ""),
    ("f.carrier = s.state AND seats > s.delay", "`seats > s.delay` has a column of an unknown input"),
)
def test_what_the_left_side_has_looked_up_may_be_in_on(on, told):
    """
    An equality with one table must find the rows of the left side: a row without a plane may have no value then. A
    column without an alias could be of a later table.
    """
    sql = "SELECT f.flight_id, s.flight_id AS other FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum "
    faults = refusals(f"{sql} FULL JOIN status s ON {on}")
    assert [told in fault for fault in faults] == ([True] if told else [])


@cases(
    "on, over, values, further",
    ("p.seats = s.delay AND s.state = p.maker", "p", ["p.seats", "p.maker"], []),
    ("p.seats = s.delay AND s.state = f.carrier", "f", ["f.carrier"], ["p.seats = s.delay"]),
    ("m.seat = s.delay AND s.state = p.maker", "p", ["p.maker"], ["m.seat = s.delay"]),
    ("m.seat = s.delay AND s.state <=> p.maker", "m", ["m.seat"], ["s.state <=> p.maker"]),
)
def test_one_input_of_the_left_side_gives_its_rows_their_values(on, over, values, further):
    """The table that comes first, else the first one that it looks up; equalities of others decide pair by pair."""
    statement = taken_apart(
        "SELECT f.flight_id, s.flight_id AS other FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum "
        f"LEFT JOIN planes m ON p.model = m.tailnum LEFT JOIN status s ON {on}"
    )
    pairing = statement.keys.pairing
    assert statement.sides[pairing.over].alias == over
    assert [as_written(one.left) for one in pairing.equalities] == values
    assert [as_written(part) for part in statement.steps[-1].further] == further


@pytest.mark.parametrize("on", ["p.seats <=> s.delay", "coalesce(p.seats, 1) = s.delay"])
def test_a_row_that_always_has_what_it_looks_up_may_have_any_value(on):
    sql = "SELECT f.flight_id, s.flight_id AS other "
    sql += "FROM planes p {} flights f ON f.tailnum = p.tailnum FULL JOIN status s "
    assert refusals(f"{sql.format('JOIN')}ON {on}") == []
    (fault,) = refusals(f"{sql.format('RIGHT JOIN')}ON {on}")
    assert "may match rows of flights for which planes has no row" in fault


def test_a_second_join_of_many_rows_needs_a_join_of_its_own():
    """A statement pairs rows once; the tables after it are looked up by their whole keys."""
    many = "SELECT f.flight_id, s.flight_id AS other FROM flights f JOIN status s ON f.carrier = s.state"
    (fault,) = refusals(f"{many} JOIN flights g ON g.carrier = s.state")
    assert "write two joins of the file" in fault
    (fault,) = refusals(f"{many} RIGHT JOIN planes p ON p.tailnum = f.tailnum")
    assert "write two joins of the file: the first without planes" in fault
    assert taken_apart(f"{many} LEFT JOIN planes p ON p.tailnum = f.tailnum").kind == "many-to-many"


@cases(
    "sql, plain",
    ("FROM flights f JOIN status s ON f.flight_id <=> s.flight_id", "f.flight_id = s.flight_id"),
    ("FROM flights f FULL JOIN status s ON f.flight_id IS NOT DISTINCT FROM s.flight_id", "f.flight_id = s.flight_id"),
    ("FROM flights f LEFT JOIN planes p ON f.tailnum <=> p.tailnum", "f.tailnum = p.tailnum"),
    ("FROM planes p JOIN flights f ON f.tailnum <=> p.tailnum", "f.tailnum = p.tailnum"),
    ("FROM legs l JOIN crews c ON l.day = c.on_day AND c.num <=> l.number", "l.day = c.on_day AND c.num = l.number"),
    ("FROM departures d JOIN airlines a ON d.carrier <=> a.carrier", "d.carrier = a.carrier"),
)
def test_null_safe_equality_with_a_key_is_equality(sql, plain):
    """Rows without a key take no part, so one end is never null and the two operators mean the same."""
    on = sql.split(" ON ")[1]
    select = "coalesce(f.flight_id, s.flight_id) AS id" if "FULL" in sql else "*"
    found, meant = (taken_apart(f"SELECT {select} {text}") for text in (sql, sql.replace(on, plain)))
    assert (found.keys, found.kind, found.steps[0].further) == (meant.keys, meant.kind, ())
    assert render(found.steps[0].on) == render(meant.steps[0].on)


def test_null_safe_equality_of_two_columns_that_may_be_null_stays():
    """There null meets null, which `=` would not let."""
    on = "d.carrier = a.carrier AND d.flight_id <=> a.home AND (d.carrier <=> a.carrier OR d.x > 1)"
    (step,) = taken_apart(f"SELECT d.at FROM departures d JOIN airlines a ON {on}").steps
    assert [as_written(part) for part in step.further] == [
        "d.flight_id <=> a.home",
        "d.carrier <=> a.carrier OR d.x > 1",
    ]


@cases(
    "reference, known",
    ("p.sister", True),
    ("upper(trim(p.sister))", True),
    ("concat('x', p.sister)", True),
    ("CAST(p.sister AS STRING) || '-' || f.x", False),
    ("coalesce(p.sister, 'none')", False),
    ("if(p.seats > 3, 'big', 'small')", False),
    ("CASE WHEN p.seats > 3 THEN 'big' ELSE 'small' END", False),
    ("concat_ws('-', p.sister)", False),
    ("nvl(p.sister, 'x')", False),
)
def test_a_reference_of_an_input_that_may_be_missing_is_null_without_it(reference, known):
    """Else a row without a plane would refer to something, and a change of that would not find the row."""
    join = f"JOIN planes q ON {reference} = q.tailnum"
    sql = f"SELECT f.flight_id FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum LEFT {join}"
    if known:
        assert refusals(sql) == []
    elif "f.x" not in reference:
        (fault,) = refusals(sql)
        assert "may refer to a row of planes although the input of its columns is absent" in fault
    kept = sql.replace("LEFT JOIN planes p", "JOIN planes p")
    assert refusals(kept) == []


def test_a_constant_part_of_a_reference_is_not_null_where_the_input_of_the_others_is_absent():
    """Nulls alone refer to nothing, a null beside a constant does: the row may be of any input, and is not followed."""
    made = {"pairs": Produced(("one", "other"), may_be_absent=True)}
    sql = "SELECT f.flight_id FROM flights f {} JOIN planes p ON f.tailnum = p.tailnum LEFT JOIN pairs r ON {}"

    def faults(how: str, on: str) -> list[str]:
        return complaints(lambda: parse("j", sql.format(how, on), SOURCES, made))

    for on in ("r.one <=> p.x AND r.other <=> 1", "r.one <=> p.x AND r.other = 1"):
        (fault,) = faults("LEFT", on)
        assert "may refer to a row of pairs although the input of its columns is absent" in fault
        assert faults("INNER", on) == []
    assert faults("LEFT", "r.one = p.x AND r.other <=> 1") == faults("LEFT", "r.one <=> p.x AND r.other <=> p.y") == []


def test_the_equality_over_one_input_is_the_reference():
    """Another equality of the same key is a further condition."""
    sql = "FROM flights f JOIN planes p ON f.a = p.tailnum JOIN planes q ON q.tailnum = f.x || p.y AND q.tailnum = f.b"
    assert links(sql) == [("p", ["f.a"]), ("q", ["f.b"])]


def test_part_of_a_composite_key_is_not_enough():
    """Where not every column of the key is in the equalities, many rows match."""
    sql = "FROM legs l JOIN crews c ON l.day = c.on_day"
    assert "many rows match one row" in refusals(f"SELECT l.day, l.number {sql}")[0]
    assert taken_apart(f"SELECT l.day, l.number, c.on_day, c.num {sql}").kind == "many-to-many"


def test_an_unqualified_key_of_both_sides_is_ambiguous():
    """The message says how to write it."""
    (fault,) = refusals("SELECT * FROM flights f JOIN status s ON flight_id = s.flight_id")
    assert "`flight_id` is a column of both sides" in fault
    assert "`f.flight_id` or `s.flight_id`" in fault


@pytest.mark.parametrize("on", ["ON f.flight_id = g.flight_id", "USING (flight_id)"])
def test_a_table_cannot_meet_itself_on_its_own_key(on):
    """Each row would meet itself, always (KIP-77, KIP-862)."""
    (fault,) = refusals(f"SELECT f.* FROM flights f JOIN flights g {on}")
    assert "a row would always match itself" in fault


@pytest.mark.parametrize("extra", ["f.delay > 3", "f.carrier = s.state", "f.flight_id >= s.flight_id", "true"])
def test_a_full_join_with_a_condition_has_both_keys(extra):
    """A pair that does not meet a further condition gives two result rows for one key; other types keep one."""
    on = f"ON f.flight_id = s.flight_id AND {extra}"
    assert all(
        "SELECT: many rows" in fault for fault in refusals(f"SELECT {OF_BOTH} FROM flights f FULL JOIN status s {on}")
    )
    both = "f.flight_id, s.flight_id AS other"
    assert taken_apart(f"SELECT {both} FROM flights f FULL JOIN status s {on}").kind == "many-to-many"
    for join in ("JOIN", "LEFT JOIN", "RIGHT JOIN"):
        assert refusals(f"SELECT * FROM flights f {join} status s {on}") == []


def test_the_same_equality_twice_is_still_the_key_alone():
    """A repeated equality adds no condition, and `<=>` of two keys is one."""
    on = "f.flight_id = s.flight_id AND s.flight_id = f.flight_id AND f.flight_id <=> s.flight_id"
    assert refusals(f"SELECT {OF_BOTH} FROM flights f FULL JOIN status s ON {on}") == []


def test_every_function_that_is_null_of_null_may_be_called():
    """A name that no statement may use would be there for nothing."""
    assert NULL_OF_NULL <= ALLOWED
