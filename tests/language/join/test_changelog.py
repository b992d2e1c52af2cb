"""Changelog sources: what the file must say of one, what its tombstone may be, and what defines its KTable."""

from pathlib import Path

from pipelines.commands.explain import explain
from pipelines.language import (
    PipelineFile,
    Source,
    bind_changelog,
    changelog_fingerprint,
    changelogs,
    fingerprint,
    load,
)
from pipelines.language.sql.syntax import read_expression
from tests.cases import cases
from tests.language.examples import complaints

SQL = "SELECT o.*, c.name FROM orders o LEFT JOIN customers c ON o.customer = c.id"
COLUMNS = ["Seq", "op", "order_id", "customer", "after", "tags"]


def source(**options) -> Source:
    return Source(**{"key": "order_id", "kind": "changelog", "order_by": "seq", "tombstone": "op = 'd'", **options})


def file(orders=None, **joins) -> PipelineFile:
    sources = {"customers": {"key": "id"}, "orders": orders or source(), "refunds": source()}
    joins = {name: {"sql": sql} for name, sql in (joins or {"j": SQL}).items()}
    return PipelineFile(pipeline="p", storage={"path": "lake"}, sources=sources, joins=joins)


def misfits(columns=COLUMNS, **options) -> list[str]:
    return complaints(lambda: bind_changelog("orders", source(**options), columns))


def test_a_join_takes_it_for_a_table_with_its_key():
    """Nothing in a statement says that it is one; `explain` does."""
    found = explain(file(), "j")
    assert (found.kind, found.key, found.sources[0].kind) == ("foreign-key", ("o.order_id",), "changelog")
    assert found.notes[0] == (
        "orders is read through its KTable, lake/orders__state: for each key the row with the greatest seq; "
        "a row that satisfies `op = 'd'` deletes its key"
    )


def test_the_ktables_of_joins_are_named_once_in_the_order_of_the_file():
    """However many joins read one."""
    made = file(a=SQL, b="SELECT r.*, o.customer FROM refunds r JOIN orders o USING (order_id)")
    assert changelogs(made, ["a", "b"]) == ["orders", "refunds"]
    assert changelogs(made, ["a"]) == ["orders"]
    assert changelogs(made, []) == []


@cases(
    "written, read",
    ("op = 'd'", "`op` = 'd'"),
    ("OP = 'd' -- said by the connector", "`op` = 'd'"),
    ("orders.op = 'd' OR customer IS NULL", "`op` = 'd' OR `customer` IS NULL"),
    ("After.deleted.at IS NOT NULL", "NOT `after`.`deleted`.`at` IS NULL"),
    ("exists(tags, tag -> tag = op)", "EXISTS(`tags`, `tag` -> `tag` = `op`)"),
    ("get_json_object(op, '$.x') = 'd'", "GET_JSON_OBJECT(`op`, '$.x') = 'd'"),
    (None, "false"),
)
def test_a_tombstone_is_an_expression_over_the_columns(written, read):
    """Names are resolved as Spark does, case aside; without one no row deletes."""
    bound = bind_changelog("orders", source(tombstone=written), COLUMNS)
    assert bound.tombstone == read
    assert (bound.key, bound.order) == (("order_id",), "Seq")
    assert bound.columns == ("order_id", "Seq", "op", "customer", "after", "tags"), "the key first"


@cases(
    "written, named",
    ("SELECT op", "near `SELECT`"),
    ("(SELECT max(op) FROM x) = 'd'", "subqueries"),
    ("op = 'd', true", "near `,`"),
    ("op = 'd'; op = 'x'", "2 expressions"),
    ("op = 'd'; DROP TABLE x", "near `DROP`"),
    ("op = 'd' FROM x", "near `FROM`"),
    ("op AS x", "near `AS`"),
    ("max(op) = 'd'", "`max` is an aggregate"),
    ("rand() > 0.5", "`rand` does not depend on the rows alone"),
    ("seen < current_date", "`current_date` does not depend on the rows alone"),
    ("lookup(op)", "`lookup` is not among the deterministic functions"),
    ("row_number() OVER (ORDER BY op) > 1", "window functions"),
    ("op = ${var.op}", "variables are not allowed in SQL"),
    ("op = 'd", "is a quote or a backtick left open?"),
    ("op =", "something is missing after `=`"),
    (" ", "0 expressions"),
)
def test_what_is_no_tombstone(written, named):
    """The vocabulary is that of statements, and one expression is all there is."""
    _, objections = read_expression(written)
    assert named in " ".join(f"{found.problem} {found.hint}" for found in objections)
    assert any(named in found for found in misfits(tombstone=written)), "a file that was not checked is refused too"


def test_every_column_that_is_not_there_is_named_at_once():
    """With the nearest one that is."""
    assert misfits(key=["order", "place"], order_by="sequence", tombstone="oper = 'd' AND after.x = 1") == [
        "orders has no column `order` | did you mean `order_id`?",
        "orders has no column `place` | ",
        "orders has no column `sequence` | ",
        "`oper`: orders has no column `oper` | did you mean `op`?",
    ]


def test_the_names_of_the_ktables_own_columns_are_taken():
    assert misfits([*COLUMNS, "_Deleted", "_order"]) == [
        "orders has a column `_Deleted`, a name that lakejoin needs itself | rename the column",
        "orders has a column `_order`, a name that lakejoin needs itself | rename the column",
    ]


def test_what_tells_which_rows_count_is_part_of_the_definitions():
    """Of the KTable and of each join over it; layout is not."""
    same = file(source(tombstone="op='d' /* a delete */"))
    for made in (lambda f: fingerprint(f, "j"), lambda f: changelog_fingerprint(f, "orders")):
        assert made(same) == made(file())
        others = [{"order_by": "at"}, {"tombstone": "op = 'x'"}, {"tombstone": None}, {"path": "elsewhere"}]
        assert len({made(file(source(**other))) for other in [{}, *others]}) == 5


def test_the_definitions_are_stable():
    assert (fingerprint(file(), "j"), changelog_fingerprint(file(), "orders")) == (
        "1c253c1512137152",
        "0dc08b9d822d7789",
    )


def test_the_example_is_a_file_without_faults():
    """With one KTable, which its join reads."""
    made = load(Path(__file__).parents[3] / "conf" / "orders.yml")
    assert changelogs(made, made.joins) == ["orders_raw"]
