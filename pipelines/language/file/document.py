"""
A YAML document that knows the line of each key and value, and its variables: `${var.name}`, set by `--var name=value`,
and `${env.NAME}`.

Variables are allowed in values only: not in names, and never in SQL, because the SQL text is the definition of a join.
Substituted text is never parsed as YAML again, so a value cannot become an option. `$${` stands for the two characters
`${`.
"""

import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import yaml

from lakehouse.errors.errors import Fault, PipelineFileError
from pipelines.language.names import nearest

TEXT, MERGE = "tag:yaml.org,2002:str", "tag:yaml.org,2002:merge"

NO_TEXT = "a name must be a string"
"""The problem with keys such as `no:` and `1:`, which YAML does not read as strings."""

UNFIT = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""The exceptions that PyYAML raises for a text that is not a valid number, date or boolean."""


class StrictLoader(yaml.SafeLoader):
    """A YAML loader that refuses aliases and reports the line of each invalid value."""

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases: a few of them can expand to gigabytes."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "aliases (`*name`) are not supported; repeat the value", mark)
        return super().compose_node(parent, index)

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        """Raise an error that names the value that does not match its tag."""
        try:
            return super().construct_object(node, deep=deep)
        except UNFIT:
            value, kind = str(node.value)[:40], node.tag.rpartition(":")[2]
            problem = f"`{value}` cannot be read as {kind}; put a string in quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None


class Document:
    """A mapping from a file, whose keys are strings as written, and the errors in keys that did not prevent reading."""

    def __init__(self, content: dict[str, Any], root: yaml.Node, faults: Sequence[Fault]) -> None:
        self.content = content
        self.faults = list(faults)
        self._root = root

    def line(self, path: Sequence[str]) -> int | None:
        """Return the line of a key, from 1; if it does not exist, that of its nearest parent, and None without any."""
        line, _ = self._find(path)
        return line

    def line_of_row(self, path: Sequence[str], row: int | None) -> int | None:
        """
        Return the line in the file, from 1, of a row, from 0, of a multi-line string; None if the first key does not
        exist.

        Without a row, or if YAML folds the lines of the string, it is the line of the key or the one where the string
        begins.
        """
        line, node = self._find(path)
        if row is None or node is None:
            return line
        if isinstance(node, yaml.ScalarNode) and node.style == "|":
            return int(node.start_mark.line) + 2 + row
        return int(node.start_mark.line) + 1

    def scalar(self, path: Sequence[str]) -> tuple[int, int, str | None] | None:
        """Return the start and end, in characters of the file, and the YAML style of a string; None if none exists."""
        _, node = self._find(path)
        if not isinstance(node, yaml.ScalarNode):
            return None
        return node.start_mark.index, node.end_mark.index, node.style

    def _find(self, path: Sequence[str]) -> tuple[int | None, yaml.Node | None]:
        line, node = None, self._root
        for part in path:
            found = None
            if isinstance(node, yaml.MappingNode):
                found = next(((key, value) for key, value in node.value if key.value == part), None)
            elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
                found = (node.value[int(part)],) * 2
            if found is None:
                return line, None
            line, node = found[0].start_mark.line + 1, found[1]
        return line, node


def mapping(value: object) -> dict[str, Any]:
    """Return a mapping unchanged, and an empty mapping for any other value."""
    return value if isinstance(value, dict) else {}


def dotted(path: Sequence[str]) -> str:
    """Format the keys that lead to a value for messages: `sources.orders.key`."""
    return ".".join(part or "''" for part in path)


def _unusable(path: Path, problem: str, hint: str = "", line: int | None = None) -> PipelineFileError:
    return PipelineFileError(str(path), [Fault(path.name, problem, hint, line)])


def read_text(path: Path) -> str:
    """Read a UTF-8 file without a byte order mark; raise `PipelineFileError` if it is unreadable."""
    try:
        return path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise _unusable(path, f"is not UTF-8 at byte {error.start}", "save the file as UTF-8") from None
    except (OSError, ValueError) as error:
        raise _unusable(path, f"cannot be read: {getattr(error, 'strerror', None) or type(error).__name__}") from None


def read_document(path: Path) -> Document:
    """Read a UTF-8 YAML file; raise `PipelineFileError` if it is unreadable, not YAML, or does not hold a mapping."""
    return document_of(path, read_text(path))


def document_of(path: Path, text: str) -> Document:
    """Read the text of a YAML file; raise `PipelineFileError` if it is not YAML, or does not hold a mapping."""
    unusable = partial(_unusable, path)
    try:
        loader = StrictLoader(text)
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        raise unusable(f"not YAML: the character U+{ord(text[error.position]):04X}", "leave it out", line) from None
    try:
        root = loader.get_single_node()
        faults = [] if root is None else list(_normalized_keys(root, ()))
        content = None if root is None else loader.construct_document(root)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(filter(None, (error.context, error.problem)))
        raise unusable(f"not YAML: {said}", line=mark.line + 1 if mark else None) from None
    except RecursionError:
        raise unusable("is nested too deeply") from None
    except Exception as error:  # PyYAML fails with other errors on some escape sequences
        raise unusable(f"not YAML: {' '.join(str(error).split())[:200]}", line=loader.line + 1) from None
    if content is None or root is None:
        raise unusable("is empty", "run `lakejoin init` to create a pipeline file")
    if not isinstance(content, dict):
        raise unusable("does not hold a mapping of options", "begin the file with `pipeline: <name>`", 1)
    return Document(content, root, faults)


def _normalized_keys(node: yaml.Node, path: tuple[str, ...]) -> Iterator[Fault]:
    """Convert every key to its written text, keep the first of equal keys, and yield the errors in keys."""
    if isinstance(node, yaml.SequenceNode):
        for index, value in enumerate(node.value):
            yield from _normalized_keys(value, (*path, str(index)))
    if not isinstance(node, yaml.MappingNode):
        return
    first_values: dict[str, tuple[yaml.Node, yaml.Node]] = {}
    others = []
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            others.append((key, value))  # refused when it is constructed
            continue
        here, line = (*path, key.value), key.start_mark.line + 1
        if key.tag == MERGE:
            yield Fault(dotted(here), "YAML merge keys are not supported", "write the options out", line)
            continue
        if key.value in first_values:
            first = first_values[key.value][0].start_mark.line + 1
            where = "" if first == line else f", first on line {first}"
            yield Fault(dotted(here), f"is written twice{where}", "keep one", line)
            continue
        if key.tag != TEXT:
            yield Fault(dotted(here), NO_TEXT, "put it in quotes", line)
            key.tag = TEXT
        first_values[key.value] = (key, value)
        yield from _normalized_keys(value, here)
    node.value = [*first_values.values(), *others]


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
        """Replace every variable; `faults` then has those without a value, and `open` the paths of what they are in."""
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
