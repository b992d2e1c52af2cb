"""Random histories through real Delta tables and the driver: result, change feed and meaning agree after each epoch."""

import random
from typing import Any

import pytest

from lakehouse import limits
from pipelines import Pipeline
from pipelines.plan.values import EpochPlan
from tests.cases import cases
from tests.lake import Lake
from tests.pipeline_files import write

TYPES = {"inner_join": "JOIN", "left_join": "LEFT JOIN", "right_join": "RIGHT JOIN", "full_join": "FULL JOIN"}
HISTORIES, EPOCHS, SEED = 10, 1, 7
TABLES = ("left", "right")


@pytest.mark.slow
@cases("few", pytest.param(True, id="through the driver"), pytest.param(False, id="through the stage"))
def test_random_histories_of_every_type(lake: Lake, monkeypatch: pytest.MonkeyPatch, few: bool) -> None:
    """
    Ten histories side by side (the first key part tells them apart), commits of several kinds, all types of join. After
    each epoch the result is the join of its sources, evaluated here in plain Python, and the rows of its change feed
    are the difference of two successive results and nothing else.
    """
    monkeypatch.setattr(EpochPlan, "via_driver", few)
    monkeypatch.setattr(limits, "SMALL_BYTES", 0)  # so that rows are looked up as those of large tables are
    script = random.Random(SEED)
    for name in TABLES:
        lake.create(name, "h INT, k STRING, v INT")
        lake.sql(f"INSERT INTO {{{name}}} SELECT * FROM VALUES {rows(script)} AS t(h, k, v)")
    pipeline = pipelines(lake)
    before: dict[str, dict[Any, Any]] = {name: {} for name in TYPES}
    for epoch in range(EPOCHS + 1):
        told = [commit(lake, script, name) for _ in range(3) for name in TABLES] if epoch else ["load"]
        seen = {name: lake.version(name) if epoch else 0 for name in TYPES}
        pipeline.run(lake.spark)
        left, right = ({(h, k): v for h, k, v in lake.rows(name) if k is not None} for name in TABLES)
        for name in TYPES:
            expected = joined(name, left, right)
            story = f"seed {SEED}, epoch {epoch}, {name}, after {told}"
            assert lake.rows(name) == sorted(((*key, *values) for key, values in expected.items()), key=repr), story
            assert lake.feed(seen[name], name) == difference(before[name], expected), story
            before[name] = expected


def pipelines(lake: Lake) -> Pipeline:
    joins = {
        name: f"SELECT h, k, l.v AS v, r.v AS w FROM left l {join} right r USING (h, k)" for name, join in TYPES.items()
    }
    return Pipeline.load(write(lake.file, {name: ["h", "k"] for name in TABLES}, joins))


def rows(script: random.Random) -> str:
    """Some keys of each history, and now and then a row without one."""
    drawn = {
        (h, k): script.choice(["NULL", "1", "2"]) for h in range(HISTORIES) for k in "abcd" if script.random() < 0.6
    }
    listed = [f"({h}, '{k}', {v})" for (h, k), v in drawn.items()] + [f"({script.randrange(HISTORIES)}, NULL, 1)"]
    return ", ".join(listed)


def commit(lake: Lake, script: random.Random, name: str) -> str:
    some = f"h % 3 = {script.randrange(3)} AND k <> '{script.choice('abcd')}'"
    upsert = (
        f"MERGE INTO {{{name}}} t USING (SELECT * FROM VALUES {rows(script)} AS s(h, k, v) WHERE k IS NOT NULL) s "
        "ON t.h = s.h AND t.k = s.k WHEN MATCHED THEN UPDATE SET v = s.v WHEN NOT MATCHED THEN INSERT *"
    )
    statement = script.choice(
        [
            upsert,
            upsert,
            f"DELETE FROM {{{name}}} WHERE {some}",
            f"UPDATE {{{name}}} SET v = {script.randrange(3)} WHERE {some}",
            f"UPDATE {{{name}}} SET h = (h + 3) % {HISTORIES}",
            f"INSERT OVERWRITE {{{name}}} SELECT * FROM {{{name}}}",
            f"RESTORE TABLE {{{name}}} TO VERSION AS OF {max(1, lake.version(name) - 1)}",
        ]
    )
    lake.sql(statement)
    return statement


def joined(kind: str, left: dict[Any, Any], right: dict[Any, Any]) -> dict[Any, tuple[Any, Any]]:
    keys = {
        "inner_join": left.keys() & right.keys(),
        "left_join": left.keys(),
        "right_join": right.keys(),
        "full_join": left.keys() | right.keys(),
    }[kind]
    return {key: (left.get(key), right.get(key)) for key in keys}


def difference(before: dict[Any, Any], after: dict[Any, Any]) -> list[tuple[str, tuple[Any, ...]]]:
    feed = []
    for key in before.keys() | after.keys():
        old, new = before.get(key), after.get(key)
        if old is not None and old != new:
            feed.append(("delete" if new is None else "update_preimage", (*key, *old)))
        if new is not None and old != new:
            feed.append(("insert" if old is None else "update_postimage", (*key, *new)))
    return sorted(feed, key=repr)
