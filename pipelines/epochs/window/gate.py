"""
The gate of a join of two streams: what came and what waited is read once more.

Nothing of `joins` is imported here: which rows meet is for the gate to say by itself.
"""

from collections.abc import Mapping
from functools import reduce

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import DataType, DateType, StringType, StructField, StructType, TimestampNTZType, TimestampType

from expectations.gate import Clock, Meeting, gate_met
from expectations.gate.met import EARLIEST, FACTS, ROWS
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.session import settings, small_query_settings
from lakehouse.small import TooMuch, to_driver
from lakehouse.sqltext import quote, struct
from lakehouse.stage import Stage
from lakehouse.tables import read
from lakehouse.values import hash_of
from pipelines.binding.bound import BoundJoin
from pipelines.binding.workspace import Workspace
from pipelines.epochs.streams.new_rows import ADDED_COLUMNS, NewRows
from pipelines.epochs.streams.state_table import BOTH, KNOWN_COLUMNS, STATE_ROWS, state_schema
from pipelines.epochs.tables.gate import inspect_maps, statement_of
from pipelines.plan.values import EpochPlan
from pipelines.spec import ROW_COLUMNS
from pipelines.spec.sql.lengths import DAY


def gate_meetings(
    workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, counts: Mapping[str, int]
) -> Verdict:
    """
    Check what an epoch adds to the result against the rows that came and those that waited.

    Not checked is: of a stream that another join makes, and of a large epoch that is not ordered by commits, whether
    rows are late or missing; of a replay, whose rows are of other epochs, and of a very large epoch, anything.

    Args:
        workspace: Where to work.
        bound: The join.
        plan: The epoch.
        stage: What it would add.
        counts: What was counted as it was computed.
    """
    if plan.strategy not in ("load", "reset", "incremental", "flush"):
        return Verdict()
    rows = sum(counts.get(name, 0) for name in ("read", "buffered", "buffered_deleted"))
    if rows > limits.MOST_MEETINGS:
        return Verdict()
    inspect_maps(workspace, bound, plan)
    via_driver = small_query_settings(plan.state_bytes + plan.stream_bytes) | {"spark.sql.shuffle.partitions": "2"}
    with settings(workspace.spark, via_driver if rows <= limits.CHANGES_VIA_DRIVER else {}):
        return _gated(
            workspace, bound, plan, stage, 1 if rows <= limits.MEETINGS_CHECKED else rows // limits.MEETINGS_SAMPLED
        )


def _gated(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, stage: Stage, share: int) -> Verdict:
    staged = stage.get(workspace.spark, "result", bound.columns)
    staged = staged.withColumnsRenamed(dict(zip(ROW_COLUMNS, ROWS, strict=True)))
    known = [_known(workspace, bound, plan, place) for place in (0, 1)]
    if share == 1 and plan.state_bytes <= limits.SMALL_BYTES:
        known = _brought(known)
    return gate_met(staged, _becoming(workspace, bound, stage), known, _meeting(bound, plan, known, share))


def _known(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, place: int) -> DataFrame:
    """Give the rows of a stream, that came or waited, as `gate_met` takes them."""
    found = []
    if plan.strategy != "flush":
        found.append(_came(workspace, bound, plan, place))
    if plan.strategy in ("flush", "incremental"):
        found.append(_waited(workspace, bound, plan, place))
    return reduce(DataFrame.unionAll, found)


def _came(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, place: int) -> DataFrame:
    item, (time, version, has_value) = bound.join.inputs[place], ADDED_COLUMNS
    rows = NewRows(workspace, bound, plan, 0 if bound.is_read_once else place).frame
    row = F.struct(*(F.col(quote(name)) for name in item.columns)).alias(item.alias)
    rows = rows.select(time, version, has_value, row)
    hashed = hash_of(quote(item.alias), rows.schema[item.alias].dataType)
    rank = 0 if bound.is_self_join else place
    at = struct({"time": time, "rank": str(rank), "version": version})
    facts = struct({"at": at, "came": "TRUE", "has_value": has_value, "matched": "FALSE"})
    identity = _identity(version, hashed, "CAST(NULL AS INT)")
    return rows.select(F.expr(identity).alias(ROWS[place]), F.expr(facts).alias(FACTS[place]), quote(item.alias))


def _waited(workspace: Workspace, bound: BoundJoin, plan: EpochPlan, place: int) -> DataFrame:
    assert bound.state is not None
    side, version, hashed, number, matched = KNOWN_COLUMNS
    rows = read(workspace.spark, bound.state, plan.state_version).where(f"{side} IN ({place}, {BOTH})")
    at = struct({"time": f"{EARLIEST}L", "rank": "0", "version": "0L"})
    facts = struct({"at": at, "came": "FALSE", "has_value": "TRUE", "matched": matched})
    identity = _identity(version, hashed, number)
    # A row that waits once for both sides of a stream lies where those of the left one do.
    row = F.coalesce(STATE_ROWS[place], STATE_ROWS[0]) if bound.is_self_join else F.col(STATE_ROWS[place])
    item = bound.join.inputs[place]
    return rows.select(F.expr(identity).alias(ROWS[place]), F.expr(facts).alias(FACTS[place]), row.alias(item.alias))


def _brought(known: list[DataFrame]) -> list[DataFrame]:
    """Bring the rows to the driver, if they are few; those of both streams at once."""
    try:
        both = to_driver(known[0].unionByName(known[1], allowMissingColumns=True)).frame
    except TooMuch:
        return known
    return [
        both.where(f"{row} IS NOT NULL").select(*map(quote, one.columns)) for row, one in zip(ROWS, known, strict=True)
    ]


def _becoming(workspace: Workspace, bound: BoundJoin, stage: Stage) -> DataFrame:
    """Give what becomes of the rows that wait, as `gate_met` takes it."""
    key = StructType([state_schema(bound)[name] for name in KNOWN_COLUMNS[:4]])
    state = stage.get(workspace.spark, "state", StructType([StructField("op", StringType()), StructField("key", key)]))
    side, version, hashed, number = (f"key.{name}" for name in KNOWN_COLUMNS[:4])
    return state.selectExpr("op", f"{side} AS place", f"{_identity(version, hashed, number)} AS row")


def _identity(version: str, hashed: str, number: str) -> str:
    """Give the SQL of what tells rows of a stream apart."""
    return struct({"version": version, "hash": hashed, "number": number})


def _meeting(bound: BoundJoin, plan: EpochPlan, known: list[DataFrame], share: int) -> Meeting:
    join = bound.join
    assert join.window is not None
    is_given = any(mark.is_from_upstream for mark in join.window.watermarks)
    is_by_commit = plan.strategy == "incremental" and not bound.times
    return Meeting(
        statement_of(join),
        _clocks(bound, plan.clocks, known),
        tuple((bound.greater, bound.lesser, bound.allowance) for bound in join.window.bounds),
        join.window.equalities,
        join.window.one_sided,
        bound.semantics,
        share,
        follows=not is_given and (share == 1 or is_by_commit),
    )


def _clocks(bound: BoundJoin, reached: Mapping[str, int], known: list[DataFrame]) -> tuple[Clock, ...]:
    """Give the watermarked columns; under the kafka modes one time goes for all."""
    window, clocks = bound.join.window, []
    assert window is not None
    names = [f"{bound.join.inputs[mark.time.input].source}.{mark.time.column}" for mark in window.watermarks]
    newest = max((reached[name] for name in names if name in reached), default=None)
    for name, mark in zip(names, window.watermarks, strict=True):
        at = reached.get(name) if bound.semantics == "strict" else newest
        place, column = mark.time
        alias = bound.join.inputs[place].alias
        struct = known[place].schema[alias].dataType
        assert isinstance(struct, StructType)
        time = _number(quote(alias, column), struct[column].dataType, by_date=window.by_date)
        clocks.append(Clock(place, time, mark.lateness, None if at is None else at - mark.lateness))
    return tuple(clocks)


def _number(column: str, kind: DataType, *, by_date: bool) -> str:
    """Give the SQL of a time as a number: microseconds since 1970, of an integer itself."""
    if isinstance(kind, DateType) and by_date:
        return f"unix_date({column}) * {DAY}L"
    if isinstance(kind, TimestampNTZType):  # what a clock shows is taken for UTC
        return f"unix_micros(CAST(concat(CAST({column} AS STRING), 'Z') AS TIMESTAMP))"
    if isinstance(kind, (DateType, TimestampType)):
        return f"unix_micros(CAST({column} AS TIMESTAMP))"
    return f"CAST({column} AS BIGINT)"
