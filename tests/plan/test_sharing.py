"""What joins read and keep, before and after the rules; no test starts Spark."""

from typing import Any

import pytest

from pipelines.plan.sharing import (
    REWRITES,
    Applied,
    Read,
    Reader,
    Store,
    Topology,
    is_read_once,
    is_single_store,
    optimized,
    shared_reads,
    topology,
)
from pipelines.spec import PipelineFile
from pipelines.spec.file.rules import RULES

BETWEEN = "ON a.tailnum = b.tailnum AND b.t BETWEEN a.t AND a.t + INTERVAL 3 HOURS"
STREAM = {"kind": "stream", "key": "id", "watermarks": {"t": "5 minutes"}}
SOURCES: dict[str, dict[str, Any]] = {
    "departures": {**STREAM, "table": "main.a.departures"},
    "starts": {**STREAM, "table": "main.a.departures"},
    "arrivals": STREAM,
    "planes": {"key": "tailnum"},
    "staff": {"key": "id"},
    "airlines": {"key": "carrier", "kind": "global_table"},
    "orders": {"key": "id", "kind": "changelog", "order_by": "seq"},
}
CONSECUTIVE = f"SELECT a.id, b.id AS next FROM departures a JOIN departures b {BETWEEN}"
JOINS: dict[str, Any] = {
    "consecutive": CONSECUTIVE,
    "kept": CONSECUTIVE.replace("JOIN", "LEFT JOIN"),
    "under_two_names": CONSECUTIVE.replace("JOIN departures", "JOIN starts"),
    "returns": CONSECUTIVE.replace("JOIN departures", "JOIN arrivals"),
    "enriched": "SELECT d.*, p.seats, k.name FROM departures d JOIN planes p ON d.tailnum = p.tailnum"
    " JOIN airlines k ON d.carrier = k.carrier",
    "flown": "SELECT d.id, k.name FROM arrivals d JOIN airlines k ON d.carrier = k.carrier",
    "bosses": "SELECT e.id, m.name FROM staff e LEFT JOIN staff m ON e.boss = m.id",
    "pilots": "SELECT e.id, p.seats FROM staff e LEFT JOIN planes p ON e.plane = p.tailnum",
    "ordered": "SELECT o.id, s.name FROM orders o LEFT JOIN staff s ON o.by = s.id",
    "bossy": "SELECT b.id, o.id AS bought FROM bosses b JOIN ordered o ON b.id = o.id",
    "bossy_too": "SELECT b.id, o.id AS bought FROM bosses b LEFT JOIN ordered o ON b.id = o.id",
}


def file(optimizations: object = "all", **options: dict[str, object]) -> PipelineFile:
    """The joins above; options are given to sources and joins by name."""
    return PipelineFile.model_validate(
        {
            "pipeline": "p",
            "storage": {"path": "lake"},
            "sources": {name: {**source, **options.get(name, {})} for name, source in SOURCES.items()},
            "joins": {name: {"sql": sql, **options.get(name, {})} for name, sql in JOINS.items()},
            "optimizations": optimizations,
        }
    )


def after(*names: str, optimizations: object = "all", **options: dict[str, object]) -> Topology:
    given = file(optimizations, **options)
    return optimized(topology(given, names), given)[0]


def applied(*names: str, optimizations: object = "all", **options: dict[str, object]) -> tuple[Applied, ...]:
    given = file(optimizations, **options)
    return optimized(topology(given, names), given)[1]


def read(source: str, *readers: str) -> Read:
    return Read(source, "changes", tuple(Reader(*reader.split(".")) for reader in readers))


def test_without_rules_each_input_reads_and_waits_for_itself() -> None:
    """Two reads and two stores, though it is one stream."""
    assert after("consecutive", optimizations="none") == topology(file(), ["consecutive"])
    plain = topology(file(), ["consecutive"])
    assert plain.reads == (read("departures", "consecutive.a"), read("departures", "consecutive.b"))
    assert plain.stores == (Store("consecutive", ("a",)), Store("consecutive", ("b",)))


@pytest.mark.parametrize("name", ["consecutive", "under_two_names"])
def test_a_self_join_reads_once_and_has_one_store(name: str) -> None:
    """Under one name, and under two names for one table."""
    found = after(name, optimizations=["single_store_self_join"])
    assert found.reads == (read("departures", f"{name}.a", f"{name}.b"),)
    assert found.stores == (Store(name, ("a", "b")),)
    assert applied(name) == (
        Applied("single_store_self_join", name, "a and b are the same table, which is read and buffered once"),
    )
    assert is_single_store(file(), name)


@pytest.mark.parametrize("name", ["kept", "returns", "enriched", "bosses"])
def test_other_joins_keep_their_stores(name: str) -> None:
    """Of another type, of two streams, of a stream with tables, of a table with itself."""
    assert after(name).stores == topology(file(), [name]).stores
    assert not is_single_store(file(), name)


@pytest.mark.parametrize("how", ["LEFT", "RIGHT", "FULL"])
def test_a_self_join_that_keeps_rows_is_none_for_one_store(how: str) -> None:
    """KIP-862: a row would have to wait twice, once for each side on which it may stand alone."""
    sql = CONSECUTIVE.replace("JOIN", f"{how} JOIN")
    assert not is_single_store(file(kept={"sql": sql}), "kept")


@pytest.mark.parametrize(
    "options",
    [
        {"watermarks": {"t": "6 minutes"}},
        {"null_value": "seats IS NULL"},
        {"order_by": "id"},
        {"ignore_changes": True},
        {"table": "main.a.starts"},
    ],
)
def test_two_names_with_other_options_have_two_stores(options: dict[str, object]) -> None:
    """A row may wait on one side and not on the other."""
    given = file(starts=options) if "order_by" not in options else file(starts=options, departures={"order_by": "t"})
    assert not is_single_store(given, "under_two_names")


@pytest.mark.parametrize(
    ("optimizations", "single"),
    [("all", True), ("none", False), (["single_store_self_join"], True), (["share_change_reads"], False)],
)
def test_one_store_is_up_to_its_rule_alone(optimizations: object, single: bool) -> None:
    """Sharing the read leaves two stores."""
    assert is_single_store(file(optimizations), "consecutive") is single


def test_a_self_join_of_any_type_shares_a_read() -> None:
    """It has two stores still."""
    assert after("kept").reads == (read("departures", "kept.a", "kept.b"),)
    assert applied("kept") == (
        Applied("share_change_reads", "kept", "the changes of departures are read once for a and b"),
    )
    assert is_read_once(file(), "kept")
    assert not is_read_once(file("none"), "kept")


def test_a_join_of_tables_reads_a_table_once_without_a_rule() -> None:
    """A table that refers to itself."""
    assert len(topology(file(), ["bosses"]).reads) == 1
    assert applied("bosses") == ()


@pytest.mark.parametrize(
    ("names", "shared"),
    [
        (("enriched", "flown"), set()),
        (("bossy", "bossy_too"), {"bosses", "ordered"}),
        (("returns", "enriched", "pilots"), {"departures", "planes"}),
    ],
)
def test_joins_that_run_together_share_what_they_read_changes_of(names: tuple[str, ...], shared: set[str]) -> None:
    """One read for all of them, of the columns that any names; a table that is read whole is each join's own."""
    assert set(shared_reads(file(), names)) == shared
    assert {read.source for read in after(*names).reads if len({one.join for one in read.readers}) > 1} == shared
    assert shared_reads(file("none"), names) == {}


def test_what_is_read_for_several_joins_has_the_columns_of_all() -> None:
    named = shared_reads(file(), ("bosses", "pilots"))["staff"]
    assert named is not None
    assert named >= {"id", "boss", "name", "plane"}
    assert shared_reads(file(), ("returns", "enriched"))["departures"] is None, "a star may be any column"


def test_a_changelog_source_is_read_through_its_ktable() -> None:
    """That is brought up to date once, however many joins read it."""
    assert topology(file(), ["ordered"]).reads[0] == Read("orders", "KTable", (Reader("ordered", "o"),))


@pytest.mark.parametrize("optimizations", ["all", "none", *([rule] for rule in RULES)])
def test_no_rule_changes_a_join_or_its_result(optimizations: object) -> None:
    """Names of results and columns are the same, whichever rules are used."""
    given = file(optimizations)
    before = topology(given, [*JOINS])
    found, _ = optimized(before, given)
    assert (found.results, found.joins) == (before.results, before.joins)
    results = {result.name: result.columns for result in found.results}
    assert results["enriched"] == ("d.*", "seats", "name", "_epoch", "_position")
    assert results["consecutive"] == ("id", "next", "_epoch", "_position", "_left_row", "_right_row")


@pytest.mark.parametrize("optimizations", ["all", *([rule] for rule in RULES)])
def test_every_input_is_still_read_and_every_stream_still_waits(optimizations: object) -> None:
    """Nothing is lost on the way, and a rule that is used twice does nothing more."""
    given = file(optimizations)
    before = topology(given, [*JOINS])
    found, _ = optimized(before, given)
    inputs = [[reader for read in plan.reads for reader in read.readers] for plan in (before, found)]
    waiting = [[(store.join, alias) for store in plan.stores for alias in store.aliases] for plan in (before, found)]
    assert sorted(inputs[0]) == sorted(inputs[1])
    assert waiting[0] == waiting[1]
    assert optimized(found, given)[0] == found


def test_every_rule_that_a_file_may_name_is_there() -> None:
    """In the order in which they are applied."""
    assert tuple(REWRITES) == RULES


def test_lines_name_what_is_read_and_where_it_waits() -> None:
    """One node a line."""
    plain = topology(file(), [*JOINS])
    assert plain.lines("consecutive") == (
        "read departures as a -> store a",
        "read departures as b -> store b",
        "join consecutive (stream-stream, inner) -> consecutive",
    )
    assert plain.lines("ordered") == (
        "read KTable orders as o",
        "read staff as s",
        "join ordered (foreign-key, left) -> ordered",
    )
    assert plain.lines("bossy")[0] == "read result bosses as b"
    assert plain.lines("flown")[1] == "read whole table airlines as k"


def test_lines_name_each_store_that_a_read_fills() -> None:
    assert after("consecutive").lines("consecutive")[0] == "read departures as a, b -> store a, b"
    assert after("kept").lines("kept")[0] == "read departures as a, b -> store a, store b"
