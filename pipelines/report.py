"""What commands report: one value, rendered as text or as JSON."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from lakehouse.errors import LakejoinError
from pipelines.plan import EpochPlan

Outcome = Literal["done", "nothing", "failed"]


@dataclass(frozen=True)
class JoinReport:
    """
    What happened to one join.

    Args:
        join: The join.
        outcome: done, nothing (there was nothing to do) or failed.
        epoch: The epoch's number; of a join without news the number that the next will have.
        strategy: nothing, resume, load, incremental or reconcile.
        reason: Why.
        counts: Rows read, touched, inserted, updated, deleted, unchanged, null_keys.
        seconds: Seconds of each step.
        error: What went wrong.
        details: Further lines for a reader, such as examples of differing rows.
    """

    join: str
    outcome: Outcome
    epoch: int = 0
    strategy: str = ""
    reason: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    error: LakejoinError | None = None
    details: Sequence[str] = ()

    @property
    def changed(self) -> int:
        """How many rows of the result changed."""
        return sum(self.counts.get(name, 0) for name in ("inserted", "updated", "deleted"))

    def text(self) -> str:
        """Render for a person."""
        if self.error is not None:
            return f"FAILED  {self.error.message}"
        lines = [f"{self.join}: {self._headline()}"]
        if self.counts.get("null_keys"):
            lines.append(f"  warning: {self.counts['null_keys']:,} source rows without a key were skipped")
        return "\n".join([*lines, *(f"  {line}" for line in self.details)])

    def json(self) -> dict[str, Any]:
        """Render for a machine."""
        return {
            "join": self.join,
            "outcome": self.outcome,
            "epoch": self.epoch,
            "strategy": self.strategy,
            "reason": self.reason,
            "counts": dict(self.counts),
            "seconds": {name: round(value, 3) for name, value in self.seconds.items()},
            "error": None if self.error is None else error_json(self.error),
            "details": list(self.details),
        }

    def _headline(self) -> str:
        if self.strategy == "verify":
            return f"verified ({self.reason}); {sum(self.seconds.values()):.1f} s"
        if self.outcome == "nothing":
            return f"nothing to do ({self.reason})"
        changes = ", ".join(f"{self.counts.get(name, 0):,} {name}" for name in ("inserted", "updated", "deleted"))
        took = f"{sum(self.seconds.values()):.1f} s"
        return f"epoch {self.epoch} ({self.strategy}): {changes}; {took}"


@dataclass(frozen=True)
class PlanReport:
    """What `run` would do for one join."""

    plan: EpochPlan

    def text(self) -> str:
        """Render for a person."""
        plan = self.plan
        lines = [f"{plan.join}: {plan.strategy}, epoch {plan.epoch} ({plan.reason})"]
        lines += [
            f"  {source.name}: "
            + (
                f"versions {source.read_after + 1} to {source.to_version}"
                if source.has_changes and source.from_version >= 0
                else f"all of version {source.to_version}"
                if plan.strategy in ("load", "reconcile")
                else f"no changes up to version {source.to_version}"
            )
            for source in plan.sources
        ]
        return "\n".join(lines)

    def json(self) -> dict[str, Any]:
        """Render for a machine."""
        return asdict(self.plan)


def error_json(error: LakejoinError) -> dict[str, Any]:
    """Render an error for a machine: its fields, its code and its exit code."""
    return {
        "code": error.code,
        "exit_code": error.exit_code,
        "where": error.where,
        "problem": error.problem,
        "expected": error.expected,
        "found": error.found,
        "hint": error.hint,
        "retryable": error.retryable,
    }
