"""Compare the result of a join with a stream with a replay of its recorded epochs."""

from lakehouse.errors.conditions import reading
from lakehouse.errors.errors import CannotContinue, Drifted
from pipelines.epochs.comparison import Published, Total, add_up
from pipelines.epochs.streams.replay import Replay, Replayable
from pipelines.report import JoinReport
from pipelines.report.progress import Stopwatch


def verify_stream(kind: Replayable, published: Published | None = None) -> JoinReport:
    """
    Replay the recorded epochs of a join with a stream, as far back as its sources are readable, and compare both ways.

    Args:
        published: The version of the result to compare; that of the last epoch if None.

    Returns:
        The report; `counts` has expected (rows of the replayed epochs), missing, surplus, and epochs.

    Raises:
        Drifted: Rows differ; the message gives the numbers and examples.
        FeedUnavailable: No epoch has sources that are still readable.
        CannotContinue: No epoch was committed since the user accepted the result as it is.
    """
    watch, name = Stopwatch(), kind.name
    with watch.step("verify"):
        with reading(name):
            replay = Replay(kind) if published is None else Replay(kind, published.version, until=published.entry.epoch)
        total = add_up(name, replay.differences())
    if not total.epochs:
        if total.unreadable is not None:
            raise total.unreadable
        raise CannotContinue(
            name,
            "no epoch can be replayed",
            expected="an epoch after the result was accepted as it is",
            found=f"{replay.last.strategy} of epoch {replay.last.epoch}",
            hint=f"run `lakejoin run --select {name}` to make one when the sources have new rows",
        )
    expected = sum(entry.writes[-1].rows for entry in total.epochs)
    which = _epochs(total)
    if total.missing or total.surplus:
        raise Drifted(
            name,
            f"the result has drifted: {total.missing:,} rows are missing, {total.surplus:,} do not belong there",
            expected=f"the rows of {which}, replayed",
            found="; ".join(total.examples),
            hint=f"run `lakejoin backfill --select {name}` to append the missing rows; surplus rows need `--accept` or "
            "`--reset`",
        )
    return JoinReport(
        join=name,
        outcome="done",
        epoch=total.epochs[0].epoch,
        strategy="verify",
        reason=f"{name} at version {replay.version} against a replay of {which}",
        counts={"missing": 0, "surplus": 0, "expected": expected, "epochs": len(total.epochs)},
        seconds=dict(watch.seconds),
        details=(f"{expected:,} rows equal a replay of {which}", *_unreadable(total)),
    )


def _epochs(total: Total) -> str:
    first, newest = total.epochs[-1].epoch, total.epochs[0].epoch
    return f"epoch {first}" if first == newest else f"epochs {first} to {newest}"


def _unreadable(total: Total) -> list[str]:
    error, first = total.unreadable, total.epochs[-1].epoch
    return [] if error is None else [f"epochs before {first} can no longer be read ({error.problem}: {error.found})"]
