"""The pipeline file: found, read, and refused with all its faults at once."""

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

from lakehouse.errors import Fault, PipelineFileError
from pipelines.spec.document import Document, read_document
from pipelines.spec.model import Join, PipelineFile, Source, Storage
from pipelines.spec.names import nearest
from pipelines.spec.objection import faults_of
from pipelines.spec.sql import examine, sql_path
from pipelines.spec.variables import Substitution

FILE_NAME = "lakejoin.yml"

PLAINLY = {
    "missing": ("is missing", ""),
    "model_type": ("must be a mapping of options", ""),
    "dict_type": ("must be a mapping", ""),
    "list_type": ("must be a list", ""),
    "string_type": ("must be a text", "put it in quotes"),
    "string_too_short": ("must not be empty", ""),
    "too_short": ("must not be empty", "name at least one"),
    "bool_type": ("must be true or false", ""),
}
"""What pydantic finds, in the words of the file: problem and hint."""


def find(start: Path) -> Path:
    """
    Find the pipeline file of a folder.

    Args:
        start: The folder to begin at.

    Returns:
        `lakejoin.yml` of that folder or of the nearest one above it.

    Raises:
        PipelineFileError: If there is none.
    """
    folder = start.absolute()
    for candidate in (folder, *folder.parents):
        if (candidate / FILE_NAME).is_file():
            return candidate / FILE_NAME
    fault = Fault(FILE_NAME, "not in this folder, nor in one above it", "name it, or make one with `lakejoin init`")
    raise PipelineFileError(FILE_NAME, [fault])


def load(path: Path, variables: Mapping[str, str] | None = None) -> PipelineFile:
    """
    Read and check a pipeline file.

    Args:
        path: The file.
        variables: The values of `${var.name}` in it; all of them are used.

    Returns:
        The file's content; every statement in it is a join of a kind that is supported.

    Raises:
        PipelineFileError: With all faults of the file, in the order of its lines.
    """
    document = read_document(path)
    substitution = Substitution(variables or {}, document.line)
    content = substitution.apply(document.content)
    file = None
    found = list(substitution.faults)
    open_values = {fault.path for fault in found}
    try:
        file = PipelineFile.model_validate(content)
    except ValidationError as error:
        more = [_fault(detail, document) for detail in error.errors()]
        meant = {fault.path.rpartition(".")[0] + fault.hint for fault in more}
        found += [fault for fault in more if fault.path not in open_values and not _is_misspelled(fault, meant)]
    faults = [*document.faults, *found, *_statements(content, document)]
    if faults or file is None:
        raise PipelineFileError(str(path), sorted(faults, key=lambda fault: fault.line or 0))
    return file


def _statements(content: dict[Any, Any], document: Document) -> list[Fault]:
    """Check every statement that is one; of a source that is at fault itself only the name is known."""
    written, joins = content.get("sources"), content.get("joins")
    if not isinstance(joins, dict):
        return []
    sources = {str(name): _source(value) for name, value in written.items()} if isinstance(written, dict) else None
    names = [name for name in joins if isinstance(name, str)]
    faults = []
    for name in names:
        sql = joins[name].get("sql") if isinstance(joins[name], dict) else None
        if isinstance(sql, str):
            _, objections = examine(name, sql, sources, names)
            line_of = partial(document.line_of_row, ("joins", name, "sql"))
            faults += faults_of(objections, sql_path(name), sql, line_of)
    return faults


def _is_misspelled(fault: Fault, meant: Collection[str]) -> bool:
    """Tell whether an option is missing only because its name is misspelled, which is a fault of its own."""
    folder, _, name = fault.path.rpartition(".")
    return fault.problem == PLAINLY["missing"][0] and f"{folder}did you mean `{name}`?" in meant


def _source(value: object) -> Source | None:
    """Read a source without the options that there are not, or give it up."""
    known = (
        {name: option for name, option in value.items() if name in Source.model_fields}
        if isinstance(value, dict)
        else value
    )
    try:
        return Source.model_validate(known)
    except ValidationError:
        return None


def _fault(detail: ErrorDetails, document: Document) -> Fault:
    """Say in our words what pydantic found."""
    where = [str(part) for part in detail["loc"] if part != "[key]"]
    problem, hint = _words(detail, where)
    return Fault(".".join(where) or "file", problem, hint, document.line(where))


def _words(detail: ErrorDetails, where: Sequence[str]) -> tuple[str, str]:
    if detail["type"] == "extra_forbidden":
        options = _options(where)
        return "no such option", nearest(where[-1], options) or f"there are {', '.join(options)}"
    if detail["type"] == "literal_error":
        choices = [choice.strip("'") for choice in detail["ctx"]["expected"].replace(" or ", ", ").split(", ")]
        return f"must be one of {', '.join(choices)}", nearest(str(detail["input"]), choices)
    if detail["type"] == "refused":
        return detail["ctx"]["problem"], detail["ctx"]["hint"]
    if detail["type"] in PLAINLY:
        return PLAINLY[detail["type"]]
    return detail["msg"].removeprefix("Value error, ").removeprefix("Input should be "), ""


def _options(where: Sequence[str]) -> list[str]:
    """List the options of the part of the file that an unknown one stands in."""
    parts: dict[str, type[BaseModel]] = {"storage": Storage, "sources": Source, "joins": Join}
    model = parts.get(where[0], PipelineFile) if len(where) > 1 else PipelineFile
    return [field.alias or name for name, field in model.model_fields.items()]
