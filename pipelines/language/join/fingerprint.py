"""The fingerprint of a join's definition, a short hash that the ledger stores."""

import hashlib
import json
from collections.abc import Mapping
from types import MappingProxyType

from pipelines.language.file.model import PipelineFile, Source, Storage
from pipelines.language.join.chains import statement_of
from pipelines.language.join.sources import canonical
from pipelines.language.sql.dialect import render
from pipelines.language.sql.syntax import lateness
from pipelines.language.statement.statement import UPSTREAM, Query, Side

ROW_IDENTITY = 2
"""The version of the row identity of streams, which results and buffers of joins of two streams contain."""

NO_SETTINGS: Mapping[str, str] = MappingProxyType({})


def fingerprint(file: PipelineFile, name: str, settings: Mapping[str, str] = NO_SETTINGS) -> str:
    """
    Compute the hash, of 16 hexadecimal digits, of everything that defines the result of a join.

    The hash ignores layout, comments, the case of keywords, and how the join is refreshed or gated. It includes the
    addresses of the sources and the time zone. For a join that the join reads, it includes the name, the key and
    whether parts of it may be null, not the definition, which has its own fingerprint.

    Args:
        settings: Spark settings that lakejoin fixes but for which the runtime keeps other values.
    """
    join = file.joins[name]
    statement = statement_of(file, name)
    definition: dict[str, object] = {
        "select": [render(item) for item in statement.select],
        "how": statement.steps[0].how if statement.steps else None,
        "inputs": [_input(side, file) for side in statement.sides],
        "using": statement.using,
        "on": render(statement.steps[0].on) if statement.steps else None,
        "where": render(statement.where) if statement.where else None,
        "timezone": file.timezone,
        "semantics": join.semantics,
    }
    if statement.reads_stream:
        definition["orders"] = [_order(side, file) for side in statement.sides if side.kind != "changelog"]
    if statement.is_windowed:
        definition["identity"] = ROW_IDENTITY
        definition["watermarks"] = [[[name, *_lateness(late)] for name, late in side.times] for side in statement.sides]
    if len(statement.steps) > 1:
        definition["further"] = [[step.how, render(step.on)] for step in statement.steps[1:]]
    return _hashed(definition, settings)


def changelog_fingerprint(file: PipelineFile, name: str, settings: Mapping[str, str] = NO_SETTINGS) -> str:
    """Compute the hash of everything that defines the KTable of a changelog source, like `fingerprint`."""
    source = file.sources[name]
    return _hashed(
        {
            "key": source.key,
            "address": _address(name, source, file.storage),
            "timezone": file.timezone,
            "changelog": _changelog(source),
        },
        settings,
    )


def _hashed(definition: dict[str, object], settings: Mapping[str, str]) -> str:
    whole = definition | ({"settings": dict(settings)} if settings else {})
    text = json.dumps(whole, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _input(side: Side, file: PipelineFile) -> list[object]:
    absent: list[object] = ["may be absent"] if side.may_be_absent else []
    absent += [_query(query) for query in side.queries]
    if side.groups is not None:
        having = None if side.groups.having is None else render(side.groups.having)
        values = [[name, render(value)] for name, value in side.groups.values]
        absent.append([side.groups.rows.source_key, values, having])
    if side.source in file.joins:
        return [side.source, side.alias, side.key, side.kind if side.is_result else "join", *absent]
    source = file.sources[side.source]
    further: list[object] = [_changelog(source)] if source.kind == "changelog" else []
    if source.kind == "stream":
        ordered = source.order_by or next(iter(source.watermarks), None)
        further = [canonical(source.null_value), source.ignore_changes, ordered]
    return [
        side.source,
        side.alias,
        side.key,
        source.kind,
        _address(side.source, source, file.storage),
        *further,
        *absent,
    ]


def _query(query: Query) -> list[object]:
    where = None if query.where is None else render(query.where)
    return [query.alias, [render(item) for item in query.select], where]


def _order(side: Side, file: PipelineFile) -> str | None:
    """Return the column that is the time of an input of a join with a stream; None if the input has none."""
    return file.sources[side.source].order_by if side.source in file.sources else None


def _lateness(written: str) -> tuple[object, ...]:
    """Return the lateness of a watermarked column, or a mark that another join determines its watermark."""
    return ("upstream",) if written == UPSTREAM else lateness(written)


def _changelog(source: Source) -> list[str | None]:
    return [source.order_by, canonical(source.tombstone)]


def _address(name: str, source: Source, storage: Storage) -> list[str | None]:
    if source.table is not None:
        return ["table", source.table]
    if source.path is not None:
        return ["path", source.path]
    if storage.schema_name is not None:
        return ["schema", storage.schema_name, name]
    return ["folder", storage.path, name]
