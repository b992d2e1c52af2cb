"""A statement of several streams is split into joins of the kinds that there are."""

import json
import string
from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from sqlglot import exp, parse_one

from lakehouse.errors.errors import Fault, PipelineFileError
from pipelines.commands.explain import explain
from pipelines.language import (
    Join,
    PipelineFile,
    ResolvedQuery,
    UnknownJoin,
    bind,
    fingerprint,
    is_stream,
    keeps_changelog,
    load,
    reads,
    selected,
    statement_of,
)
from pipelines.language.join.chains import chains_of
from pipelines.language.sql.dialect import Verbatim, render
from tests.cases import cases
from tests.language.examples import ODD, complaints
from tests.language.test_fuzz import TOKENS
from tests.pipeline_files import content

STREAM = {"kind": "stream", "watermarks": {"at": "5 minutes", "paid_at": "1 hour"}}
SOURCES: dict[str, dict[str, Any]] = {
    "orders": {**STREAM, "key": "id"},
    "deliveries": {**STREAM, "key": "id"},
    "returns": {**STREAM, "key": "id"},
    "shops": {"key": "shop"},
    "regions": {"key": "region"},
    "rates": {"key": "currency", "kind": "global_table"},
}
COLUMNS = {
    name: ["id", "At", "paid_at", "amount", "shop", "region", "currency", "addr", "hops", "a-b", "a b"]
    for name in SOURCES
}
DELIVERED = "deliveries d ON d.id = o.id AND d.at BETWEEN o.at AND o.at + INTERVAL 2 DAYS"
RETURNED = "returns r ON r.id = o.id AND r.at BETWEEN o.at AND o.at + INTERVAL 30 DAYS"
SHOP = f"SELECT o.id, d.at AS delivered, r.amount FROM orders o LEFT JOIN {DELIVERED} LEFT JOIN {RETURNED}"


def written(folder: Path, joins: dict[str, Any], sources: dict[str, Any] = SOURCES) -> Path:
    path = folder / "lakejoin.yml"
    path.write_text(json.dumps(content(sources, joins)), encoding="utf-8")
    return path


def split(folder: Path, sql: str, **options: Any) -> PipelineFile:
    return load(written(folder, {"shop": {"sql": sql, **options}}))


def texts(file: PipelineFile) -> dict[str, str]:
    return {name: " ".join(join.sql.split()) for name, join in file.joins.items()}


def faults(folder: Path, sql: str, **options: Any) -> list[str]:
    with pytest.raises(PipelineFileError) as caught:
        split(folder, sql, **options)
    return [f"{fault.path}: {fault.problem} | {fault.hint}" for fault in caught.value.faults]


def definitions(
    file: PipelineFile, columns_of: Mapping[str, Sequence[str]] = MappingProxyType(COLUMNS)
) -> dict[str, ResolvedQuery]:
    columns = dict(columns_of)
    made = {}
    for name in chains_of(file).order:
        made[name] = bind(statement_of(file, name), columns)
        columns[name] = [output.name for output in made[name].outputs] + ["_epoch", "_position"]
    return made


def traced(expression: str, file: PipelineFile, made: dict[str, ResolvedQuery]) -> str:
    """Write an expression of the last part over the inputs of the whole statement."""

    def source(node: exp.Expr) -> exp.Expr:
        if not isinstance(node, exp.Column):
            return node
        alias, name, *fields = (part.name for part in node.parts)
        if alias not in file.joins:
            return node
        (output,) = (output for output in made[alias].outputs if output.name == name)
        found = traced(output.expression, file, made)
        return parse_one(".".join([found, *(f"`{field}`" for field in fields)]), read=Verbatim)

    return render(parse_one(expression, read=Verbatim).transform(source))


def test_streams_meet_two_at_a_time(tmp_path):
    """Each part gives what later ones use, and the last has the outputs of the statement."""
    file = split(tmp_path, SHOP)
    assert texts(file) == {
        "shop__1": "SELECT o.id AS o__id, d.at AS d__at, o.at AS o__at FROM orders AS o LEFT JOIN deliveries AS d"
        " ON d.id = o.id AND d.at BETWEEN o.at AND o.at + INTERVAL '2' DAYS",
        "shop": "SELECT shop__1.o__id AS id, shop__1.d__at AS delivered, r.amount FROM shop__1 LEFT JOIN returns AS r"
        " ON r.id = shop__1.o__id AND r.at BETWEEN shop__1.o__at AND shop__1.o__at + INTERVAL '30' DAYS",
    }
    assert [statement_of(file, name).kind for name in file.joins] == ["stream-stream"] * 2
    assert (reads(file, "shop"), reads(file, "shop__1")) == (("shop__1",), ())
    assert all(is_stream(file, name) and not keeps_changelog(file, name) for name in file.joins)
    assert len({fingerprint(file, name) for name in file.joins}) == 2


@cases(
    "joined, kinds",
    (f"JOIN {DELIVERED}", []),
    ("LEFT JOIN shops s ON o.shop = s.shop LEFT JOIN regions g ON s.region = g.region", []),
    (f"JOIN {DELIVERED} JOIN {RETURNED}", ["stream-stream"]),
    (f"JOIN shops s ON o.shop = s.shop JOIN {DELIVERED}", ["stream-table"]),
    (f"JOIN rates c ON o.currency = c.currency JOIN {DELIVERED}", ["stream-global-table"]),
    (f"JOIN {DELIVERED} JOIN shops s ON d.shop = s.shop", ["stream-stream"]),
    (f"JOIN {DELIVERED} JOIN shops s ON d.shop = s.shop JOIN regions g ON s.region = g.region", ["stream-stream"]),
    (
        f"JOIN shops s ON o.shop = s.shop JOIN regions g ON s.region = g.region JOIN {DELIVERED}"
        f" JOIN rates c ON c.currency = d.currency JOIN {RETURNED}",
        ["stream-table", "stream-stream", "stream-global-table"],
    ),
)
def test_tables_in_a_row_are_looked_up_by_one_part(tmp_path, joined, kinds):
    """A further stream is a part of its own; two inputs, or one stream with tables, are not split."""
    file = split(tmp_path, f"SELECT o.id FROM orders o {joined}")
    assert [statement_of(file, name).kind for name in file.joins if name != "shop"] == kinds
    assert list(file.joins) == [*(f"shop__{number}" for number in range(1, len(kinds) + 1)), "shop"]
    if not kinds:
        assert file.joins["shop"].sql == f"SELECT o.id FROM orders o {joined}"


def test_a_part_looks_up_a_table_by_what_streams_and_a_table_have(tmp_path):
    """The streams are one input of the last part by then, and the table another one."""
    sources = SOURCES | {"prices": {"key": ["shop", "currency", "region"]}}
    shops = "LEFT JOIN shops s ON s.shop = o.shop"
    prices = "LEFT JOIN prices p ON p.shop = o.shop AND p.currency = d.currency AND p.region = s.region"
    sql = f"SELECT o.id, p.amount FROM orders o JOIN {DELIVERED} {shops} {prices}"
    file = load(written(tmp_path, {"shop": {"sql": sql}}, sources))
    of_shops, of_prices = definitions(file, COLUMNS | {"prices": COLUMNS["shops"]})["shop"].links
    assert (of_shops.places, of_prices.places, of_prices.overs) == ({0}, {0, 1}, (0, 0, 1))


def test_the_result_of_a_join_is_a_stream_if_its_first_input_is(tmp_path):
    """Also through another one; a statement over it is split as over a source, and a reader reads the last part."""
    joins = {
        "reader": "SELECT s.id, g.amount FROM shop s JOIN regions g ON s.region = g.region",
        "shop": SHOP.replace("orders o", "named o").replace("o.id, d", "o.id, o.region, d"),
        "named": "SELECT o.*, s.addr AS name FROM placed o LEFT JOIN shops s ON o.shop = s.shop",
        "placed": "SELECT o.*, g.addr AS place FROM orders o LEFT JOIN regions g ON o.region = g.region",
    }
    file = load(written(tmp_path, joins))
    assert list(file.joins) == ["reader", "shop__1", "shop", "named", "placed"]
    assert list(chains_of(file).order) == ["placed", "named", "shop__1", "shop", "reader"]
    assert reads(file, "shop__1") == ("named",)


def test_a_column_is_kept_once_whatever_its_case(tmp_path):
    """Under its first spelling; of a struct the whole column, and fields stay behind it."""
    items = "o.Amount, O.AMOUNT AS again, o.addr.city, upper(o.ADDR.geo.x.y.z) AS z, o.hops[0].stop AS hop"
    file = split(tmp_path, f"SELECT {items} FROM orders o JOIN {DELIVERED} JOIN {RETURNED} WHERE O.amount > 0")
    assert texts(file)["shop__1"].startswith(
        "SELECT o.Amount AS o__Amount, o.addr AS o__addr, o.hops AS o__hops, o.id AS o__id, o.at AS o__at FROM orders"
    )
    assert texts(file)["shop"].startswith(
        "SELECT shop__1.o__Amount AS Amount, shop__1.o__Amount AS again, shop__1.o__addr.city AS city,"
        " upper(shop__1.o__addr.geo.x.y.z) AS z, shop__1.o__hops[0].stop AS hop FROM shop__1"
    )
    assert texts(file)["shop"].endswith("WHERE shop__1.o__Amount > 0")
    names = [output.name for output in definitions(file)["shop"].outputs]
    assert names == ["Amount", "again", "city", "z", "hop"]


def test_a_lambda_keeps_its_parameter(tmp_path):
    """Though it is called as an input is, or as a column."""
    items = "transform(o.hops, x -> x + o.amount) AS a, filter(d.hops, o -> o.id > d.amount) AS b"
    file = split(tmp_path, f"SELECT {items} FROM orders o JOIN {DELIVERED} JOIN {RETURNED}")
    assert "transform(shop__1.o__hops, x -> x + shop__1.o__amount) AS a" in texts(file)["shop"]
    assert "filter(shop__1.d__hops, o -> o.id > shop__1.d__amount) AS b" in texts(file)["shop"]


def test_two_aliases_of_one_stream_are_two_inputs(tmp_path):
    """In one part a self-join, in a later one the same stream again."""
    sql = (
        "SELECT o.id, p.id AS next, q.id AS last FROM orders o"
        " JOIN orders p ON p.at BETWEEN o.at AND o.at + INTERVAL 1 DAY"
        " JOIN orders q ON q.at BETWEEN p.at AND p.at + INTERVAL 1 DAY"
    )
    file = split(tmp_path, sql)
    assert [statement_of(file, name).is_self_join for name in file.joins] == [True, False]
    assert texts(file)["shop"].startswith(
        "SELECT shop__1.o__id AS id, shop__1.p__id AS next, q.id AS last FROM shop__1"
    )


def test_names_that_would_be_one_are_kept_apart(tmp_path):
    """An alias and a column with underscores may read as another pair of them."""
    sources = {**SOURCES, "a": {**STREAM, "key": "b__c"}, "a__b": {**STREAM, "key": "c"}}
    sql = (
        "SELECT a.b__c, a__b.c AS other FROM a JOIN a__b ON a__b.at BETWEEN a.at AND a.at + INTERVAL 1 DAY"
        " JOIN returns r ON r.at BETWEEN a.at AND a.at + INTERVAL 1 DAY"
    )
    file = load(written(tmp_path, {"shop": sql}, sources))
    assert "SELECT a.b__c AS a__b__c, a__b.c AS a__b__c_, a.at" in texts(file)["shop__1"]
    assert "SELECT shop__1.a__b__c AS b__c, shop__1.a__b__c_ AS other" in texts(file)["shop"]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("part", ["name", "alias", "column"])
def test_odd_identifiers(tmp_path, part, odd):
    """Any name works as name of the join, as alias, and as column; what comes out is the column that went in."""
    name, alias, column = (odd if part == what else "x" for what in ("name", "alias", "column"))
    if part == "name" and set(odd) & set("/\\"):
        return  # a name becomes part of a path
    a, c = (f"`{text.replace('`', '``')}`" for text in (alias, column))
    sql = (
        f"SELECT {a}.{c}, {a}.{c}.{c} AS field FROM orders {a} JOIN deliveries d"
        f" ON d.at BETWEEN {a}.at AND {a}.at + INTERVAL 1 DAY JOIN returns r"
        f" ON r.at BETWEEN {a}.at AND {a}.at + INTERVAL 1 DAY WHERE {a}.{c} = 'a\n\\'b' OR d.id > 1"
    )
    file = load(written(tmp_path, {name: sql}))
    columns = {**COLUMNS, "orders": ["id", "at", column]}
    statement = statement_of(file, f"{name}__1")
    first = bind(statement, columns)
    columns[f"{name}__1"] = [output.name for output in first.outputs]
    last = bind(statement_of(file, name), columns)
    assert [output.name for output in last.outputs] == [column, "field"]
    assert first.outputs[0].expression == f"{a}.{c}"
    assert first.outputs[0].name == f"{alias}__{column}"


def test_what_is_not_of_the_result_goes_to_every_part(tmp_path):
    """Refresh does; what is of the result stays with the last part, and rows wait only where two streams meet."""
    sql = f"SELECT o.id FROM orders o JOIN {DELIVERED} JOIN shops s ON d.shop = s.shop"
    file = split(tmp_path, sql, refresh="incremental", max_buffered_rows=7, on_failed_gate="warn")
    assert [(join.refresh, join.max_buffered_rows, join.on_failed_gate) for join in file.joins.values()] == [
        ("incremental", 7, "fail"),
        ("incremental", None, "warn"),
    ]
    file = split(tmp_path, SHOP, max_buffered_rows=7)
    assert [join.max_buffered_rows for join in file.joins.values()] == [7, 7]


def test_a_file_knows_which_join_a_part_is_of(tmp_path):
    """No option of the file says so, and a copy still knows."""
    path = written(tmp_path, {"shop": SHOP, "plain": "SELECT s.* FROM shops s JOIN regions g ON s.region = g.region"})
    file = load(path)
    for known in (file, file.model_copy(update={"timezone": "Europe/Oslo"})):
        assert [known.part_of(name) for name in ("shop__1", "shop", "plain", "other")] == [
            "shop",
            "shop",
            "plain",
            "other",
        ]
        assert (known.parts("shop"), known.parts("shop__1"), known.parts("plain")) == (
            ("shop__1", "shop"),
            (),
            ("plain",),
        )
    assert "wholes" not in file.model_dump_json()
    path.write_text(path.read_text().replace("{", '{"_wholes": {"plain": "shop"}, ', 1))
    with pytest.raises(PipelineFileError, match=r"_wholes.*no such option"):
        load(path)


@cases(
    "select, expected",
    (None, ["shop__1", "shop__2", "shop", "reader"]),
    (["shop"], ["shop__1", "shop__2", "shop"]),
    (["shop__1"], ["shop__1"]),
    (["+shop__2"], ["shop__1", "shop__2"]),
    (["reader"], ["reader"]),
    (["+reader"], ["shop__1", "shop__2", "shop", "reader"]),
    (["reader", "shop"], ["shop__1", "shop__2", "shop", "reader"]),
)
def test_a_join_is_selected_with_its_parts(tmp_path, select, expected):
    """In the order in which they run; a part alone by its own name."""
    sql = f"SELECT o.id, d.region FROM orders o JOIN {DELIVERED} JOIN shops s ON d.shop = s.shop JOIN {RETURNED}"
    reader = "SELECT s.id FROM shop s JOIN regions g ON s.region = g.region"
    file = load(written(tmp_path, {"reader": reader, "shop": sql}))
    assert selected(file, select) == expected
    with pytest.raises(UnknownJoin):
        selected(file, ["shop__3"])


def test_explain_says_what_a_part_is(tmp_path):
    """And that its result is stored; how far watermarks of another join are that one says."""
    file = split(tmp_path, SHOP)
    told = {name: " ".join(explain(file, name).text().split()) for name in file.joins}
    assert "part 1 of 2 of shop, whose statement has several streams" in told["shop__1"]
    assert (
        "its result is stored for the next part: only joins with streams store intermediate results" in told["shop__1"]
    )
    assert "part 2 of 2 of shop" in told["shop"]
    assert "is stored for the next part" not in told["shop"]
    assert "shop__1 is an earlier part of it: its result is a stream" in told["shop"]
    assert "each epoch of shop__1 records its watermarks: shop__1.d__at, shop__1.o__at" in told["shop"]
    assert "SELECT shop__1.o__id AS id" in told["shop"]


def test_faults_of_parts_are_told_of_the_statement_that_was_written(tmp_path):
    """In its names, at its path, with its line, and each once."""
    sql = SHOP.replace("r.at BETWEEN o.at AND o.at", "r.at BETWEEN o.paid_at AND o.paid_at")
    (fault,) = faults(tmp_path, sql, max_buffered_rows=5)
    assert fault.startswith("joins.shop.sql: ON: the state would grow without end: nothing limits how far the times of")
    assert "`o.paid_at` has no watermark in the result of the join of o and d" in fault
    assert "shop__1" not in fault


def test_an_unknown_column_is_told_of_the_join_that_was_written(tmp_path):
    """Columns are known only when the join is bound."""
    file = split(tmp_path, SHOP.replace("o.id,", "o.idd,"))
    with pytest.raises(PipelineFileError) as caught:
        bind(statement_of(file, "shop__1"), COLUMNS)
    assert [(fault.path, fault.problem) for fault in caught.value.faults] == [
        ("joins.shop.sql", "orders has no column `idd`")
    ]


def test_each_part_at_fault_is_told_but_not_what_follows_from_it(tmp_path):
    """A statement with a bound in neither JOIN has one fault: without the first join nothing is known of the second."""
    sql = "SELECT o.id FROM orders o JOIN deliveries d ON d.id = o.id JOIN returns r ON r.id = o.id"
    (fault,) = faults(tmp_path, sql)
    assert "nothing limits how far the times of `o` and the times of `d` may lie apart" in fault


def test_faults_of_the_whole_statement_come_beside_those_of_its_parts(tmp_path):
    """What no join of several streams can have, and what one of its parts lacks."""
    sql = SHOP.replace("r.at BETWEEN o.at AND o.at + INTERVAL 30 DAYS", "r.at > o.at")
    found = faults(tmp_path, sql, semantics="kafka", max_versions=3, max_bytes=5, refresh="full")
    assert [fault.split(": ")[0] for fault in found] == [
        "joins.shop.sql",
        "joins.shop.sql",
        "joins.shop.max_versions",
        "joins.shop.max_bytes",
        "joins.shop.refresh",
    ]
    assert len(found) == len(set(found))


def test_a_file_that_was_not_loaded_is_not_split():
    """The statement is refused where it is used."""
    file = PipelineFile.model_validate(content(SOURCES, {"shop": SHOP}))
    (fault,) = complaints(lambda: statement_of(file, "shop"))
    assert "longer ones are split when a file is loaded" in fault
    assert file.split({}) is file
    assert list(file.split({"shop": {"x": Join(sql="x"), "shop": file.joins["shop"]}}).joins) == ["x", "shop"]


TABLES = {"shops": "shop", "regions": "region", "rates": "currency"}
HOWS = ["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]


class Drawn:
    """A statement of random streams and tables, with all that is expected of its parts."""

    def __init__(self, random: Random) -> None:
        streams = ["orders", "deliveries", "returns"]
        self.random = random
        self.names = [(random.choice(streams), "a")]
        self.joins: list[str] = []
        self.used: list[str] = []
        times = ["a.at"]
        for alias in string.ascii_lowercase[1 : random.randint(3, 7)]:
            name = random.choice([*streams, *TABLES])
            other = random.choice([known for _, known in self.names])
            if name in TABLES:
                on = f"{self.column(other, TABLES[name])} = {alias}.{TABLES[name]}"
                join = random.choice(HOWS[:2])
            else:
                time, join = random.choice(times), random.choice(HOWS)
                on = f"{alias}.at BETWEEN {self.spelled(time)} AND {self.spelled(time)} + INTERVAL 1 DAY"
                times = [time, f"{alias}.at"]
            self.names.append((name, alias))
            more = f" AND {self.expression()} > {self.expression()}" if random.random() < 0.5 else ""
            self.joins.append(f"{join} {name} AS {alias} ON {on}{more}")
        self.items = [f"{self.expression()} AS x{number}" for number in range(random.randint(1, 5))]
        self.where = f" WHERE {self.expression()} <> {self.expression()}" if random.random() < 0.5 else ""
        first, _ = self.names[0]
        self.sql = f"SELECT {', '.join(self.items)} FROM {first} a {' '.join(self.joins)}{self.where}"

    def spelled(self, column: str) -> str:
        return self.random.choice([column, column.upper(), column.title()])

    def column(self, alias: str, name: str) -> str:
        return self.spelled(f"{alias}.{name}")

    def expression(self) -> str:
        column = self.column(
            self.random.choice([alias for _, alias in self.names]), self.random.choice(["id", "amount"])
        )
        return self.random.choice(
            [column, f"upper({column})", f"{column}.part", f"({column} + 1)", f"coalesce({column}, 0)"]
        )

    @property
    def is_split(self) -> bool:
        kinds = ["s" if name not in TABLES else "t" for name, _ in self.names]
        return len(kinds) > 2 and "s" in kinds[1:]


@pytest.mark.parametrize("seed", range(150))
def test_random_statements_come_apart_and_mean_the_same(tmp_path, seed):
    """Each part is a join of its own, each reads the one before; put together again they are the statement."""
    drawn = Drawn(Random(seed))
    file = split(tmp_path, drawn.sql)
    names = list(file.joins)
    assert list(chains_of(file).order) == names == selected(file, ["shop"])
    assert (len(names) > 1) == drawn.is_split
    statements = [statement_of(file, name) for name in names]
    inputs = [side for statement in statements for side in statement.sides if side.source not in file.joins]
    assert [(side.source, side.alias) for side in inputs] == drawn.names
    for before, statement in zip(names, statements[1:], strict=False):
        assert statement.sides[0].source == before
    for statement in statements:
        is_pair = [side.kind for side in statement.sides] == ["stream", "stream"]
        assert is_pair or all(side.kind != "stream" for side in statement.sides[1:])
    assert all("stream-stream" in (one.kind, other.kind) for one, other in pairwise(statements))
    made = definitions(file)
    whole = parse_one(drawn.sql, read=Verbatim)

    def resolved(node: exp.Expr) -> str:
        return render(node).lower()

    last = made["shop"]
    assert [output.name for output in last.outputs] == [item.alias for item in whole.expressions]
    for output, item in zip(last.outputs, whole.expressions, strict=True):
        assert traced(output.expression, file, made).lower() == resolved(item.this)
    conditions = [step.on for name in names for step in made[name].steps]
    for on, join in zip(conditions, whole.args["joins"], strict=True):
        assert traced(on, file, made).lower() == resolved(join.args["on"])
    if where := whole.args.get("where"):
        assert traced(last.where or "", file, made).lower() == resolved(where.this)
    used = {(c.parts[0].name.lower(), c.parts[1].name.lower()) for c in whole.find_all(exp.Column)}
    kept = [name.lower() for part in names[:-1] for name in [o.name for o in made[part].outputs]]
    assert {tuple(name.split("__")) for name in kept} <= used


def test_splitting_is_the_same_each_time(tmp_path):
    """The parts are definitions that the ledger knows by their fingerprints."""
    drawn = Drawn(Random(3)).sql
    first, again = split(tmp_path, drawn), split(tmp_path, drawn)
    assert first == again
    assert [fingerprint(first, name) for name in first.joins] == [fingerprint(again, name) for name in again.joins]


@settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))
@given(
    words=st.lists(st.sampled_from(sorted(TOKENS)), max_size=8).map(" ".join),
    place=st.sampled_from(["SELECT o.id", "o.id = d.id", "LEFT JOIN returns", "r.at", "d.at", "orders"]),
)
@example(words='. "d"', place="SELECT o.id")
def test_any_words_in_a_statement_of_several_streams(tmp_path, words, place):
    """It is split or refused at its own path, and the parts of a file that was loaded can be read."""
    sql = SHOP.replace(place, f"{place} {words}", 1) if place in SHOP else f"{SHOP} WHERE {words}"
    found: list[Fault] = []
    file = None
    try:
        file = split(tmp_path, sql)
    except PipelineFileError as error:
        found = error.faults
    assert {fault.path for fault in found} <= {"joins.shop.sql"}
    assert not [fault for fault in found if "shop__" in fault.problem + fault.hint]
    if file is not None:
        assert [statement_of(file, name).name for name in file.joins] == list(file.joins)


def test_an_input_cannot_have_the_name_of_a_part(tmp_path):
    """The part would read itself: the statement is refused, and not left half done."""
    sql = """
        SELECT o.id FROM orders o JOIN deliveries d ON o.id = d.id AND o.at = d.at
        JOIN returns Shop__1 ON Shop__1.id = o.id AND Shop__1.at = o.at
    """
    (fault,) = faults(tmp_path, sql)
    assert fault.startswith("joins.shop.sql: FROM: `Shop__1` is the name of a part of this statement")
