"""The gate of joins of two streams: what is planted is found before anything is published, and nothing else is."""

from collections.abc import Callable
from copy import deepcopy
from functools import cache
from random import Random

import pytest
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import IntegerType, StringType, StructField, StructType, TimestampType

from lakehouse import limits
from lakehouse.errors.errors import GateFailed
from lakehouse.ledger.entries import COMMITTED
from lakehouse.values.compare import hash_of
from tests.epochs.window.test_windows import JOIN, Streams, _streams, at, streams
from tests.lake import Lake, only
from tests.planted import planted

__all__ = ["_streams", "streams"]

Fault = Callable[[DataFrame], DataFrame]
History = Callable[[str], Streams]
LEFT, RIGHT = "_left_row", "_right_row"


def _with(rows: DataFrame, where: str, **changed: str) -> DataFrame:
    return rows.withColumns({name: F.expr(f"IF({where}, {sql}, {name})") for name, sql in changed.items()})


def _more(rows: DataFrame, where: str, **changed: str) -> DataFrame:
    """Add the rows of which a condition holds once more, with some columns changed."""
    return rows.unionAll(_with(rows.where(where), "TRUE", **changed))


HASH_OF_ROW_5 = hash_of(
    f"named_struct('id', 5, 'k', 'e', 't', {at(0)})",
    StructType([StructField("id", IntegerType()), StructField("k", StringType()), StructField("t", TimestampType())]),
)
OF_ROW_5 = f"named_struct('version', {LEFT}.version, 'hash', {HASH_OF_ROW_5}, 'number', 1)"
"""A row that came with row 3, and met its partner in the epoch before."""

FAULTS: dict[str, tuple[str, str, Fault]] = {
    "a pair more that does not meet": ("inner left full", "ON holds", lambda rows: _crossed(rows, "extra")),
    "a pair twice": ("inner left full", "twice", lambda rows: _more(rows, "l = 1 AND r = 11")),
    "no pair": ("inner left full", "each pair of matching rows", lambda rows: rows.where("NOT (l = 1 AND r = 11)")),
    "alone instead of the pair": (
        "left full",
        "a null-padded row has no match",
        lambda rows: _with(rows, "l = 1 AND r = 11", r="NULL", **{RIGHT: "NULL"}),
    ),
    "padded in an inner join": (
        "inner",
        "belongs to an outer side",
        lambda rows: _with(rows, "l = 1 AND r = 11", r="NULL", **{RIGHT: "NULL"}),
    ),
    "values of another row": (
        "inner left full",
        "values that SELECT computes",
        lambda rows: _with(rows, "l = 1 AND r = 11", r="12"),
    ),
    "identity of another row": ("inner left full", "ON holds", lambda rows: _crossed(rows, "identity")),
    "identity of no row": (
        "inner left full",
        "consists of new or buffered rows",
        lambda rows: _with(rows, "l = 1 AND r = 11", **{RIGHT: f"named_struct('version', {RIGHT}.version, 'hash', "
                                                        f"{RIGHT}.hash + 1, 'number', {RIGHT}.number)"}),
    ),
    "alone beside its pair": (
        "left full",
        "a null-padded row has no match",
        lambda rows: _more(rows, "l = 1 AND r = 11", r="NULL", **{RIGHT: "NULL"}),
    ),
    "a row that met before alone": (
        "left full",
        "a null-padded row has no match",
        lambda rows: _more(rows, "l = 3", l="5", **{LEFT: OF_ROW_5}),
    ),
    "no row alone": ("left full", "leaves the buffer", lambda rows: rows.where("r IS NOT NULL OR l <> 3")),
    "no right row alone": ("full", "leaves the buffer", lambda rows: rows.where("NOT (l IS NULL AND r = 15)")),
}  # fmt: skip


def _crossed(rows: DataFrame, how: str) -> DataFrame:
    """Give the first pair the right row of another pair: as a further row, or in its identity alone."""
    other = rows.where("l = 2 AND r = 12").agg(F.max(RIGHT).alias("other"), F.max("r").alias("other_r"))
    crossed = rows.join(F.broadcast(other), on=F.expr("l = 1 AND r = 11"), how="left")
    names = rows.columns
    if how == "identity":
        return crossed.withColumn(RIGHT, F.coalesce("other", RIGHT)).select(*names)
    more = crossed.where("other IS NOT NULL").withColumns({RIGHT: F.col("other"), "r": F.col("other_r")})
    return rows.unionAll(more.select(*names))


@pytest.fixture(scope="module")
def history(_streams: Streams, tmp_path_factory: pytest.TempPathFactory) -> History:
    """Give a lake for a type of join in which an epoch has been and the rows of the next one came."""

    @cache
    def made(how: str) -> Streams:
        lake = _streams.copy(tmp_path_factory.mktemp(how) / "lake")
        join = lake.join(JOIN.replace("LEFT", how.upper()))
        lake.come("left", (1, "a", 0), (2, "b", 0), (3, "c", 0), (5, "e", 0), second=10)
        lake.come("right", (10, "e", 1), second=20)
        join.run(lake.spark)
        lake.come("right", (11, "a", 5), (12, "b", 6), (15, "d", 6), second=30)
        lake.come("left", (4, "x", 70), second=40)
        lake.come("right", (16, "x", 70), second=50)
        return lake

    return made


OFTEN = ("a pair more that does not meet", "no pair", "values of another row", "alone beside its pair", "no row alone")
"""These are planted each time, in a full join."""

CASES = [
    pytest.param(fault, how, id=f"{fault}, {how}", marks=[] if fault in OFTEN and how == "full" else pytest.mark.slow)
    for fault, (hows, _, _) in FAULTS.items()
    for how in hows.split()
]


@pytest.mark.parametrize(("fault", "how"), CASES)
def test_a_planted_fault_is_found_and_nothing_is_published(history: History, fault: str, how: str) -> None:
    """One fault of one row in an epoch that is right otherwise."""
    lake = history(how)
    _, words, change = FAULTS[fault]
    join = lake.join(JOIN.replace("LEFT", how.upper()))
    before = lake.versions()
    with planted(change), pytest.raises(GateFailed) as failed:
        join.run(lake.spark)
    assert words in failed.value.found
    after = lake.versions()
    assert {**after, "lakejoin_ledger": 0} == {**before, "lakejoin_ledger": 0}
    assert [row.step for row in lake.ledger() if row.epoch == 2 and row.step == COMMITTED] == []


@pytest.mark.parametrize("how", ["inner", "left", "full"])
@pytest.mark.deep
def test_what_is_right_passes(history: History, how: str) -> None:
    lake = history(how)
    lake = lake.copy(lake.folder.parent / "right")
    join = lake.join(JOIN.replace("LEFT", how.upper()))
    assert only(join.run(lake.spark)).outcome == "done"
    assert {(1, 11), (2, 12), (4, 16)} <= set(lake.found())


@pytest.mark.deep
def test_a_map_that_is_handed_on_in_another_order_is_found(lake: Lake) -> None:
    options = {"key": "id", "kind": "stream", "watermarks": {"n": 1}}
    for name in ("ls", "rs"):
        lake.create(name, "id INT, n INT, m MAP<STRING, INT>", "(1, 1, map('a', 1, 'b', 2))")
    sql = f"SELECT l.id, l.m FROM ls l JOIN rs r ON l.id = r.id AND {BOUNDS}"
    join = lake.pipeline(sql, {name: deepcopy(options) for name in ("ls", "rs")})
    reordered = F.expr("map_from_entries(reverse(map_entries(m)))")
    with (
        planted(lambda rows: rows.withColumn("m", reordered)),
        pytest.raises(GateFailed, match="values that SELECT computes"),
    ):
        join.run(lake.spark)
    assert only(join.run(lake.spark)).counts["appended"] == 1


BOUNDS = "l.n BETWEEN r.n - 3 AND r.n + 6"


@pytest.mark.slow
def test_of_many_rows_some_are_checked(history: History, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is lost of half of the rows is found; what is right passes, whichever rows are looked at."""
    monkeypatch.setattr(limits, "SEARCHED_ROWS", 4)
    lake = history("full")
    lake = lake.copy(lake.folder.parent / "sampled")
    join = lake.join(JOIN.replace("LEFT", "FULL"))
    with (
        planted(lambda rows: rows.where("l IS NULL OR r IS NULL")),
        pytest.raises(GateFailed, match="each pair of matching rows"),
    ):
        join.run(lake.spark)
    assert only(join.run(lake.spark)).outcome == "done"
    assert {(1, 11), (2, 12), (4, 16)} <= set(lake.found())


SHAPES: dict[str, tuple[str, str, str]] = {
    "no equality": ("FULL", BOUNDS, ""),
    "a filter of the result": ("FULL", f"l.k = r.k AND {BOUNDS}", "WHERE coalesce(l.v, r.v) <> 2"),
    "bounds in WHERE": ("INNER", "l.k = r.k", f"WHERE {BOUNDS} AND l.v < 4"),
    "conditions on one side": ("LEFT", f"l.k = r.k AND {BOUNDS} AND l.v > 1 AND r.v < 4", ""),
    "several times a side": ("FULL", f"l.k = r.k AND {BOUNDS} AND l.m >= r.m - 4", ""),
    "bounds across": ("RIGHT", "l.k = r.k AND l.n >= r.n - 3 AND r.m >= l.m - 6", ""),
}
ALWAYS = "several times a side"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "semantics", "ordered"),
    [
        pytest.param(shape, semantics, ordered, marks=[] if (shape, ordered) == (ALWAYS, False) else pytest.mark.slow)
        for shape in SHAPES
        for semantics in ("strict", "kafka", "kafka-0.10.2", "kafka-0.10.0")
        for ordered in (False, True)
        if semantics == "strict" or (ordered and shape in list(SHAPES)[:3])
    ],
)
def test_no_epoch_of_a_random_history_is_refused(lake: Lake, shape: str, semantics: str, *, ordered: bool) -> None:
    """Late rows, null keys, null times, equal rows, rows without a value: what the joins say of them passes."""
    how, on, where = SHAPES[shape]
    random, several = Random(f"{shape}{semantics}{ordered}"), ".m" in on
    times = {"n": 2, "m": 3} if several and semantics == "strict" else {"n": 2}
    options = {"key": "id", "kind": "stream", "watermarks": times, "null_value": "v = 0"}
    options |= {"order_by": "o"} if ordered else {}
    for name in ("ls", "rs"):
        lake.create(name, "id INT, k STRING, v INT, n INT, m INT, o INT")
    sql = f"SELECT l.id AS l, r.id AS r, l.v + r.v AS v FROM ls l {how} JOIN rs r ON {on} {where}"
    join = lake.pipeline(sql, {name: deepcopy(options) for name in ("ls", "rs")}, semantics=semantics)
    now, order = 0, 0
    for _ in range(3):
        for name in ("ls", "rs", "ls"):
            now, order, rows = now + random.randint(0, 5), order + 20, []
            for _ in range(random.randint(2, 6)):
                number, key = random.randint(1, 9), random.choice(("'a'", "'a'", "'b'", "NULL"))
                at = [random.choice((now + random.randint(-7, 3),) * 9 + ("NULL",)) for _ in range(2)]
                rows.append(f"({number}, {key}, {number % 5}, {at[0]}, {at[1]}, {order + random.randint(0, 25)})")
            lake.sql(f"INSERT INTO {{{name}}} VALUES {', '.join(rows + rows[:1])}", name)
        assert only(join.run(lake.spark)).outcome == "done"
    only(join.flush(lake.spark))
