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


def local_path(location: str) -> str | None:
    """Give the path that a location of Spark's, which escapes nothing, has on this machine; None where it has none."""
    found = re.fullmatch(r"(?:file:(?://)?)?(/.*)", location, re.DOTALL)
    return found[1] if found else None


def relative_to(folder: str, path: str) -> str:
    """Give a path relative to a folder where it lies below it, else as it is."""
    return path.removeprefix(f"{folder}/") if folder and path.startswith(f"{folder}/") else path


def absolute_from(folder: str, path: str) -> str:
    """Give the path that `relative_to` made relative to a folder."""
    is_relative = path and not re.match(r"/|[A-Za-z][A-Za-z0-9+.-]+:/", path)
    return f"{folder}/{path}" if folder and is_relative else path
