"""Identifiers and strings as Spark SQL text."""


def quote(*parts: str) -> str:
    """Quote an identifier, or a path of them, for Spark SQL: `a`.`b`."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def text(value: str) -> str:
    """Write a string as a Spark SQL literal."""
    return "'" + value.replace("\\", "\\\\").replace("'", "\\'") + "'"
