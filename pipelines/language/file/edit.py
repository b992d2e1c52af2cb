"""Edit the text of the pipeline file: only the named place changes; comments and layout stay."""

import copy
import re
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from lakehouse.errors.errors import PipelineFileError
from pipelines.language.file.document import document_of

ESCAPED = {"'": {"'": "''"}, '"': {"\\": "\\\\", '"': '\\"'}}
"""How each style of quoted strings writes special characters."""


class _Place(NamedTuple):
    """The first and last character, exclusive, of an item of a SELECT list."""

    start: int
    end: int


def with_items(path: Path, text: str, join: str, last: tuple[int, int], items: Sequence[str]) -> str | None:
    """
    Return the text of a pipeline file with items at the end of a SELECT list; None if no edit has exactly this effect.

    Args:
        last: The first and last character, exclusive, of the last item of the list, in the statement.
    """
    document = document_of(path, text)
    where = ("joins", join, "sql")
    scalar = document.scalar(where)
    if scalar is None:
        return None
    start, end, style = scalar
    sql = document.content["joins"][join]["sql"]
    found = re.search(_pattern(sql[: last[1]], style), text[start:end])
    if found is None:
        return None
    in_sql, in_file = _Place(*last), _Place(start + found.end() - (last[1] - last[0]), start + found.end())
    of_its_own = style == "|" and _has_line(sql, in_sql) and _has_line(text, in_file)
    edited = _inserted(text, in_file, items, of_its_own)
    expected = copy.deepcopy(document.content)
    expected["joins"][join]["sql"] = _inserted(sql, in_sql, items, of_its_own)
    try:
        return edited if document_of(path, edited).content == expected else None
    except PipelineFileError:
        return None


def _pattern(sql: str, style: str | None) -> str:
    """Return a pattern for the start of a statement, whose lines YAML may have folded."""
    escapes = str.maketrans(ESCAPED.get(style or "", {}))
    return r"\s+".join(re.escape(word.translate(escapes)) for word in sql.split())


def _has_line(text: str, item: _Place) -> bool:
    """Return whether an item stands on a line of its own, perhaps before a comment."""
    before = text[text.rfind("\n", 0, item.start) + 1 : item.start]
    after = text[item.end :].split("\n", 1)[0].strip()
    return not before.strip() and "\n" not in text[item.start : item.end] and (not after or after.startswith("--"))


def _inserted(text: str, last: _Place, items: Sequence[str], on_lines: bool) -> str:
    """Insert items after the last one: behind it, or each on a line of its own with the same indentation."""
    if not on_lines:
        return "".join((text[: last.end], *(f", {item}" for item in items), text[last.end :]))
    indentation = text[text.rfind("\n", 0, last.start) + 1 : last.start]
    line_end = text.find("\n", last.end)
    line_end = len(text) if line_end < 0 else line_end
    line_end -= text[:line_end].endswith("\r")
    newline = "\r\n" if text.startswith("\r\n", line_end) else "\n"
    lines = f",{newline}{indentation}".join(items)
    return f"{text[: last.end]},{text[last.end : line_end]}{newline}{indentation}{lines}{text[line_end:]}"
