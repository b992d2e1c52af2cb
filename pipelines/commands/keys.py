"""Write the key columns that SELECT lists lack into the pipeline file, without Spark."""

import difflib
import shutil
import uuid
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from pipelines.language.file.document import read_text
from pipelines.language.file.edit import with_items
from pipelines.language.load import find_missing_keys

UTF8_SIGNATURE = b"\xef\xbb\xbf"


class AddedKeys(NamedTuple):
    """The changes of the file as a unified diff, empty without any, and the joins whose text could not be edited."""

    diff: str
    left: tuple[str, ...]


def add_keys(path: Path, variables: Mapping[str, str]) -> AddedKeys:
    """
    Add the missing key columns to the SELECT lists of a pipeline file; comments and layout stay.

    Raises:
        PipelineFileError: The file cannot be read, or is not YAML. A join with other faults is left as it is.
    """
    before = read_text(path)
    after, left = before, []
    for name, missing in find_missing_keys(path, before, variables).items():
        edited = with_items(path, after, name, missing.last, missing.items)
        if edited is None:
            left.append(name)
        after = after if edited is None else edited
    if after != before:
        mark = UTF8_SIGNATURE if path.read_bytes().startswith(UTF8_SIGNATURE) else b""
        _replace(path, mark + after.encode())
    lines = (before.splitlines(), after.splitlines(), path.name, path.name)
    return AddedKeys("\n".join(difflib.unified_diff(*lines, lineterm="", n=1)), tuple(left))


def _replace(path: Path, content: bytes) -> None:
    """Replace a file as a whole, also if the process is killed meanwhile; a link stays a link."""
    path = path.resolve()
    edited = path.with_name(f".{path.name}.{uuid.uuid4().hex[:8]}")
    try:
        edited.write_bytes(content)
        shutil.copymode(path, edited)
        edited.replace(path)
    finally:
        edited.unlink(missing_ok=True)
