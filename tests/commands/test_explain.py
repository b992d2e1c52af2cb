"""`explain`: what a join is and why, from the pipeline file alone."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lakehouse.errors.errors import PipelineFileError
from pipelines.cli import main
from pipelines.commands.explain import explain
from pipelines.language import load
from pipelines.report import JoinExplanation, Report
from tests.cases import cases
from tests.pipeline_files import write

FLIGHTS = Path(__file__).parents[2] / "conf" / "flights.yml"
SOURCES = {"orders": {"key": ["shop", "no"]}, "payments": {"key": ["id", "store"], "path": "../finance/payments"}}
ON = "ON o.shop = p.store AND p.id = o.no"


def explained(
    folder: Path, how: str = "LEFT", on: str = ON, where: str = "", storage: object = None, **options: object
) -> JoinExplanation:
    keys = {"RIGHT": "p.store, p.id", "FULL": "coalesce(o.shop, p.store) AS shop, coalesce(o.no, p.id) AS no"}
    sql = f"SELECT {keys.get(how, 'o.shop, o.no')}, p.method FROM orders o {how} JOIN payments p {on} {where}"
    storage = storage or {"path": "./lake"}
    file = write(folder / "lakejoin.yml", SOURCES, {"paid": {"sql": sql, **options}}, storage=storage)
    return explain(load(file), "paid")


def test_it_says_why_the_join_is_of_its_kind(tmp_path: Path) -> None:
    """Both keys in full, the right one in the order of the left."""
    found = explained(tmp_path)
    assert (found.kind, found.how, found.key) == ("table-table", ("left",), ("o.shop", "o.no"))
    assert found.why == (
        "ON equates the whole key of orders, (shop, no), with the whole key of payments, (store, id): "
        "a row matches at most one row",
    )


@cases(
    "how, left, right",
    ("INNER", "if payments has the key; else it changes nothing", "if orders has the key; else it changes nothing"),
    ("LEFT", "with nulls for payments while it lacks the key", "updates the result row of its key, if orders has"),
    ("RIGHT", "updates the result row of its key, if payments has", "with nulls for orders while it lacks"),
    ("FULL", "leaves nulls for orders while payments has the key", "leaves nulls for payments while orders has"),
)
def test_it_says_what_a_change_of_either_side_does(tmp_path: Path, how: str, left: str, right: str) -> None:
    """Only a row of a preserved side enters and leaves the result by itself."""
    sources = explained(tmp_path, how).sources
    assert left in sources[0].change
    assert right in sources[1].change


@cases(
    "how, consequence",
    ("INNER", "pairs that do not satisfy it are not in the result"),
    ("LEFT", "pairs that do not satisfy it do not match; an unmatched row of orders has nulls for payments"),
    ("RIGHT", "pairs that do not satisfy it do not match; an unmatched row of payments has nulls for orders"),
)
def test_conditions_of_on_besides_the_key_are_told_one_by_one(tmp_path: Path, how: str, consequence: str) -> None:
    """Those that equate the keys are the reason for the kind, and no note; the same columns crosswise are one."""
    notes = explained(tmp_path, how, f"{ON} AND (p.amount > 0 AND o.shop = p.id)").notes
    assert [note for note in notes if note.startswith("ON")] == [
        f"ON also requires `p.amount > 0`: {consequence}",
        f"ON also requires `o.shop = p.id`: {consequence}",
    ]


def test_where_null_keys_and_refresh_are_told(tmp_path: Path) -> None:
    plain = explained(tmp_path)
    assert [note.split()[0] for note in plain.notes] == ["source", "refresh"]
    assert "null in their key are skipped" in plain.notes[0]
    filtered = explained(tmp_path, where="WHERE p.method <> 'x'", refresh="incremental")
    assert filtered.notes[0] == (
        "WHERE `p.method <> 'x'`: result rows that no longer satisfy it are deleted; those that newly do are inserted"
    )
    assert "lakejoin backfill" in filtered.notes[-1]
    assert "whole sources" in explained(tmp_path, refresh="full").notes[-1]


def pruned(folder: Path, sql: str, **options: object) -> list[str]:
    """Explain a statement of orders and customers; return the last line for each input, which is about the result."""
    sources = {"orders": {"key": "id"}, "customers": {"key": "id"}}
    file = write(folder / "lakejoin.yml", sources, {"named": {"sql": sql, **options}})
    return [source.pruning[-1] for source in explain(load(file), "named").sources]


REFERENCE = "SELECT o.id, {columns} FROM orders o LEFT JOIN customers c ON o.customer = c.id"


@cases(
    "columns, options, of_orders, of_customers",
    ("o.customer, c.name", {}, "by its key, (id)", "`cluster_by: [customer]` would"),
    ("c.id AS bought_by, c.name", {}, "by its key, (id)", "`cluster_by: [bought_by]` would"),
    ("c.name", {}, "by its key, (id)", "may be in any of them"),
    ("o.customer, c.name", {"cluster_by": "customer"}, "by the customer that its", "by the customer that its rows had"),
    ("o.customer, c.name", {"cluster_by": "name"}, "by the name that its", "by the name that its rows had before"),
    ("o.customer, o.v", {"cluster_by": "v"}, "by the v that its", "`cluster_by: [customer]` would"),
    ("o.* EXCEPT (customer, id), c.name", {}, "by its key, (id)", "may be in any of them"),
    ("o.* EXCEPT (id)", {}, "by its key, (id)", "`cluster_by: [customer]` would"),
    ("customer, name", {"cluster_by": "customer"}, "by the customer that", "by the customer that its rows had before"),
)
def test_it_says_by_what_a_change_skips_files(
    tmp_path: Path, columns: str, options: dict[str, str], of_orders: str, of_customers: str
) -> None:
    """And warns where rows that refer to the changed row may be in any file of the result."""
    orders, customers = pruned(tmp_path, REFERENCE.format(columns=columns), **options)
    assert of_orders in orders
    assert of_customers in customers
    assert ("warning" in customers) == ("would" in of_customers or "any" in of_customers)


def test_it_says_by_what_the_other_table_is_read(tmp_path: Path) -> None:
    sources = {"orders": {"key": "id"}, "customers": {"key": "id"}}
    many = "SELECT o.id AS o, c.id AS c FROM orders o JOIN customers c ON o.city = upper(c.city)"
    one = f"{REFERENCE.format(columns='c.name')} LEFT JOIN nations n ON c.nation = n.id"
    file = write(tmp_path / "lakejoin.yml", {**sources, "nations": "id"}, {"one": one, "many": many})
    referring = [source.pruning for source in explain(load(file), "one").sources]
    assert [lines[:-1] for lines in referring] == [
        (),
        ("it skips files of orders by o.customer, if orders is laid out by that",),
        (
            "it skips files of customers by c.nation, if customers is laid out by that",
            "it skips files of orders by o.customer, if orders is laid out by that",
        ),
    ]
    left, right = (source.pruning for source in explain(load(file), "many").sources)
    assert left == (
        "warning: it skips no file of customers: upper(c.city) is no column of it",
        "it skips files of the result by its key, (o, c)",
    )
    assert right == (
        "it skips files of orders by o.city, if orders is laid out by that",
        "warning: it skips no file of the result, which is laid out by (o, c): only id is known",
    )


@cases(
    "options, expected",
    ({}, "warning: it skips no file of named, which is laid out by (id): its `cluster_by: [nation]` would"),
    ({"cluster_by": "nation"}, "it skips files of named by o.nation"),
)
def test_it_knows_how_another_result_of_the_file_is_laid_out(
    tmp_path: Path, options: dict[str, str], expected: str
) -> None:
    named = {"sql": REFERENCE.format(columns="c.nation"), **options}
    sources = dict.fromkeys(("orders", "customers", "nations"), "id")
    sql = "SELECT o.id, n.name FROM named o LEFT JOIN nations n ON o.nation = n.id"
    file = write(tmp_path / "lakejoin.yml", sources, {"named": named, "nation": {"sql": sql}})
    assert explain(load(file), "nation").sources[1].pruning[0] == expected


def test_tables_are_where_the_file_says(tmp_path: Path) -> None:
    """Paths stay as they are written; in a schema each table has its name."""
    found = explained(tmp_path)
    assert [source.address for source in found.sources] == ["./lake/orders", "../finance/payments"]
    assert found.result == "./lake/paid"
    found = explained(tmp_path, storage={"schema": "main.shop", "stage": "/Volumes/stage"})
    assert (found.sources[0].address, found.result) == ("main.shop.orders", "main.shop.paid")


def test_using_is_a_reason_too(tmp_path: Path) -> None:
    """USING stands for the equalities, and none of them is a further condition."""
    file = tmp_path / "lakejoin.yml"
    file.write_text(
        "{pipeline: p, storage: {path: lake}, sources: {a: {key: [x, y]}, b: {key: [y, x]}},"
        " joins: {c: {sql: 'SELECT * FROM a JOIN b USING (x, y)'}}}"
    )
    found = explain(load(file), "c")
    assert found.why[0].startswith("USING names the whole key of a, (x, y), and the whole key of b, (x, y)")
    assert not [note for note in found.notes if note.startswith("ON")]


def test_a_machine_reads_the_fields(tmp_path: Path) -> None:
    report = Report(command="explain", pipeline="test", joins=(explained(tmp_path),))
    (join,) = json.loads(json.dumps(report.machine()))["joins"]
    assert set(join) == {
        "join", "kind", "how", "why", "sources", "key", "result", "semantics", "refresh", "plan", "optimised", "rules",
        "sql", "gated", "validated", "notes",
    }  # fmt: skip
    assert set(join["sources"][0]) == {"name", "alias", "kind", "key", "address", "change", "pruning"}


def test_a_person_reads_aligned_lines(tmp_path: Path) -> None:
    """The head first, then two columns, then the statement as it is; no line of ours is long."""
    lines = explained(tmp_path).text().splitlines()
    assert lines[0] == "paid: table-table, left join"
    statement = lines.index("  sql")
    labels = {line[:13].strip() for line in lines[1:statement]}
    assert labels == {"", "why", "left", "right", "result", "semantics", "plan", "notes"}
    assert max(map(len, lines[:statement])) <= 100
    assert lines[statement + 1].startswith("    SELECT o.shop")


def test_explain_starts_no_spark_and_the_example_of_the_demo_is_explained() -> None:
    """The command itself, with a JAVA_HOME that points nowhere."""
    program = str(Path(sys.executable).with_name("lakejoin"))
    done = subprocess.run(
        [program, "explain", "-f", str(FLIGHTS)],
        env={**os.environ, "JAVA_HOME": "/nonexistent"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.startswith("flight_status: table-table, left join\n")
    assert not done.stderr


STREAMS = """
pipeline: flights
storage: {path: lake}
sources:
  departures: {kind: stream, key: id, watermarks: {t: 5 minutes}}
  planes: {key: tailnum}
joins:
  consecutive:
    sql: >-
      SELECT a.id, b.id AS next FROM departures a
      JOIN departures b ON a.tailnum = b.tailnum AND b.t BETWEEN a.t AND a.t + INTERVAL 3 HOURS
  seats:
    sql: SELECT d.id, p.seats FROM departures d JOIN planes p ON d.tailnum = p.tailnum
"""


def printed(folder: Path, capsys: pytest.CaptureFixture[str], *options: str, optimizations: str = "all") -> str:
    file = folder / "lakejoin.yml"
    file.write_text(f"{STREAMS}optimizations: {optimizations}\n")
    assert main(["explain", "-f", str(file), *options]) == 0
    return capsys.readouterr().out


def test_the_plan_is_drawn_before_and_after_the_optimizer(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With what each rule did, below what came of it."""
    text = printed(tmp_path, capsys, "--select", "consecutive")
    assert (
        """
  plan       read departures as a -> store a
             read departures as b -> store b
             join consecutive (stream-stream, inner) -> consecutive
  optimised  read departures as a, b (for seats too) -> store a, b
             join consecutive (stream-stream, inner) -> consecutive
             single_store_self_join: a and b are the same table, which is read and buffered once
             share_change_reads: the changes of departures are read once for consecutive and seats,
             if they read the same versions
"""
        in text
    )


@pytest.mark.parametrize("optimizations", ["none", "[single_store_self_join]"])
def test_a_plan_that_no_rule_changes_is_drawn_once(tmp_path, capsys, optimizations):
    """No rule may, or none has anything to do."""
    text = printed(tmp_path, capsys, "--select", "seats", optimizations=optimizations)
    assert text.count("read departures as d\n") == 1
    assert "optimised" not in text


def test_a_join_without_optimizations_has_empty_lists(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    report = json.loads(printed(tmp_path, capsys, "--output", "json", optimizations="none"))
    assert [(join["optimised"], join["rules"], len(join["plan"])) for join in report["joins"]] == [([], [], 3)] * 2


STAR = """
    SELECT f.id, p.seats, m.name FROM flights f LEFT JOIN planes p ON f.tail = p.tail AND p.seats > 0
    JOIN makers m ON p.maker = m.maker
"""


@pytest.fixture
def star(tmp_path: Path) -> JoinExplanation:
    sources = {"flights": "id", "planes": "tail", "makers": "maker"}
    return explain(load(write(tmp_path / "lakejoin.yml", sources, {"j": STAR})), "j")


def test_a_star_says_which_inputs_are_referred_to_and_by_what(star: JoinExplanation) -> None:
    """A change of a referenced input reaches every row that refers to it, in two steps too."""
    assert (star.kind, star.how, star.key) == ("star", ("left", "inner"), ("f.id",))
    assert star.why == (
        "`f.tail` is a reference to planes by its whole key, (tail): many rows may refer to one",
        "`p.maker` is a reference to makers by its whole key, (maker): many rows may refer to one",
    )
    flights, planes, makers = (source.change for source in star.sources)
    assert flights == "inserts, updates or deletes the result row of its key"
    assert planes == "alters every result row that refers to it by `f.tail`"
    assert makers == "alters every result row that refers to it by `p.maker`"
    assert star.notes[0].startswith("ON also requires `p.seats > 0`: pairs that do not satisfy it do not match")
    assert star.text().startswith("j: star, 3 inputs, left and inner joins\n")


def test_a_subquery_says_which_rows_it_has_and_a_single_input_that_it_is_one(tmp_path: Path) -> None:
    late = "WITH w AS (SELECT * FROM status WHERE state > 1) SELECT flight_id AS id, 1 AS x FROM w WHERE at IS NOT NULL"
    joins = {
        "named": f"SELECT f.id, s.x FROM flights f LEFT JOIN ({late}) s ON f.id = s.id",
        "one": "SELECT * FROM (SELECT id, upper(name) AS name FROM flights) f WHERE f.name > 'A'",
    }
    file = load(write(tmp_path / "lakejoin.yml", {"flights": "id", "status": "flight_id"}, joins))
    named, one = (explain(file, name) for name in joins)
    assert named.why[0] == (
        "s has the rows of status that satisfy `state > 1` and `NOT at IS NULL`; "
        "others are absent, on an outer side too"
    )
    assert (named.kind, named.sources[1].key) == ("table-table", ("id",))
    assert (one.kind, one.how, one.key) == ("table", (), ("f.id",))
    assert one.why == (
        "f has a row for each row of flights, with columns of its own",
        "flights is the only input, so that the result has its key",
    )
    assert one.sources[0].change == "before WHERE: inserts, updates or deletes the result row of its key"
    assert one.text().startswith("one: table\n")
    assert one.sources[0].pruning == ("it skips files of the result by its key, (id)",)
    sql = "SELECT f.id, s.at FROM (SELECT id, at + 1 AS at, id AS x FROM flights) f JOIN status s ON s.flight_id = f.{}"
    for column, begins in (("at", "warning: it skips no file of flights"), ("x", "it skips files of flights by f.x")):
        file = load(
            write(tmp_path / "lakejoin.yml", {"flights": "id", "status": "flight_id"}, {"j": sql.format(column)})
        )
        assert explain(file, "j").sources[1].pruning[0].startswith(begins)
    assert one.plan == ("read flights as f", "join one (table) -> one")


def test_a_semi_join_says_what_it_looks_up(tmp_path: Path) -> None:
    """In the words of the statement, of a join of the file too."""
    keys = {"customers": "id", "orders": "oid"}
    idle = "SELECT c.id, c.name FROM customers c WHERE c.active AND NOT EXISTS ({})"
    idle = idle.format("SELECT 1 FROM orders o WHERE o.customer = c.id AND o.open AND o.amount > c.least")
    named = "SELECT o.* FROM orders o LEFT SEMI JOIN idle i ON i.name = o.name"
    file = load(write(tmp_path / "lakejoin.yml", keys, {"idle": idle, "named": named}))
    found, read = (explain(file, name) for name in ("idle", "named"))
    assert (found.kind, found.how, found.key) == ("semi-join", (), ("c.id",))
    assert found.why[1:] == (
        "only rows of orders that satisfy `o.open` count for it",
        "its further conditions are met if any row of orders with the value meets all of them",
        "customers is the only input, so that the result has its key",
    )
    assert "looks up whether rows of orders have a value, by o.customer" in found.why[0]
    assert any("WHERE `c.active AND NOT EXISTS(SELECT 1" in note for note in found.notes)
    assert (found.sources[1].key, found.sources[1].alias) == (("oid",), "o")
    assert "while another row has the same value" in read.sources[1].change
    assert "while another row" not in found.sources[1].change  # the value may have other columns to compare
    assert "idle is a join of this file: its result holds one row for each (id), as its own statement says" in read.why
    assert not any("WHERE" in note for note in read.notes)
    assert "_lakejoin_" not in found.text() + read.text()


def test_groups_say_what_they_are_by(tmp_path: Path) -> None:
    """As a whole statement and as an input."""
    grouped = "SELECT o.customer, count(*) AS n FROM orders o WHERE o.customer IS NOT NULL GROUP BY o.customer"
    named = f"SELECT c.*, t.n FROM customers c LEFT JOIN ({grouped}) t ON t.customer = c.id"
    keys = {"customers": "id", "orders": "oid"}
    file = load(write(tmp_path / "lakejoin.yml", keys, {"totals": grouped, "named": named}))
    found, read = (explain(file, name) for name in ("totals", "named"))
    assert (found.kind, found.how, found.key, read.kind) == ("grouped", (), ("o.customer",), "table-table")
    assert found.why == (
        "o groups the rows of orders that satisfy `NOT o.customer IS NULL` by o.customer",
        "by group: an epoch reads all rows of each group that a changed row leaves or enters",
        "orders is the only input, so that the result has the key (customer), what it is grouped by",
    )
    assert read.why[0].startswith("t groups the rows of orders")
    assert (found.sources[0].key, read.sources[1].key) == (("oid",), ("oid",))


def test_a_join_of_many_rows_says_what_matches_and_what_a_change_does(tmp_path: Path) -> None:
    sql = "SELECT c.id, o.nr, o.amount FROM customers c LEFT JOIN orders o ON o.customer = c.id"
    joins = {"all": {"sql": sql, "changelog": True}}
    file = write(tmp_path / "lakejoin.yml", {"customers": "id", "orders": "nr"}, joins)
    found = explain(load(file), "all")
    assert (found.kind, found.how, found.key) == ("many-to-many", ("left",), ("c.id", "o.nr"))
    assert found.why == (
        "ON compares `c.id` with `o.customer`: a row of customers may match many rows of orders, and a row of orders "
        "many of customers",
        "the result has a row for each pair, with the keys of customers and orders",
        "a row of customers without a match is in the result with nulls for the other side, also in its key",
    )
    customers, orders = found.sources
    assert customers.change == (
        "inserts, updates or deletes a result row for each row of orders that it matches, or one row with nulls for "
        "orders if it matches none"
    )
    assert orders.change == (
        "inserts, updates or deletes a result row for each row of customers that it matches; a row of customers that "
        "loses its last match keeps a row with nulls"
    )
    assert any("read it in the order of _epoch, _position and _op" in note for note in found.notes)


def test_a_join_of_many_rows_says_which_looked_up_rows_decide_what_matches(tmp_path: Path) -> None:
    sql = """
        SELECT o.nr, r.rate FROM orders o LEFT JOIN customers c ON o.customer = c.id
        LEFT JOIN rates r ON r.region = c.region AND r.since <= o.day
    """
    sources = {"orders": "nr", "customers": "id", "rates": "rate"}
    found = explain(load(write(tmp_path / "lakejoin.yml", sources, {"all": sql})), "all")
    assert (found.kind, found.how, found.key) == ("many-to-many", ("left", "left"), ("o.nr", "r.rate"))
    assert found.why == (
        "ON compares `c.region` with `r.region`: a row of orders may match many rows of rates, and a row of rates "
        "many of orders",
        "a row of orders matches by the row of customers that it looks up",
        "the result has a row for each pair, with the keys of orders and rates",
        "a row of orders without a match is in the result with nulls for the other side, also in its key",
        "`o.customer` is a reference to customers by its whole key, (id): many rows may refer to one",
    )
    assert found.sources[1].change == (
        "alters every result row that refers to it by `o.customer`, and which rows of rates those rows of orders match"
    )
    assert found.sources[2].change.startswith("inserts, updates or deletes a result row for each row of orders")
    assert found.notes[0].startswith("ON also requires `r.since <= o.day`: pairs that do not satisfy it do not match")


def test_another_table_of_on_decides_what_matches_too(tmp_path: Path) -> None:
    sql = """
        SELECT o.nr, r.r, s.name FROM orders o JOIN customers c ON o.customer = c.id
        JOIN shops s ON o.shop = s.id JOIN rates r ON r.day = o.day AND r.region = c.region
    """
    sources = {"orders": "nr", "customers": "id", "shops": "id", "rates": "r"}
    customers, shops = explain(load(write(tmp_path / "lakejoin.yml", sources, {"all": sql})), "all").sources[1:3]
    assert customers.change.endswith(", and which rows of rates those rows of orders match")
    assert shops.change == "alters every result row that refers to it by `o.shop`"


def test_a_join_that_reads_another_one_says_so_and_with_which_key(tmp_path: Path) -> None:
    """The key of the other is inferred; where it lies, how it is read and what its change does are told."""
    joins = {
        "named": "SELECT p.*, m.name FROM paid p LEFT JOIN methods m ON p.method = m.method",
        "paid": "SELECT o.no AS nr, p.method FROM orders o JOIN payments p ON o.no = p.no",
    }
    sources = {"orders": "no", "payments": "no", "methods": "method"}
    file = write(tmp_path / "lakejoin.yml", sources, joins, storage={"path": "lake"})
    found = explain(load(file), "named")
    assert (found.kind, found.key) == ("foreign-key", ("p.nr",))
    assert found.why[0] == (
        "paid is a join of this file: its result holds one row for each (nr), as its own statement says"
    )
    assert found.sources[0].text() == "join paid as p, key (nr), in lake/paid"
    assert found.sources[0].change == "inserts, updates or deletes the result row of its key"
    assert found.notes[-2] == ("paid runs first; this join reads what paid has committed, and is skipped if paid fails")
    assert "paid is a join" not in explain(load(file), "paid").text()


def test_a_statement_that_is_no_supported_join_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PipelineFileError, match="the result has no key"):
        explained(tmp_path, on="ON o.x = p.id")
