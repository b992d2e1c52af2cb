"""The rows of the ledger's table: their columns, and the step that each row holds."""

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from lakehouse.errors.address import absolute_from, relative_to
from lakehouse.ledger.entries import Entry, StreamPosition
from lakehouse.ledger.ledger_writes import commit_of, commit_row, target_row, write_row, writes_of
from lakehouse.values.recorded import Checksum, Slice, SourceVersions, UsedColumn
from lakehouse.values.times import utc


def _struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


_TEXT, _NUMBER = StringType(), LongType()
_COMMIT = _struct(time=TimestampType(), transaction=_TEXT)
_COUNTS = MapType(_TEXT, _NUMBER)

SCHEMA = _struct(
    join_name=_TEXT,
    epoch=_NUMBER,
    step=_TEXT,
    run_id=_TEXT,
    at=TimestampType(),
    strategy=_TEXT,
    reason=_TEXT,
    definition=_TEXT,
    sources=ArrayType(
        _struct(
            name=_TEXT,
            id=_TEXT,
            from_version=_NUMBER,
            to_version=_NUMBER,
            from_epoch=_NUMBER,
            to_epoch=_NUMBER,
            columns=ArrayType(_struct(path=ArrayType(_TEXT), type=_TEXT)),
            commit=_COMMIT,
        )
    ),
    targets=ArrayType(
        _struct(
            name=_TEXT, path=_TEXT, table_name=_TEXT, id=_TEXT, base_version=_NUMBER, version=_NUMBER, commit=_COMMIT
        )
    ),
    writes=ArrayType(
        _struct(
            mode=_TEXT,
            part=_TEXT,
            rows=_NUMBER,
            inserted=_NUMBER,
            updated=_NUMBER,
            deleted=_NUMBER,
            distinguishing=ArrayType(_TEXT),
            has_images=BooleanType(),
        )
    ),
    stage=_TEXT,
    counts=_COUNTS,
    seconds=MapType(_TEXT, DoubleType()),
    message=_TEXT,
    clocks=_COUNTS,
    positions=ArrayType(_struct(time=_NUMBER, watermarks=_COUNTS)),
    slices=ArrayType(_struct(condition=_TEXT, rows=_NUMBER, where=_TEXT)),
    slice=_NUMBER,
    checksum=_struct(rows=_NUMBER, xor=_NUMBER, sum=_NUMBER),
    statement=_TEXT,
)
"""The columns of the ledger. All these types keep their values in delta-rs, and their statistics are right."""


def row_of(entry: Entry, storage: str) -> dict[str, Any]:
    """Return a step as the values of a row: times are datetimes, paths are relative to the folder of the storage."""
    assert entry.at is not None
    return {
        "join_name": entry.join,
        "epoch": entry.epoch,
        "step": entry.step,
        "run_id": entry.run_id,
        "at": entry.at,
        "strategy": entry.strategy,
        "reason": entry.reason,
        "definition": entry.definition,
        "sources": list(map(_source_row, entry.sources)),
        "targets": [target_row(target, storage) for target in entry.targets],
        "writes": list(map(write_row, entry.writes)),
        "stage": relative_to(storage, entry.stage),
        "counts": dict(entry.counts),
        "seconds": dict(entry.seconds),
        "message": entry.message,
        "clocks": dict(entry.clocks),
        "positions": [{"time": position.time, "watermarks": dict(position.watermarks)} for position in entry.positions],
        "slices": [asdict(part) for part in entry.slices],
        "slice": entry.slice,
        "checksum": None if entry.checksum is None else asdict(entry.checksum),
        "statement": entry.statement,
    }


def _source_row(source: SourceVersions) -> dict[str, object]:
    return {**asdict(source), "commit": commit_row(source.commit)}


def entry_of(row: Mapping[str, Any], storage: str) -> Entry:
    """Return the step of a row, as `row_of` made it; a ledger of an earlier version of lakejoin lacks newer columns."""
    return Entry(
        join=row["join_name"],
        epoch=row["epoch"],
        step=row["step"],
        run_id=row["run_id"],
        strategy=row["strategy"],
        reason=row["reason"],
        definition=row["definition"],
        sources=tuple(map(_source, row["sources"])),
        writes=writes_of(row, storage),
        stage=absolute_from(storage, row["stage"] or ""),
        counts=dict(row["counts"] or {}),
        seconds=dict(row["seconds"] or {}),
        message=row["message"] or "",
        clocks=dict(row.get("clocks") or {}),
        positions=tuple(map(_position, row.get("positions") or ())),
        slices=tuple(Slice(part["condition"], part["rows"], part["where"] or "") for part in row.get("slices") or ()),
        slice=row.get("slice"),
        checksum=_checksum(row.get("checksum")),
        at=utc(row["at"]),
        statement=row.get("statement") or "",
    )


def _source(row: Mapping[str, Any]) -> SourceVersions:
    columns = (UsedColumn(tuple(column["path"]), column["type"]) for column in row.get("columns") or ())
    return SourceVersions(
        row["name"],
        row["id"],
        row["from_version"],
        row["to_version"],
        row.get("from_epoch") or 0,
        row.get("to_epoch") or 0,
        tuple(columns),
        commit_of(row),
    )


def _checksum(row: Mapping[str, Any] | None) -> Checksum | None:
    """Return the checksum of a row; Spark and delta-rs read a struct that is null as None or as nulls."""
    return None if row is None or row["rows"] is None else Checksum(row["rows"], row["xor"], row["sum"])


def _position(row: Mapping[str, Any]) -> StreamPosition:
    return StreamPosition(row["time"], dict(row["watermarks"] or {}))
