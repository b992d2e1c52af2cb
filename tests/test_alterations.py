"""
Every property and feature that ALTER TABLE can set, on every table that takes part, with an epoch open and without.
After each alteration a run ends in the right result, or says what to do by an error with a name; what it says is done,
word for word, and then a run ends in the right result.
"""

import re
from collections.abc import Callable, Iterator

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from lakehouse.errors.errors import LakejoinError
from lakehouse.ledger.ledger import NAME as LEDGER
from pipelines import Pipeline
from tests.cases import cases
from tests.exact import held, plain
from tests.killing import killed
from tests.lake import JOIN, Lake

PROPERTIES = {
    "appendOnly": "true",
    "autoOptimize.autoCompact": "true",
    "autoOptimize.optimizeWrite": "true",
    "checkpointInterval": "2",
    "checkpoint.writeStatsAsJson": "false",
    "checkpoint.writeStatsAsStruct": "true",
    "checkpointPolicy": "v2",
    "columnMapping.mode": "name",
    "dataSkippingNumIndexedCols": "0",
    "dataSkippingStatsColumns": "",
    "deletedFileRetentionDuration": "interval 0 hours",
    "enableChangeDataFeed": "false",
    "enableDeletionVectors": "false",
    "enableExpiredLogCleanup": "true",
    "enableInCommitTimestamps": "true",
    "enableRowTracking": "true",
    "enableTypeWidening": "true",
    "enableIcebergCompatV2": "true",
    "universalFormat.enabledFormats": "hudi",
    "isolationLevel": "Serializable",
    "logRetentionDuration": "interval 0 hours",
    "minReaderVersion": "3",
    "minWriterVersion": "7",
    "parquet.format.version": "2.12.0",
    "parquet.compression.codec": "zstd",
    "randomizeFilePrefixes": "true",
    "setTransactionRetentionDuration": "interval 0 hours",
    "targetFileSize": "1b",
    "tuneFileSizesForRewrites": "true",
    **{
        f"feature.{name}": "supported"
        for name in (
            "allowColumnDefaults",
            "appendOnly",
            "changeDataFeed",
            "checkConstraints",
            "checkpointProtection",
            "clustering",
            "columnMapping",
            "deletionVectors",
            "domainMetadata",
            "generatedColumns",
            "icebergWriterCompatV1",
            "identityColumns",
            "inCommitTimestamp",
            "invariants",
            "rowTracking",
            "timestampNtz",
            "typeWidening",
            "v2Checkpoint",
            "vacuumProtocolCheck",
            "variantType",
        )
    },
}
"""Delta's table properties, each with a value that differs from what lakejoin's tables have."""

STATEMENTS = (
    "ALTER TABLE {t} ADD CONSTRAINT kept CHECK (true)",
    "ALTER TABLE {t} DROP CONSTRAINT kept",
    "ALTER TABLE {t} ADD CONSTRAINT violated CHECK ({k} <= {n})",
    "ALTER TABLE {t} ALTER COLUMN {c} SET DEFAULT NULL",
    "ALTER TABLE {t} ALTER COLUMN {c} COMMENT 'noted'",
    "ALTER TABLE {t} ALTER COLUMN {c} SET NOT NULL",
    "ALTER TABLE {t} CLUSTER BY NONE",
    "ALTER TABLE {t} CLUSTER BY ({c})",
    "ALTER TABLE {t} SET TBLPROPERTIES ('note' = 'x')",
    "ALTER TABLE {t} UNSET TBLPROPERTIES ('note')",
    "COMMENT ON TABLE {t} IS 'noted'",
    "REORG TABLE {t} APPLY (PURGE)",
    "OPTIMIZE {t}",
    "VACUUM {t}",
)

ALTERATIONS = [
    *(f"ALTER TABLE {{t}} SET TBLPROPERTIES ('delta.{name}' = '{value}')" for name, value in PROPERTIES.items()),
    *STATEMENTS,
]

TELLING = [
    text
    for text in ALTERATIONS
    if re.search("appendOnly' = 't|autoCompact|DataFeed' = 'f|InCommit|setTransaction|violated", text)
    or re.search("ColumnDefaults|SET DEFAULT|NOT NULL", text)
]
"""Those that lakejoin has to do something about."""

TOGETHER = 10
"""So many of the others are made at once: none of them is to make a difference."""

STEPS = 4
"""So many messages may lead from an alteration to the right result."""


class Altered:
    written = ""
    """The last write of an epoch."""

    def __init__(self, lake: Lake) -> None:
        self.lake, self.number = lake, 100
        self.prepare()
        self.pipeline().run(lake.spark)

    def prepare(self) -> None:
        raise NotImplementedError

    def pipeline(self) -> Pipeline:
        raise NotImplementedError

    def change(self) -> None:
        raise NotImplementedError

    def check(self) -> None:
        raise NotImplementedError

    def open_epoch(self) -> None:
        """Change the sources, and leave an epoch open that takes the change."""
        self.change()
        with killed(self.written):
            self.pipeline().run(self.lake.spark)

    def alter(self, statement: str, table: str) -> bool:
        columns = self.lake.spark.sql(f"SELECT * FROM {self.lake.at(table)}").columns
        column, key = "v" if "v" in columns else columns[-1], "k" if "k" in columns else "epoch"
        names = {"t": self.lake.at(table), "c": column, "k": key, "n": self.number}
        try:
            self.lake.spark.sql(statement.format_map(names)).collect()
        except (PySparkException, Py4JJavaError):
            return False
        return True

    def settle(self) -> None:
        """Run, and do what each message says, until a run goes through."""
        commands: list[Callable[[], object]] = []
        for _ in range(STEPS):
            try:
                (commands.pop() if commands else self._run)()
            except LakejoinError as error:
                commands = self._advised(error)
            else:
                if not commands:
                    return
        raise AssertionError(f"{STEPS} messages led to no result")

    def _run(self) -> None:
        self.pipeline().run(self.lake.spark)

    def _advised(self, error: LakejoinError) -> list[Callable[[], object]]:
        """Do what a message says to do to tables; give the command that it names, to be carried out next."""
        assert error.hint, error.message
        for statement in re.findall(r"ALTER TABLE \S.*?(?=, then|, or|; |$)", error.hint):
            self.lake.spark.sql(statement).collect()
        named = re.search(r"`lakejoin (run|backfill)( --reset)?( --accept)?", error.hint)
        if named is None:
            assert "ALTER TABLE" in error.hint, error.message
            return []
        if named[1] == "run":
            return []
        remedy = "reset" if named[2] else "accept" if named[3] else ""
        return [lambda: self.pipeline().backfill(self.lake.spark, remedy=remedy)]


class OfTables(Altered):
    """A join of a changelog source with a table, that keeps a changelog."""

    tables = ("left", "right", "result", "result__changelog", "left__state", LEDGER)
    written = "merge into result"

    def prepare(self) -> None:
        self.lake.create("left", "k INT, v STRING, n INT", "(1, 'a', 1), (2, 'b', 1)")
        self.lake.create("right", "k INT, w STRING", "(2, 'x'), (3, 'y')")

    def pipeline(self) -> Pipeline:
        left = {"key": "k", "kind": "changelog", "order_by": "n"}
        return self.lake.pipeline(sources={"left": left, "right": "k"}, changelog=True)

    def change(self) -> None:
        self.number += 1
        self.lake.sql(f"INSERT INTO {{left}} VALUES (1, 'v{self.number}', {self.number}), ({self.number}, 'n', 1)")

    def check(self) -> None:
        latest = "(SELECT k, max_by(v, n) AS v FROM left GROUP BY k)"
        assert held(self.lake) == plain(self.lake, JOIN.replace("FROM left", f"FROM {latest}"))


class OfStreams(Altered):
    tables = ("left", "result", "result__state")
    written = "load result"
    sql = "SELECT l.k, l.v, r.w FROM left l JOIN right r ON l.k = r.k"

    def prepare(self) -> None:
        self.lake.create("left", "k INT, v STRING", "(1, 'a'), (2, 'b')")
        self.lake.create("right", "k INT, w STRING", "(2, 'x'), (3, 'y')")

    def pipeline(self) -> Pipeline:
        streams = {name: {"key": "k", "kind": "stream", "watermarks": {"k": 1_000}} for name in ("left", "right")}
        return self.lake.pipeline(self.sql, streams)

    def change(self) -> None:
        self.number += 1
        self.lake.sql(f"INSERT INTO {{left}} VALUES ({self.number}, 'v{self.number}')")
        self.lake.sql(f"INSERT INTO {{right}} VALUES ({self.number}, 'w')")

    def check(self) -> None:
        own = ("_epoch", "_position", "_left_row", "_right_row")
        assert held(self.lake, without=own) == plain(self.lake, self.sql)


KINDS: tuple[type[Altered], ...] = (OfTables, OfStreams)


def groups(alterations: list[str]) -> Iterator[tuple[str, ...]]:
    """Put those together that are to make no difference; the others stay alone."""
    yield from ((text,) for text in alterations if text in TELLING)
    others = [text for text in alterations if text not in TELLING]
    yield from (tuple(others[start : start + TOGETHER]) for start in range(0, len(others), TOGETHER))


def altered(kind: type[Altered], lake: Lake, table: str, alterations: list[str], *, is_open: bool) -> Iterator[str]:
    """Alter a table in one way after the other, each time with a change of the sources; give what Delta did."""
    pipeline = kind(lake)
    for group in groups(alterations):
        (pipeline.open_epoch if is_open else pipeline.change)()
        yield from [text for text in group if pipeline.alter(text, table)]
        pipeline.settle()
        pipeline.change()
        pipeline.settle()
        pipeline.check()


@pytest.mark.slow
@cases(
    "is_open, alterations",
    (True, [text for text in TELLING if "DataFeed" in text or "violated" in text]),
    *((is_open, TELLING) for is_open in (True, False)),
    ids=["two", "open", "closed"],
)
def test_what_is_set_of_a_result_ends_in_the_right_result(lake: Lake, is_open: bool, alterations: list[str]) -> None:
    done = list(altered(OfTables, lake, "result", alterations, is_open=is_open))
    assert len(done) >= len(alterations) - 1


@pytest.mark.slow
@pytest.mark.parametrize("is_open", [False, True])
@pytest.mark.parametrize(("kind", "table"), [(kind, table) for kind in KINDS for table in kind.tables])  # type: ignore[attr-defined]
def test_whatever_is_set_of_a_table_ends_in_the_right_result(spark, tmp_path, kind, table, is_open):
    # A constraint of a source is violated by whoever writes to it, and lakejoin does not.
    alterations = [text for text in ALTERATIONS if "violated" not in text or table not in ("left", "right")]
    done = list(altered(kind, Lake(spark, tmp_path), table, alterations, is_open=is_open))
    assert len(done) > len(ALTERATIONS) / 2
