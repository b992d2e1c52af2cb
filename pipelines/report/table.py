"""Rows of text as a table for a terminal."""

from collections.abc import Sequence

from rich.cells import cell_len

from lakehouse.errors import printable

LONGEST = 80
"""A text of more characters is cut."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """
    Align texts in columns.

    Args:
        header: The name of each column.
        rows: For each row a text for each column; long ones are cut, and what a terminal would obey is written out.
        right: For each column whether it is aligned to the right.

    Returns:
        The header, a rule and the rows, a line each.
    """
    lines = [[_shown(text) for text in line] for line in (header, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    rule = ["─" * width for width in widths]
    return ["  ".join(map(_padded, line, widths, right)).rstrip() for line in (lines[0], rule, *lines[1:])]


def _shown(text: str) -> str:
    cut = text if len(text) <= LONGEST else f"{text[: LONGEST - 3]}..."
    return printable(cut)


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks
