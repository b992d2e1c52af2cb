"""Identifiers, strings and structs as Spark SQL text."""

from collections.abc import Iterable, Mapping


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
    return struct({f"k{place}": part for place, part in enumerate(parts)})
