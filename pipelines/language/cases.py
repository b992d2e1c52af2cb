"""
Files of cases, `*.test.yml`: the rows of sources, changes of them, and the rows that a join must make of them.

A value of YAML becomes a value of the type of its column. A file is checked without Spark, all faults at once.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import sqlglot
from pydantic import BaseModel, ConfigDict, Field, StrictStr, ValidationError
from pydantic_core import ErrorDetails
from sqlglot import exp

from lakehouse.errors.errors import Fault, PipelineFileError
from pipelines.language.file.document import Document, dotted, read_document
from pipelines.language.file.model import PipelineFile, Source
from pipelines.language.file.options import Text
from pipelines.language.join.chains import selected, sources_read
from pipelines.language.load import PLAINLY
from pipelines.language.names import nearest

ENDING = ".test.yml"

Operation = Literal["insert", "update", "delete"]
OPERATIONS: tuple[Operation, ...] = ("insert", "update", "delete")

Row = dict[StrictStr, Any]
Rows = dict[StrictStr, list[Row]]
"""Rows by the source that has them."""
Columns = dict[StrictStr, Text]
"""Columns with their types, as Spark SQL writes them."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Changes(_Part):
    """Changes of sources, each a commit of its own, that one epoch reads."""

    insert: Rows = {}
    update: Rows = {}
    delete: Rows = {}

    def of(self, operation: Operation) -> Rows:
        """Return the rows of one operation."""
        return {"insert": self.insert, "update": self.update, "delete": self.delete}[operation]


class ExpectedFeed(_Part):
    """The rows of a feed: those that an epoch inserts and deletes, and those that it updates as they are afterwards."""

    insert: list[Row] = []
    update: list[Row] = []
    delete: list[Row] = []

    def of(self, operation: Operation) -> list[Row]:
        """Return the rows of one operation."""
        return {"insert": self.insert, "update": self.update, "delete": self.delete}[operation]


class Case(_Part):
    """One case: rows of sources, changes of them, and what the join must make of them."""

    join: Text
    columns: dict[StrictStr, Columns] = {}
    rows: Rows = {}
    changes: list[Changes] = []
    expect: list[Row] | None = None
    expect_feed: ExpectedFeed | None = None


class CaseFile(_Part):
    """A file of cases; its `columns` are those of all cases."""

    columns: dict[StrictStr, Columns] = {}
    cases: Annotated[dict[StrictStr, Case], Field(min_length=1)]


@dataclass(frozen=True)
class NamedCase:
    """
    A case of a file.

    Args:
        line: The line of the file where it begins.
        tables: The columns with their types of each source that the join reads, directly or through other joins.
    """

    file: str
    name: str
    line: int
    case: Case
    tables: Mapping[str, Columns]


Known = Callable[[str], Mapping[str, str] | None]
"""Returns the columns of the table of a source with their types; None if it does not exist."""


def case_files(pipeline: Path) -> list[Path]:
    """List the files of cases of a pipeline file, in its folder: `lakejoin.test.yml`, `lakejoin.orders.test.yml`."""
    beside = sorted(pipeline.parent.glob(f"*{ENDING}"))
    return [path for path in beside if path.name.split(".")[0] == pipeline.stem]


def read_cases(paths: Sequence[Path], file: PipelineFile, known: Known) -> list[NamedCase]:
    """
    Read files of cases and check them against the pipeline file.

    Types of columns are those of `columns` of the case, else of its file, else of the table of the source.

    Raises:
        PipelineFileError: The files have faults, or none is named; it has all of them.
    """
    cases: list[NamedCase] = []
    faults: list[Fault] = []
    for path in paths:
        try:
            cases += _read(path, file, known)
        except PipelineFileError as error:
            faults += (replace(fault, path=_named(path, fault.path)) for fault in error.faults)
    if faults:
        raise PipelineFileError(f"cases of {file.pipeline}", faults)
    return cases


def _named(path: Path, part: str) -> str:
    return part if part == path.name else f"{path.name}: {part}"


def _read(path: Path, file: PipelineFile, known: Known) -> list[NamedCase]:
    document = read_document(path)
    faults = [*document.faults]
    try:
        content = CaseFile.model_validate(document.content)
    except ValidationError as error:
        faults += (_fault(detail, document) for detail in error.errors())
        raise _error(path, faults) from None
    cases = []
    for name, case in content.cases.items():
        checked = _Checked(document, file, ("cases", name), case, content.columns, known)
        faults += (fault for fault in checked.faults() if fault not in faults)  # `columns` are those of all cases
        cases.append(NamedCase(path.name, name, document.line(("cases", name)) or 1, case, checked.tables))
    if faults:
        raise _error(path, faults)
    return cases


def _error(path: Path, faults: Sequence[Fault]) -> PipelineFileError:
    return PipelineFileError(str(path), sorted(faults, key=lambda fault: fault.line or 0))


def _fault(detail: ErrorDetails, document: Document) -> Fault:
    where = tuple(str(part) for part in detail["loc"] if part != "[key]")
    problem, hint = PLAINLY.get(detail["type"], (detail["msg"], ""))
    if detail["type"] == "extra_forbidden":
        options = _options(where[:-1])
        problem, hint = "no such option", nearest(where[-1], options) or f"the options are {', '.join(options)}"
    elif detail["type"] == "model_type":
        problem = "must be a mapping of options"
    return Fault(dotted(where), problem, hint, document.line(where))


def _options(where: Sequence[str]) -> list[str]:
    """List the options of the part of a file at a path."""
    model: type[BaseModel] = CaseFile
    if len(where) > 1:
        model = Case
    if "changes" in where[2:]:
        model = Changes
    elif "expect_feed" in where[2:]:
        model = ExpectedFeed
    return [*model.model_fields]


class _Checked:
    """A case that is checked: the columns of its sources, and its faults."""

    def __init__(
        self,
        document: Document,
        file: PipelineFile,
        where: tuple[str, ...],
        case: Case,
        columns: Mapping[str, Columns],
        known: Known,
    ) -> None:
        self._document, self._file, self._where, self._case = document, file, where, case
        self._read = sources_read(file, selected(file, [f"+{case.join}"])) if case.join in file.joins else ()
        self._declared = {**columns, **case.columns}
        tables = {name: self._declared.get(name) or known(name) for name in self._read}
        self.tables = {name: dict(table) for name, table in tables.items() if table}

    def faults(self) -> Iterator[Fault]:
        """Yield the faults of the case."""
        case, joins = self._case, self._file.joins
        if case.join not in joins:
            hint = nearest(case.join, joins) or f"joins: {', '.join(joins)}"
            yield self._fault("the pipeline file has no such join", hint, "join")
            return
        if case.expect is None and case.expect_feed is None:
            yield self._fault("expects nothing", "write `expect:`, the rows of the result, or `expect_feed:`")
        for name in self._read:
            if name not in self.tables:
                hint = f"write `columns: {{{name}: {{...}}}}` with their types; its table does not exist"
                yield self._fault(f"the columns of {name} are unknown", hint)
        for source, columns in self.tables.items():
            yield from self._types(source, columns)
        yield from self._rows("insert", case.rows, "rows")
        for number, changes in enumerate(case.changes):
            for operation in OPERATIONS:
                yield from self._rows(operation, changes.of(operation), "changes", str(number), operation)

    def _fault(self, problem: str, hint: str, *where: str) -> Fault:
        path = (*self._where, *where)
        return Fault(dotted(path), problem, hint, self._document.line(path))

    def _types(self, source: str, columns: Columns) -> Iterator[Fault]:
        is_own = source in self._case.columns
        for column, data_type in columns.items():
            where = (*(self._where if is_own or source not in self._declared else ()), "columns", source, column)
            problem = hint = ""
            if kind_of_type(data_type) is None and source in self._declared:
                problem, hint = f"`{data_type}` is not a type of Spark SQL", "for example `decimal(10, 2)`"
            elif "char(" in data_type.lower().replace("varchar(", ""):
                problem = f"`{source}.{column}` is of type {data_type}, which cases do not support"
                hint = f"write `columns: {{{source}: {{{column}: string}}}}`, and pad the values"
            if problem:
                yield Fault(dotted(where), problem, hint, self._document.line(where))

    def _rows(self, operation: Operation, rows: Rows, *where: str) -> Iterator[Fault]:
        for source, listed in rows.items():
            if source not in self._read:
                hint = nearest(source, self._read) or f"its sources: {', '.join(self._read)}"
                yield self._fault(f"{self._case.join} reads no source of this name", hint, *where, source)
                continue
            options = self._file.sources[source]
            if operation != "insert" and _only_grows(options):
                yield self._fault(f"rows of a {options.kind} are only inserted", "write `insert:`", *where, source)
            for number, row in enumerate(listed):
                yield from self._row(operation, source, row, *where, source, str(number))

    def _row(self, operation: Operation, source: str, row: Row, *where: str) -> Iterator[Fault]:
        columns = {name.lower(): data_type for name, data_type in self.tables.get(source, {}).items()}
        if not columns:
            return
        for column, value in row.items():
            if column.lower() not in columns:
                hint = nearest(column, self.tables[source])
                yield self._fault(f"{source} has no column `{column}`", hint, *where, column)
            elif misfit := misfit_of(value, columns[column.lower()]):
                yield self._fault(*misfit, *where, column)
        lacking = [name for name in self._file.sources[source].key if name.lower() not in {*map(str.lower, row)}]
        if operation != "insert" and lacking:
            yield self._fault(f"the row lacks its key: {', '.join(lacking)}", "name the row to change by it", *where)


def _only_grows(source: Source) -> bool:
    is_log = source.kind in ("stream", "changelog")
    return is_log and not source.ignore_changes and not source.ignore_deletes


class Misfit(NamedTuple):
    """A value that its column cannot have."""

    problem: str
    hint: str


def kind_of_type(data_type: str) -> exp.DType | None:
    """Return the kind of a type of Spark SQL; None if it is no type."""
    try:
        built = exp.DataType.build(data_type, dialect="databricks")
    except sqlglot.errors.SqlglotError:
        return None
    return built.this if isinstance(built.this, exp.DType) else None


T = exp.DType
TEXTS, NESTED = {T.TEXT, T.VARCHAR, T.CHAR}, {T.ARRAY: list, T.MAP: dict, T.STRUCT: dict}
NUMBERS = {T.FLOAT, T.DOUBLE, T.DECIMAL}
TIMES = {T.TIMESTAMP, T.TIMESTAMPTZ, T.TIMESTAMPLTZ, T.TIMESTAMPNTZ, T.DATETIME}


def misfit_of(value: object, data_type: str) -> Misfit | None:
    """Return why a value of YAML is none of a type; None if it is one, as null always is."""
    kind = kind_of_type(data_type)
    if value is None or kind is None or _fits(value, kind):
        return None
    hint = "put it in quotes" if kind in TEXTS else ""
    return Misfit(f"`{value}` is not a value of type {data_type}", hint)


def _fits(value: object, kind: exp.DType) -> bool:
    if kind in TEXTS:
        return isinstance(value, str)
    if kind is T.BOOLEAN:
        return isinstance(value, bool)
    if kind in exp.DataType.SIGNED_INTEGER_TYPES:
        return isinstance(value, int) and not isinstance(value, bool)
    if kind in NUMBERS:
        return (isinstance(value, int | float) and not isinstance(value, bool)) or _reads(Decimal, value)
    if kind is T.DATE:
        return (isinstance(value, date) and not isinstance(value, datetime)) or _reads(date.fromisoformat, value)
    if kind in TIMES:
        return isinstance(value, date) or _reads(datetime.fromisoformat, value)
    if kind is T.BINARY:
        return _reads(bytes.fromhex, value)
    return isinstance(value, NESTED.get(kind, object))


def _reads(read: Callable[[str], object], value: object) -> bool:
    """Return whether a value is a string that a function can read."""
    try:
        return isinstance(value, str) and read(value) is not None
    except (ValueError, InvalidOperation):
        return False
