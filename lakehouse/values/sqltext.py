"""Identifiers, strings, structs and the addresses of tables as Spark SQL text."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


def quote(*parts: str) -> str:
    """Quote an identifier, or a path of identifiers, for Spark SQL: `a`.`b`."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def text(value: str) -> str:
    """Write a string as a Spark SQL literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"


def struct(fields: Mapping[str, str]) -> str:
    """Write a struct of named expressions."""
    return f"named_struct({', '.join(f'{text(name)}, {sql}' for name, sql in fields.items())})"


def row_struct(columns: Iterable[str], prefix: str = "") -> str:
    """Write a struct of columns; the prefix is the struct that contains them, with the dot: "r."."""
    return struct({name: f"{prefix}{quote(name)}" for name in columns})


def numbered(parts: Iterable[str]) -> str:
    """Write the struct of the parts of a key: struct<k0, k1, …>."""
    return struct({f"k{number}": part for number, part in enumerate(parts)})


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
