"""Run cases: each join on a lake of its own, through load, epochs and gates, and compare what it must hold."""

import json
import logging
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from lakehouse.errors.conditions import as_known
from lakehouse.errors.errors import LakejoinError
from lakehouse.session.session import INTERPRETED, NOT_ADAPTIVE
from lakehouse.tables.creation import column_mapping
from lakehouse.tables.table import CHANGE_FEED, find, get, read
from lakehouse.values.compare import char_type, type_sql
from lakehouse.values.sqltext import quote, text
from pipelines.binding.workspace import Workspace
from pipelines.commands.changes import changes_frame, is_internal, key_of
from pipelines.commands.plain_values import plain_value, plain_values
from pipelines.commands.published import RequestedRange
from pipelines.commands.run import run_joins
from pipelines.commands.side_by_side import number_of_threads, side_by_side
from pipelines.language import Storage
from pipelines.language.cases import OPERATIONS, Changes, NamedCase, Operation, Row
from pipelines.language.names import nearest
from pipelines.report import CaseReport, CasesReport, Difference
from pipelines.report.facts import cell

QUICK = {
    "spark.buffer.pageSize": "1m",
    **INTERPRETED,
    **NOT_ADAPTIVE,
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
}
"""Settings of a Spark that runs nothing but cases: their tables have few rows, and compiling plans costs more."""

MOST_ROWS = 1_000
"""Rows of a result, or of a feed, that are compared. Cases are written by hand; by judgement."""

log = logging.getLogger(__name__)


class BadCase(LakejoinError):
    """A case names a column that the result does not have, changes a row that does not exist, or has too many rows."""

    code = "BAD_CASE"


def columns_of_source(workspace: Workspace, name: str) -> dict[str, str] | None:
    """Return the columns of the table of a source with their types; None if it does not exist."""
    table = find(workspace.engine, workspace.source(name))
    if table is None:
        return None
    return {field.name: char_type(field) or type_sql(field.dataType) for field in table.schema}


def run_cases(workspace: Workspace, cases: Sequence[NamedCase], scratch: Path) -> CasesReport:
    """
    Run cases side by side, each on a lake below the folder `scratch`, and report on all; the lake of the workspace is
    neither read nor written.
    """
    began = time.monotonic()
    numbered = {str(number): case for number, case in enumerate(cases)}

    storage, nowhere = Storage(path="."), {"table": None, "path": None}
    sources = {name: source.model_copy(update=nowhere) for name, source in workspace.file.sources.items()}
    file = workspace.file.model_copy(update={"storage": storage, "sources": sources})

    def run(number: str) -> CaseReport:
        with workspace.engine.another(file.timezone) as engine:
            return _ScratchLake(Workspace(engine, file, scratch / number), numbered[number]).report()

    threads = number_of_threads(workspace, None, numbered)
    reports = side_by_side([*numbered], threads, run, interrupt=workspace.engine.interrupt_others)
    return CasesReport(cases=tuple(reports), seconds=time.monotonic() - began)


class _ScratchLake:
    """A lake that holds the sources of one case, and the results of its joins."""

    def __init__(self, workspace: Workspace, named: NamedCase) -> None:
        self._workspace, self._named, self._case = workspace, named, named.case

    def report(self) -> CaseReport:
        """Run the case, and compare."""
        began, error, differences = time.monotonic(), None, tuple[Difference, ...]()
        try:
            differences = tuple(self._differences())
        except Exception as raised:  # whatever it is, the other cases follow
            log.debug("case %s", self._named.name, exc_info=True)
            error = as_known(raised, self._case.join)
        return CaseReport(
            file=self._named.file,
            line=self._named.line,
            name=self._named.name,
            join=self._case.join,
            verdict="error" if error else "failed" if differences else "passed",
            seconds=time.monotonic() - began,
            differences=differences,
            error=error,
        )

    def _differences(self) -> Iterator[Difference]:
        for source in self._named.tables:
            self._create(source)
        before, newest = -1, self._run()
        for changes in self._case.changes:
            for operation in OPERATIONS:
                self._change(operation, changes)
            before, newest = newest, self._run()
        join, spark = self._case.join, self._workspace.spark
        result = get(self._workspace.engine, self._workspace.table(join))
        columns = StructType([field for field in result.schema if not is_internal(field.name)])
        compared = Compared(join, columns, key_of(self._workspace, join, result.schema))
        if self._case.expect is not None:
            rows = read(spark, result.address, newest)
            yield from compared.differences("result", rows, self._case.expect, self._case.expect)
        if self._case.expect_feed is not None:
            is_new = "TRUE" if before < newest else "FALSE"
            requested = RequestedRange("versions", min(before + 1, newest), newest)
            feed = changes_frame(self._workspace, join, requested).where(is_new)
            feed = feed.selectExpr("change", "coalesce(new, old) AS row")
            naming = [row for operation in OPERATIONS for row in self._case.expect_feed.of(operation)]
            for operation in OPERATIONS:
                rows = feed.where(f"change = '{operation}'").select("row.*")
                expected = self._case.expect_feed.of(operation)
                yield from compared.differences(operation, rows, expected, naming)

    def _run(self) -> int:
        """Run the join and those that it reads, and return the version of its result."""
        reports = run_joins(self._workspace, [f"+{self._case.join}"], threads=1)
        error = next((report.error for report in reports if report.error is not None), None)
        if error is not None:
            raise error
        return get(self._workspace.engine, self._workspace.table(self._case.join)).version

    def _create(self, source: str) -> None:
        """Create the table of a source with its rows: in one commit, unless Delta takes none for such columns."""
        columns, rows = self._named.tables[source], self._case.rows.get(source, [])
        mapping, address = column_mapping(columns), self._workspace.source(source)
        properties = {CHANGE_FEED: "true", **mapping}
        listed = ", ".join(f"{text(name)} = {text(value)}" for name, value in properties.items())
        create, spark = f"USING delta TBLPROPERTIES ({listed})", self._workspace.spark
        if rows and not mapping:
            spark.sql(f"CREATE TABLE {address.sql} {create} AS {select_rows(rows, columns)}").collect()
            return
        typed = ", ".join(f"{quote(name)} {data_type}" for name, data_type in columns.items())
        spark.sql(f"CREATE TABLE {address.sql} ({typed}) {create}").collect()
        if rows:
            spark.sql(f"INSERT INTO {address.sql} {select_rows(rows, columns)}").collect()

    def _change(self, operation: Operation, changes: Changes) -> None:
        """Write the changes of one operation to the sources, those of each in a commit; each update has its own."""
        for source, rows in changes.of(operation).items():
            columns, table = self._named.tables[source], self._workspace.source(source).sql
            key = [name.lower() for name in self._workspace.file.sources[source].key]
            if operation == "insert" and rows:
                self._write(f"INSERT INTO {table} {select_rows(rows, columns)}", len(rows), source)
            elif operation == "update":
                for row in rows:
                    keyed, others = _assignments(row, columns, key)
                    self._write(f"UPDATE {table} SET {', '.join(others)} WHERE {' AND '.join(keyed)}", 1, source)
            elif rows:
                of_rows = (" AND ".join(_assignments(row, columns, key)[0]) for row in rows)
                self._write(f"DELETE FROM {table} WHERE {' OR '.join(of_rows)}", len(rows), source)

    def _write(self, statement: str, rows: int, source: str) -> None:
        written = self._workspace.spark.sql(statement).collect()
        if written and "num_affected_rows" in written[0] and written[0]["num_affected_rows"] != rows:
            raise BadCase(
                self._case.join,
                f"a change of {source} names a row by its key",
                expected=f"{rows} of them in the table",
                found=str(written[0]["num_affected_rows"]),
                hint="correct the key, or insert the row first",
            )


def _assignments(row: Row, columns: Mapping[str, str], key: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return conditions on the key of a row, and assignments of its other columns, as SQL."""
    values = {name.lower(): value for name, value in row.items()}
    literals = {
        name: literal(values[name.lower()], data_type) for name, data_type in columns.items() if name.lower() in values
    }
    keyed = [f"{quote(name)} <=> {value}" for name, value in literals.items() if name.lower() in key]
    return keyed, [f"{quote(name)} = {value}" for name, value in literals.items() if name.lower() not in key]


def select_rows(rows: Sequence[Row], columns: Mapping[str, str]) -> str:
    """Return a query for rows; a column that a row lacks is null in it."""
    if not rows:
        nulls = (f"CAST(NULL AS {data_type}) AS {quote(name)}" for name, data_type in columns.items())
        return f"SELECT {', '.join(nulls)} WHERE FALSE"
    lines = []
    for row in rows:
        values = {name.lower(): value for name, value in row.items()}
        cells = (literal(values.get(name.lower()), data_type) for name, data_type in columns.items())
        lines.append(f"({', '.join(cells)})")
    return f"SELECT * FROM VALUES {', '.join(lines)} AS rows({', '.join(map(quote, columns))})"


def literal(value: object, data_type: str) -> str:
    """Write a value of YAML as SQL of a type."""
    if value is None:
        return f"CAST(NULL AS {data_type})"
    if isinstance(value, list | dict):
        options = "map('mode', 'FAILFAST')"
        return f"from_json({text(json.dumps(value, default=str))}, {text(data_type)}, {options})"
    if data_type.lower() == "binary":
        return f"unhex({text(str(value).replace(' ', ''))})"
    written = str(value).lower() if isinstance(value, bool) else str(value)
    return f"CAST({text(written)} AS {data_type})"


@dataclass(frozen=True)
class Compared:
    """The rows that a join must make, compared by the columns that a case names; by all if it names no row."""

    join: str
    columns: StructType
    key: tuple[str, ...]

    def differences(
        self, what: str, rows: DataFrame, expected: Sequence[Row], naming: Sequence[Row]
    ) -> Iterator[Difference]:
        """Compare rows as a bag, by the columns that the rows `naming` have; those of one key column by column."""
        types = self._compared_columns(naming)
        names = [*types]
        wanted = Counter(_collected(rows.sparkSession.sql(select_rows(expected, types))))
        found = Counter(_collected(rows.selectExpr(*map(quote, names)).limit(MOST_ROWS + 1)))
        if found.total() > MOST_ROWS:
            raise BadCase(self.join, f"it makes more than {MOST_ROWS:,} rows", hint="give it fewer rows of its sources")
        missing, surplus = wanted - found, found - wanted
        key = [names.index(name) for name in self.key] if {*self.key} <= {*names} else []
        is_paired = bool(key) or missing.total() == surplus.total() == 1
        others = {tuple(row[at] for at in key): row for row in surplus} if is_paired else {}
        for row in sorted(missing.elements()):
            other = others.pop(tuple(row[at] for at in key), None)
            if other is None:
                yield Difference(what=what, row=_shown(names, row), expected="present", found="absent")
                continue
            surplus[other] -= 1
            for name, wants, has in zip(names, row, other, strict=True):
                if wants != has:
                    of = _shown(names, row, key)
                    yield Difference(what=what, row=of, column=name, expected=_as_text(wants), found=_as_text(has))
        for row in sorted((+surplus).elements()):
            yield Difference(what=what, row=_shown(names, row), expected="absent", found="present")

    def _compared_columns(self, expected: Sequence[Row]) -> dict[str, str]:
        named = {name.lower(): name for row in expected for name in row}
        own = {field.name.lower(): field for field in self.columns}
        if unknown := [name for lower, name in named.items() if lower not in own]:
            hint = nearest(unknown[0], self.columns.fieldNames())
            problem = f"a case expects the column `{unknown[0]}`, which the result does not have"
            raise BadCase(self.join, problem, expected=f"columns: {', '.join(self.columns.fieldNames())}", hint=hint)
        chosen = [field for lower, field in own.items() if lower in named or not named]
        return {field.name: type_sql(field.dataType) for field in chosen}


def _collected(rows: DataFrame) -> Iterator[tuple[str, ...]]:
    """Return rows as the JSON of their values, in which null is not the string NULL."""
    return (tuple(json.dumps(plain_value(value)) for value in row) for row in plain_values(rows).collect())


def _shown(names: Sequence[str], row: Sequence[str], of: Sequence[int] = ()) -> str:
    return "  ".join(f"{names[at]}={_as_text(row[at])}" for at in (of or range(len(names))))


def _as_text(value: str) -> str:
    return cell(json.loads(value))
