"""With the columns of its tables, a statement becomes a definition in real names."""

import pytest

from lakehouse.errors.errors import PipelineFileError
from pipelines.language import Input, Link, Output, ResolvedQuery, Source, Step, bind, parse
from pipelines.language.statement.statement import Produced
from tests.cases import cases
from tests.language.examples import COLUMNS, ODD, ON, bound, complaints, misfits, outputs, taken_apart

LEFT = ["`f`.`Flight_ID`", "`f`.`carrier`", "`f`.`tailnum`", "`f`.`delay`", "`f`.`addr`", "`f`.`hops`"]


def test_a_whole_definition():
    """Names are real, columns are quoted and qualified, inputs list what is used, the key first."""
    sql = """
        SELECT F.delay AS late, f.FLIGHT_id AS id, upper(state) AS State
        FROM flights AS f LEFT JOIN status s ON s.flight_id = f.flight_id AND s.since > f.delay
        WHERE f.carrier IS NOT NULL AND hops[0] > 1
    """
    assert bound(sql) == ResolvedQuery(
        name="j",
        inputs=(
            Input("flights", "f", ("Flight_ID",), ("Flight_ID", "carrier", "delay", "hops")),
            Input("status", "s", ("flight_id",), ("flight_id", "state", "since")),
        ),
        steps=(Step("left", "`s`.`flight_id` = `f`.`Flight_ID` AND `s`.`since` > `f`.`delay`"),),
        members=(0, 1),
        links=(),
        where="NOT `f`.`carrier` IS NULL AND `f`.`hops`[0] > 1",
        outputs=(Output("late", "`f`.`delay`"), Output("id", "`f`.`Flight_ID`"), Output("State", "UPPER(`s`.`state`)")),
        key=("id",),
    )


def test_stars_take_the_order_of_the_tables():
    """`alias.*` gives the columns under their real names; EXCEPT leaves some out, in any case."""
    assert list(outputs(f"SELECT f.*, s.* EXCEPT (FLIGHT_ID, since) {ON}").values()) == [
        *LEFT,
        "`s`.`state`",
        "`s`.`Delay_Code`",
    ]
    assert list(outputs(f"SELECT s.state, F.* {ON}").values()) == ["`s`.`state`", *LEFT]


@cases(
    "join, key",
    ("JOIN", "`s`.`flight_id`"),
    ("LEFT JOIN", "`s`.`flight_id`"),
    ("RIGHT JOIN", "`f`.`Flight_ID`"),
    ("FULL JOIN", "COALESCE(`s`.`flight_id`, `f`.`Flight_ID`)"),
)
def test_using_merges_the_key(join, key):
    """The column of USING comes first and once, with the value of the side that is preserved."""
    sql = f"FROM status s {join} flights f USING (flight_id)"
    whole = bound(f"SELECT * {sql}")
    assert whole.outputs[0].expression == key
    assert len(whole.outputs) == 9
    assert whole.key == (whole.outputs[0].name,)
    assert whole.steps[0].on == "`s`.`flight_id` = `f`.`Flight_ID`"
    assert outputs(f"SELECT flight_ID, s.state {sql}")["flight_ID"] == key


def test_using_comes_first_in_a_qualified_star_too():
    """So does Spark, even where the table has it last."""
    sources = {"a": Source(key="k"), "b": Source(key="k")}
    join = bind(parse("j", "SELECT a.*, b.y FROM a JOIN b USING (K)", sources), {"a": ["x", "k"], "b": ["y", "k"]})
    assert [output.expression for output in join.outputs] == ["`a`.`k`", "`a`.`x`", "`b`.`y`"]
    assert join.inputs[0].columns == ("k", "x")


@cases(
    "join, items, key",
    ("JOIN", "f.flight_id", "flight_id"),
    ("JOIN", "s.flight_id AS id", "id"),
    ("LEFT JOIN", "f.flight_id AS id, f.flight_id AS again", "id"),
    ("RIGHT JOIN", "s.flight_id AS id, f.flight_id", "id"),
    ("FULL JOIN", "coalesce(f.flight_id, s.flight_id) AS id", "id"),
    ("FULL JOIN", "(Coalesce(s.flight_id, f.flight_id)) AS id", "id"),
    ("FULL JOIN", "f.flight_id AS x, nvl(f.flight_id, s.flight_id) AS id", "id"),
)
def test_the_key_is_found_among_the_outputs(join, items, key):
    """It is the first output that has the key's value in every row."""
    sql = f"SELECT {items}, s.state FROM flights f {join} status s ON f.flight_id = s.flight_id"
    assert bound(sql).key == (key,)


@cases(
    "join, items, needed",
    ("JOIN", "s.state", "f.flight_id"),
    ("LEFT JOIN", "s.flight_id", "f.Flight_ID"),
    ("LEFT JOIN", "coalesce(f.flight_id, s.flight_id) AS id", "f.Flight_ID"),
    ("RIGHT JOIN", "f.flight_id", "s.flight_id"),
    ("FULL JOIN", "f.flight_id", "coalesce(f.Flight_ID, s.flight_id) AS Flight_ID_key"),
    ("FULL JOIN", "coalesce(f.flight_id, s.flight_id, 0) AS id", "coalesce(f.Flight_ID, s.flight_id) AS Flight_ID"),
    ("JOIN", "f.flight_id + 0 AS id", "f.Flight_ID"),
)
def test_a_dropped_key_is_named(join, items, needed):
    """A column that is null for some rows, or computed, is not the key."""
    sql = f"SELECT {items} FROM flights f {join} status s ON f.flight_id = s.flight_id"
    assert [fault for fault in misfits(sql) if f"no key without `{needed}`".lower() in fault.lower()]


def test_composite_keys_keep_the_order_of_the_left():
    """Each part is looked for by itself."""
    sql = "FROM legs l JOIN crews c ON c.num = l.number AND l.day = c.on_day"
    join = bound(f"SELECT l.number AS n, l.day AS d, pilot {sql}")
    assert join.key == ("d", "n")
    assert tuple(item.key for item in join.inputs) == (("day", "number"), ("on_day", "num"))
    assert join.inputs[1].columns == ("on_day", "num", "pilot")
    (fault,) = misfits(f"SELECT l.day, pilot {sql}")
    assert "without `l.number`" in fault


@cases(
    "items, expression",
    ("f.addr.city", "`f`.`addr`.`city`"),
    ("addr.city", "`f`.`addr`.`city`"),
    ("ADDR.geo.x AS city", "`f`.`addr`.`geo`.`x`"),
    ("f.addr.a.b.c.d AS city", "`f`.`addr`.`a`.`b`.`c`.`d`"),
    ("addr.stops[0].city AS city", "`f`.`addr`.`stops`[0].`city`"),
    ("f.hops[0] AS city", "`f`.`hops`[0]"),
    (
        "transform(hops, carrier -> carrier.x + f.delay) AS city",
        "TRANSFORM(`f`.`hops`, `carrier` -> `carrier`.`x` + `f`.`delay`)",
    ),
    ("zip_with(hops, hops, (a, b) -> a + b) AS city", "ZIP_WITH(`f`.`hops`, `f`.`hops`, (`a`, `b`) -> `a` + `b`)"),
)
def test_fields_and_lambdas(items, expression):
    """A name is a column first, then a field of it; a lambda's parameter is neither."""
    assert outputs(f"SELECT f.flight_id, {items} {ON}")["city"] == expression


def test_an_alias_comes_before_a_column_of_that_name():
    """`f.x` is column x of the input f; only if there is none, field x of a column f."""
    sources = {"a": Source(key="k"), "b": Source(key="k")}
    statement = parse("j", "SELECT f.k, f.x, f.y AS y FROM a f JOIN b g ON f.k = g.k", sources)
    join = bind(statement, {"a": ["k", "x"], "b": ["k", "f"]})
    assert [output.expression for output in join.outputs] == ["`f`.`k`", "`f`.`x`", "`g`.`f`.`y`"]


@cases(
    "items, named",
    ("f.dealy", "flights has no column `dealy` | did you mean `delay`?"),
    ("g.delay", "unknown input `g` | the inputs are `f` and `s`"),
    ("flights.delay", "unknown input `flights`"),
    ("g.*", "unknown input `g`"),
    ("sttae", "neither flights nor status has a column `sttae` | did you mean `state`?"),
    ("flight_id AS id", "`flight_id` is a column of both sides | write `f.flight_id` or `s.flight_id`"),
    ("user", "`user` does not depend on the rows alone"),
    ("f.delay + 1", "`f.delay + 1` has no name | name it with AS"),
    ("f.hops[0]", "has no name"),
    ("s.flight_id", "two outputs are called `flight_id`"),
    ("s.state AS DELAY, f.delay", "two outputs are called `delay` | give one an alias"),
    ("s.state AS _change_type", "`_change_type` is a column of Delta's change feeds"),
    ("s.state AS _Commit_Version", "`_Commit_Version` is a column of Delta's"),
    ("s.state AS _commit_timestamp", "`_commit_timestamp` is a column of Delta's"),
    ("s.* EXCEPT (nope)", "EXCEPT: `nope` is not a column that `*` selects"),
    ("* EXCEPT (flight_id)", "EXCEPT: `flight_id` is a column of both sides"),
    ("s.* EXCEPT (s.flight_id)", "EXCEPT: `s.flight_id`"),
)
def test_misfits_are_named(items, named):
    """Names that mean nothing, or too much, are faults with the nearest name."""
    faults = misfits(f"SELECT f.flight_id, {items} {ON}")
    assert any(named in fault for fault in faults), faults


def test_a_plain_star_over_two_tables_names_the_key_twice():
    """Spark would give two columns of one name; a result cannot hold them."""
    assert ["two outputs" in fault for fault in misfits(f"SELECT * {ON}")] == [True]


def test_all_misfits_come_at_once():
    """SELECT, ON and WHERE are all looked at."""
    faults = misfits(
        "SELECT f.flight_id, f.a FROM flights f LEFT JOIN status s"
        " ON f.flight_id = s.flight_id AND f.b = 1 WHERE f.c = 1"
    )
    assert ["`a`" in faults[0], "`b`" in faults[1], "`c`" in faults[2]] == [True] * 3


def test_a_key_that_is_no_column_is_a_fault():
    """The file's key is checked against the table."""
    statement = parse("j", "SELECT a.id FROM a JOIN b ON a.id = b.id", {"a": Source(key="id"), "b": Source(key="id")})
    (fault,) = complaints(lambda: bind(statement, {"a": ["ids", "x"], "b": ["ID"]}))
    assert fault == "the key of a names `id`, which is not one of its columns | did you mean `ids`?"


@pytest.mark.parametrize("odd", ODD)
def test_odd_identifiers(odd):
    """Any name works as table, alias, column, field and output, in backticks, a backtick inside doubled."""
    quoted = "`" + odd.replace("`", "``") + "`"
    sources = {odd: Source(key=odd), "other": Source(key="k")}
    items = f"{quoted}.{quoted}, {quoted}.s.{quoted} AS {quoted[:-1]}2`"
    sql = f"SELECT {items} FROM {quoted} JOIN other ON {quoted}.{quoted} = k"
    join = bind(parse("j", sql, sources), {odd: [odd, "s"], "other": ["k"]})
    assert join.inputs[0] == Input(odd, odd, (odd,), (odd, "s"))
    assert join.outputs == (Output(odd, f"{quoted}.{quoted}"), Output(f"{odd}2", f"{quoted}.`s`.{quoted}"))
    assert join.steps[0].on == f"{quoted}.{quoted} = `other`.`k`"
    sources["other"] = Source(key=odd)
    statement = parse("j", f"SELECT {quoted}.* FROM {quoted} JOIN other o USING ({quoted})", sources)
    assert bind(statement, {odd: [odd], "other": [odd]}).outputs == (Output(odd, f"{quoted}.{quoted}"),)


def test_comments_do_not_reach_the_definition():
    """A comment could hold what ends a longer statement."""
    join = bound(f"SELECT f.flight_id /* a */, upper(s.state) /* b */ AS up -- c\n {ON} /* d */ WHERE f.delay > 1 -- e")
    texts = [join.steps[0].on, join.where or "", *(output.expression for output in join.outputs)]
    assert not [text for text in texts if "*" in text or "--" in text]


def test_references_are_in_the_order_in_which_they_lead():
    """Each is over the input that refers, under its real name, and comes after what leads to that."""
    sql = """
        SELECT f.flight_id, c.pilot FROM planes p JOIN crews c ON p.seats = c.num AND p.TAILNUM = c.on_day
        JOIN flights f ON F.TailNum = p.tailnum
    """
    join = bound(sql)
    assert join.members == (2,)
    assert join.links == (Link(0, ("`f`.`tailnum`",), 2), Link(1, ("`p`.`seats`", "`p`.`tailnum`"), 0))
    assert [step.how for step in join.steps] == ["inner", "inner"]


def test_one_source_may_be_two_inputs():
    """Each has the columns that are used under its alias."""
    join = bound(
        "SELECT f.flight_id, p.seats, q.tailnum FROM flights f LEFT JOIN planes p ON f.tailnum = p.tailnum"
        " LEFT JOIN planes q ON f.carrier = q.tailnum"
    )
    assert join.sources == ("flights", "planes")
    assert join.places("planes") == (1, 2)
    assert [item.columns for item in join.inputs[1:]] == [("tailnum", "seats"), ("tailnum",)]


@cases(
    "on, named",
    ("seats = p.tailnum", "`seats` is a column of planes itself | write an alias before each column"),
    ("f.tailnum || s.state = p.tailnum", "each part of the key of planes must be taken from one other input"),
    ("'x' = p.tailnum", "each part of the key of planes must be taken from one other input"),
)
def test_a_part_of_a_reference_is_over_one_input(on, named):
    """That of another one, as the columns show."""
    sql = "SELECT f.flight_id FROM flights f LEFT JOIN status s ON f.flight_id = s.flight_id LEFT JOIN planes p ON "
    (fault,) = misfits(sql + on)
    assert named in fault


PAIRED = (
    "SELECT f.flight_id, s.flight_id AS other FROM flights f {} JOIN status s ON f.carrier = s.state LEFT JOIN {} ON {}"
)


@cases(
    "how, on, over",
    ("LEFT", "c.num = f.delay AND c.on_day = s.state", 0),
    ("LEFT", "c.num = f.delay + 1 AND c.on_day = s.state", 1),
    ("FULL", "c.on_day = s.state || 'x' AND c.num = f.delay", 0),
)
def test_a_reference_with_parts_from_several_inputs_is_followed_through_one(how, on, over):
    """Rather through columns, which skip files, than through expressions."""
    (link,) = bound(PAIRED.format(how, "crews c", on)).links
    assert (link.input, link.over, link.overs, link.needed) == (2, over, (0, 1), {0, 1})
    assert (link.followed.over, link.followed.parts, link.followed.overs) == (over, (over,), ())


def test_a_reference_is_followed_through_an_input_without_which_it_leads_nowhere():
    """Null may be a value of the key: then an input that may be absent does not do."""
    sources = {"flights": Source(key="flight_id"), "status": Source(key="flight_id")}
    joins = {"pairs": Produced(("one", "other"), may_be_absent=True)}
    columns = {"flights": ["flight_id", "carrier"], "status": ["flight_id", "state"], "pairs": ["one", "other"]}

    def resolved(how: str, on: str) -> ResolvedQuery:
        return bind(parse("j", PAIRED.format(how, "pairs p", on), sources, joins), columns)

    null_safe = "p.one <=> f.flight_id AND p.other <=> s.flight_id"
    assert resolved("LEFT", null_safe).links == (
        Link(2, ("`f`.`flight_id`", "`s`.`flight_id`"), 0, null_safe=(0, 1), overs=(0, 1)),
    )
    assert resolved("RIGHT", null_safe).links[0].over == 1
    assert resolved("FULL", null_safe.replace("<=> s", "= s")).links[0].followed == Link(
        2, ("`s`.`flight_id`",), 1, parts=(1,)
    )
    (fault,) = complaints(lambda: resolved("FULL", null_safe))
    assert "each input from which a part of the key of pairs is taken may be absent | compare the parts" in fault


def test_a_part_of_a_reference_is_null_where_its_input_is_absent():
    (fault,) = misfits(PAIRED.format("LEFT", "crews c", "c.num = f.delay AND c.on_day = coalesce(s.state, '')"))
    assert "although the input of its columns is absent" in fault


def test_a_stream_looks_up_a_table_by_a_key_with_parts_from_several_inputs():
    """In the order of FROM, also by parts from inputs that may be absent: nothing is followed."""
    statement = taken_apart(
        "SELECT d.* FROM departures d LEFT JOIN planes p ON d.tail = p.tailnum "
        "LEFT JOIN crews c ON c.num = p.seats AND c.on_day = d.day LEFT JOIN planes q ON d.other = q.tailnum"
    )
    columns = COLUMNS | {"departures": ["flight_id", "at", "tail", "other", "day"]}
    of_planes, of_crews, of_others = bind(statement, columns).links
    assert (of_planes.input, of_crews.input, of_others.input) == (1, 2, 3)
    assert (of_crews.overs, of_crews.places, of_crews.needed) == ((1, 0), {0, 1}, {0, 1})
    assert (of_planes.places, of_others.places) == ({0}, {0})


def test_a_column_without_alias_that_is_not_of_the_input_that_it_seems_to_be_of():
    """The statement would be keyed by nothing; it is refused, and nothing is left out in silence."""
    (fault,) = misfits("SELECT f.flight_id FROM planes p JOIN flights f ON p.tailnum = seats")
    assert "`seats` is a column of planes itself" in fault
    joins = "flights f JOIN planes p ON f.tailnum = p.tailnum JOIN crews c ON f.flight_id = seats"
    (fault,) = misfits(f"SELECT c.num, c.on_day FROM {joins}")
    assert "`seats` is not a column of the input that keys the result | write an alias" in fault


def test_a_star_is_fixed_by_the_columns_of_a_result_and_tells_what_it_passes_over():
    """Case aside; columns of other items and those that lakejoin adds are no star's."""
    columns = {"flights": ["flight_id", "Delay", "gate", "note"], "status": ["flight_id", "state", "since"]}
    sql = f"SELECT f.*, s.state AS gate, s.* EXCEPT (flight_id) {ON}"
    statement = parse("j", sql, {"flights": Source(key="flight_id"), "status": Source(key="flight_id")})
    join = bind(statement, columns, ["FLIGHT_ID", "delay", "gate", "since"])
    assert [output.name for output in join.outputs] == ["flight_id", "Delay", "gate", "since"]
    assert join.left_out == (("flights", "gate"), ("flights", "note"), ("status", "state"))
    assert join.inputs[0].columns == ("flight_id", "Delay"), "what is passed over is not read"
    with pytest.raises(PipelineFileError, match="two outputs are called `gate`"):
        bind(statement, columns)
