"""What the epochs of a join did: one row each, at the last step that each took."""

from lakehouse.ledger.entries import ABANDONED, BROKEN, COMMITTED, PUBLISHING, REJECTED
from pipelines.commands.history import newest
from pipelines.report.facts import duration, steps
from tests.ledgers import at, entry, ledger

COUNTS = {"inserted": 1_234, "updated": 5, "deleted": 0, "touched": 9}
SECONDS = {"merge": 2.24, "plan": 2.1, "gate": 0.44, "ledger": 0.5, "compute": 3.0}


def test_each_epoch_is_listed_once_at_its_last_step_newest_first() -> None:
    """A rejected attempt has used up no number: it stands below the epoch that took the number after it."""
    report = newest(
        "result",
        ledger(
            entry(1, PUBLISHING, 0),
            entry(1, COMMITTED, 0.1),
            entry(2, REJECTED, 1, message="two rows for a key"),
            entry(2, PUBLISHING, 2),
            entry(2, COMMITTED, 2.1),
            entry(3, PUBLISHING, 3),
            entry(3, BROKEN, 3.1, message="its commit changed 2, staged was 1"),
        ),
        limit=10,
    )
    assert [(epoch.epoch, epoch.step, epoch.at) for epoch in report.epochs] == [
        (3, "broken", at(3.1)),
        (2, "committed", at(2.1)),
        (2, "rejected", at(1)),
        (1, "committed", at(0.1)),
    ]
    assert [epoch.result_version for epoch in report.epochs] == [None, 2, None, 1]
    assert not report.more


def test_the_last_step_is_that_of_the_way_whatever_the_clocks_of_two_machines_say() -> None:
    rows = ledger(entry(1, PUBLISHING, 5), entry(1, BROKEN, 4), entry(1, ABANDONED, 3))
    assert newest("result", rows, 10).epochs[0].step == "abandoned"


def test_the_limit_keeps_the_newest_and_says_that_there_are_more() -> None:
    rows = ledger(*(entry(number, hours=number) for number in range(1, 13)))
    report = newest("result", rows, limit=10)
    assert [epoch.epoch for epoch in report.epochs] == list(range(12, 2, -1))
    assert report.more
    assert "older" in report.text()
    assert not newest("result", rows, limit=12).more


def test_the_text_is_a_table_with_the_message_below_the_row_that_went_wrong() -> None:
    """Nothing is cut off, and the seconds come in the order of the steps though the ledger's map has none."""
    rows = ledger(
        entry(1, hours=0, counts={"inserted": 336_776, "updated": 0, "deleted": 0}, seconds={"load": 61.04}),
        entry(2, REJECTED, 1, message="[a] two rows for a key; " * 20, counts=COUNTS, seconds=SECONDS),
        entry(2, PUBLISHING, 26, counts=COUNTS),
    )
    assert newest("result", rows, 10).text().splitlines() == [
        "result:",
        "  epoch  when                  step        strategy     inserted  updated  deleted",
        "  ─────  ────────────────────  ──────────  ───────────  ────────  ───────  ───────",
        "      2  2026-11-22 14:00 UTC  publishing  incremental     1,234        5        0",
        "      2  2026-11-21 13:00 UTC  rejected    incremental     1,234        5        0",
        "         8.3 s: plan 2.1  compute 3.0  gate 0.4  ledger 0.5  merge 2.2",
        "         " + "[a] two rows for a key; " * 20,
        "      1  2026-11-21 12:00 UTC  committed   load          336,776        0        0",
        "         61.0 s: load 61.0",
    ]


def test_a_join_without_epochs_says_what_makes_the_first() -> None:
    report = newest("result", ledger(), 10)
    assert report.text() == "result: no epochs yet; `lakejoin run` makes the first"
    assert report.model_dump(mode="json") == {"join": "result", "epochs": [], "more": False}


def test_the_json_has_versions_and_moments_that_a_machine_can_read() -> None:
    report = newest("result", ledger(entry(2, hours=1, seconds=SECONDS)), 10)
    (epoch,) = report.model_dump(mode="json")["epochs"]
    assert epoch["at"] == "2026-11-21T13:00:00Z"
    assert epoch["sources"][0] == {
        "name": "left",
        "id": "left-id",
        "from_version": 6,
        "to_version": 7,
        "from_epoch": 0,
        "to_epoch": 0,
        "columns": [],
        "commit": {"time": None, "transaction": ""},
    }
    assert list(epoch["seconds"]) == ["plan", "compute", "gate", "ledger", "merge"]


def test_lengths_of_time_have_two_units_and_no_zeros() -> None:
    words = {
        -3: "0 s", 0.9: "0 s", 1: "1 s", 59: "59 s", 60: "1 min", 61: "1 min 1 s", 3_600: "1 h", 7_500: "2 h 5 min",
        3_601: "1 h", 86_400: "1 day", 90_000: "1 day 1 h", 3 * 86_400 + 59: "3 days", 1_000 * 86_400: "1,000 days",
    }  # fmt: skip
    assert {seconds: duration(seconds) for seconds in words} == words
    assert steps({"odd": 1, "gate": 0.04, "plan": 2}) == "plan 2.0  gate 0.0  odd 1.0"
