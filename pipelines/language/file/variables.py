"""
Variables in a pipeline file: `${var.name}`, set by `--var name=value`, and `${env.NAME}`.

Variables are allowed in values only: not in names, and never in SQL, because the SQL text is the definition of a join.
Substituted text is never parsed as YAML again, so a value cannot become an option. `$${` stands for the two characters
`${`.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lakehouse.errors.errors import Fault
from pipelines.language.file.yaml_document import dotted
from pipelines.language.names import nearest

REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
NAME = re.compile(r"(var|env)\.([A-Za-z_][A-Za-z0-9_]*)")
PATTERN = r"\$\{(var|env)\.[A-Za-z_][A-Za-z0-9_]*\}"
"""Matches a string that contains a variable; for the JSON schema."""
SQL_OPTIONS = frozenset({"sql", "tombstone", "null_value"})


class Substitution:
    """Substitutes variables, and collects those without a value; `line_of` returns the line for the keys of a value."""

    def __init__(self, variables: Mapping[str, str], line_of: Callable[[Sequence[str]], int | None]) -> None:
        self.faults: list[Fault] = []
        self.open: set[tuple[str, ...]] = set()
        self._variables = variables
        self._line_of = line_of
        self._used: set[str] = set()

    def apply(self, content: dict[str, Any]) -> dict[str, Any]:
        """
        Return a copy of a document in which every variable is replaced.

        Afterwards `faults` holds the variables that could not be replaced, and `open` the paths of the faulty values
        and names.
        """
        filled = self._filled(content, ())
        self.faults += self._unused()
        assert isinstance(filled, dict)
        return filled

    def _filled(self, value: Any, path: tuple[str, ...]) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(inner, (*path, self._key(key, path))) for key, inner in value.items()}
        if isinstance(value, list):
            return [self._filled(inner, (*path, str(index))) for index, inner in enumerate(value)]
        if not isinstance(value, str) or "${" not in value:
            return value
        if path[-1] in SQL_OPTIONS:
            self._mark_used(value)
            if path[-1] != "sql":  # the parser reports this for statements
                self._note(path, "variables are not allowed in SQL", "write the value: it is part of the definition")
            return value
        return REFERENCE.sub(lambda found: self._value(found, path), value)

    def _key(self, key: str, path: tuple[str, ...]) -> str:
        if "${" in key:
            self._mark_used(key)
            self._note((*path, key), "variables are not allowed in names", "use variables in values only")
        return key

    def _mark_used(self, text: str) -> None:
        """Mark the variables of a string that must not contain any as used, so that only their place is reported."""
        named = (NAME.fullmatch(found.group(1) or "") for found in REFERENCE.finditer(text))
        self._used.update(name.group(2) for name in named if name and name.group(1) == "var")

    def _value(self, found: re.Match[str], path: tuple[str, ...]) -> str:
        if found.group() == "$${":
            return "${"
        named = NAME.fullmatch(found.group(1)) if found.group().endswith("}") else None
        if named is None:
            hint = "write `${var.name}` or `${env.NAME}`; `$${` stands for a literal `${`"
            self._note(path, f"`{found.group()}` is not a variable", hint)
            return ""
        kind, name = named.groups()
        values = self._variables if kind == "var" else os.environ
        if kind == "var":
            self._used.add(name)
        if name not in values:
            problem = f"`{found.group()}` has no value"
            how = f"it with `--var {name}=...`" if kind == "var" else f"the environment variable {name}"
            self._note(path, problem, f"set {how}")
        return values.get(name, "")

    def _unused(self) -> Iterator[Fault]:
        for name in self._variables:
            if name not in self._used:
                problem = f"the file has no `${{var.{name}}}`"
                yield Fault(f"--var {name}", problem, nearest(name, self._used) or "leave the option out")

    def _note(self, path: tuple[str, ...], problem: str, hint: str) -> None:
        self.open.add(path)
        self.faults.append(Fault(dotted(path), problem, hint, self._line_of(path)))
