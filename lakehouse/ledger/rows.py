"""The rows of the ledger's table: their columns, and the step that each row holds."""

from collections.abc import Mapping
from dataclasses import asdict, fields
from typing import TYPE_CHECKING, Any

from pyspark.sql import types as T

from lakehouse.errors.errors import LakejoinError
from lakehouse.ledger.entries import Entry, StreamPosition
from lakehouse.ledger.runs import CutSource, Run, RunResult
from lakehouse.publish.writes import Append, AppendInPlace, Merge, Overwrite, OverwriteInPlace, TargetVersions, Write
from lakehouse.values.locations import is_absolute
from lakehouse.values.recorded import Checksum, CommitIdentity, Estimate, Slice, SourceVersions, UsedColumn, utc
from lakehouse.values.sqltext import Address

if TYPE_CHECKING:
    import pyarrow


def _struct(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, data_type) for name, data_type in fields.items()])


_TEXT, _NUMBER = T.StringType(), T.LongType()
_COMMIT = _struct(time=T.TimestampType(), transaction=_TEXT)
_COUNTS = T.MapType(_TEXT, _NUMBER)

SCHEMA = _struct(
    join_name=_TEXT,
    epoch=_NUMBER,
    step=_TEXT,
    run_id=_TEXT,
    at=T.TimestampType(),
    strategy=_TEXT,
    reason=_TEXT,
    definition=_TEXT,
    sources=T.ArrayType(
        _struct(
            name=_TEXT,
            id=_TEXT,
            from_version=_NUMBER,
            to_version=_NUMBER,
            from_epoch=_NUMBER,
            to_epoch=_NUMBER,
            columns=T.ArrayType(_struct(path=T.ArrayType(_TEXT), type=_TEXT)),
            commit=_COMMIT,
        )
    ),
    targets=T.ArrayType(
        _struct(
            name=_TEXT, path=_TEXT, table_name=_TEXT, id=_TEXT, base_version=_NUMBER, version=_NUMBER, commit=_COMMIT
        )
    ),
    writes=T.ArrayType(
        _struct(
            mode=_TEXT,
            part=_TEXT,
            rows=_NUMBER,
            inserted=_NUMBER,
            updated=_NUMBER,
            deleted=_NUMBER,
            distinguishing=T.ArrayType(_TEXT),
            has_images=T.BooleanType(),
        )
    ),
    stage=_TEXT,
    counts=_COUNTS,
    seconds=T.MapType(_TEXT, T.DoubleType()),
    message=_TEXT,
    clocks=_COUNTS,
    positions=T.ArrayType(_struct(time=_NUMBER, watermarks=_COUNTS)),
    slices=T.ArrayType(_struct(condition=_TEXT, rows=_NUMBER, where=_TEXT)),
    slice=_NUMBER,
    checksum=_struct(rows=_NUMBER, xor=_NUMBER, sum=_NUMBER),
    statement=_TEXT,
    estimates=T.MapType(_TEXT, _struct(seconds=T.DoubleType(), pace=T.DoubleType())),
)
"""The columns of the ledger. All these types keep their values in delta-rs, and their statistics are right."""


def arrow_schema() -> "pyarrow.Schema":
    """Return the columns of the ledger as Arrow has them."""
    import pyarrow

    return pyarrow.schema(_arrow_fields(SCHEMA))


def _arrow_fields(of: T.StructType) -> "list[pyarrow.Field]":
    import pyarrow

    return [pyarrow.field(field.name, _arrow(field.dataType)) for field in of]


def _arrow(data_type: T.DataType) -> "pyarrow.DataType":
    """Return one of the types that the ledger uses as Arrow has it."""
    import pyarrow

    match data_type:
        case T.StructType():
            return pyarrow.struct(_arrow_fields(data_type))
        case T.ArrayType():
            return pyarrow.list_(pyarrow.field("element", _arrow(data_type.elementType)))
        case T.MapType():
            return pyarrow.map_(_arrow(data_type.keyType), _arrow(data_type.valueType))
        case T.TimestampType():
            return pyarrow.timestamp("us", "UTC")
    plain = {
        "string": pyarrow.string(),
        "bigint": pyarrow.int64(),
        "double": pyarrow.float64(),
        "boolean": pyarrow.bool_(),
    }
    return plain[data_type.simpleString()]


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
        "sources": list(map(asdict, entry.sources)),
        "targets": [_target_row(target, storage) for target in entry.targets],
        "writes": list(map(_write_row, entry.writes)),
        "stage": _relative_to(storage, entry.stage),
        "counts": dict(entry.counts),
        "seconds": dict(entry.seconds),
        "message": entry.message,
        "clocks": dict(entry.clocks),
        "positions": [{"time": position.time, "watermarks": dict(position.watermarks)} for position in entry.positions],
        "slices": list(map(asdict, entry.slices)),
        "slice": entry.slice,
        "checksum": None if entry.checksum is None else asdict(entry.checksum),
        "statement": entry.statement,
        "estimates": {way: asdict(estimate) for way, estimate in entry.estimates.items()},
    }


def _target_row(target: TargetVersions, storage: str) -> dict[str, object]:
    return {
        "name": target.address.label,
        "path": _relative_to(storage, target.address.path),
        "table_name": target.address.table,
        "id": target.id,
        "base_version": target.base_version,
        "version": target.version,
        "commit": asdict(target.commit),
    }


def _write_row(write: Write) -> dict[str, object]:
    """Return the values of a write beside those of its table."""
    values = {name: value for name, value in vars(write).items() if name != "target"}
    return {"mode": write.mode, "rows": write.rows, **values}


def entry_of(row: Mapping[str, Any], storage: str) -> Entry:
    """
    Return the step of a row, as `row_of` made it; Spark and delta-rs read what is null as None or as nulls.

    Raises:
        LakejoinError: Another version of lakejoin wrote the row, and this one cannot read it.
    """
    try:
        return _entry(row, storage)
    except (KeyError, TypeError, ValueError) as error:
        raise LakejoinError(
            "lakejoin_ledger",
            "another version of lakejoin wrote a row that this version cannot read",
            expected="the columns and values that this version writes",
            found=f"epoch {row['epoch']} of {row['join_name']}: {type(error).__name__} {error}",
            hint="run the version of lakejoin that wrote it, or load the joins again into another storage",
        ) from error


def _entry(row: Mapping[str, Any], storage: str) -> Entry:
    checksum = row["checksum"]
    targets = [_target(target, storage) for target in row["targets"]]
    return Entry(
        join=row["join_name"],
        epoch=row["epoch"],
        step=row["step"],
        run_id=row["run_id"],
        strategy=row["strategy"],
        reason=row["reason"],
        definition=row["definition"],
        sources=tuple(map(_source, row["sources"])),
        writes=tuple(map(_write, row["writes"], targets)),
        stage=_absolute_from(storage, row["stage"] or ""),
        counts=dict(row["counts"] or {}),
        seconds=dict(row["seconds"] or {}),
        message=row["message"] or "",
        clocks=dict(row["clocks"] or {}),
        positions=tuple(StreamPosition(p["time"], dict(p["watermarks"] or {})) for p in row["positions"] or ()),
        slices=tuple(Slice(part["condition"], part["rows"], part["where"] or "") for part in row["slices"] or ()),
        slice=row["slice"],
        checksum=None if checksum is None or checksum["rows"] is None else Checksum(**_known(Checksum, checksum)),
        at=utc(row["at"]),
        statement=row["statement"] or "",
        estimates={way: Estimate(**_known(Estimate, each)) for way, each in (row.get("estimates") or {}).items()},
    )


def _source(row: Mapping[str, Any]) -> SourceVersions:
    columns = tuple(UsedColumn(tuple(column["path"]), column["type"]) for column in row["columns"] or ())
    return SourceVersions(**{**_known(SourceVersions, row), "columns": columns, "commit": _commit(row)})


def _known(of: type[Checksum | Estimate | SourceVersions], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of the fields of a class; a later version may have added others."""
    return {field.name: row[field.name] for field in fields(of)}


def _address(row: Mapping[str, Any], storage: str) -> Address:
    return Address(row["name"], _absolute_from(storage, row["path"] or ""), row["table_name"] or "")


def _target(row: Mapping[str, Any], storage: str) -> TargetVersions:
    return TargetVersions(_address(row, storage), row["id"], row["base_version"], row["version"], _commit(row))


def _commit(row: Mapping[str, Any]) -> CommitIdentity:
    commit = row["commit"]
    return CommitIdentity(None if commit["time"] is None else utc(commit["time"]), commit["transaction"] or "")


def _write(row: Mapping[str, Any], target: TargetVersions) -> Write:
    mode, part = row["mode"], row["part"]
    if mode == Merge.mode:
        distinguishing = tuple(row["distinguishing"] or ())
        return Merge(target, part, row["inserted"], row["updated"], row["deleted"], distinguishing)
    if mode == Overwrite.mode:
        return Overwrite(target, part, row["rows"], row["deleted"], has_images=row["has_images"])
    of_rows = {kind.mode: kind for kind in (Append, AppendInPlace, OverwriteInPlace)}
    return of_rows[mode](target, part, row["rows"])


def row_of_run(run: Run, storage: str) -> dict[str, Any]:
    """Return a run as the values of a row of the ledger; it has no join and no epoch."""
    return {
        "step": run.step,
        "run_id": run.id,
        "at": run.at,
        "strategy": "",
        "reason": run.reason,
        "definition": "",
        "sources": [
            {
                "name": source.name,
                "id": source.id,
                "from_version": -1,
                "to_version": source.version,
                "commit": {"time": source.commit.time, "transaction": source.commit.transaction},
            }
            for source in run.cut
        ],
        "targets": [
            {
                "name": result.name,
                "path": _relative_to(storage, result.address.path),
                "table_name": result.address.table,
                "id": result.id,
                "version": result.version,
            }
            for result in run.results
        ],
        "seconds": {"run": run.seconds},
    }


def run_of(row: Mapping[str, Any], storage: str) -> Run:
    """Return the run of a row, as `row_of_run` made it."""
    return Run(
        id=row["run_id"],
        step=row["step"],
        cut=tuple(
            CutSource(source["name"], source["id"], source["to_version"], _commit(source))
            for source in row["sources"] or ()
        ),
        results=tuple(
            RunResult(target["name"], _address(target, storage), target["id"], target["version"])
            for target in row["targets"] or ()
        ),
        reason=row["reason"] or "",
        seconds=dict(row["seconds"] or {}).get("run", 0.0),
        at=utc(row["at"]),
    )


def _relative_to(folder: str, path: str) -> str:
    """Return a path relative to a folder if it lies below the folder, else unchanged."""
    return path.removeprefix(f"{folder}/") if folder else path


def _absolute_from(folder: str, path: str) -> str:
    """Return the original path for a path that `relative_to` returned."""
    return f"{folder}/{path}" if folder and path and not is_absolute(path) else path
