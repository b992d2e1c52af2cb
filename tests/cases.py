"""The cases of a test."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest


def cases(names: str, *rows: object, ids: Sequence[str] | Callable[[Any], str] | None = None) -> pytest.MarkDecorator:
    """Run a test once for each row, as `pytest.mark.parametrize` does."""
    return pytest.mark.parametrize(names, rows, ids=ids)
