"""The pipeline file: found, read, and refused with all its faults at once."""

from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from lakehouse.errors import Fault, PipelineFileError
from pipelines.spec.model import Join, Name, PipelineFile, Source, Storage
from pipelines.spec.names import nearest
from pipelines.spec.sql import examine

FILE_NAME = "lakejoin.yml"
SOURCES = TypeAdapter(dict[Name, Source])


class StrictLoader(yaml.SafeLoader):
    """YAML without what makes a file mean something else than it seems to: a key written twice, an alias."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.faults: list[Fault] = []

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases; a handful of them can stand for gigabytes."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "an alias (`*name`); write it out", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Note the keys that one mapping has twice."""
        written: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in written:
                    line = key.start_mark.line + 1
                    self.faults.append(Fault(f"line {line}", f"`{key.value}` is written twice in one mapping"))
                written.add(key.value)
        return super().construct_mapping(node, deep=deep)


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


def load(path: Path) -> PipelineFile:
    """
    Read and check a pipeline file.

    Args:
        path: The file.

    Returns:
        The file's content; every statement in it is a join of a kind that is supported.

    Raises:
        PipelineFileError: With all faults of the file.
    """
    raw, faults = _read(path)
    if not isinstance(raw, dict):
        raise PipelineFileError(str(path), faults)
    file = None
    try:
        file = PipelineFile.model_validate(raw)
    except ValidationError as error:
        faults += [_fault(detail) for detail in error.errors()]
    faults += _statements(raw)
    if faults or file is None:
        raise PipelineFileError(str(path), faults)
    return file


def _read(path: Path) -> tuple[object, list[Fault]]:
    try:
        loader = StrictLoader(path.read_bytes().decode("utf-8-sig"))
        raw = loader.get_single_data()
    except OSError as error:
        return None, [Fault(path.name, f"cannot be read: {error.strerror or type(error).__name__}")]
    except UnicodeDecodeError as error:
        return None, [Fault(path.name, f"is not UTF-8 at byte {error.start}")]
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f"line {mark.line + 1}" if mark else path.name
        return None, [Fault(where, f"not YAML: {error.problem or error.context}")]
    except RecursionError:
        return None, [Fault(path.name, "is nested too deep")]
    except Exception as error:  # what PyYAML raises for a value that its tag does not fit is anything
        return None, [Fault(path.name, f"not YAML: {' '.join(str(error).split())[:200]}")]
    if raw is None:
        return None, [Fault(path.name, "is empty", "`lakejoin init` writes one to begin with")]
    if not isinstance(raw, dict):
        return None, [Fault(path.name, f"holds a {type(raw).__name__}", "it begins with `pipeline: <name>`")]
    return raw, loader.faults


def _statements(raw: dict[Any, Any]) -> list[Fault]:
    """Check every statement that is one; where the sources are at fault, without looking names up in them."""
    sources: dict[str, Source] | None
    try:
        sources = SOURCES.validate_python(raw.get("sources"))
    except ValidationError:
        sources = None
    joins = raw.get("joins")
    if not isinstance(joins, dict):
        return []
    names = [name for name in joins if isinstance(name, str)]
    faults = []
    for name in names:
        sql = joins[name].get("sql") if isinstance(joins[name], dict) else None
        if isinstance(sql, str):
            faults += examine(name, sql, sources, names)[1]
    return faults


def _fault(detail: ErrorDetails) -> Fault:
    """Say in our words what pydantic found."""
    where = [str(part) for part in detail["loc"] if part != "[key]"]
    path = ".".join(where) or "file"
    if detail["type"] == "extra_forbidden":
        parts: dict[str, type[BaseModel]] = {"storage": Storage, "sources": Source, "joins": Join}
        model = parts.get(where[0], PipelineFile) if len(where) > 1 else PipelineFile
        options = [field.alias or name for name, field in model.model_fields.items()]
        return Fault(path, "no such option", nearest(where[-1], options) or f"there are {', '.join(options)}")
    if detail["type"] == "missing":
        return Fault(path, "is missing")
    if detail["type"] in ("model_type", "dict_type"):
        return Fault(path, "must be a mapping of options")
    if detail["type"] == "string_type":
        return Fault(path, "must be a text", "put it in quotes")
    return Fault(path, detail["msg"].removeprefix("Value error, ").removeprefix("Input should be "))
