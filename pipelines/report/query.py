"""The answer to a query."""

import json
from typing import Any

from pipelines.report.facts import Facts
from pipelines.report.table import table

NUMBERS = ("tinyint", "smallint", "int", "bigint", "float", "double", "decimal")


class ColumnReport(Facts):
    """One column of an answer."""

    name: str
    """What the query calls it."""
    type: str
    """Its type in Spark SQL."""

    @property
    def is_number(self) -> bool:
        """Tell whether it holds numbers."""
        return self.type.split("(")[0] in NUMBERS


class QueryReport(Facts):
    """The first rows of the answer to a query."""

    columns: tuple[ColumnReport, ...]
    """Its columns."""
    rows: tuple[tuple[Any, ...], ...]
    """Its rows: numbers, texts, lists and mappings as such, a variant as the JSON that it holds, binary values as
    hexadecimal digits; everything else as Spark writes it as a string."""
    more: bool
    """Whether there are further rows."""

    def text(self) -> str:
        """Render for a person."""
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
