"""Tables of text for a terminal."""

from collections.abc import Sequence

from rich.cells import cell_len

from lakehouse.errors.errors import printable

LONGEST, LONGEST_LAST = 80, 1000
"""The numbers of characters beyond which a text is truncated: in any column, and in the last, which nothing follows."""


def table(header: Sequence[str], rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """
    Format rows of text as a table with aligned columns: one line each for the header, the rule below it, and each row.

    Long texts are truncated, and control characters are escaped. `right` says which columns are aligned to the right.
    """
    longest = [LONGEST] * (len(header) - 1) + [LONGEST_LAST]
    lines = [[*map(_shown, line, longest)] for line in (header, *rows)]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    rule = ["─" * min(width, LONGEST) for width in widths]
    return ["  ".join(map(_padded, line, widths, right)).rstrip() for line in (lines[0], rule, *lines[1:])]


def _shown(text: str, longest: int) -> str:
    cut = text if len(text) <= longest else f"{text[: longest - 3]}..."
    return printable(cut)


def _padded(text: str, width: int, right: bool) -> str:
    blanks = " " * (width - cell_len(text))
    return blanks + text if right else text + blanks
