"""Benchmarks that do not compare every way: first load, fixed costs, many versions."""

import shutil
import statistics
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import replace
from typing import Any
from unittest.mock import patch

from expectations.validation import Verdict
from pipelines.epochs.pairs.kind import PairsKind
from pipelines.epochs.tables.kind import TablesKind
from tests.benchmarks import rivals
from tests.benchmarks.commits import in_small_files, rewrite_each_file
from tests.benchmarks.compare import account, medians, must_be_equal, pipeline_of, ratio
from tests.benchmarks.cost import Meter
from tests.benchmarks.workload import Workload
from tests.lake import Lake, only

VERSIONS = 100
IDLE = 3


def backfill(meter: Meter, lake: Lake, workload: Workload, repeat: int) -> dict[str, Any]:
    """
    Load a result anew, beside CREATE TABLE AS SELECT of the same join, and scan both whole. Then verify the result, and
    reconcile it while nothing differs, beside INSERT OVERWRITE of the join.
    """
    workload.fill(lake)
    pipeline = pipeline_of(lake, workload)
    seconds: dict[str, list[float]] = {"ctas": [], "lakejoin": [], "scan": [], "scan_of_ctas": []}
    rivals.create(lake, workload, "ctas")
    for _ in range(repeat):
        for name in ("result", "ctas", "lakejoin_ledger"):
            shutil.rmtree(lake.path(name), ignore_errors=True)
        seconds["ctas"].append(meter.measure(lake.spark, lambda: rivals.create(lake, workload, "ctas"))[0].seconds)
        cost, report = meter.measure(lake.spark, lambda: only(pipeline.run(lake.spark)))
        seconds["lakejoin"].append(cost.seconds)
        for name, table in (("scan_of_ctas", "ctas"), ("scan", "result")) * 2:
            seconds[name].append(meter.measure(lake.spark, lambda: _scan(lake, table))[0].seconds)  # noqa: B023
    must_be_equal(lake, "result", "ctas")
    further: dict[str, Callable[[], object]] = {
        "overwrite": lambda: rivals.overwrite(lake, workload, "ctas"),
        "verify": lambda: pipeline.verify(lake.spark),
        "reconcile": lambda: pipeline.backfill(lake.spark),
    }
    for name, action in list(further.items()) * repeat:
        seconds.setdefault(name, []).append(meter.measure(lake.spark, action)[0].seconds)
    middle = medians(seconds)
    return {
        **middle,
        "ratio_ctas": ratio(middle, "lakejoin", "ctas"),
        "ratio_scan": ratio(middle, "scan", "scan_of_ctas"),
        "ratio_verify": ratio(middle, "verify", "overwrite"),
        "ratio_reconcile": ratio(middle, "reconcile", "overwrite"),
        **account(cost, report),
    }


def layout(meter: Meter, lake: Lake, workload: Workload, repeat: int) -> dict[str, Any]:
    """
    Apply the same changes of the newest referenced rows to a result in the order of its key and to one that is
    clustered by the reference, first while the rows that refer to them lie anywhere in their table, then while they lie
    together.
    """
    workload = replace(workload, shape="recent")
    (reference,) = workload.sources[0].references
    found: dict[str, Any] = {}
    for order in ("anywhere", "together"):
        place = Lake(lake.spark, lake.folder / order)
        workload.fill(place)
        if order == "together":
            orders = workload.sources[0]
            ranges = f"/*+ REPARTITION_BY_RANGE({orders.files}, {reference}) */"
            place.spark.sql(f"INSERT OVERWRITE {place.at(orders.name)} SELECT {ranges} * FROM {place.at(orders.name)}")
        clustered = {"sql": workload.statement(), "cluster_by": reference}
        pipeline = place.pipeline(workload.statement(), workload.keys, "by_key", {"by_reference": clustered})
        pipeline.run(place.spark)
        for turn in range(repeat + 1):
            workload.change(place, turn)
            for name in ("by_key", "by_reference"):
                cost, report = meter.measure(place.spark, lambda: only(pipeline.run(place.spark, [name])))  # noqa: B023
                found[f"{order}_{name}"] = {"seconds": round(cost.seconds, 2), **account(cost, report)}
        assert [report.outcome for report in pipeline.verify(place.spark)] == ["done", "done"]
        bytes_of = [found[f"{order}_{name}"]["bytes_read"] for name in ("by_reference", "by_key")]
        found[f"{order}_share_of_bytes"] = round(bytes_of[0] / bytes_of[1], 2)
    return found


def reconcile(meter: Meter, lake: Lake, workload: Workload, repeat: int) -> dict[str, Any]:
    """Backfill a result after changes of its sources, beside INSERT OVERWRITE of the join of the same sources."""
    workload.fill(lake)
    pipeline = pipeline_of(lake, workload)
    only(pipeline.run(lake.spark))
    rivals.create(lake, workload, "ctas")
    seconds: dict[str, list[float]] = {"overwrite": [], "lakejoin": []}
    for turn in range(repeat + 1):
        workload.change(lake, turn)
        full, _ = meter.measure(lake.spark, lambda: rivals.overwrite(lake, workload, "ctas"))
        cost, report = meter.measure(lake.spark, lambda: only(pipeline.backfill(lake.spark)))
        if turn:
            seconds["overwrite"].append(full.seconds)
            seconds["lakejoin"].append(cost.seconds)
    must_be_equal(lake, "result", "ctas")
    middle = medians(seconds)
    return {**middle, "ratio_overwrite": ratio(middle, "lakejoin", "overwrite"), **account(cost, report)}


def overhead(meter: Meter, lake: Lake, workload: Workload, repeat: int) -> dict[str, Any]:
    """Take runs with nothing to do, one after the other, then one with one change beside a bare MERGE of that row."""
    workload.fill(lake)
    pipeline = pipeline_of(lake, workload)
    only(pipeline.run(lake.spark))
    rivals.create(lake, workload, "merged")
    first = replace(workload, changes={workload.sources[0].name: 1})
    seconds: dict[str, list[float]] = {"nothing": [], "one": [], "merge": [], "merge_by_literal": []}
    for turn in range(repeat + 1):
        idle = [meter.measure(lake.spark, lambda: only(pipeline.run(lake.spark)))[0] for _ in range(IDLE)]
        first.change(lake, turn)
        key = first.changed_keys(lake, turn)[0]
        row = lake.spark.sql(f"SELECT * FROM ({workload.query(lake)}) WHERE id = {key}")
        lake.spark.createDataFrame(row.toArrow()).createOrReplaceTempView("row")
        literal, _ = meter.measure(lake.spark, lambda: _merge_row(lake, f" AND t.id = {key}"))  # noqa: B023
        plain, _ = meter.measure(lake.spark, lambda: _merge_row(lake))
        one, report = meter.measure(lake.spark, lambda: only(pipeline.run(lake.spark)))
        if turn:
            seconds["nothing"] += [cost.seconds for cost in idle]
            for name, cost in (("one", one), ("merge", plain), ("merge_by_literal", literal)):
                seconds[name].append(cost.seconds)
    middle = medians(seconds)
    data = {f"file:{lake.path(name)}" for name in (*(source.name for source in workload.sources), "result")}
    if not data & one.scanned:
        raise SystemExit(f"no scan of {sorted(data)} was seen where there was one: {sorted(one.scanned)}")
    return {
        **middle,
        "ratio_merge": ratio(middle, "one", "merge"),
        "ratio_merge_by_literal": ratio(middle, "one", "merge_by_literal"),
        "nothing_jobs": max(cost.spark_jobs for cost in idle),
        "nothing_data_scans": sum(len(data & cost.scanned) for cost in idle),
        **account(one, report),
    }


@contextmanager
def _without_gate() -> Iterator[None]:
    with ExitStack() as patched:
        for kind in (TablesKind, PairsKind):
            patched.enter_context(patch.multiple(kind, gate=lambda *_: Verdict(), prefetch=lambda *_: None))
        yield


def gate(meter: Meter, lake: Lake, workload: Workload, repeat: int) -> dict[str, Any]:
    """Take runs with the gate and runs without it, in turn; each has as many changes as the others."""
    workload.fill(lake)
    pipeline = pipeline_of(lake, workload)
    only(pipeline.run(lake.spark))
    seconds: dict[str, list[float]] = {"gated": [], "ungated": []}
    jobs: dict[str, list[int]] = {"gated": [], "ungated": []}
    for turn in range(2 * repeat + 2):
        workload.change(lake, turn)
        way = ("ungated", "gated")[turn % 2]
        with _without_gate() if way == "ungated" else nullcontext():
            cost, report = meter.measure(lake.spark, lambda: only(pipeline.run(lake.spark)))
        if turn > 1:
            seconds[way].append(cost.seconds)
            jobs[way].append(cost.spark_jobs)
    middle = medians(seconds)
    gate_jobs = statistics.median(jobs["gated"]) - statistics.median(jobs["ungated"])
    added = ratio(middle, "gated", "ungated") - 1
    return {**middle, "ratio_gate": round(added, 2), "gate_jobs": int(gate_jobs), **account(cost, report)}


def versions(meter: Meter, lake: Lake, workload: Workload, repeat: int) -> dict[str, Any]:
    """Catch up with 100 versions of a source; the changes are those of one version."""
    workload.fill(lake)
    pipeline = pipeline_of(lake, workload)
    only(pipeline.run(lake.spark))
    rivals.create(lake, workload, "recipe")
    first = replace(workload, changes={workload.sources[0].name: sum(workload.changes.values())})
    taken: dict[str, list[float]] = {"recipe": [], "lakejoin": []}
    for round_ in range(repeat):
        since = lake.versions()
        for turn in range(VERSIONS):
            first.change(lake, round_ * VERSIONS + turn)
        taken["recipe"].append(
            meter.measure(lake.spark, lambda: rivals.recipe(lake, workload, "recipe", since))[0].seconds  # noqa: B023
        )
        cost, report = meter.measure(lake.spark, lambda: only(pipeline.run(lake.spark)))
        taken["lakejoin"].append(cost.seconds)
    must_be_equal(lake, "result", "recipe")
    middle = medians(taken)
    return {**middle, "ratio_recipe": ratio(middle, "recipe", "lakejoin"), **account(cost, report)}


def changelog(meter: Meter, lake: Lake, workload: Workload, repeat: int) -> dict[str, Any]:
    """Take one epoch of many commits with its exact changelog, beside epochs of one commit each."""
    changes = sum(workload.changes.values())
    first = workload.sources[0]
    workload.fill(lake)
    in_small_files(lake, first.name, first.rows // changes)
    pipeline = lake.pipeline(workload.statement(), workload.keys, changelog=True)
    only(pipeline.run(lake.spark))
    commits = rewrite_each_file(lake, first.name, first.updated[0])
    cost, report = meter.measure(lake.spark, lambda: only(pipeline.run(lake.spark)))
    single = []
    for turn in range(repeat):
        workload.update_neighbours(lake, turn, changes)
        single.append(meter.measure(lake.spark, lambda: only(pipeline.run(lake.spark)))[0].seconds)
    pipeline.verify(lake.spark)
    one = round(statistics.median(single), 2)
    return {
        "commits": commits,
        "one_commit_s": one,
        "lakejoin_s": cost.seconds,
        "extrapolated_s": round(one * commits, 2),
        "ratio_extrapolated": round(one * commits / cost.seconds, 1),
        "changelog_rows": report.counts["changelog"],
        **account(cost, report),
    }


def _scan(lake: Lake, name: str) -> None:
    lake.spark.sql(f"SELECT * FROM {lake.at(name)}").write.format("noop").mode("overwrite").save()


def _merge_row(lake: Lake, also: str = "") -> None:
    """Merge the row of the view `row`."""
    lake.spark.sql(
        f"MERGE INTO {lake.at('merged')} t USING row s ON t.id = s.id{also} "
        "WHEN MATCHED THEN UPDATE SET * WHEN NOT MATCHED THEN INSERT *"
    ).collect()
