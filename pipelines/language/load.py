"""Find, read and check the pipeline file, and report all its errors at once."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args

import sqlglot
from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails
from sqlglot import exp

from expectations.catalogue import argument_faults, names
from lakehouse.errors.errors import Fault, PipelineFileError
from pipelines.language.file.document import (
    NO_TEXT,
    Document,
    Substitution,
    document_of,
    dotted,
    mapping,
    read_document,
)
from pipelines.language.file.model import Join, PipelineFile, Source, Storage
from pipelines.language.file.options import MISFIT, SourceKind, clashes, source_misfits, storage_misfit
from pipelines.language.join.sources import OPTIONS as CONDITIONS
from pipelines.language.join.sources import condition_faults
from pipelines.language.join.statements import MissingKeys, check_statements, missing_key_columns
from pipelines.language.names import nearest
from pipelines.language.sql.dialect import Verbatim
from pipelines.language.sql.vocabulary import AGGREGATES, ALLOWED, GENERATORS, UNSTABLE, WINDOWS, words

FILE_NAME = "lakejoin.yml"

PLAINLY = {
    "missing": ("is missing", ""),
    "dict_type": ("must be a mapping", ""),
    "list_type": ("must be a list", ""),
    "string_type": ("must be a string", "put it in quotes"),
    "string_unicode": ("contains an invalid Unicode character", ""),
    "string_too_short": ("must not be empty", ""),
    "too_short": ("must not be empty", "name at least one"),
    "bool_type": ("must be true or false", ""),
    "int_type": ("must be a whole number", ""),
    "greater_than_equal": ("must be at least 1", ""),
}
"""Pydantic error types, each with the problem and the hint that users read."""

PARTS: dict[str, type[BaseModel]] = {"storage": Storage, "sources": Source, "joins": Join}
OPTIONS = {"storage": "{path: ./lake}", "sources": "{key: ...}", "joins": "{sql: ...}"}
"""Examples of mappings of options, by part of the file."""

TYPES = ("model_type", "dict_type", "list_type")
"""Pydantic error types of a value with the wrong form."""


def find(start: Path) -> Path:
    """Find `lakejoin.yml` in a folder or its nearest parent that has one; raise `PipelineFileError` if none has."""
    folder = start.absolute()
    for candidate in (folder, *folder.parents):
        if (candidate / FILE_NAME).is_file():
            return candidate / FILE_NAME
    fault = Fault(FILE_NAME, "not found in this folder or above", "name the file, or create one with `lakejoin init`")
    raise PipelineFileError(FILE_NAME, [fault])


def load(path: Path, variables: Mapping[str, str] | None = None) -> PipelineFile:
    """
    Read and check a pipeline file; a statement of several streams is split into joins of the supported kinds.

    The variables are the values of `${var.name}`; an unused one is an error. `PipelineFileError` has all errors in the
    file, in the order of its lines.
    """
    document = read_document(path)
    substitution = Substitution(variables or {}, document.line)
    content = substitution.apply(document.content)
    file = None
    faults = [*document.faults, *substitution.faults]
    try:
        file = PipelineFile.model_validate(content)
    except ValidationError as error:
        known = [detail for detail in error.errors() if detail["type"] != MISFIT]
        faults += _single_option_faults(known, document, substitution.open)
    wrong, parts = check_statements(_sources(content), mapping(content.get("joins")), document)
    faults += [*_cross_option_faults(content, document), *wrong, *_conditions(content, document, substitution.open)]
    faults += _expectations(content, document, substitution.open)
    if faults or file is None:
        raise PipelineFileError(str(path), sorted(faults, key=lambda fault: fault.line or 0))
    return file.split(parts)


def find_missing_keys(path: Path, text: str, variables: Mapping[str, str]) -> dict[str, MissingKeys]:
    """Find the key columns that the joins of a pipeline file, with this text, lack in their SELECT lists."""
    document = document_of(path, text)
    content = Substitution(variables, document.line).apply(document.content)
    return missing_key_columns(_sources(content) or {}, mapping(content.get("joins")))


def _single_option_faults(
    details: Sequence[ErrorDetails], document: Document, unresolved: Collection[tuple[str, ...]]
) -> Iterator[Fault]:
    """Yield the errors of single options, without those that follow from a misspelled name or a missing value."""
    faults = [_fault(detail, document) for detail in details]
    meant = {fault.path.rpartition(".")[0] + fault.hint for fault in faults}
    not_strings = {fault.path for fault in document.faults if fault.problem == NO_TEXT}
    for detail, fault in zip(details, faults, strict=True):
        where = _where(detail)
        is_unresolved = detail["type"] not in TYPES and any(path[: len(where)] == where for path in unresolved)
        is_bad_name = detail["type"] == "extra_forbidden" and fault.path in not_strings
        if not is_unresolved and not is_bad_name and not _is_misspelled(fault, meant):
            yield fault


def _cross_option_faults(content: Mapping[str, Any], document: Document) -> Iterator[Fault]:
    """Yield options that exclude each other, and names that clash; skip parts with unknown options."""

    def fault(problem: str, hint: str, *where: str) -> Fault:
        return Fault(dotted(where), problem, hint, document.line(where))

    storage, sources, joins = (mapping(content.get(part)) for part in ("storage", "sources", "joins"))
    if isinstance(content.get("storage"), dict) and not _unknown_options(storage, Storage):
        misfit = storage_misfit(storage)
        yield from [fault(*misfit, "storage")] if misfit else []
    for name, source in sources.items():
        for misfit in source_misfits(mapping(source), _kind(mapping(source))):
            yield fault(*misfit, "sources", name)
    for clash in clashes(sources, joins):
        yield fault(clash.problem, "", clash.part, clash.name)


def _unknown_options(options: Collection[str], part: type[BaseModel]) -> list[str]:
    return [name for name in options if name not in _names(part)]


def _kind(source: Mapping[str, Any]) -> str | None:
    """Return the kind of a source; None if it is invalid, or if an unknown option may be a misspelled `kind`."""
    kind = source.get("kind", "table")
    return kind if kind in get_args(SourceKind) and not _unknown_options(source, Source) else None


def _conditions(
    content: Mapping[str, Any], document: Document, unresolved: Collection[tuple[str, ...]]
) -> Iterator[Fault]:
    for name, source in mapping(content.get("sources")).items():
        for option in CONDITIONS:
            sql, where = mapping(source).get(option), ("sources", name, option)
            if isinstance(sql, str) and sql and where not in unresolved:
                yield from condition_faults(name, option, sql, partial(document.line_of_row, where))


def _expectations(
    content: Mapping[str, Any], document: Document, unresolved: Collection[tuple[str, ...]]
) -> Iterator[Fault]:
    for name, join in mapping(content.get("joins")).items():
        items = mapping(join).get("expectations")
        for index, item in enumerate(items if isinstance(items, list) else ()):
            for path, problem, hint in _expectation_misfits(item):
                where = ("joins", name, "expectations", str(index), *path)
                if where not in unresolved:
                    yield Fault(dotted(where), problem, hint, document.line(where))


def _is_misspelled(fault: Fault, meant: Collection[str]) -> bool:
    """Return whether an option is missing only because its name is misspelled, which is reported separately."""
    folder, _, name = fault.path.rpartition(".")
    return fault.problem == PLAINLY["missing"][0] and f"{folder}did you mean `{name}`?" in meant


def _sources(content: Mapping[str, Any]) -> dict[str, Source | None] | None:
    """Read the sources, each None if it is invalid; return None if `sources` is not a mapping."""
    written = content.get("sources")
    return {name: _source(value) for name, value in written.items()} if isinstance(written, dict) else None


def _source(value: object) -> Source | None:
    """Read a source without its unknown options; return None if it is invalid."""
    options, unknown = mapping(value), _unknown_options(mapping(value), Source)
    try:
        return Source.model_validate({name: option for name, option in options.items() if name not in unknown})
    except ValidationError:
        return None


def _where(detail: ErrorDetails) -> tuple[str, ...]:
    return tuple(str(part) for part in detail["loc"] if part != "[key]")


def _fault(detail: ErrorDetails, document: Document) -> Fault:
    where = _where(detail)
    problem, hint = _problem_and_hint(detail, where)
    return Fault(dotted(where), problem, hint, document.line(where))


def _problem_and_hint(detail: ErrorDetails, where: Sequence[str]) -> tuple[str, str]:
    if detail["type"] == "extra_forbidden":
        options = _names(PARTS.get(where[0], PipelineFile) if len(where) > 1 else PipelineFile)
        return "no such option", nearest(where[-1], options) or f"the options are {', '.join(options)}"
    if detail["type"] == "literal_error":
        choices = [choice.strip("'") for choice in detail["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return f"must be one of {', '.join(choices)}", nearest(str(detail["input"]), choices)
    if detail["type"] == "hinted":
        return detail["ctx"]["problem"], detail["ctx"]["hint"]
    if detail["type"] == "model_type":
        return "must be a mapping of options", f"for example `{OPTIONS[where[0]]}`"
    if detail["type"] in PLAINLY:
        return PLAINLY[detail["type"]]
    return detail["msg"].removeprefix("Value error, ").removeprefix("Input should be "), ""


def _names(part: type[BaseModel]) -> list[str]:
    return [field.alias or name for name, field in part.model_fields.items()]


KNOWN = (ALLOWED | AGGREGATES | GENERATORS | UNSTABLE | WINDOWS) - words("input_file_name")
"""The allowed functions, which depend on rows only. Other functions can read files or run Java code."""

OWN_PARSERS = ("great_expectations", "great_expectations__experimental__")
"""With these parsers, a condition is not SQL: `col("seats") > 0`."""


def _expectation_misfits(item: object) -> Iterator[tuple[tuple[str, ...], str, str]]:
    """Find errors in an expectation: the keys that lead to it, the problem and a hint."""
    if not isinstance(item, dict) or not all(isinstance(arguments, dict) for arguments in item.values()):
        return  # the model of the file reports a wrong form
    if len(item) != 1:
        yield (), "must be one expectation", "begin each with a dash: `- expect_...: {...}`"
    for name, arguments in item.items():
        if name not in names():
            hint = nearest(name, names()) or "greatexpectations.io/expectations lists them"
            yield (name,), "no such expectation for a table", hint
            continue
        for argument, problem, known in argument_faults(name, arguments):
            hint = nearest(argument, known) or (f"arguments: {', '.join(known)}" if known else "")
            yield (name, argument), problem, hint
        for argument, problem in _faults_of_sql(arguments):
            yield (name, argument), problem, ""


def _faults_of_sql(arguments: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the name of each SQL argument of an expectation that has an error, and the problem."""
    query, condition = arguments.get("unexpected_rows_query"), arguments.get("row_condition")
    if isinstance(query, str):
        yield from (("unexpected_rows_query", problem) for problem in _problems(query.replace("{batch}", "batch")))
    if isinstance(condition, str) and arguments.get("condition_parser") not in OWN_PARSERS:
        yield from (("row_condition", problem) for problem in _problems(f"SELECT * FROM batch WHERE {condition}"))


def _problems(sql: str) -> Iterator[str]:
    try:
        statements = sqlglot.parse(sql, read=Verbatim)
    except Exception:  # the text is arbitrary, and sqlglot may raise any error
        yield "is not a Spark SQL query"
        return
    if len(statements) != 1 or not isinstance(statements[0], exp.Query):
        yield "must be one query that only reads"
        return
    called = {function.name.lower() for function in statements[0].find_all(exp.Anonymous)}
    yield from (f"`{name}` is not a function that an expectation may call" for name in sorted(called - KNOWN))
