"""A join may read another one: its key is inferred, its order follows, and a cycle is a fault of the file."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import sqlglot

from lakehouse.errors.errors import PipelineFileError
from pipelines.commands.explain import explain
from pipelines.language import PipelineFile, bind, fingerprint, load, parse, reads, selected, statement_of
from pipelines.language.join.chains import chains_of
from pipelines.language.sql import syntax
from pipelines.language.statement import parse as statements
from tests.cases import cases
from tests.language.examples import COLUMNS, JOINS, SOURCES, complaints, misfits, refusals
from tests.pipeline_files import content, write

KEYS = {"a": "id", "b": "id", "p": "tail", "legs": ["day", "number"], "crews": ["num", "on_day"]}
AB = "FROM a JOIN b ON a.id = b.id"


def file(joins: dict[str, str], keys: dict[str, object] = KEYS) -> PipelineFile:
    return PipelineFile.model_validate(content(keys, joins, storage={"path": "lake"}))


def faults(folder: Path, joins: dict[str, str]) -> list[str]:
    path = folder / "lakejoin.yml"
    write(path, KEYS, joins)
    try:
        load(path)
    except PipelineFileError as error:
        return [f"{fault.path}: {fault.problem}" for fault in error.faults]
    return []


def key(items: str, joined: str = AB) -> tuple[str, ...]:
    """The key that a join has for those that read it."""
    return statement_of(file({"x": f"SELECT {items} {joined}"}), "x").key


@cases(
    "items, joined, expected",
    ("a.id, b.v", AB, ("id",)),
    ("b.id AS `The Id`, a.id AS x", AB, ("The Id",)),
    ("ID", "FROM a JOIN b USING (id)", ("ID",)),
    ("A.Id", AB, ("Id",)),
    ("a.v, a.*", AB, ("id",)),
    ("a.* EXCEPT (id), b.id AS other", AB, ("other",)),
    ("b.*, a.id AS x", "FROM a LEFT JOIN b ON a.id = b.id", ("x",)),
    ("a.*, b.id AS x", "FROM a RIGHT JOIN b ON a.id = b.id", ("x",)),
    ("*", "FROM a FULL JOIN b USING (id)", ("id",)),
    ("a.*, id AS x", "FROM a FULL JOIN b USING (id)", ("x",)),
    ("nvl(b.id, a.id) AS x", "FROM a FULL JOIN b ON a.id = b.id", ("x",)),
    ("p.*, a.id", "FROM a JOIN p ON a.t = p.tail", ("id",)),
    ("*", "FROM a JOIN p USING (tail)", ("id",)),
    ("on_day AS d, l.*", "FROM legs l JOIN crews c ON l.day = c.on_day AND l.number = c.num", ("d", "number")),
    ("c.*, l.day", "FROM legs l LEFT JOIN crews c ON l.day = c.on_day AND l.number = c.num", None),
    ("a.id.part AS id", AB, None),
    ("a.id + 0 AS id", AB, None),
    ("a.*", "FROM a FULL JOIN b ON a.id = b.id", None),
    ("* EXCEPT (id)", "FROM a JOIN b USING (id)", None),
)
def test_what_keys_a_join_follows_from_its_select_list(items, joined, expected):
    """Aliases, stars, USING and coalesce; the first output that holds a part is it, and without one `check` says so."""
    if expected is None:
        with pytest.raises(PipelineFileError, match="the result has no key without"):
            key(items, joined)
    else:
        assert key(items, joined) == expected


@cases(
    "sql, kind",
    ("SELECT e.*, f.delay FROM enriched e LEFT JOIN flights f ON e.id = f.flight_id", "table-table"),
    ("SELECT f.flight_id, e.seats FROM flights f LEFT JOIN enriched e ON f.next = e.id", "foreign-key"),
    ("SELECT e.id, p.seats FROM enriched e JOIN planes p ON e.tail = p.tailnum", "foreign-key"),
    ("SELECT d.*, l.miles FROM legs l RIGHT JOIN daily d ON l.day = d.on_day AND l.number = d.num", "table-table"),
    ("SELECT e.id FROM enriched e JOIN flights f ON e.id = f.flight_id LEFT JOIN Enriched n ON n.id = f.x", "star"),
)
def test_a_join_is_an_input_like_a_table(sql, kind):
    """It is joined on its inferred key, in each of the ways of a table."""
    assert refusals(sql) == []
    assert parse("j", sql, SOURCES, JOINS).kind == kind


def test_the_key_of_a_join_takes_the_order_of_what_it_is_joined_with():
    sql = "SELECT l.day, l.number FROM legs l JOIN daily d ON l.number = d.num AND l.day = d.on_day"
    statement = parse("j", sql, SOURCES, JOINS)
    assert (statement.sides[1].source, statement.sides[1].key) == ("daily", ("on_day", "num"))
    assert bind(statement, COLUMNS).inputs[1].columns == ("on_day", "num")


def test_an_unknown_column_of_a_join_is_found_with_its_columns():
    """As with those of a source; `check` has no schema."""
    (fault,) = misfits("SELECT e.id, e.seat FROM enriched e JOIN flights f ON e.id = f.flight_id")
    assert fault == "enriched has no column `seat` | did you mean `seats`?"


CHAIN = {
    "c": "SELECT w.*, b.v FROM B2 w JOIN b ON w.nr = b.id",
    "aside": f"SELECT a.id {AB}",
    "b2": "SELECT x.k AS nr, p.seats FROM a2 x LEFT JOIN p ON x.tail = p.tail",
    "a2": f"SELECT a.id AS k, a.tail, b.w {AB}",
}
"""A chain of three, written last first, and a join beside it."""


def test_a_chain_of_three_hands_its_key_on():
    """Under each name in turn, and names of joins are found in any case."""
    made = file(CHAIN)
    assert {name: statement_of(made, name).key for name in CHAIN} == {
        "c": ("nr",), "aside": ("id",), "b2": ("nr",), "a2": ("k",),
    }  # fmt: skip
    assert statement_of(made, "c").sources == ("b2", "b")
    assert {name: reads(made, name) for name in CHAIN} == {"c": ("b2",), "aside": (), "b2": ("a2",), "a2": ()}


def test_each_join_comes_after_those_that_it_reads_else_in_the_order_of_the_file():
    """So do selections; `+` takes along all that is behind a join, and nothing else."""
    made = file(CHAIN)
    assert selected(made, None) == ["aside", "a2", "b2", "c"]
    assert selected(made, ["c", "b2"]) == ["b2", "c"]
    assert selected(made, ["+c"]) == ["a2", "b2", "c"]
    assert selected(made, ["+b2", "aside"]) == ["aside", "a2", "b2"]
    assert selected(made, ["+a2"]) == ["a2"]
    assert list(chains_of(file(dict(reversed(CHAIN.items())))).order) == ["a2", "b2", "aside", "c"]


def test_a_cycle_is_a_fault_that_names_the_whole_path(tmp_path):
    """Each cycle once, where it begins in the file, beside the other faults; what only leads to it is none."""
    joins = {
        "leads": "SELECT t.id FROM two t JOIN a ON t.id = a.id",
        "one": "SELECT t.id FROM Two t JOIN a ON t.id = a.id",
        "two": "SELECT h.id FROM three h JOIN a ON h.id = a.id",
        "three": "SELECT o.id FROM one o JOIN a ON o.id = a.id",
        "self": "SELECT s.id FROM self s JOIN a ON s.id = a.id",
        "bad": "SELECT a.id, nope(a.v) AS v FROM a JOIN b ON a.id = b.id",
    }
    assert faults(tmp_path, joins) == [
        "joins.one.sql: FROM: a join cannot read its own result: one -> two -> three -> one",
        "joins.self.sql: FROM: a join cannot read its own result: self -> self",
        "joins.bad.sql: SELECT: `nope` is not among the deterministic functions that a join may use",
    ]
    cyclic = file(joins)
    for ask in (lambda: selected(cyclic, ["bad"]), lambda: statement_of(cyclic, "bad"), lambda: reads(cyclic, "one")):
        assert ["one -> two -> three -> one" in fault or "self -> self" in fault for fault in complaints(ask)] == [
            True
        ] * 2


def test_two_cycles_through_one_join_are_two_faults(tmp_path):
    """One statement that reads two joins which both read it."""
    joins = {
        "x": "SELECT y.id FROM y JOIN z ON y.id = z.id",
        "y": "SELECT x.id FROM x JOIN a ON x.id = a.id",
        "z": "SELECT x.id FROM x JOIN a ON x.id = a.id",
    }
    assert [fault.rpartition(": ")[2] for fault in faults(tmp_path, joins)] == ["x -> y -> x", "x -> z -> x"]


def test_a_join_at_fault_does_not_hide_the_faults_of_those_that_read_it(tmp_path):
    """Its name is known all the same; what depends on its key is not looked at."""
    joins = {
        "reader": "SELECT o.id, nope(o.v) AS v FROM other o JOIN a ON o.id = a.id",
        "other": "SELECT a.v FROM a JOIN b ON a.id = b.id",
    }
    found = faults(tmp_path, joins)
    assert len(found) == 2
    assert "joins.reader.sql: SELECT: `nope`" in found[0]
    assert "joins.other.sql: SELECT: the result has no key without `a.id`" in found[1]


def test_what_does_not_key_an_upstream_join_keys_nothing(tmp_path):
    """The key of its result counts, not that of its sources under their old names."""
    joins = {
        "other": "SELECT a.id AS k, a.v AS id FROM a JOIN b ON a.id = b.id",
        "reader": "SELECT o.id FROM other o JOIN a ON o.id = a.v",
    }
    (first, second) = faults(tmp_path, joins)
    assert "the result has no key without `o.k`" in first
    assert "the result has no key without `a.id`" in second


def test_the_fingerprint_of_a_reader_has_the_name_and_the_key_of_what_it_reads_and_not_its_definition():
    """Its alias, too; where the other's own definition changes, that one waits for a person, and not its readers."""
    first = fingerprint(file(CHAIN), "b2")
    assert first == "d18d9bd7bcafeb32", "it is written to ledgers"
    changed = {**CHAIN, "a2": f"SELECT a.id AS k, a.tail, b.w {AB} WHERE a.v > 1"}
    assert fingerprint(file(changed), "b2") == first
    assert fingerprint(file(changed), "a2") != fingerprint(file(CHAIN), "a2")
    renamed = {"b2": CHAIN["b2"].replace("a2 x", "a3 x"), "a3": CHAIN["a2"]}
    rekeyed = {"b2": CHAIN["b2"].replace("x.k", "x.m"), "a2": CHAIN["a2"].replace("AS k", "AS m")}
    alias = {**CHAIN, "b2": CHAIN["b2"].replace("a2 x", "a2 y").replace("x.", "y.")}
    assert len({first, *(fingerprint(file(joins), "b2") for joins in (renamed, rekeyed, alias))}) == 4
    table = file({"b2": CHAIN["b2"]}, {**KEYS, "a2": "k"})
    assert fingerprint(table, "b2") != first, "a source of that name and key is something else"


def long_chain(folder: Path, length: int) -> Path:
    """Write a file of joins that each read the one before and look up the same table."""
    before = ["a", *(f"j{n}" for n in range(1, length))]
    joins = {
        f"j{n}": f"SELECT l.*, r.v{n} FROM {name} l LEFT JOIN p r ON l.t{n} = r.tail"
        for n, name in enumerate(before, 1)
    }
    return write(folder / f"chain_of_{length}.yml", KEYS, joins)


def counted(call: Callable[..., Any], name: str, counts: dict[str, int]) -> Callable[..., Any]:

    def counting(*args: Any, **options: Any) -> Any:
        counts[name] = counts.get(name, 0) + 1
        return call(*args, **options)

    return counting


def test_a_chain_is_explained_with_one_parse_for_each_statement(tmp_path, monkeypatch):
    """What a statement costs must not depend on how many others its file has."""
    counts: dict[str, int] = {}
    for module, name in ((sqlglot, "parse"), (statements, "examine_select")):
        monkeypatch.setattr(module, name, counted(getattr(module, name), name, counts))
    for length in (10, 30):
        path = long_chain(tmp_path, length)
        syntax.read.cache_clear()
        counts.clear()
        found = load(path)
        for name in found.joins:
            explain(found, name)
        assert counts == {"parse": length, "examine_select": 2 * length}, "checked with the file, then kept with it"


OUTER = "SELECT a.id, p.tail, a.v FROM a LEFT JOIN p ON a.v = p.v"
PAIRS = {"r": OUTER, "s": OUTER.replace("LEFT", "FULL"), "t": OUTER.replace("LEFT", "INNER")}


def reading(sql: str) -> Any:
    """Take a statement that reads joins in which many rows match many through the product's own reading."""
    return statement_of(file({**PAIRS, "x": sql}), "x")


@cases(
    "sql, null_safe, may_be_absent",
    ("SELECT r.*, b.w FROM r JOIN b ON r.v = b.id", (), True),
    ("SELECT t.*, b.w FROM t JOIN b ON t.v = b.id", (), False),
    ("SELECT l.day, l.number, r.v FROM legs l JOIN r ON l.x = r.id AND l.y = r.tail", (), False),
    ("SELECT l.day, l.number, r.v FROM legs l JOIN r ON l.x <=> r.id AND r.tail = l.y", (0,), False),
    ("SELECT l.day, l.number, r.v FROM legs l JOIN r ON r.tail <=> l.y AND r.id <=> l.x", (0, 1), False),
    ("SELECT l.day, l.number, t.v FROM legs l JOIN t ON t.tail <=> l.y AND t.id <=> l.x", (), False),
    ("SELECT l.day, l.number, r.v FROM r RIGHT JOIN legs l ON l.x = r.id AND r.tail <=> l.y", (1,), False),
    ("SELECT l.day, l.number, r.v FROM legs l JOIN r ON l.x <=> r.id AND r.tail <=> l.y AND l.x = r.id", (1,), False),
    ("SELECT r.id, r.tail, s.v FROM r JOIN s ON r.id = s.id AND r.tail = s.tail", (), True),
    ("SELECT r.id, r.tail, t.v FROM r JOIN t ON r.id = t.id AND r.tail <=> t.tail", (), True),
    ("SELECT r.id, r.tail, b.id AS other FROM r JOIN b ON r.v = b.w", (), True),
    ("SELECT t.id, t.tail, b.id AS other FROM t JOIN b ON t.v = b.w", (), False),
)
def test_nulls_in_a_key_are_known_to_those_that_read_it(sql, null_safe, may_be_absent):
    """`<=>` with a part of a key that is never null means `=`; elsewhere null is a value of a reference."""
    statement = reading(sql)
    assert statement.may_be_absent == may_be_absent
    assert [link.null_safe for link in statement.keys.links if link.null_safe] == ([null_safe] if null_safe else [])


@cases(
    "on, told",
    ("r.id = s.id AND r.tail = s.tail", "two rows for one key"),
    ("r.id <=> s.id AND r.tail = s.tail", "two rows for one key"),
    ("r.id <=> s.id AND r.tail <=> s.tail AND r.id = s.id", "two rows for one key"),
    ("r.id <=> s.id AND s.tail <=> r.tail", ""),
)
def test_a_full_join_of_keys_with_nulls_compares_them_by_value(on, told):
    sql = f"SELECT coalesce(r.id, s.id) AS id, coalesce(r.tail, s.tail) AS tail, r.v FROM r FULL JOIN s ON {on}"
    if not told:
        assert reading(sql).may_be_absent
        return
    with pytest.raises(PipelineFileError, match=told):
        reading(sql)


def test_a_definition_includes_whether_keys_that_it_reads_have_nulls():
    """Rows that lack a side are rows of the one join, and none of the other: the result must be computed again."""
    sql = "SELECT r.*, b.w FROM r JOIN b ON r.v = b.id"
    made = {fingerprint(file({"r": PAIRS[name], "x": sql}), "x") for name in ("r", "s", "t")}
    assert len(made) == 2


def test_it_is_explained_what_nulls_in_a_key_say():
    found = explain(file({**PAIRS, "x": "SELECT r.*, b.w FROM r JOIN b ON r.v = b.id"}), "x")
    assert "a null in the key of r says which side a row lacks: `<=>` finds such a row, `=` does not" in found.notes
    assert any("source rows with a null in their key are skipped" in note for note in found.notes)


@pytest.mark.parametrize("kind", ["s", "t"])
def test_a_stream_that_looks_up_nulls_is_explained(kind):
    keys = {**KEYS, "x": {"key": "nr", "kind": "stream"}}
    sql = f"SELECT x.nr, r.v FROM x LEFT JOIN {kind} r ON x.id = r.id AND x.tail <=> r.tail"
    notes = explain(file({**PAIRS, "found": sql}, keys), "found").notes
    assert any("a null key matches nothing" in note for note in notes)
    assert any(f"a null in the key of {kind} says which side a row lacks" in note for note in notes) == (kind == "s")
