"""The address of a Delta table."""

import re
from dataclasses import dataclass

from lakehouse.values.sqltext import quote


@dataclass(frozen=True)
class Address:
    """
    The address of a Delta table by path or by name, as the user specified it: a catalog-managed table refuses its path.

    Args:
        label: The table's name in messages, which is its name in the pipeline file.
        path: The folder or URI of a table addressed by path.
        table: The name of a table addressed by name, with catalog and schema as needed, quoted for SQL.
    """

    label: str
    path: str = ""
    table: str = ""

    @staticmethod
    def by_name(label: str, name: str) -> "Address":
        """Build an address from a dotted name; its parts may be quoted in backticks."""
        parts = re.findall(r"`((?:[^`]|``)+)`|([^.`]+)", name)
        return Address(label, table=quote(*((quoted.replace("``", "`") or bare) for quoted, bare in parts)))

    @property
    def sql(self) -> str:
        """The reference to the table in an SQL statement."""
        return self.table or f"delta.{quote(self.path)}"


def local_path(location: str) -> str | None:
    """Return the local path of a Spark location, which escapes no characters; None if the location is not local."""
    found = re.fullmatch(r"(?:file:(?://)?)?(/.*)", location, re.DOTALL)
    return found[1] if found else None


def relative_to(folder: str, path: str) -> str:
    """Return a path relative to a folder if it lies below the folder, else unchanged."""
    return path.removeprefix(f"{folder}/") if folder and path.startswith(f"{folder}/") else path


def absolute_from(folder: str, path: str) -> str:
    """Return the original path for a path that `relative_to` returned."""
    is_relative = path and not re.match(r"/|[A-Za-z][A-Za-z0-9+.-]+:/", path)
    return f"{folder}/{path}" if folder and is_relative else path
