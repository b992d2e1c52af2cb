"""
Values that a pipeline file leaves open: `${var.name}`, given by `--var name=value`, and `${env.NAME}`.

They stand in values only: not in names, and never in SQL, whose text is the definition of a join. What is put in is
never read as YAML again, so that a value cannot become an option. `$${` is the two characters `${`.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from lakehouse.errors import Fault
from pipelines.spec.file.yaml_document import dotted
from pipelines.spec.names import nearest

REFERENCE = re.compile(r"\$\$\{|\$\{([^}]*)\}?")
NAME = re.compile(r"(var|env)\.([A-Za-z_][A-Za-z0-9_]*)")
PATTERN = r"\$\{(var|env)\.[A-Za-z_][A-Za-z0-9_]*\}"
"""A text with a variable in it, for the JSON schema."""
SQL_OPTIONS = frozenset({"sql", "tombstone", "null_value"})


class Substitution:
    """
    Puts values in, and notes what cannot be.

    Args:
        variables: The values given on the command line, by name.
        line_of: Gives the line of the file for the keys that lead to a value.
    """

    def __init__(self, variables: Mapping[str, str], line_of: Callable[[Sequence[str]], int | None]) -> None:
        self.faults: list[Fault] = []
        self.open: set[tuple[str, ...]] = set()
        self._variables = variables
        self._line_of = line_of
        self._used: set[str] = set()

    def apply(self, content: dict[str, Any]) -> dict[str, Any]:
        """
        Put the values into a document.

        Args:
            content: What the file holds.

        Returns:
            A copy in which every variable stands for its value; `faults` holds what could not be put in, and `open` the
            paths of the values and names that are at fault.
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
            self._mention(value)
            if path[-1] != "sql":  # of a statement the parser says it, and shows where
                self._note(path, "a variable in SQL", "write the value itself: it is part of the definition")
            return value
        return REFERENCE.sub(lambda found: self._value(found, path), value)

    def _key(self, key: str, path: tuple[str, ...]) -> str:
        if "${" in key:
            self._mention(key)
            self._note((*path, key), "a variable in a name", "variables stand in values")
        return key

    def _mention(self, text: str) -> None:
        """Take the variables of a text where none may stand as used: that they are there is the fault."""
        named = (NAME.fullmatch(found.group(1) or "") for found in REFERENCE.finditer(text))
        self._used.update(name.group(2) for name in named if name and name.group(1) == "var")

    def _value(self, found: re.Match[str], path: tuple[str, ...]) -> str:
        if found.group() == "$${":
            return "${"
        named = NAME.fullmatch(found.group(1)) if found.group().endswith("}") else None
        if named is None:
            hint = "write `${var.name}` or `${env.NAME}`; `$${` stands for the characters themselves"
            self._note(path, f"`{found.group()}` is no variable", hint)
            return ""
        kind, name = named.groups()
        values = self._variables if kind == "var" else os.environ
        if kind == "var":
            self._used.add(name)
        if name not in values:
            problem = f"there is no value for `{found.group()}`"
            how = f"`--var {name}=...`" if kind == "var" else f"the environment variable {name}"
            self._note(path, problem, f"give it by {how}")
        return values.get(name, "")

    def _unused(self) -> Iterator[Fault]:
        for name in self._variables:
            if name not in self._used:
                problem = f"the file has no `${{var.{name}}}`"
                yield Fault(f"--var {name}", problem, nearest(name, self._used) or "leave the option out")

    def _note(self, path: tuple[str, ...], problem: str, hint: str) -> None:
        self.open.add(path)
        self.faults.append(Fault(dotted(path), problem, hint, self._line_of(path)))
