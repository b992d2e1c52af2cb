"""
The gate of a join of two streams: checks the appended rows against the new rows and the buffered rows.

    new rows, buffered rows ─► expected pairs, unmatched rows ─┐
    staged rows of the result ─────────────────────────────────┴─► one row for each violated rule

The gate shares no code with the joins. It computes watermarks, limits and pairs again, in a plain way.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from expectations.gate.judging import judged
from expectations.gate.statement import Statement
from expectations.validation import Verdict
from lakehouse import limits
from lakehouse.values.compare import identical, type_sql
from lakehouse.values.net_changes import fields_of
from lakehouse.values.sqltext import quote, row_struct, struct, text

MET_RULES = {
    "unknown": "a result row consists of new or buffered rows",
    "twice": "no pair and no null-padded row occurs twice",
    "both_waited": "at least one row of a pair is new in this epoch",
    "not_kept": "a null-padded row belongs to an outer side",
    "on": "ON holds for each pair",
    "shows": "a result row has the values that SELECT computes from its rows",
    "not_met": "no row of a pair is late, and the earlier row is still buffered",
    "missing": "the result has each pair of matching rows",
    "contradicted": "a null-padded row has no match",
    "waits_on": "a null-padded row is no longer buffered",
    "left_alone": "an unmatched row that leaves the buffer is in the result, null-padded",
}
ROWS, FACTS = ("_lakejoin_row0", "_lakejoin_row1"), ("_lakejoin_of0", "_lakejoin_of1")
"""
The columns of a row of the left and of the right stream. ROWS is its identity (struct of version, hash, number). FACTS
is a struct of `at` (struct of time, rank and version), `came` (whether the row is new), `has_value` and `matched`.
"""
MADE, BUCKET, STEP, HASH, UNMATCHED, HAS_MET, OP = (
    f"_lakejoin_{name}" for name in ("made", "bucket", "mark", "hash", "lone", "met", "op")
)

EARLIEST = -(2**63)
"""The time before all others."""


@dataclass(frozen=True)
class Clock:
    """
    A watermarked column.

    Args:
        place: The index of its stream in FROM.
        time: Its value as a number, as Spark SQL over `alias`.`column`.
        lateness: The allowed lateness of its values.
        floor: The watermark before the epoch; None without one.
    """

    place: int
    time: str
    lateness: int
    floor: int | None


@dataclass(frozen=True)
class Meeting:
    """
    A join of two streams.

    Args:
        statement: Its statement.
        clocks: The watermarked columns.
        bounds: The bounds (x, y, c), where x and y are indexes of clocks: clock x is at least clock y minus c.
        keys: The equalities of ON, each as Spark SQL of the left and of the right row.
        one_sided: The conditions of ON on the left row alone and on the right row alone.
        semantics: The `semantics` option of the join.
        share: The gate checks one in this number of rows.
        follows: Whether the order of the rows is known, and with it which rows are late and which are buffered.
        salt: Chooses the rows of the sample.
    """

    statement: Statement
    clocks: tuple[Clock, ...]
    bounds: tuple[tuple[int, int, int], ...]
    keys: tuple[tuple[str, str], ...]
    one_sided: tuple[str, str]
    semantics: str
    share: int = 1
    follows: bool = True
    salt: str = ""

    @property
    def outer_sides(self) -> tuple[int, ...]:
        """The indexes of the streams on an outer side."""
        return {"inner": (), "left": (0,), "right": (1,), "full": (0, 1)}[self.statement.steps[0][0]]

    @property
    def axis(self) -> tuple[int, int, int, int] | None:
        """
        The time axis of the join; None if no pair of clocks is bounded in both directions.

        Returns:
            The clock of the left row, the clock of the right row, and how far the right one may lie before and after
            the left one.
        """
        found = [
            (left, right, before, after)
            for left, right, after in self.bounds
            for other, one, before in self.bounds
            if (left, right) == (one, other) and self.clocks[left].place == 0
        ]
        return min(found, key=lambda axis: axis[2] + axis[3], default=None)


def gate_met(staged: DataFrame, state: DataFrame, known: Sequence[DataFrame], meeting: Meeting) -> Verdict:
    """
    Check the staged rows that an epoch appends to the result of a join of two streams.

    Missing rows are not checked under `kafka-0.10.2` and `kafka-0.10.0`, which emit an unmatched row at once and its
    matches later.

    Args:
        staged: The staged rows: the columns of SELECT, and ROWS.
        state: The changes of the buffered rows: `op`, `place`, `row` (the identity).
        known: The new and buffered rows of the left and of the right stream: ROWS and FACTS of the stream, and the row
            under its alias. The number in the identity is null for a new row.
        meeting: The join.
    """
    made = row_struct(name for name, _ in meeting.statement.outputs)
    staged = staged.select(*ROWS, F.expr(made).alias(MADE))
    looked_at = staged.where(_is_checked(f"coalesce({ROWS[0]}, {ROWS[1]})", meeting))
    rows = [_identified(_wanted(known[place], looked_at, place, meeting), place, meeting) for place in (0, 1)]
    broken = [_by_rows(looked_at, rows, meeting)]
    if meeting.semantics in ("strict", "kafka"):
        watermarks = _watermarks(known, meeting) if meeting.follows else None
        partners = _with_lateness(_partners(rows, known, meeting), 1, watermarks, meeting)
        rows = [_with_lateness(rows[place], place, watermarks, meeting) for place in (0, 1)]
        pairs = _pairs(rows[0], partners, meeting)
        if pairs is not None:
            broken.append(_by_pairs(staged, pairs, meeting))
        for place in meeting.outer_sides:
            broken.append(_by_unmatched_rows(staged, state, rows, pairs, place, meeting))
    found = reduce(DataFrame.unionAll, broken).where("rule IS NOT NULL")
    batch = found.select(
        F.monotonically_increasing_id().alias("key_0"), *(F.expr(f"rule = '{rule}'").alias(rule) for rule in MET_RULES)
    )
    verdict = judged(batch.limit(limits.JUDGED_IN_PROCESS), ["row"], MET_RULES, in_process=True)
    return verdict if verdict.passed else Verdict((*verdict.findings, *_examples(found)))


def _by_rows(staged: DataFrame, rows: Sequence[DataFrame], meeting: Meeting) -> DataFrame:
    """Check each staged row by itself: the rows that it consists of, and its values."""
    (_, on), where = meeting.statement.steps[0], meeting.statement.where
    equal = Window.partitionBy(*ROWS)
    joined = staged.withColumn(BUCKET, F.count("*").over(equal))
    for place in (0, 1):
        joined = joined.join(rows[place], on=ROWS[place], how="left")
    kinds = fields_of(staged, MADE)
    outputs = zip(kinds, meeting.statement.outputs, strict=True)
    values = {field.name: f"CAST({sql} AS {type_sql(field.dataType)})" for field, (_, sql) in outputs}
    shows = f"({identical(MADE, kinds)} <=> {identical(struct(values), kinds)})"
    unknown = [f"({row} IS NOT NULL AND {facts} IS NULL)" for row, facts in zip(ROWS, FACTS, strict=True)]
    not_kept = [f"{ROWS[1 - place]} IS NULL" for place in (0, 1) if place not in meeting.outer_sides]
    return joined.selectExpr(
        f"""CASE WHEN {" OR ".join(unknown)} OR coalesce({ROWS[0]}, {ROWS[1]}) IS NULL THEN 'unknown'
            WHEN {BUCKET} > 1 THEN 'twice'
            WHEN {" OR ".join(not_kept) or "FALSE"} THEN 'not_kept'
            WHEN NOT ({FACTS[0]}.came OR {FACTS[1]}.came) THEN 'both_waited'
            WHEN {FACTS[0]} IS NOT NULL AND {FACTS[1]} IS NOT NULL AND NOT coalesce({on}, FALSE) THEN 'on'
            WHEN NOT coalesce({where or "TRUE"}, FALSE) THEN 'shows'
            WHEN NOT {shows} THEN 'shows' END AS rule""",
        _example(*ROWS),
    )


def _by_pairs(staged: DataFrame, pairs: DataFrame, meeting: Meeting) -> DataFrame:
    """Compare the staged pairs with the expected pairs."""
    both = staged.where(f"{ROWS[0]} IS NOT NULL AND {ROWS[1]} IS NOT NULL").where(_is_checked(ROWS[0], meeting))
    compared = both.select(*ROWS, F.lit(True).alias("staged")).join(pairs, on=list(ROWS), how="full")
    rule = "CASE WHEN shown IS NULL THEN 'not_met' WHEN shown AND staged IS NULL THEN 'missing' END AS rule"
    return compared.selectExpr(rule, _example(*ROWS))


def _by_unmatched_rows(
    staged: DataFrame,
    state: DataFrame,
    rows: Sequence[DataFrame],
    pairs: DataFrame | None,
    place: int,
    meeting: Meeting,
) -> DataFrame:
    """Check the unmatched rows of a stream."""
    row, other, facts, where = ROWS[place], ROWS[1 - place], FACTS[place], meeting.statement.where
    checked = _is_checked(row, meeting)
    unmatched = staged.where(f"{other} IS NULL AND {checked}").select(row, F.lit(True).alias(UNMATCHED)).distinct()
    met = staged.where(f"{other} IS NOT NULL AND {checked}").select(row)
    all_met = where is None
    if pairs is not None and meeting.share == 1:
        met, all_met = met.unionAll(pairs.select(row)), True
    operations = state.where(f"place = {place}").select(F.col("row").alias(row), F.col("op").alias(OP)).where(checked)
    missing = F.lit(None).cast(rows[1 - place].schema[meeting.statement.aliases[1 - place]].dataType)
    joined = (
        rows[place]
        .where(checked)
        .join(unmatched, on=row, how="left")
        .join(met.distinct().withColumn(HAS_MET, F.lit(True)), on=row, how="left")
        .join(operations, on=row, how="left")
        .withColumn(meeting.statement.aliases[1 - place], missing)
    )
    has_met = f"({HAS_MET} IS NOT NULL OR {facts}.matched)"
    leaves = f"IF({facts}.came, {OP} IS NULL, {OP} <=> 'delete')"
    return joined.selectExpr(
        f"""CASE WHEN {UNMATCHED} AND {has_met} THEN 'contradicted'
            WHEN {UNMATCHED} AND NOT {leaves} THEN 'waits_on'
            WHEN {all_met} AND {UNMATCHED} IS NULL AND {leaves} AND NOT {has_met} AND NOT {facts}.late
            THEN CASE WHEN {where or "TRUE"} THEN 'left_alone' END END AS rule""",
        _example(row),
    )


def _wanted(known: DataFrame, staged: DataFrame, place: int, meeting: Meeting) -> DataFrame:
    """Filter rows to the checked rows and the rows of checked staged rows."""
    if meeting.share == 1:
        return known
    hashes = staged.selectExpr(f"{ROWS[place]}.hash AS {HASH}").where(f"{HASH} IS NOT NULL").distinct()
    found = known.join(F.broadcast(hashes), on=F.expr(f"{ROWS[place]}.hash = {HASH}"), how="left")
    return found.where(f"{HASH} IS NOT NULL OR {_is_checked(ROWS[place], meeting)}").drop(HASH)


def _identified(known: DataFrame, place: int, meeting: Meeting) -> DataFrame:
    """Number the new rows of a commit with the same hash; leave out the rows that take no part in the join."""
    row, facts, alias = ROWS[place], FACTS[place], meeting.statement.aliases[place]
    values = F.expr(identical(quote(alias), known.schema[alias].dataType))
    order = (f"{facts}.at", F.desc(f"{facts}.has_value"), values)
    number = F.row_number().over(Window.partitionBy(f"{row}.version", f"{row}.hash").orderBy(*order))
    new, buffered = known.where(f"{facts}.came"), known.where(f"NOT {facts}.came")
    numbered = new.withColumn(row, F.col(row).withField("number", number)).unionAll(buffered)
    return numbered if meeting.semantics == "kafka-0.10.0" else numbered.where(f"{facts}.has_value")


def _with_lateness(rows: DataFrame, place: int, watermarks: DataFrame | None, meeting: Meeting) -> DataFrame:
    """Add `late` and `limits` to FACTS: whether a row is late, and the limits of the clocks at its position."""
    facts, late, limits = FACTS[place], "CAST(NULL AS BOOLEAN)", "NULL"
    if watermarks is not None:
        below = [f"coalesce({c.time} < {STEP}{n}, FALSE)" for n, c in enumerate(meeting.clocks) if c.place == place]
        late = (" OR ".join(below) or "FALSE") if meeting.semantics == "strict" else "FALSE"
        limits = f"array({', '.join(_limit(n, meeting) for n in range(len(meeting.clocks)))})"
        rows = rows.join(watermarks, on=F.expr(f"{facts}.at = {STEP}"), how="left")
    more = F.col(facts).withField("late", F.expr(f"IF({facts}.came, {late}, FALSE)"))
    more = more.withField("limits", F.expr(limits))
    return rows.select(ROWS[place], more.alias(facts), quote(meeting.statement.aliases[place]))


def _watermarks(known: Sequence[DataFrame], meeting: Meeting) -> DataFrame:
    """Return each position with new rows, and the watermarks before it."""
    steps = []
    for place in (0, 1):
        own = [clock.time for clock in meeting.clocks if clock.place == place]
        columns = []
        for n, clock in enumerate(meeting.clocks):
            is_moved = clock.place == place if meeting.semantics == "strict" else bool(own)
            time = clock.time if meeting.semantics == "strict" else f"coalesce({', '.join([*own, 'NULL'])})"
            watermark = _less(time, clock.lateness) if is_moved else "NULL"
            columns.append(F.expr(f"CAST({watermark} AS BIGINT)").alias(f"{STEP}{n}"))
        new = known[place].where(f"{FACTS[place]}.came")
        steps.append(new.select(F.col(f"{FACTS[place]}.at").alias(STEP), *columns))
    names = [f"{STEP}{n}" for n in range(len(meeting.clocks))]
    positions = steps[0].unionAll(steps[1]).groupBy(STEP).agg(*(F.max(name).alias(name) for name in names))
    before = Window.orderBy(STEP).rowsBetween(Window.unboundedPreceding, -1)
    floors = [F.lit(EARLIEST if clock.floor is None else clock.floor) for clock in meeting.clocks]
    watermarks = [
        F.greatest(F.coalesce(F.max(name).over(before), F.lit(EARLIEST)), floor).alias(name)
        for name, floor in zip(names, floors, strict=True)
    ]
    return F.broadcast(positions.select(STEP, *watermarks))


def _partners(rows: Sequence[DataFrame], known: Sequence[DataFrame], meeting: Meeting) -> DataFrame:
    """Return the rows of the right stream that may match the checked rows of the left stream."""
    if meeting.share == 1 or not (meeting.keys or meeting.axis):
        return rows[1]
    left = rows[0].where(_is_checked(ROWS[0], meeting))
    near = _in_buckets(known[1], 1, meeting).join(
        F.broadcast(_in_buckets(left, 0, meeting)), on=F.expr(_candidate_condition(meeting)), how="left_semi"
    )
    return _identified(near.drop(f"{BUCKET}1"), 1, meeting)


def _pairs(left: DataFrame, right: DataFrame, meeting: Meeting) -> DataFrame | None:
    """
    Find the expected pairs of matching rows.

    Returns:
        ROWS, and `shown`, whether WHERE holds. None if the order of the rows is unknown, or if ON has neither an
        equality nor a time axis, so that each row would have to be compared with each other row.
    """
    if not meeting.follows or not (meeting.keys or meeting.axis):
        return None
    (how, on), where = meeting.statement.steps[0], meeting.statement.where
    first = f"{FACTS[0]}.at <= {FACTS[1]}.at"  # at the same time the left row is first, because its rank is less
    known = [f"NOT {facts}.late" for facts in FACTS] + [f"({FACTS[0]}.came OR {FACTS[1]}.came)", *meeting.one_sided]
    known += [
        f"{meeting.clocks[greater].time} >= {_less(meeting.clocks[lesser].time, length)}"
        for greater, lesser, length in meeting.bounds
    ]
    known.append(f"IF({first}, {_is_buffered(0, meeting)}, {_is_buffered(1, meeting)})")
    asked = f"({on}) AND ({where})" if where is not None and how == "inner" else on
    # ON is evaluated only for rows that match in time: for other rows it may raise an error.
    condition = f"{_candidate_condition(meeting)} AND CASE WHEN {' AND '.join(known)} THEN {asked} ELSE FALSE END"
    checked = _in_buckets(left.where(_is_checked(ROWS[0], meeting)), 0, meeting)
    if meeting.share > 1:
        checked = F.broadcast(checked)
    met = checked.join(_in_buckets(right, 1, meeting), on=F.expr(condition), how="inner")
    return met.select(*ROWS, F.expr(f"coalesce({where or 'TRUE'}, FALSE)").alias("shown"))


def _candidate_condition(meeting: Meeting) -> str:
    """Return the equalities that select candidate pairs: of time buckets, and of ON."""
    same_bucket = [] if meeting.axis is None else [f"{BUCKET}0 = {BUCKET}1"]
    return " AND ".join([*same_bucket, *(f"{left} = {right}" for left, right in meeting.keys)])


def _in_buckets(rows: DataFrame, place: int, meeting: Meeting) -> DataFrame:
    """Assign rows to time buckets: a right row to one bucket, a left row to each bucket that may hold a match."""
    if meeting.axis is None:
        return rows
    left, right, before, after = meeting.axis
    width = max(1, (before + after) * (limits.BUCKET_WIDTHS if meeting.keys else 1))
    if place == 1:
        return rows.withColumn(f"{BUCKET}1", F.expr(f"{meeting.clocks[right].time} div {width}L"))
    least, most = _less(meeting.clocks[left].time, before), f"try_add({meeting.clocks[left].time}, {after}L)"
    most = f"coalesce({most}, {2**63 - 1}L)"
    some = f"IF({least} <= {most}, sequence({least} div {width}L, {most} div {width}L), array())"
    return rows.where(f"{meeting.clocks[left].time} IS NOT NULL").withColumn(f"{BUCKET}0", F.explode(F.expr(some)))


def _is_buffered(place: int, meeting: Meeting) -> str:
    """Return the SQL condition that the earlier row of a pair is still buffered at the position of the later row."""
    limited = {greater for greater, _, _ in meeting.bounds if meeting.clocks[greater].place == place}
    return (
        " AND ".join(f"{meeting.clocks[n].time} >= {FACTS[1 - place]}.limits[{n}]" for n in sorted(limited)) or "TRUE"
    )


def _limit(clock: int, meeting: Meeting) -> str:
    limits = [_less(f"{STEP}{lesser}", length) for greater, lesser, length in meeting.bounds if greater == clock]
    return f"greatest({', '.join([*limits, f'{EARLIEST}L', f'{EARLIEST}L'])})"


def _less(time: str, length: int) -> str:
    """Return the SQL of a time minus a length; an underflow gives the earliest time."""
    return f"IF({time} IS NULL, NULL, coalesce(try_subtract({time}, {length}L), {EARLIEST}L))"


def _is_checked(row: str, meeting: Meeting) -> str:
    return "TRUE" if meeting.share == 1 else f"pmod(xxhash64({row}.hash, {text(meeting.salt)}), {meeting.share}) = 0"


def _example(*rows: str) -> str:
    return f"concat_ws(' and ', {', '.join(f'to_json({row})' for row in rows)}) AS example"


def _examples(found: DataFrame) -> list[str]:
    """Return for each violated rule an example of a row that violates it."""
    examples = {row["rule"]: row["one"] for row in found.groupBy("rule").agg(F.min("example").alias("one")).collect()}
    return [f"{words}: violated by {examples[rule]}" for rule, words in MET_RULES.items() if rule in examples]
