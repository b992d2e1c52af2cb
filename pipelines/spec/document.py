"""A YAML document that remembers on which line everything was written."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from lakehouse.errors import Fault, PipelineFileError


class StrictLoader(yaml.SafeLoader):
    """YAML without what makes a file mean something else than it seems to: a key written twice, an alias."""

    def __init__(self, stream: str) -> None:
        super().__init__(stream)
        self.faults: list[Fault] = []

    def compose_node(self, parent: yaml.Node | None, index: int) -> yaml.Node | None:
        """Refuse aliases; a handful of them can stand for gigabytes."""
        if self.check_event(yaml.AliasEvent):
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.composer.ComposerError(None, None, "an alias (`*name`); write it out", mark)
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Note the keys that one mapping has twice."""
        written: set[str] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode):
                if key.value in written:
                    problem = f"`{key.value}` is written twice in one mapping"
                    self.faults.append(Fault(key.value, problem, "keep one", key.start_mark.line + 1))
                written.add(key.value)
        return super().construct_mapping(node, deep=deep)


class Document:
    """
    A mapping that was read from a file.

    Args:
        content: What it holds.
        root: The node that it was made of.
        faults: What was wrong with it and still let it be read: keys written twice.
    """

    def __init__(self, content: dict[Any, Any], root: yaml.Node, faults: Sequence[Fault]) -> None:
        self.content = content
        self.faults = list(faults)
        self._root = root

    def line(self, path: Sequence[str]) -> int | None:
        """
        Find where a value begins.

        Args:
            path: The keys that lead to it; where it is not there, the value that should hold it counts.

        Returns:
            The line of its key, from 1; None if not even the first key is there.
        """
        line, _ = self._find(path)
        return line

    def line_of_row(self, path: Sequence[str], row: int) -> int | None:
        """
        Find a row of a text of several lines.

        Args:
            path: The keys that lead to the text.
            row: The row, from 0.

        Returns:
            Its line in the file, from 1; where YAML folds lines, the one on which the text begins.
        """
        line, node = self._find(path)
        if isinstance(node, yaml.ScalarNode) and node.style == "|":
            return int(node.start_mark.line) + 2 + row
        return line if node is None else int(node.start_mark.line) + 1

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


def read_document(path: Path) -> Document:
    """
    Read a file that holds one mapping.

    Args:
        path: The file, UTF-8.

    Returns:
        The document.

    Raises:
        PipelineFileError: If the file cannot be read, is no YAML, or holds no mapping.
    """

    def refused(problem: str, hint: str = "", line: int | None = None) -> PipelineFileError:
        return PipelineFileError(str(path), [Fault(path.name, problem, hint, line)])

    try:
        loader = StrictLoader(path.read_bytes().decode("utf-8-sig"))
        root = loader.get_single_node()
        content = None if root is None else loader.construct_document(root)
    except OSError as error:
        raise refused(f"cannot be read: {error.strerror or type(error).__name__}") from None
    except UnicodeDecodeError as error:
        raise refused(f"is not UTF-8 at byte {error.start}", "save the file as UTF-8") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        said = ", ".join(filter(None, (error.context, error.problem)))
        raise refused(f"not YAML: {said}", line=mark.line + 1 if mark else None) from None
    except RecursionError:
        raise refused("is nested too deep") from None
    except Exception as error:  # what PyYAML raises for a value that its tag does not fit is anything
        raise refused(f"not YAML: {' '.join(str(error).split())[:200]}") from None
    if content is None or root is None:
        raise refused("is empty", "`lakejoin init` writes one to begin with")
    if not isinstance(content, dict):
        raise refused("holds no mapping of options", "it begins with `pipeline: <name>`", 1)
    return Document(content, root, loader.faults)
