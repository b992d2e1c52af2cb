"""
Estimate what an epoch costs from the feeds and in full, to choose the cheaper way; pure values, without Spark.

The result is the same either way. The constants come from `python -m tests.benchmarks.choice`, in seconds on two cores.
From the third epoch on, estimates are fitted to the seconds that the epochs of the join itself took, by the ledger.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import ceil, sqrt
from statistics import median
from typing import NamedTuple

from lakehouse import limits
from lakehouse.ledger.entries import COMMITTED, JoinHistory
from lakehouse.values.recorded import Estimate

INCREMENTAL, FULL, OVERWRITE = "incremental", "reconcile", "overwrite"
"""The strategies with an estimate, by which they are recorded: from the feeds, and two ways in full."""

CHEAPER_IN_FULL = "cheaper-in-full"
"""The code of the reason of an epoch that is computed in full although its feeds can be read."""

MARGIN = 1.1
"""The factor beyond which an epoch from the feeds is too dear, after an epoch in full for the same reason."""

MARGIN_TO_CHANGE = 1.15
"""The factor after any other epoch: a join does not change to and fro between ways that cost much the same."""

SMALL_EPOCH = 10_000
"""
Rows. Up to this many changes are read from the feeds rather than reconciled, whatever the estimates say: the seconds of
a small epoch vary more than these ways differ. Their constants hold up to this number, too; more rows pass through the
stage.
"""

REMEMBERED = 5
"""Epochs. An estimate is fitted to so many of the newest epochs of its way."""


class Changed(NamedTuple):
    """The changed rows of a source by its commits, and all its rows by its log; None if these do not say."""

    changed_rows: int | None
    rows: int | None


@dataclass(frozen=True, kw_only=True)
class Volume:
    """
    How much an epoch reads and writes.

    Args:
        sources: The number of sources, changed or not.
        commits: The number of commits whose changes the feeds return.
        changed_rows: The number of changed rows of the sources.
        touched_rows: The number of rows of the result that they can change.
        bytes: The bytes of the files of all sources and of the result.
    """

    sources: int
    commits: int
    changed_rows: int
    touched_rows: int
    bytes: int

    @staticmethod
    def of(
        changed: Iterable[Changed], result_rows: int | None, fan_out: float, *, sources: int, commits: int, size: int
    ) -> "Volume | None":
        """
        Return the volume of an epoch; None if a commit does not say how much it changed.

        A row of a source touches as many rows of the result as the result has for each row of the source on average,
        or `fan_out` rows if a log does not say how many these are.
        """
        rows, touched = 0, 0.0
        for source in changed:
            if source.changed_rows is None:
                return None
            rows += source.changed_rows
            known = result_rows is not None and source.rows
            touched += source.changed_rows * (max(1.0, (result_rows or 0) / (source.rows or 1)) if known else fan_out)
        most = touched if result_rows is None else min(touched, result_rows + rows)
        return Volume(sources=sources, commits=commits, changed_rows=rows, touched_rows=ceil(most), bytes=size)

    @property
    def is_small(self) -> bool:
        """Whether the epoch reads the feeds rather than reconcile, whatever the estimates say."""
        return self.changed_rows <= SMALL_EPOCH


@dataclass(frozen=True)
class Choice:
    """
    What the ways are estimated to take, by strategy, and `in_full`, the reason to compute in full although the feeds
    can be read; empty for none.
    """

    estimates: Mapping[str, Estimate] = field(default_factory=dict)
    in_full: str = ""


def choice(volume: Volume | None, history: JoinHistory, in_full: str = FULL) -> Choice:
    """Choose between the feeds and a way in full; without a volume nothing is estimated."""
    if volume is None:
        return Choice()
    estimates = estimated(volume, history, in_full)
    return Choice(estimates, cheaper_in_full(volume, estimates, history))


def estimated(volume: Volume, history: JoinHistory, in_full: str = FULL) -> dict[str, Estimate]:
    """Return what the feeds and a way in full are estimated to take, by strategy."""
    constants = _by_constants(volume)
    seconds = {way: constants[way] for way in (INCREMENTAL, in_full)}
    seen = {way: _pace(history, way, is_small=volume.is_small) for way in seconds}
    either = next((pace for pace in seen.values() if pace is not None), 1.0)  # at least how fast this machine is
    paces = {way: either if pace is None else pace for way, pace in seen.items()}
    return {way: Estimate(max(round(seconds[way] * pace, 1), 0.1), pace) for way, pace in paces.items()}


def cheaper_in_full(volume: Volume, estimates: Mapping[str, Estimate], history: JoinHistory) -> str:
    """Return the reason to compute an epoch in full although its feeds can be read; empty for none."""
    last = history.committed
    margin = MARGIN if last is not None and last.reason.startswith(CHEAPER_IN_FULL) else MARGIN_TO_CHANGE
    feeds = estimates[INCREMENTAL].seconds
    (way,) = estimates.keys() - {INCREMENTAL}
    full = estimates[way].seconds
    if (volume.is_small and way == FULL) or feeds <= margin * full:
        return ""
    return f"{CHEAPER_IN_FULL}: about {feeds:.0f} s from the feeds, about {full:.0f} s in full"


def fan_out_seen(history: JoinHistory) -> float:
    """Return how many rows of the result a row of the feeds touched in earlier epochs; 1 before any."""
    seen = [
        entry.counts["touched"] / entry.counts["read"]
        for entry in history.recent
        if entry.step == COMMITTED and entry.strategy == INCREMENTAL and entry.counts.get("read")
    ]
    return max(1.0, median(seen)) if seen else 1.0


def _by_constants(volume: Volume) -> dict[str, float]:
    """Return the seconds of each way by the constants of the benchmarks."""
    further_reads = max(ceil(volume.commits / limits.VERSIONS_PER_READ) - 1, 0)
    gigabytes, millions = volume.bytes / 1e9, volume.touched_rows / 1e6
    feeds = 5 + 1.9 * volume.sources + 17 * gigabytes + 31 * millions + 17 * sqrt(millions)
    return {
        INCREMENTAL: feeds + 1.7 * further_reads + 11.5 * (not volume.is_small),
        FULL: 9 + 1.4 * volume.sources + 49 * gigabytes + 11 * millions + 32 * sqrt(millions),
        OVERWRITE: 3 + 1.2 * volume.sources + 35 * gigabytes,
    }


def _pace(history: JoinHistory, way: str, *, is_small: bool) -> float | None:
    """
    Return the median of how much longer than by the constants the newest epochs of a way took; None before any.

    Epochs from the feeds are compared with others alike, small or not: of a large table a small one reads few files.
    """
    committed = sorted((e for e in history.recent if e.step == COMMITTED), key=lambda e: e.epoch, reverse=True)
    if len(committed) < 2:
        return None
    # An epoch that another run finished, or that went slice by slice, says only what a part of it took.
    whole = (
        e for e in committed if e.strategy == way and way in e.estimates and "compute" in e.seconds and not e.slices
    )
    alike = (e for e in whole if way != INCREMENTAL or (e.counts.get("read", 0) <= SMALL_EPOCH) == is_small)
    took = [sum(e.seconds.values()) / (e.estimates[way].seconds / e.estimates[way].pace) for e in alike]
    return median(took[:REMEMBERED]) if took else None
