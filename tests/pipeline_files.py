"""Pipeline files in few words."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml


def content(sources: Mapping[str, Any], joins: Mapping[str, Any], **beside: Any) -> dict[str, Any]:
    """
    Give sources by their keys or by all their options, joins by their statements or by all their options. Joins run one
    after the other unless `threads` says otherwise, so that writes have an order.
    """
    return {
        "threads": 1,
        "pipeline": "test",
        "storage": {"path": "./lake"},
        "sources": {name: of if isinstance(of, Mapping) else {"key": of} for name, of in sources.items()},
        "joins": {name: of if isinstance(of, Mapping) else {"sql": of} for name, of in joins.items()},
        **beside,
    }


def write(file: Path, sources: Mapping[str, Any], joins: Mapping[str, Any], **beside: Any) -> Path:
    file.write_text(yaml.safe_dump(content(sources, joins, **beside), allow_unicode=True, sort_keys=False))
    return file
