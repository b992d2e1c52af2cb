"""The writes of an epoch in a row of the ledger, also in rows of versions of lakejoin that did not record them."""

from collections.abc import Mapping
from typing import Any

from lakehouse.errors.address import Address, absolute_from, relative_to
from lakehouse.publish.writes import (
    CHANGELOG_PART,
    RESULT_PART,
    STATE_PART,
    Append,
    AppendInPlace,
    Merge,
    Overwrite,
    TargetVersions,
    Write,
    merged,
)
from lakehouse.values.recorded import CommitIdentity
from lakehouse.values.times import utc

MATCHED = "_lakejoin_matched"
"""The column of the buffered rows that an update changes; see `added_columns`."""


def target_row(target: TargetVersions, storage: str) -> dict[str, object]:
    """Return the values of a table that an epoch writes; its path is relative to the storage."""
    return {
        "name": target.address.label,
        "path": relative_to(storage, target.address.path),
        "table_name": target.address.table,
        "id": target.id,
        "base_version": target.base_version,
        "version": target.version,
        "commit": commit_row(target.commit),
    }


def commit_row(commit: CommitIdentity) -> dict[str, object]:
    """Return the values of the identity of a commit."""
    return {"time": commit.time, "transaction": commit.transaction}


def commit_of(row: Mapping[str, Any]) -> CommitIdentity:
    """Return the identity of the commit of a source or of a target; unknown if the row lacks it."""
    commit = row.get("commit")
    if commit is None:
        return CommitIdentity()
    return CommitIdentity(None if commit["time"] is None else utc(commit["time"]), commit["transaction"] or "")


def write_row(write: Write) -> dict[str, object]:
    """Return the values of a write beside those of its table."""
    row: dict[str, object] = {"mode": write.mode, "part": write.part, "rows": write.rows}
    if isinstance(write, Merge):
        changes = {"inserted": write.inserted, "updated": write.updated, "deleted": write.deleted}
        row |= {**changes, "distinguishing": list(write.distinguishing)}
    return row | ({"deleted": write.deleted, "has_images": write.has_images} if isinstance(write, Overwrite) else {})


def writes_of(row: Mapping[str, Any], storage: str) -> tuple[Write, ...]:
    """Return the writes of a row of the ledger."""
    targets = [_target(target, storage) for target in row["targets"]]
    recorded = row.get("writes")
    if not recorded:
        return tuple(_inferred(row, target, is_last=target is targets[-1]) for target in targets)
    return tuple(map(_write, recorded, targets))


def _target(row: Mapping[str, Any], storage: str) -> TargetVersions:
    address = Address(row["name"], absolute_from(storage, row["path"] or ""), row["table_name"] or "")
    return TargetVersions(address, row["id"], row["base_version"], row["version"], commit_of(row))


def _write(row: Mapping[str, Any], target: TargetVersions) -> Write:
    mode, part = row["mode"], row["part"]
    if mode == "merge":
        changes = (row["inserted"], row["updated"], row["deleted"])
        return Merge(target, part, *changes, tuple(row["distinguishing"] or ()))
    if mode == "append":
        return Append(target, part, row["rows"])
    if mode == AppendInPlace.mode:
        return AppendInPlace(target, part, row["rows"])
    return Overwrite(target, part, row["rows"], row["deleted"] or 0, has_images=bool(row["has_images"]))


def _inferred(row: Mapping[str, Any], target: TargetVersions, *, is_last: bool) -> Write:
    """Infer a write from the counts of an epoch, for a row of a version of lakejoin that did not record writes."""
    counts: Mapping[str, int] = dict(row["counts"] or {})
    is_reset = row["strategy"] == "reset"
    if is_last:
        appended = counts.get("appended", 0)
        if is_reset:
            return Overwrite(target, RESULT_PART, appended)
        if "appended" in counts:
            return Append(target, RESULT_PART, appended)
        return merged(target, {**dict.fromkeys(("inserted", "updated", "deleted"), 0), **counts})
    if target.address.label.endswith("__changelog"):
        return Append(target, CHANGELOG_PART, counts.get("changelog", 0))
    inserted, updated, deleted = (counts.get(f"buffered_{name}", 0) for name in ("inserted", "updated", "deleted"))
    if is_reset or ("buffered_kept" in counts and (inserted or updated or deleted)):
        return Overwrite(
            target, STATE_PART, counts.get("buffered_kept", 0) + inserted + updated, deleted, has_images=True
        )
    return Merge(target, STATE_PART, inserted, updated, deleted, (MATCHED,))
