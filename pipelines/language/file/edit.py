"""Edit the text of the pipeline file: only the named place changes; comments and layout stay."""

import copy
import re
from collections.abc import Sequence
from pathlib import Path

from lakehouse.errors.errors import PipelineFileError
from pipelines.language.file.document import document_of
from pipelines.language.sql.dialect import render
from pipelines.language.sql.objection import Span
from pipelines.language.sql.syntax import read

ESCAPED = {"'": {"'": "''"}, '"': {"\\": "\\\\", '"': '\\"'}}
"""How each style of quoted strings writes special characters."""


def with_items(path: Path, text: str, join: str, last: Span, items: Sequence[str]) -> str | None:
    """
    Return the text of a pipeline file with items at the end of a SELECT list; None if no edit has exactly this effect.

    Args:
        last: Where the last item of the list stands in the statement.
    """
    document = document_of(path, text)
    where = ("joins", join, "sql")
    scalar = document.scalar(where)
    if scalar is None:
        return None
    start, end, style = scalar
    sql = document.content["joins"][join]["sql"]
    found = re.search(_pattern(sql[: last.end], style), text[start:end])
    if found is None:
        return None
    in_file = Span(start + found.end() - (last.end - last.start), start + found.end())
    of_its_own = style == "|" and _has_line(sql, last) and _has_line(text, in_file)
    edited, edited_sql = (_inserted(where, at, items, of_its_own) for where, at in ((text, in_file), (sql, last)))
    if not _adds_items(sql, edited_sql, len(items)):
        return None
    expected = copy.deepcopy(document.content)
    expected["joins"][join]["sql"] = edited_sql
    try:
        return edited if document_of(path, edited).content == expected else None
    except PipelineFileError:
        return None


def _adds_items(before: str, after: str, number: int) -> bool:
    """Return whether an edit adds so many items to the end of the SELECT list of a statement, and nothing else."""
    old, new = (read(sql)[0] for sql in (before, after))
    if old is None or new is None or len(new.expressions) != len(old.expressions) + number:
        return False
    without = new.copy()
    without.set("expressions", without.expressions[:-number])
    return render(without) == render(old)


def _pattern(sql: str, style: str | None) -> str:
    """Return a pattern for the start of a statement, whose lines YAML may have folded."""
    escapes = str.maketrans(ESCAPED.get(style or "", {}))
    return r"\s+".join(re.escape(word.translate(escapes)) for word in sql.split())


def _has_line(text: str, item: Span) -> bool:
    """Return whether an item stands on a line of its own, perhaps before a comment."""
    before = text[text.rfind("\n", 0, item.start) + 1 : item.start]
    after = text[item.end :].split("\n", 1)[0].strip()
    return not before.strip() and "\n" not in text[item.start : item.end] and (not after or after.startswith("--"))


def _inserted(text: str, last: Span, items: Sequence[str], on_lines: bool) -> str:
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
