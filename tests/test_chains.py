"""Joins that read joins: each follows what the one before it has committed, and waits where that one fails."""

import json
import random
import shutil
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from pyspark.sql import SparkSession

from expectations.validation import Verdict
from lakehouse.errors.errors import CannotContinue, ForeignWriter, LakejoinError, PipelineFileError
from pipelines import Pipeline
from pipelines.cli import main
from pipelines.epochs.tables.kind import TablesKind
from pipelines.report import JoinReport, report_schema
from tests.killing import killed
from tests.lake import Lake

KEYS = {"orders": "id", "payments": "id", "customers": "customer", "returns": "nr"}
COLUMNS = {
    "orders": "id INT, customer STRING, amount INT",
    "payments": "id INT, method STRING",
    "customers": "customer STRING, name STRING",
    "returns": "nr INT, why STRING",
}
PAID = """
    SELECT o.id AS order_id, o.customer, o.amount, p.method FROM {orders} o LEFT JOIN {payments} p ON o.id = p.id
"""
NAMED = "SELECT a.*, c.name FROM {paid} a JOIN {customers} c ON a.customer = c.customer WHERE a.amount > 0"
WHOLE = """
    SELECT coalesce(n.order_id, r.nr) AS nr, n.name, n.method, n.amount * 2 AS twice, r.why
    FROM {named} n FULL JOIN {returns} r ON n.order_id = r.nr
"""
APART = "SELECT p.id, p.method, r.why FROM {payments} p JOIN {returns} r ON p.id = r.nr"
CHAIN = {"whole": WHOLE, "apart": APART, "named": NAMED, "paid": PAID}
"""`paid` is read by `named` and that by `whole`; the file has them last first, and beside them `apart`."""


pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def _chain(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake, script = Lake(spark, tmp_path_factory.mktemp("chain")), random.Random(7)
    for name, columns in COLUMNS.items():
        lake.create(name, columns)
        lake.sql(f"INSERT INTO {{{name}}} VALUES {rows(script, name)}", name)
    return lake


@pytest.fixture(scope="module")
def _loaded_chain(_chain: Lake, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    lake = _chain.copy(tmp_path_factory.mktemp("loaded") / "chain")
    pipeline(lake).run(lake.spark)
    return lake


@pytest.fixture
def chain(_chain: Lake, tmp_path: Path) -> Lake:
    return _chain.copy(tmp_path / "chain")


@pytest.fixture
def loaded(_loaded_chain: Lake, tmp_path: Path) -> Lake:
    return _loaded_chain.copy(tmp_path / "loaded")


def pipeline(lake: Lake, **joins: str) -> Pipeline:
    names = {name: name for name in (*KEYS, *CHAIN)}
    statements = {name: joins.get(name, sql).format(**names) for name, sql in CHAIN.items()}
    first, *further = statements
    return lake.pipeline(statements[first], KEYS, first, {name: statements[name] for name in further})


def rows(script: random.Random, name: str) -> str:
    values = {
        "orders": lambda key: (key, script.choice(["'a'", "'b'", "'c'", "NULL"]), script.randrange(3)),
        "payments": lambda key: (key, script.choice(["'card'", "'cash'"])),
        "customers": lambda key: (f"'{'abcd'[key % 4]}'", f"'{script.choice(['Ann', 'Bo', 'Cy'])}'"),
        "returns": lambda key: (key, script.choice(["'late'", "'torn'"])),
    }[name]
    keys = script.sample(range(12), 8) if name != "customers" else script.sample(range(4), 3)
    return ", ".join(f"({', '.join(map(str, values(key)))})" for key in keys)


def change(lake: Lake, script: random.Random, name: str) -> None:
    key = KEYS[name]
    statement = script.choice(
        [
            f"MERGE INTO {{{name}}} t USING (SELECT * FROM VALUES {rows(script, name)} AS s({columns_of(name)})) s "
            f"ON t.{key} = s.{key} WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *",
            f"DELETE FROM {{{name}}} WHERE hash({key}) % 3 = {script.randrange(3)}",
            f"INSERT OVERWRITE {{{name}}} VALUES {rows(script, name)}",
        ]
    )
    lake.sql(statement, name)


def columns_of(name: str) -> str:
    return ", ".join(column.split()[0] for column in COLUMNS[name].split(", "))


def expected(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    """The meaning of a join over the sources as they are, its upstream joins written out as subqueries."""
    tables = {source: lake.at(source) for source in KEYS}
    for join in ("paid", "named", "whole", "apart"):
        tables[join] = f"({CHAIN[join].format(**tables)})"
    return sorted((tuple(row) for row in lake.spark.sql(tables[name]).collect()), key=repr)


def by_name(reports: list[JoinReport]) -> dict[str, JoinReport]:
    return {report.join: report for report in reports}


def called(lake: Lake, capsys: pytest.CaptureFixture[str], command: str, *arguments: str) -> dict[str, Any]:
    """Give the report of a command as JSON, which is of the published form."""
    capsys.readouterr()
    code = main([command, "-f", str(lake.file), "--output", "json", *arguments])
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    jsonschema.validate(report, json.loads(report_schema()))
    assert report["exit_code"] == code
    return report


def test_a_chain_of_three_is_the_join_of_its_sources_after_random_changes(loaded: Lake) -> None:
    """Each epoch is incremental, every result is its statement over the sources, and `verify` finds nothing."""
    lake, made, script = loaded, pipeline(loaded), random.Random(11)
    for _ in range(2):
        for name in script.sample(sorted(KEYS), 3):
            change(lake, script, name)
        reports = by_name(made.run(lake.spark))
        assert list(reports) == ["apart", "paid", "named", "whole"]
        assert {report.strategy for report in reports.values()} <= {"incremental", "nothing"}
        for name in CHAIN:
            assert lake.rows(name) == expected(lake, name), name
    assert all(report.counts["missing"] == report.counts["surplus"] == 0 for report in made.verify(lake.spark))
    assert {report.outcome for report in made.run(lake.spark)} == {"nothing"}


def test_a_reader_is_pinned_to_what_was_committed_and_no_further_than_upkeep_after_it(loaded: Lake) -> None:
    """Not to rows that nobody has committed, whatever comes after them; and what it computes is the join of these."""
    lake, made = loaded, pipeline(loaded)
    lake.sql("INSERT INTO {orders} VALUES (77, 'a', 5)", "orders")
    made.run(lake.spark)
    committed = lake.version("paid")
    lake.sql("OPTIMIZE {paid}", "paid")
    assert lake.version("paid") > committed
    lake.sql("ALTER TABLE {paid} SET TBLPROPERTIES ('note' = 'x')", "paid")
    quiet = lake.version("paid")
    assert made.run(lake.spark, ["named"])[0].outcome == "nothing"
    lake.sql("UPDATE {paid} SET amount = 99", "paid")
    lake.sql("ALTER TABLE {paid} SET TBLPROPERTIES ('note' = 'y')", "paid")
    lake.sql("UPDATE {customers} SET name = concat(name, '!')", "customers")
    assert made.run(lake.spark, ["named"])[0].strategy == "incremental"
    assert pins(lake, "named") == {"paid": quiet, "customers": lake.version("customers")}
    assert lake.rows("named") == expected(lake, "named")
    assert made.verify(lake.spark, ["named"])[0].counts["surplus"] == 0
    with pytest.raises(ForeignWriter):
        made.run(lake.spark)


def pins(lake: Lake, join: str) -> dict[str, int]:
    """Give the versions of the sources that the last epoch of a join accounts for."""
    (last,) = [row for row in lake.ledger() if (row["join_name"], row["step"]) == (join, "committed")][-1:]
    return {source["name"]: source["to_version"] for source in last["sources"]}


def test_an_epoch_that_is_not_closed_is_not_read_and_the_next_run_moves_both(loaded: Lake) -> None:
    """The MERGE of `paid` is done, its committed row is missing: `named` alone has nothing to do."""
    lake, made = loaded, pipeline(loaded)
    before, version = lake.rows("named"), lake.version("paid")
    lake.sql("UPDATE {payments} SET method = 'gold'", "payments")
    with killed("ledger: committed epoch 2 of paid"):
        made.run(lake.spark)
    assert lake.version("paid") == version + 1
    assert made.run(lake.spark, ["named"])[0].outcome == "nothing"
    assert lake.rows("named") == before
    reports = by_name(made.run(lake.spark, ["+named"]))
    assert [(report.join, report.strategy) for report in reports.values()] == [
        ("paid", "resume"), ("named", "incremental"),
    ]  # fmt: skip
    assert lake.rows("named") == expected(lake, "named") != before


def test_a_join_that_fails_holds_up_those_that_read_it_and_no_others(loaded, capsys):
    """They are skipped and say for whom and why; the exit code is that of the failure."""
    lake = loaded
    versions = lake.versions()
    lake.sql("INSERT INTO {payments} VALUES (50, 'card'), (50, 'cash')", "payments")
    lake.sql("UPDATE {returns} SET why = 'new'", "returns")
    lake.sql("UPDATE {customers} SET name = 'new'", "customers")
    other = "SELECT r.nr AS id, o.customer AS method, r.why FROM {returns} r JOIN {orders} o ON r.nr = o.id"
    pipeline(lake, apart=other)
    for command in ("run", "backfill"):
        report = called(lake, capsys, command)
        assert report["exit_code"] == (4 if command == "run" else 1)
        apart, paid, named, whole = report["joins"]
        assert paid["error"]["code"] == "DUPLICATE_KEY"
        assert (named["outcome"], whole["outcome"]) == ("skipped", "skipped")
        assert named["reason"] == "upstream-failed: paid failed: payments: a key occurs more than once"
        assert whole["reason"] == f"upstream-skipped: named was skipped ({named['reason']})"
        assert (named["error"], apart["outcome"]) == (None, "failed" if command == "run" else "done")
    assert JoinReport.model_validate(named).text() == f"named: skipped ({named['reason']})"
    after = lake.versions()
    assert {name for name in CHAIN if after[name] > versions[name]} == {"apart"}

    reports = called(lake, capsys, "run", "--select", "named,whole")["joins"]
    assert [report["outcome"] for report in reports] == ["done", "done"], "what was committed is there to be read"


def test_a_join_whose_gate_fails_holds_up_those_that_read_it(loaded, monkeypatch, capsys):
    """With the exit code of the gate; the next run makes up for it."""
    lake, honest = loaded, TablesKind.gate

    def strict(kind: TablesKind, *staged: Any) -> Verdict:
        return Verdict(("made up",)) if kind.name == "named" else honest(kind, *staged)

    monkeypatch.setattr(TablesKind, "gate", strict)
    lake.sql("UPDATE {payments} SET method = 'gold'", "payments")
    report = called(lake, capsys, "run")
    assert report["exit_code"] == 3
    assert [part["outcome"] for part in report["joins"]] == ["done", "done", "failed", "skipped"]
    assert report["joins"][3]["reason"] == "upstream-rejected: named did not pass its gate"
    monkeypatch.undo()
    pipeline(lake).run(lake.spark)
    for name in CHAIN:
        assert lake.rows(name) == expected(lake, name), name


def test_what_was_never_run_cannot_be_read_and_the_way_on_is_named(chain, capsys):
    """A selection takes along what is behind a join only where it says so."""
    lake, made = chain, pipeline(chain)
    with pytest.raises(LakejoinError, match="paid: this join has no committed epoch") as refused:
        made.run(lake.spark, ["named"])
    assert (refused.value.exit_code, refused.value.hint) == (1, "run `lakejoin run --select +paid`")
    plans = called(lake, capsys, "plan")
    assert [plan["strategy"] or plan["outcome"] for plan in plans["joins"]] == ["load"] * 2 + ["skipped"] * 2
    assert plans["joins"][2]["reason"].startswith("upstream-not-run: paid has no committed epoch yet")
    assert called(lake, capsys, "plan", "--select", "named")["exit_code"] == 1
    (status,) = called(lake, capsys, "status", "--select", "named")["joins"]
    assert status["state"] == "not loaded"
    assert "has no committed epoch yet" in status["sources"][0]["warning"]
    assert [report.join for report in made.run(lake.spark, ["+named"])] == ["paid", "named"]
    of_two = WHOLE.replace("{returns} r", "{apart} r").replace("r.nr", "r.id")
    with pytest.raises(LakejoinError, match=r"^apart: this join has no committed epoch"):
        pipeline(lake, whole=of_two).run(lake.spark, ["whole"])


def test_commands_know_a_join_that_reads_another(loaded: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    """Plan, status, history and queries, before and after the join that it reads has moved."""
    lake = loaded
    lake.sql("UPDATE {payments} SET method = 'gold'", "payments")
    plan = called(lake, capsys, "plan", "--select", "+named")["joins"][1]
    assert (plan["strategy"], plan["after"]) == ("nothing", ["paid"])
    assert main(["plan", "-f", str(lake.file), "--select", "+named"]) == 0
    assert "  paid runs first; this plan is based on its last committed epoch" in capsys.readouterr().out
    pipeline(lake).run(lake.spark, ["paid"])
    plan = called(lake, capsys, "plan", "--select", "named")["joins"][0]
    assert (plan["strategy"], plan["after"]) == ("incremental", [])
    assert [source["name"] for source in plan["sources"]] == ["paid", "customers"]
    (status,) = called(lake, capsys, "status", "--select", "named")["joins"]
    assert status["state"] == "behind"
    assert [source["commits_behind"] for source in status["sources"]] == [1, 0]
    pipeline(lake).run(lake.spark, ["named"])
    (history,) = called(lake, capsys, "history", "--select", "named")["joins"]
    assert [source["name"] for source in history["epochs"][0]["sources"]] == ["paid", "customers"]
    found = called(lake, capsys, "sql", "SELECT DISTINCT n.method FROM named n JOIN paid USING (order_id)")
    assert ["gold"] in found["query"]["rows"]


def test_a_result_that_was_replaced_is_not_read_and_an_unknown_column_is_a_fault(loaded: Lake) -> None:
    """As with sources; a new table of that name is nobody's result."""
    lake = loaded
    wrong = pipeline(lake, named=NAMED.replace("c.name", "a.nmae"))
    with pytest.raises(PipelineFileError, match="paid has no column `nmae`"):
        wrong.run(lake.spark, ["named"])
    shutil.rmtree(lake.path("paid"))
    lake.create("paid", "order_id INT, customer STRING, amount INT, method STRING")
    with pytest.raises(CannotContinue, match="paid: the result table was replaced by another one") as refused:
        pipeline(lake).run(lake.spark, ["named"])
    assert refused.value.exit_code == 4
    made = pipeline(lake)
    made.backfill(lake.spark, ["+named"])
    assert lake.rows("named") == expected(lake, "named")


def test_two_ways_from_a_source_to_a_join_are_both_followed(lake: Lake) -> None:
    """A join reads a source and a join of it, as two versions; after a run both are the newest."""
    lake.create("left", "k INT, v STRING", "(1, 'a'), (2, 'b')")
    lake.create("right", "k INT, w STRING", "(2, 'x')")
    made = lake.pipeline(further={"again": "SELECT r.*, l.v AS now FROM result r LEFT JOIN left l ON r.k = l.k"})
    made.run(lake.spark)
    lake.sql("UPDATE {left} SET v = 'c' WHERE k = 2")
    lake.sql("INSERT INTO {left} VALUES (3, 'd')")
    made.run(lake.spark)
    assert lake.rows("again") == [(1, "a", None, "a"), (2, "c", "x", "c"), (3, "d", None, "d")]
    made.verify(lake.spark)
