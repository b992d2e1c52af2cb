"""The answer to a query."""

import json
from typing import Any

from pipelines.report.facts import Facts
from pipelines.report.wording import table

NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


class ColumnReport(Facts):
    """One column of an answer."""

    name: str
    """The name of the column in the query."""
    type: str
    """Its type in Spark SQL."""

    @property
    def is_number(self) -> bool:
        """Whether the column holds numbers."""
        return self.type.split("(")[0] in NUMBERS


class QueryReport(Facts):
    """The first rows of the answer to a query."""

    columns: tuple[ColumnReport, ...]
    """The columns."""
    rows: tuple[tuple[Any, ...], ...]
    """The rows. Numbers, strings, lists and mappings keep their form, a variant is the JSON that it holds, a binary
    value is a string of hexadecimal digits. Any other value is Spark's conversion to a string."""
    more: bool
    """Whether the answer has further rows."""

    def text(self) -> str:
        """Render as text."""
        header = [column.name for column in self.columns]
        right = [column.is_number for column in self.columns]
        rows = [[_cell(value) for value in row] for row in self.rows]
        return "\n".join([*table(header, rows, right), self._count()])

    def _count(self) -> str:
        count = len(self.rows)
        if self.more:
            return f"first {count:,} row{'' if count == 1 else 's'}; --limit N for more"
        return f"{count:,} row{'' if count == 1 else 's'}"


def _cell(value: Any) -> str:
    if value is None:
        return "NULL"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
