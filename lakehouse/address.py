"""Where a Delta table lies."""

import re
from dataclasses import dataclass

from lakehouse.sqltext import quote


@dataclass(frozen=True)
class Address:
    """
    Where a Delta table lies, as the user gave it: a catalog-managed table refuses access by path.

    Args:
        label: What messages call the table: its name in the pipeline file.
        path: Folder or URI, for a table addressed by path.
        table: Name with catalog and schema as needed, quoted for SQL, for a table addressed by name.
    """

    label: str
    path: str = ""
    table: str = ""

    @staticmethod
    def by_name(label: str, name: str) -> "Address":
        """Address a table by its dotted name; parts may stand in backticks."""
        parts = re.findall(r"`((?:[^`]|``)+)`|([^.`]+)", name)
        return Address(label, table=quote(*((quoted.replace("``", "`") or bare) for quoted, bare in parts)))

    @property
    def sql(self) -> str:
        """The table in an SQL statement."""
        return self.table or f"delta.{quote(self.path)}"
