"""The runner of recorded vectors: what is right passes, and whatever is damaged fails."""

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests import conformance
from tests.conformance import DAMAGES, main, read, why_skipped
from tests.joins.kafka_streams import JOINS
from tests.joins.statements import SIDES
from tests.joins.streams import KINDS
from tests.joins.vectors import Case, FeedRow, Output, apply, result_after, strict_changes

VECTORS = Path(__file__).parents[2] / "shared" / "vectors" / "kafka"
NAMES = ("table_table-inner", "table_table-left", "table_table-outer", "foreign_key-inner", "foreign_key-left")
FILES = [VECTORS / f"{name}.jsonl" for name in NAMES]
CHAIN = VECTORS / "table_table_chain.jsonl"
STREAMS = sorted([*VECTORS.glob("stream_table-*.jsonl"), *VECTORS.glob("stream_global_table-*.jsonl")])

WINDOWS = [
    *sorted(VECTORS.glob("stream_stream-*.jsonl")),
    *(VECTORS / name for name in ("edges.jsonl", "seeds.jsonl", "seeds-0.10.1.jsonl")),
    *sorted((VECTORS.parent / "hazelcast").glob("*.jsonl")),
]
"""Files with joins of two streams; some have other joins too."""
FEW_WINDOWS = [VECTORS / "stream_stream-left-3.1.jsonl", VECTORS.parent / "hazelcast" / "design.jsonl"]
DIFFERENCES: dict[str, dict[str, int]] = {
    "design.jsonl": {"FULL JOIN": 1, "one_side_or_null_key": 3, "watermark_never_falls": 6},
    "processor.jsonl": {"one_side_or_null_key": 34, "watermark_not_repeated": 2},
    "edges.jsonl": {"alone_for_lost_pair": 2, "earlier": 6, "pair_lost": 6, "still_held": 1},
    "stream_stream-left-3.1.jsonl": {"earlier": 4},
    "stream_stream-outer-3.1.jsonl": {"earlier": 14},
    **{f"stream_stream-{name}.jsonl": {} for name in ("inner-3.1", "inner-0.10.2", "left-0.10.2", "outer-0.10.2")},
    "seeds.jsonl": {},
    "seeds-0.10.1.jsonl": {},
}
"""How often lakejoin does otherwise, by name; of a file that is not here only that nothing differs without one."""

SLOW = pytest.mark.slow

recorded = pytest.mark.skipif(not VECTORS.is_dir(), reason="the recorded vectors are not beside the repository")


@pytest.fixture(scope="module")
def computed() -> dict[tuple[str, ...], Any]:
    """Keep what Spark computed: damage is done afterwards."""
    return {}


def of_tables(folder: Path, *names: str) -> list[str]:
    """Copy files of vectors without joins of two streams, which take minutes."""
    for name in names:
        lines = (VECTORS / name).read_text(encoding="utf-8").splitlines()
        kept = [line for line in lines if json.loads(line)["join"] not in JOINS]
        (folder / name).write_text("\n".join(kept), encoding="utf-8")
    return [str(folder / name) for name in names]


@pytest.fixture(autouse=True)
def _compute_once(monkeypatch, computed):
    original = conformance.run_mode

    def once(spark, mode, kind, how, cases):
        ids = (mode, *(case.id for case in cases))
        if ids not in computed:
            computed[ids] = original(spark, mode, kind, how, cases)
        return computed[ids]

    run_windows = conformance.run_windows

    def windows_once(spark, definition, cases):
        ids = tuple(case.id for case in cases)
        if ids not in computed:
            computed[ids] = run_windows(spark, definition, cases)
        return computed[ids]

    monkeypatch.setattr(conformance, "run_mode", once)
    monkeypatch.setattr(conformance, "run_windows", windows_once)


def file_counts(text: str) -> dict[str, tuple[int, int]]:
    lines = re.findall(r"^(\S+\.jsonl): \d+ cases, (\d+) passed, (\d+) failed", text, re.MULTILINE)
    return {name: (int(passed), int(failed)) for name, passed, failed in lines}


def file_differences(text: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for line in text.splitlines():
        if name := re.match(r"(\S+\.jsonl): ", line):
            differences = found[name[1]] = {}
        elif line.startswith("  differences: "):
            counts = line.removeprefix("  differences: ").split(", ")
            differences |= {count.rpartition(" ")[0]: int(count.rpartition(" ")[2]) for count in counts}
    return found


@recorded
def test_recorded_outputs_are_met(spark, capsys):
    """Strict mode gives the recorded outputs of all joins of tables, without the unnecessary ones."""
    assert main([*map(str, FILES), str(CHAIN)], spark) == 0
    output = capsys.readouterr().out
    assert file_counts(output) == {**{path.name: (10, 0) for path in FILES}, CHAIN.name: (7, 0)}
    assert output.splitlines()[-1] == "57 passed, 0 failed"


@recorded
def test_printed_tables_and_edge_cases_are_met(spark, capsys, tmp_path):
    """The joins with tables among the seeds and the edge cases pass too."""
    assert main(of_tables(tmp_path, "edges.jsonl", "seeds.jsonl"), spark) == 0
    assert capsys.readouterr().out.splitlines()[-1] == "49 passed, 0 failed"


@recorded
@pytest.mark.deep
def test_recorded_self_joins_are_met(spark, capsys):
    """In order of time as recorded, out of order by the definition; whole and cut, and damage is seen."""
    path = str(VECTORS / "self_join.jsonl")
    assert main([path], spark) == 0
    output = capsys.readouterr().out
    assert file_differences(output) == {"self_join.jsonl": {}}
    assert output.splitlines()[-1] == "20 passed, 0 failed"
    assert main(["--mutate", "drop", path], spark) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "0 passed, 20 failed"


@recorded
@pytest.mark.deep
def test_recorded_changelogs_are_met_to_the_letter(spark, capsys, tmp_path):
    """Recorded mode gives the whole output sequence of Kafka Streams, before KIP-77 too, however it is cut."""
    seeds = of_tables(tmp_path, "seeds.jsonl", "seeds-0.10.1.jsonl")
    assert main(["--mode", "recorded", *map(str, FILES), str(CHAIN), *seeds], spark) == 0
    output = capsys.readouterr().out
    assert file_counts(output)["seeds-0.10.1.jsonl"] == (4, 0)
    assert output.splitlines()[-1].startswith("73 passed, 0 failed")


@recorded
@pytest.mark.parametrize("mode", ["strict", "recorded"])
@pytest.mark.deep
def test_recorded_streams_are_met_to_the_letter(spark, capsys, mode):
    """What each record of a stream emits, whole and cut; a left join with a global table keeps null keys, as 4.2.0."""
    assert main(["--mode", mode, *map(str, STREAMS)], spark) == 0
    counts = file_counts(capsys.readouterr().out)
    assert counts == {path.name: (12 if "4.2.0" in path.name else 10, 0) for path in STREAMS}


@recorded
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.deep
def test_damaged_streams_are_noticed(spark, capsys, damage):
    """Each kind of damage turns every file red."""
    assert main(["--mutate", damage, *map(str, STREAMS)], spark) == 1
    assert all(failed for _, failed in file_counts(capsys.readouterr().out).values())


@recorded
@pytest.mark.parametrize("files", [FEW_WINDOWS, WINDOWS], ids=["few", "all"])
@pytest.mark.deep
def test_recorded_joins_of_two_streams_differ_by_name_only(spark, capsys, files):
    """Whole and cut they are what was recorded, but for differences that have names, as often as ever."""
    assert main(list(map(str, files)), spark) == 0
    found = file_differences(capsys.readouterr().out)
    assert found == {path.name: DIFFERENCES.get(path.name, found[path.name]) for path in files}


@recorded
@pytest.mark.parametrize("files", [FEW_WINDOWS, WINDOWS], ids=["few", "all"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.deep
def test_damaged_joins_of_two_streams_are_noticed(spark, capsys, damage, files):
    """Each kind of damage turns every file red."""
    assert main(["--mutate", damage, *map(str, files)], spark) == 1
    assert all(failed for _, failed in file_counts(capsys.readouterr().out).values())


@recorded
@pytest.mark.parametrize("mode", ["strict", pytest.param("recorded", marks=SLOW)])
@pytest.mark.parametrize("damage", [next(iter(DAMAGES)), *(pytest.param(each, marks=SLOW) for each in [*DAMAGES][1:])])
def test_damaged_outputs_are_noticed(spark, capsys, damage, mode):
    """Each kind of damage turns every file red, and every case of these files."""
    files = FILES if mode == "recorded" else [*FILES, CHAIN]
    assert main(["--mode", mode, "--mutate", damage, *map(str, files)], spark) == 1
    damaged = {**{path.name: (0, 10) for path in FILES}, CHAIN.name: (0, 7)}
    assert file_counts(capsys.readouterr().out) == {path.name: damaged[path.name] for path in files}


@recorded
def test_show_points_at_the_first_difference(spark, capsys):
    """`--show` runs one case and lays its outputs side by side, with one arrow where they part."""
    case = read(FILES[1])[3].id
    assert main(["--show", case, str(FILES[1])], spark) == 0
    intact = capsys.readouterr().out
    assert f"{case}: passed" in intact
    assert "-->" not in intact
    assert main(["--show", case, "--mutate", "drop", str(FILES[1])], spark) == 1
    damaged = capsys.readouterr().out
    assert f"{case}: FAILED" in damaged
    assert damaged.count("-->") == 1
    assert damaged.splitlines()[-1] == "0 passed, 1 failed"


@recorded
@pytest.mark.deep
def test_show_lays_out_joins_of_two_streams(spark, capsys):
    """What a record, a watermark and a restart were, what must come of each, and how the record differs."""
    case = "hz/design/restart_late_row_lower_watermark_no_match/left"
    assert main(["--show", case, str(FEW_WINDOWS[1])], spark) == 0
    intact = capsys.readouterr().out
    assert f"{case}: passed" in intact
    assert "-->" not in intact
    assert "restore" in intact
    assert "differences: watermark_never_falls 1" in intact
    assert main(["--show", case, "--mutate", "add", str(FEW_WINDOWS[1])], spark) == 1
    assert capsys.readouterr().out.count("-->") == 1


@pytest.mark.slow
@recorded
def test_through_delta(spark, capsys):
    """A case driven through real tables gives the recorded state after each epoch, and a feed of real changes only."""
    chosen = "table_table/outer/edge-two-keys"
    assert main(["--through", "delta", "--show", chosen, str(VECTORS / "edges.jsonl")], spark) == 0
    output = capsys.readouterr().out
    assert re.search(rf"{chosen}: seed \d+, epochs end after \d+", output)
    assert output.splitlines()[-1] == "1 passed, 0 failed"


@recorded
def test_what_cannot_be_run_is_said(capsys, tmp_path):
    """Other kinds of join are skipped with a reason; where nothing was run, the exit code says so."""
    assert main(of_tables(tmp_path, "seeds-0.10.1.jsonl")) == 2
    output = capsys.readouterr().out
    assert "skipped 3: not yet supported: table_table, semantics 0.10.1" in output
    assert output.splitlines()[-1] == "0 passed, 0 failed, 4 skipped"
    assert main(["--mode", "recorded", "--through", "delta", str(FILES[0])]) == 2
    assert "strict joins" in capsys.readouterr().err
    assert main(["--show", "no such case", str(FILES[0])]) == 2
    assert "no such case" in capsys.readouterr().err


def test_a_file_that_is_none_is_refused(tmp_path, capsys):
    """A path without vectors is named, and nothing is run."""
    (tmp_path / "broken.jsonl").write_text("{}\n")
    for name in ("broken.jsonl", "missing.jsonl"):
        assert main([str(tmp_path / name)]) == 2
        assert name in capsys.readouterr().err


def test_strict_changes_leave_out_what_changes_nothing():
    """Tombstones of absent keys and equal repeats go, whatever lies between them; nothing else does."""
    outputs = [
        (1, "k", None),
        (2, "k", "a"),
        (3, "j", "a"),
        (4, "k", "a"),
        (5, "k", "b"),
        (6, "k", None),
        (7, "k", None),
    ]
    changes = list(strict_changes(Output(*output) for output in outputs))
    assert [change.after for change in changes] == [2, 3, 5, 6]
    assert [change.op for change in changes] == ["insert", "insert", "update", "delete"]
    assert [change.before for change in changes] == [None, None, "a", "b"]
    assert result_after(outputs, 5) == {"k": "b", "j": "a"}


def test_records_become_feed_rows():
    """A record is an insert, both images of an update, a delete, or nothing where nothing is deleted."""
    table: dict[str | None, str] = {}
    assert apply(table, "k", None) == []
    assert apply(table, "k", "a") == [FeedRow("insert", "k", "a")]
    assert apply(table, "k", "a") == [FeedRow("update_preimage", "k", "a"), FeedRow("update_postimage", "k", "a")]
    assert apply(table, "k", None) == [FeedRow("delete", "k", "a")]
    assert table == {}


@recorded
def test_every_case_is_read():
    """All files of recorded vectors are understood, and a case is either run or skipped with a reason."""
    cases = [case for path in sorted({*VECTORS.glob("*.jsonl"), *WINDOWS}) for case in read(path)]
    assert len(cases) > 500
    tables = [case for case in cases if isinstance(case, Case) and case.why_skipped("strict") is None]
    assert {case.join for case in tables} == set(SIDES)
    assert all(case.final is not None for case in tables if case.join not in KINDS)
    windows = Counter(why_skipped(case, "strict") for case in cases if not isinstance(case, Case))
    assert windows[None] >= 320
