"""What joins read and keep, before and after the rules; no test starts Spark."""

from typing import Any

import pytest

from pipelines.language import PipelineFile, statement_of
from pipelines.language.file.options import RULES
from pipelines.plan.sharing import Reads, explained_reads, is_read_once, is_single_store, shared_reads
from tests.cases import cases
from tests.pipeline_files import content

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
        content(
            {name: {**source, **options.get(name, {})} for name, source in SOURCES.items()},
            {name: {"sql": sql, **options.get(name, {})} for name, sql in JOINS.items()},
            optimizations=optimizations,
        )
    )


def explained(*names: str, optimizations: object = "all", **options: dict[str, object]) -> Reads:
    """Describe the reads and stores of the first of several joins that run together."""
    return explained_reads(file(optimizations, **options), names, names[0])


def aliases_read(lines: tuple[str, ...]) -> list[str]:
    reads = [line.split(" -> ")[0].split(" (for ")[0] for line in lines[:-1]]
    return sorted(alias for read in reads for alias in read.rpartition(" as ")[2].split(", "))


def aliases_stored(lines: tuple[str, ...]) -> list[str]:
    stores = [line.partition(" -> ")[2] for line in lines[:-1] if " -> " in line]
    return sorted(alias for each in stores for alias in each.replace("store ", "").split(", "))


def test_without_rules_each_input_reads_and_waits_for_itself() -> None:
    """Two reads and two stores, though it is one stream."""
    found = explained("consecutive", optimizations="none")
    assert found.plain == found.optimized == explained("consecutive").plain
    assert found.plain[:-1] == ("read departures as a -> store a", "read departures as b -> store b")
    assert found.rules == ()


@pytest.mark.parametrize("name", ["consecutive", "under_two_names"])
def test_a_self_join_reads_once_and_has_one_store(name: str) -> None:
    """Under one name, and under two names for one table."""
    found = explained(name, optimizations=["single_store_self_join"])
    assert found.optimized[:-1] == ("read departures as a, b -> store a, b",)
    assert explained(name).rules == found.rules
    assert found.rules == ("single_store_self_join: a and b are the same table, which is read and buffered once",)
    assert is_single_store(file(), name)


@pytest.mark.parametrize("name", ["kept", "returns", "enriched", "bosses"])
def test_other_joins_keep_their_stores(name: str) -> None:
    """Of another type, of two streams, of a stream with tables, of a table with itself."""
    found = explained(name)
    stores = {part for line in found.plain[:-1] for part in line.partition(" -> ")[2].split(", ") if part}
    assert stores == {part for line in found.optimized[:-1] for part in line.partition(" -> ")[2].split(", ") if part}
    assert not is_single_store(file(), name)


@pytest.mark.parametrize("how", ["LEFT", "RIGHT", "FULL"])
def test_a_self_join_that_keeps_rows_is_none_for_one_store(how: str) -> None:
    """KIP-862: a row would have to wait twice, once for each side on which it may stand alone."""
    sql = CONSECUTIVE.replace("JOIN", f"{how} JOIN")
    assert not is_single_store(file(kept={"sql": sql}), "kept")


@cases(
    "options",
    {"watermarks": {"t": "6 minutes"}},
    {"null_value": "seats IS NULL"},
    {"order_by": "id"},
    {"ignore_changes": True},
    {"table": "main.a.starts"},
)
def test_two_names_with_other_options_have_two_stores(options: dict[str, object]) -> None:
    """A row may wait on one side and not on the other."""
    given = file(starts=options) if "order_by" not in options else file(starts=options, departures={"order_by": "t"})
    assert not is_single_store(given, "under_two_names")


@cases(
    "optimizations, single",
    ("all", True),
    ("none", False),
    (["single_store_self_join"], True),
    (["share_change_reads"], False),
)
def test_one_store_is_up_to_its_rule_alone(optimizations: object, single: bool) -> None:
    """Sharing the read leaves two stores."""
    assert is_single_store(file(optimizations), "consecutive") is single


def test_a_self_join_of_any_type_shares_a_read() -> None:
    assert explained("kept").optimized[:-1] == ("read departures as a, b -> store a, store b",)
    assert explained("kept").rules == ("share_change_reads: the changes of departures are read once for a and b",)
    assert is_read_once(file(), "kept")
    assert not is_read_once(file("none"), "kept")


def test_a_join_of_tables_reads_a_table_once_without_a_rule() -> None:
    assert explained("bosses").plain[:-1] == ("read staff as e, m",)
    assert explained("bosses").rules == ()


@cases(
    "names, shared",
    (("enriched", "flown"), set()),
    (("bossy", "bossy_too"), {"bosses", "ordered"}),
    (("returns", "enriched", "pilots"), {"departures", "planes"}),
)
def test_joins_that_run_together_share_what_they_read_changes_of(names: tuple[str, ...], shared: set[str]) -> None:
    """One read for all of them, of the columns that any names; a table that is read whole is each join's own."""
    assert set(shared_reads(file(), names)) == shared
    for name in names:
        lines = explained_reads(file(), names, name).optimized[:-1]
        served = {source for source in shared if source in statement_of(file(), name).sources}
        assert {
            source for source in served if any(f" {source} " in line for line in lines if " too)" in line)
        } == served
        assert sum(" too)" in line for line in lines) == len(served)
    assert shared_reads(file("none"), names) == {}


def test_what_an_earlier_join_reads_too_is_read_first() -> None:
    """A table that a join reads whole is its own."""
    lines = explained_reads(file(), ("enriched", "pilots"), "pilots").optimized[:-1]
    assert lines == ("read planes as p (for enriched too)", "read staff as e")
    given = file(pilots={"refresh": "full"})
    assert shared_reads(given, ("enriched", "pilots")) == {}
    assert explained_reads(given, ("enriched", "pilots"), "pilots").rules == ()
    text = "the changes of planes are read once for enriched and pilots, if they read the same versions"
    assert explained_reads(file(), ("enriched", "pilots"), "pilots").rules == (f"share_change_reads: {text}",)


def test_what_is_read_for_several_joins_has_the_columns_of_all() -> None:
    named = shared_reads(file(), ("bosses", "pilots"))["staff"]
    assert named is not None
    assert named >= {"id", "boss", "name", "plane"}
    assert shared_reads(file(), ("returns", "enriched"))["departures"] is None, "a star may be any column"


def test_a_changelog_source_is_read_through_its_ktable() -> None:
    """That is brought up to date once, however many joins read it."""
    assert explained("ordered").plain[0] == "read KTable orders as o"


@pytest.mark.parametrize("optimizations", ["all", "none", *([rule] for rule in RULES)])
@pytest.mark.parametrize("name", JOINS)
def test_no_rule_changes_a_join_or_loses_an_input(optimizations: object, name: str) -> None:
    """Every input is still read, every stream still waits, and the join is the same."""
    found = explained_reads(file(optimizations), [*JOINS], name)
    assert found.plain == explained_reads(file("none"), [*JOINS], name).plain
    assert found.optimized[-1] == found.plain[-1]
    inputs = sorted(side.alias for side in statement_of(file(), name).sides)
    assert aliases_read(found.plain) == aliases_read(found.optimized) == inputs
    waiting = inputs if statement_of(file(), name).is_windowed else []
    assert aliases_stored(found.plain) == aliases_stored(found.optimized) == waiting


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_that_a_file_may_name_is_used(rule: str) -> None:
    """By a join that nothing else changes."""
    lines = [explained_reads(file([rule]), [*JOINS], name).rules for name in JOINS]
    assert {line.split(": ")[0] for each in lines for line in each} == {rule}


def test_lines_name_what_is_read_and_where_it_waits() -> None:
    """One node a line."""
    assert explained("consecutive").plain == (
        "read departures as a -> store a",
        "read departures as b -> store b",
        "join consecutive (stream-stream, inner) -> consecutive",
    )
    assert explained("ordered").plain == (
        "read KTable orders as o",
        "read staff as s",
        "join ordered (foreign-key, left) -> ordered",
    )
    assert explained("bossy").plain[0] == "read result bosses as b"
    assert explained("flown").plain[1] == "read whole table airlines as k"


def test_lines_name_each_store_that_a_read_fills() -> None:
    assert explained("consecutive").optimized[0] == "read departures as a, b -> store a, b"
    assert explained("kept").optimized[0] == "read departures as a, b -> store a, store b"
