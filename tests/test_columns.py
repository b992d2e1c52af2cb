"""Columns that keep their name but not their values: replaced, swapped, widened, changed inside a struct."""

import shutil
from typing import Any, cast

import pytest
from pyspark.sql.types import StructType

from lakehouse.errors.errors import SchemaBroken
from lakehouse.session.engine import Engine
from lakehouse.tables.identity import changed_columns, columns_in
from lakehouse.tables.table import Table
from lakehouse.values.compare import DECLARED
from lakehouse.values.recorded import SourceVersions
from lakehouse.values.sqltext import Address
from pipelines import Pipeline
from pipelines.binding.workspace import Workspace
from pipelines.commands.status import status_of
from tests.cases import cases
from tests.lake import KEYED, Lake, only, planned
from tests.recorded import Recorded

EVOLVING = {"columnMapping.mode": "name", "enableTypeWidening": "true"}
SQL = (
    "SELECT l.k, l.w, l.x, CAST(l.s AS STRING) AS text, to_json(l.s) AS json, CAST(r.amount AS STRING) AS amount "
    "FROM left l LEFT JOIN right r ON l.k = r.k"
)
BY_STREAM = {"left": {"key": "k", "kind": "stream"}, "right": "k"}
REPLACED = ("ALTER TABLE {left} DROP COLUMN w", "ALTER TABLE {left} ADD COLUMNS (w STRING)")
SWAPPED = (
    "ALTER TABLE {left} RENAME COLUMN w TO y",
    "ALTER TABLE {left} RENAME COLUMN x TO w",
    "ALTER TABLE {left} RENAME COLUMN y TO x",
)
WIDENED = ("ALTER TABLE {right} ALTER COLUMN amount TYPE DECIMAL(12,4)",)
FIELD_ADDED = ("ALTER TABLE {left} ADD COLUMNS (s.c INT)",)
FIELD_RENAMED = ("ALTER TABLE {left} RENAME COLUMN s.b TO z",)
CHANGES = {
    "replaced": (REPLACED, "left: `w` is not the same column as at version 1: DROP COLUMNS in version 2"),
    "swapped": (SWAPPED, "left: `w` is not the same column as at version 1: RENAME COLUMN in version 2; `x` is not"),
    "widened": (WIDENED, "right: `amount` was decimal(10,2) and is decimal(12,4)"),
    "field added": (FIELD_ADDED, "left: `s`.`c` was absent and is int"),
    "field renamed": (FIELD_RENAMED, "left: `s`.`b` was string and is absent; `s`.`z` was absent and is string"),
}
UPDATE = "UPDATE {left} SET x = 'new' WHERE k = 1"


def alter(lake: Lake, statements: tuple[str, ...]) -> None:
    for statement in statements:
        lake.sql(statement)


def plain(lake: Lake) -> list[tuple[Any, ...]]:
    statement = SQL.replace("left l", f"{lake.at('left')} l").replace("right r", f"{lake.at('right')} r")
    return sorted((tuple(row) for row in lake.spark.sql(statement).collect()), key=repr)


def opened(lake: Lake, pipeline: Pipeline) -> Workspace:
    return Workspace.open(lake.spark, pipeline.file, pipeline.folder)


def state(lake: Lake, pipeline: Pipeline, name: str = "result") -> tuple[str, str, str]:
    """Give the state of a join as `status` reports it, the warnings about its sources, and the note."""
    found = status_of(opened(lake, pipeline), name)
    return found.state, "; ".join(f"{s.name}: {s.warning}" for s in found.sources if s.warning), found.note


def right_afterwards(lake: Lake, pipeline: Pipeline) -> None:
    """See that the result is the join of the tables as they are, and that nothing is left to do."""
    assert lake.rows() == plain(lake)
    only(pipeline.verify(lake.spark))
    assert state(lake, pipeline) == ("current", "", "")
    assert only(pipeline.run(lake.spark)).outcome == "nothing"


def create_sources(lake: Lake) -> None:
    lake.create(
        "left",
        "k INT, w STRING, x STRING, unused INT, s STRUCT<a: INT, b: STRING>",
        "(1, 'w1', 'x1', 1, named_struct('a', 1, 'b', 'b1')), (2, 'w2', 'x2', 2, named_struct('a', 2, 'b', 'b2'))",
        **EVOLVING,
    )
    lake.create("right", "k INT, amount DECIMAL(10,2)", "(1, 1.50), (2, 2.50)", **EVOLVING)


def load_tables(lake: Lake) -> None:
    lake.pipeline(SQL, KEYED).run(lake.spark)


def load_stream(lake: Lake) -> None:
    lake.pipeline(SQL, BY_STREAM).run(lake.spark)


@pytest.fixture
def tables(recorded: Recorded) -> Lake:
    """Give a lake whose join of two tables is loaded; every column of both may be renamed, dropped and widened."""
    return recorded(create_sources, load_tables)


@pytest.fixture
def stream(recorded: Recorded) -> Lake:
    """Give the same lake with `left` as a stream, loaded too."""
    return recorded(create_sources, load_stream)


@pytest.mark.parametrize("change", CHANGES)
def test_a_changed_column_is_reconciled_under_auto_and_refused_under_incremental(tables: Lake, change: str) -> None:
    """No commit changed a row, and still every row of the result may be another one."""
    lake, (statements, words) = tables, CHANGES[change]
    alter(lake, statements)
    versions, source = lake.versions(), words.split(":")[0]
    pipeline = lake.pipeline(SQL, refresh="incremental")
    for command in (lambda: planned(lake, pipeline), lambda: pipeline.run(lake.spark)):
        with pytest.raises(SchemaBroken) as broken:
            command()
        assert (broken.value.exit_code, broken.value.where) == (4, "result")
        assert f"{source}: {broken.value.found}".startswith(words)
        assert "run `lakejoin backfill --select result`" in broken.value.hint
    condition, warning, note = state(lake, pipeline)
    assert (condition, warning.startswith(words)) == ("unreadable", True)
    assert "`lakejoin backfill --select result`" in note
    assert lake.versions() == versions

    pipeline = lake.pipeline(SQL)
    condition, warning, note = state(lake, pipeline)
    assert (condition, warning.startswith(words), note) == ("behind", True, "")
    plan, report = planned(lake, pipeline), only(pipeline.run(lake.spark))
    assert (plan.strategy, plan.reason) == (report.strategy, report.reason)
    assert (report.strategy, report.changed) == ("reconcile", 2)
    assert report.reason.startswith(f"columns-changed: {words}")
    right_afterwards(lake, pipeline)


@pytest.mark.slow
def test_the_backfill_that_the_refusal_names_leads_on(tables: Lake) -> None:
    lake, pipeline = tables, tables.pipeline(SQL, refresh="incremental")
    alter(lake, REPLACED)
    assert only(pipeline.backfill(lake.spark)).changed == 2
    right_afterwards(lake, pipeline)
    lake.sql(UPDATE)
    assert only(pipeline.run(lake.spark)).strategy == "incremental"
    right_afterwards(lake, pipeline)


@pytest.mark.slow
def test_a_column_changed_between_two_commits_with_data_is_reconciled(tables: Lake) -> None:
    lake, pipeline = tables, tables.pipeline(SQL)
    alter(lake, (UPDATE, *REPLACED, "UPDATE {left} SET w = 'back' WHERE k = 2"))
    assert planned(lake, pipeline).reason.startswith("columns-changed: left: `w` is not the same column")
    assert only(pipeline.run(lake.spark)).changed == 2
    right_afterwards(lake, pipeline)


@pytest.mark.parametrize("keeps", [pytest.param(True, id="changelog"), pytest.param(False, id="after the backfill")])
@pytest.mark.slow
def test_a_restore_brings_back_columns_too(tables: Lake, keeps: bool) -> None:
    """Columns of before the last epoch come back as others; those of the last epoch, dropped since, as themselves."""
    lake, pipeline = tables, tables.pipeline(SQL, changelog=keeps)
    if keeps:
        only(pipeline.backfill(lake.spark))
    first = lake.version("left")
    alter(lake, REPLACED)
    assert only(pipeline.run(lake.spark)).strategy == "reconcile"
    last = lake.version("left")
    alter(lake, ("ALTER TABLE {left} DROP COLUMN w", f"RESTORE TABLE {{left}} TO VERSION AS OF {last}"))
    assert only(pipeline.run(lake.spark)).strategy == "incremental"
    lake.sql(f"RESTORE TABLE {{left}} TO VERSION AS OF {first}")
    report = only(pipeline.run(lake.spark))
    assert (report.strategy, report.changed) == ("reconcile", 2)
    assert "`w` is not the same column as at version" in report.reason
    assert report.counts.get("changelog", 0) == (2 if keeps else 0)
    right_afterwards(lake, pipeline)


@pytest.mark.slow
def test_a_column_renamed_there_and_back_is_the_same_column(tables: Lake) -> None:
    lake, pipeline = tables, tables.pipeline(SQL)
    alter(lake, ("ALTER TABLE {left} RENAME COLUMN w TO y", "ALTER TABLE {left} RENAME COLUMN y TO w"))
    alter(lake, ("ALTER TABLE {left} RENAME COLUMN s.b TO z", "ALTER TABLE {left} RENAME COLUMN s.z TO b"))
    assert only(pipeline.run(lake.spark)).outcome == "nothing"
    lake.sql(UPDATE)
    report = only(pipeline.run(lake.spark))
    assert (report.strategy, report.changed) == ("incremental", 1)
    right_afterwards(lake, pipeline)


@pytest.mark.slow
def test_a_column_that_the_join_does_not_use_changes_freely(tables: Lake) -> None:
    lake, pipeline = tables, tables.pipeline(SQL, refresh="incremental")
    alter(lake, ("ALTER TABLE {left} DROP COLUMN unused", "ALTER TABLE {left} ADD COLUMNS (unused INT, more INT)"))
    alter(lake, ("ALTER TABLE {left} RENAME COLUMN more TO most", "ALTER TABLE {left} ALTER COLUMN most TYPE BIGINT"))
    assert only(pipeline.run(lake.spark)).outcome == "nothing"
    lake.sql(UPDATE)
    assert only(pipeline.run(lake.spark)).strategy == "incremental"
    right_afterwards(lake, pipeline)


@cases(
    "change",
    "DROP COLUMN unused",
    "RENAME COLUMN unused TO u",
    "ALTER COLUMN unused TYPE BIGINT",
    ids=["dropped", "renamed", "widened"],
)
@pytest.mark.slow
def test_a_feed_is_read_before_and_after_a_change_of_an_unused_column(tables: Lake, change: str) -> None:
    """Delta reads the feed on either side of such a change only."""
    lake = tables
    alter(lake, (UPDATE, f"ALTER TABLE {{left}} {change}", "UPDATE {left} SET x = 'newer' WHERE k = 2"))
    pipeline = lake.pipeline(SQL, refresh="incremental")
    assert planned(lake, pipeline).strategy == "incremental"
    report = only(pipeline.run(lake.spark))
    assert (report.strategy, report.changed) == ("incremental", 2)
    right_afterwards(lake, pipeline)


@pytest.mark.parametrize("change", ["replaced", "widened"])
@pytest.mark.slow
def test_a_join_with_a_stream_waits_for_a_person_and_begins_anew(stream: Lake, change: str) -> None:
    """A column of the stream, and one of the table that it meets."""
    lake, pipeline = stream, stream.pipeline(SQL, BY_STREAM)
    statements, words = CHANGES[change]
    alter(lake, statements)
    lake.sql("INSERT INTO {left} (k, w, x) VALUES (3, 'w3', 'x3')")
    versions = lake.versions()
    for command in (lambda: planned(lake, pipeline), lambda: pipeline.run(lake.spark)):
        with pytest.raises(SchemaBroken) as broken:
            command()
        assert (broken.value.exit_code, words.endswith(broken.value.found)) == (4, True)
        assert "`lakejoin backfill --reset --select result`" in broken.value.hint
    condition, warning, note = state(lake, pipeline)
    assert (condition, warning) == ("unreadable", words)
    assert "`lakejoin backfill --reset --select result`" in note
    assert lake.versions() == versions
    only(pipeline.backfill(lake.spark, remedy="reset"))
    assert sorted((row[:6] for row in lake.rows()), key=repr) == plain(lake)
    only(pipeline.verify(lake.spark))
    assert only(pipeline.run(lake.spark)).outcome == "nothing"


@pytest.mark.slow
def test_a_stream_whose_columns_were_renamed_there_and_back_runs_on(stream: Lake) -> None:
    lake, pipeline = stream, stream.pipeline(SQL, BY_STREAM)
    alter(lake, ("ALTER TABLE {left} RENAME COLUMN w TO y", "ALTER TABLE {left} RENAME COLUMN y TO w"))
    lake.sql("INSERT INTO {left} (k, w, x) VALUES (3, 'w3', 'x3')")
    assert only(pipeline.run(lake.spark)).counts["appended"] == 1


@pytest.mark.slow
def test_the_table_kept_of_a_changelog_source_is_reconciled(lake: Lake) -> None:
    """Its rows are upserts of before; nothing but the source as it is now tells what they would be."""
    lake.create("left", "k INT, w STRING, x STRING, seq INT", "(1, 'w1', 'x1', 1), (2, 'w2', 'x2', 2)", **EVOLVING)
    lake.create("right", "k INT, v STRING", "(1, 'v1')")
    sources = {"left": {"key": "k", "kind": "changelog", "order_by": "seq"}, "right": "k"}
    pipeline = lake.pipeline("SELECT l.k, l.w, r.v FROM left l LEFT JOIN right r ON l.k = r.k", sources)
    pipeline.run(lake.spark)
    alter(lake, SWAPPED)
    with pytest.raises(SchemaBroken) as broken:
        planned(lake, pipeline, "left")
    assert broken.value.found.startswith("`w` is not the same column as at version 1: RENAME COLUMN in version 2")
    assert "run `lakejoin backfill`" in broken.value.hint
    condition, _, note = state(lake, pipeline, "left")
    assert (condition, "run `lakejoin backfill`" in note) == ("unreadable", True)
    with pytest.raises(SchemaBroken):
        pipeline.run(lake.spark)
    pipeline.backfill(lake.spark)
    assert lake.rows() == [(1, "x1", "v1"), (2, "x2", None)]
    assert [report.outcome for report in pipeline.run(lake.spark)] == ["nothing", "nothing"]


@pytest.mark.slow
def test_a_ledger_that_recorded_no_columns_is_read_compared_with_nothing_and_appended_to(tables: Lake) -> None:
    """Of a column changed before the first epoch that recorded columns nothing tells; from then on all is compared."""
    lake, pipeline = tables, tables.pipeline(SQL)
    path = lake.path("lakejoin_ledger")
    sources = "transform(sources, s -> struct(s.name, s.id, s.from_version, s.to_version)) AS sources"
    rows = lake.spark.read.format("delta").load(path).selectExpr("* EXCEPT (sources)", sources).localCheckpoint()
    shutil.rmtree(path)
    rows.write.format("delta").save(path)
    alter(lake, WIDENED)
    assert state(lake, pipeline) == ("current", "", "")
    assert only(pipeline.run(lake.spark)).outcome == "nothing"
    assert only(pipeline.backfill(lake.spark)).changed == 2
    used = {source["name"]: source["columns"] for source in lake.ledger()[-1]["sources"]}
    assert [(tuple(column["path"]), column["type"]) for column in used["right"]] == [
        (("k",), "int"),
        (("amount",), "decimal(12,4)"),
    ]
    assert [".".join(column["path"]) for column in used["left"]] == ["k", "w", "x", "s", "s.a", "s.b"]
    alter(lake, FIELD_ADDED)
    assert only(pipeline.run(lake.spark)).strategy == "reconcile"
    right_afterwards(lake, pipeline)


@pytest.mark.usefixtures("spark")
def test_a_type_is_described_with_all_that_changes_values_and_no_more() -> None:
    """The length of a VARCHAR and the nullability of fields change no value; that of a CHAR does, and the order."""
    schema = StructType.fromDDL("a ARRAY<STRUCT<x: INT>>, m MAP<STRING, DECIMAL(5,1)>, S STRUCT<x: INT, y: DATE>")
    schema = schema.add("c", "string", True, {DECLARED: "char(4)"})
    schema = schema.add("v", "string", True, {DECLARED: "varchar(3)"})
    told = [(".".join(column.path), column.type) for column in columns_in(schema, ["c", "v", "s", "m", "a", "gone"])]
    assert told == [
        ("c", "char(4)"), ("v", "string"), ("S", "struct"), ("S.x", "int"), ("S.y", "date"),
        ("m", "map"), ("m.key", "string"), ("m.value", "decimal(5,1)"),
        ("a", "array"), ("a.element", "struct"), ("a.element.x", "int"),
    ]  # fmt: skip


@pytest.mark.usefixtures("spark")
@cases(
    "before, now, words",
    ("s STRUCT<x: INT, y: INT>", "s STRUCT<y: INT, x: INT>", "the fields of `s` are in another order"),
    ("a ARRAY<INT>", "a ARRAY<BIGINT>", "`a`.`element` was int and is bigint"),
    ("s STRUCT<x: INT>", "s STRING", "`s` was struct and is string"),
    ("s STRUCT<x: INT>", "t INT", "`s` was struct and is absent"),
    ("s STRUCT<t: STRUCT<x: INT>>", "s STRUCT<u: INT>", "`s`.`t` was struct and is absent; `s`.`u` was absent"),
    ("x INT, y INT", "Y INT, X INT", ""),
)
def test_the_outermost_difference_of_types_is_named(before: str, now: str, words: str) -> None:
    schema = StructType.fromDDL(before)
    recorded = SourceVersions("left", "id", 0, 1, columns=columns_in(schema, schema.fieldNames()))
    table = Table(Address("left", path="/lake/left"), "id", 2, StructType.fromDDL(now), {})
    found = changed_columns(cast("Engine", None), table, recorded, ())
    assert (found.startswith(words), bool(found)) == (True, bool(words))
