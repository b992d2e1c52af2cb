"""
Run the benchmarks and write their tables and their plot into the pages.

    python -m tests.benchmarks.report [--only NAME]

Each benchmark is a process of its own. Lines go to `tests/benchmarks/results.jsonl`, the plot to
`tests/benchmarks/growth.svg`. README.md gets the table that compares the ways, `tests/README.md` all other figures,
each between its two marks. With --only, the lines of one group are measured again (compare, cases, rows, changes) and
the others are read from the file; with `--only none` all of them are.
"""

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from datetime import date
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
RESULTS, PLOT = HERE / "results.jsonl", HERE / "growth.svg"
README, TESTS = HERE.parent.parent / "README.md", HERE.parent / "README.md"
BEGIN, END = "<!-- benchmarks -->", "<!-- /benchmarks -->"

WIDE = ["--rows", "4000000", "--width", "wide", "--repeat", "1"]
MILLION = 1_000_000


def growth(rows: int, changes: int) -> list[str]:
    sizes = ["--rows", str(rows), "--changes", str(changes)]
    return ["table_table", *sizes, "--shape", "recent", "--ways", "full,lakejoin", "--repeat", "1"]


GROUPS: dict[str, list[list[str]]] = {
    "compare": [
        ["table_table", *WIDE, "--changes", "4000", "--shape", "recent"],
        ["table_table", *WIDE, "--changes", "4000", "--shape", "uniform"],
        ["foreign_key", *WIDE, "--changes", "200"],
        ["star", "--rows", "2000000", "--changes", "2000", "--repeat", "1"],
    ],
    "cases": [
        ["backfill", "--rows", "4000000", "--width", "wide", "--repeat", "2"],
        ["backfill", "--rows", "16000000", "--repeat", "2"],
        ["backfill", "--join", "foreign_key", "--rows", "4000000", "--repeat", "1"],
        ["backfill", "--join", "star", "--rows", "2000000", "--repeat", "1"],
        ["reconcile", "--rows", "2000000", "--changes", "20000", "--repeat", "2"],
        ["reconcile", "--rows", "2000000", "--changes", "400000", "--repeat", "1"],
        ["many", "--rows", "4000000", "--changes", "1000", "--ways", "full,lakejoin", "--repeat", "1"],
        ["overhead", "--rows", "1000000"],
        ["versions", "--rows", "1000000", "--changes", "40", "--repeat", "1"],
        ["changelog", "--rows", "1000000", "--changes", "1000", "--shape", "recent", "--repeat", "3"],
        ["gate", "--rows", "2000000", "--changes", "5000", "--shape", "recent"],
        ["gate", "--rows", "2000000", "--changes", "5000"],
        ["stream_table", "--rows", "10000000", "--repeat", "1"],
        ["stream_table", "--rows", "10000000", "--repeat", "1", "--shape", "skewed"],
        ["stream_stream", "--rows", "5000000"],
    ],
    "rows": [growth(rows, 1_000) for rows in (1 * MILLION, 4 * MILLION, 16 * MILLION)],
    "changes": [growth(4 * MILLION, changes) for changes in (10, 1_000, 100_000)],
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.report", description=__doc__)
    parser.add_argument("--only", choices=[*GROUPS, "none"])
    only = parser.parse_args().only
    lines = _recorded()
    for group, benchmarks in GROUPS.items():
        for arguments in benchmarks if only in (None, group) else []:
            print("python -m tests.benchmarks", *arguments, file=sys.stderr, flush=True)
            lines[tuple(arguments)] = {"arguments": arguments, **_measure(arguments)}
            RESULTS.write_text("".join(json.dumps(line) + "\n" for line in lines.values()))
    found = grouped()
    if found["rows"] and found["changes"]:
        draw(found["rows"], found["changes"])
    for page, written in ((README, summary(found)), (TESTS, details(found))):
        text = page.read_text()
        before, after = text.split(BEGIN)[0], text.split(END)[1]
        page.write_text(f"{before}{BEGIN}\n\n{written}\n\n{END}{after}")


def grouped() -> dict[str, list[dict[str, Any]]]:
    lines = _recorded()
    return {group: [lines[tuple(each)] for each in all_ if tuple(each) in lines] for group, all_ in GROUPS.items()}


def summary(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return the part of README.md: how lakejoin compares, where it is slower, and the plot."""
    ratio = [
        "{name}, {width}, {rows:,} rows, {changes:,} {shape} changes | {ctas_s:.1f} | {full_s:.1f} | {recipe_s:.1f} | "
        "**{lakejoin_s:.1f}** | {spark_jobs} | {ratio_full:.1f} | {ratio_recipe:.1f} | "
        "{feed_rows:,} / {needed_feed_rows:,}".format_map(line)
        for line in found["compare"]
    ]
    head = (
        "case | CTAS s | full s | recipe s | lakejoin s | its Spark jobs | full / lakejoin | recipe / lakejoin | "
        "feed rows / needed"
    )
    parts = [_measured(found, *GROUPS), _table(head, ratio)]
    named = {"backfill", "many", "overhead", "stream_table", "stream_stream"}
    if found["rows"] and found["changes"] and named <= {line["name"] for line in found["cases"]}:
        parts.append("\n".join(f"- {sentence}" for sentence in _sentences(found)))
    if found["rows"] or found["changes"]:
        parts.append("![Seconds by rows and by changes](tests/benchmarks/growth.svg)")
    return "\n\n".join(parts)


def _sentences(found: dict[str, list[dict[str, Any]]]) -> Iterator[str]:
    """Return what a reader should know before choosing lakejoin, in figures: ranges, not the best case."""
    for line in (found["rows"][0], found["rows"][-1]):
        yield (
            f"With narrow tables of {line['rows']:,} rows full recompute takes {line['full_s']:.1f} s, "
            f"lakejoin {line['lakejoin_s']:.1f} s."
        )
    cases: dict[str, list[dict[str, Any]]] = {}
    for line in found["cases"]:
        cases.setdefault(line["name"], []).append(line)
    epochs = [*found["compare"], *found["rows"], *found["changes"], *cases["many"]]
    yield (
        f"For the epochs that were compared with it, full recompute takes {_range(epochs, 'ratio_full')} times as long "
        f"as lakejoin. These epochs run {_range(epochs, 'spark_jobs', 0)} Spark jobs."
    )
    yield (
        f"A first load takes {_range(cases['backfill'], 'ratio_ctas')} times as long as CREATE TABLE AS SELECT, "
        "because it looks for repeated keys in the sources, and its gate reads the result again."
    )
    (one,), streams, (both,) = cases["overhead"], cases["stream_table"], cases["stream_stream"]
    yield (
        f"An epoch with one changed row takes {one['one_s']:.1f} s and {one['spark_jobs']} Spark jobs, a MERGE of that "
        f"row {one['merge_s']:.1f} s; a run with nothing to do takes {one['nothing_s']:.1f} s."
    )
    yield (
        f"A stream of {streams[0]['rows']:,} rows looks up a table in {_range(streams, 'lakejoin_s')} s, Spark's own "
        f"stream-static join in {_range(streams, 'spark_s')} s; an epoch of two streams takes {both['epoch_s']:.1f} s, "
        f"one of Spark's own join {both['spark_epoch_s']:.1f} s."
    )


def _range(lines: Sequence[dict[str, Any]], name: str, digits: int = 1) -> str:
    values = [line[name] for line in lines]
    return f"{min(values):.{digits}f} to {max(values):.{digits}f}"


def details(found: dict[str, list[dict[str, Any]]]) -> str:
    """Return the part of `tests/README.md`: every figure that README.md does not show, and those of the plot."""
    grown = [
        "{rows:,} | {changes:,} | {full_s:.1f} | {lakejoin_s:.1f} | {spark_jobs}".format_map(line)
        for line in (*found["rows"], *found["changes"])
    ]
    single = [row for line in found["cases"] for row in _single(line)]
    parts = [_measured(found, "cases", "rows", "changes")]
    if single:
        parts.append(_table("case | seconds | ratio", single))
    if grown:
        parts.append(_table("rows of each table | changes (recent) | full s | lakejoin s | its Spark jobs", grown))
    return "\n\n".join(parts)


def _measured(found: dict[str, list[dict[str, Any]]], *groups: str) -> str:
    """Return the sentence that says on which machines and days the lines of groups were measured, and how."""
    lines = [line for group in groups for line in found[group]]
    machines = sorted({f"{line['cores']} cores with {line['memory_gib']} GiB" for line in lines})
    days = sorted({line["on"] for line in lines})
    return (
        f"Measured by `make benchmarks` on {' and '.join(machines)}, with tables in local folders only, "
        f"{', '.join(days)}: seconds of the rounds after one that warms the session, one process for each line, "
        "lakejoin with its gate on."
    )


def draw(rows: Sequence[dict[str, Any]], changes: Sequence[dict[str, Any]]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 3.2), layout="constrained")
    for axes, lines, by in zip(figure.subplots(1, 2, sharey=True), (rows, changes), ("rows", "changes"), strict=True):
        for way, label in (("full_s", "full recompute"), ("lakejoin_s", "lakejoin")):
            axes.plot([line[by] for line in lines], [line[way] for line in lines], marker="o", label=label)
        axes.set_xscale("log")
        axes.set_xlabel(f"{by} (log)")
        axes.set_ylim(bottom=0)
        axes.grid(alpha=0.3)
    figure.axes[0].set_ylabel("seconds")
    figure.axes[0].legend()
    figure.savefig(PLOT, metadata={"Date": None})


def _recorded() -> dict[tuple[str, ...], dict[str, Any]]:
    lines = map(json.loads, RESULTS.read_text().splitlines()) if RESULTS.exists() else []
    return {tuple(line["arguments"]): line for line in lines}


def _measure(arguments: Sequence[str]) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks", *arguments]
    made = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2**30
    machine = {"cores": os.cpu_count(), "memory_gib": memory, "on": date.today().isoformat()}
    return {**machine, **json.loads(made.stdout.splitlines()[-1])}


SINGLE: dict[str, tuple[str, ...]] = {
    "backfill": (
        "first load / CTAS, {of} | {lakejoin_s:.1f} / {ctas_s:.1f} | {ratio_ctas:.2f}",
        "scan of the result / of the CTAS, {of} | {scan_s:.1f} / {scan_of_ctas_s:.1f} | {ratio_scan:.2f}",
        "verify / INSERT OVERWRITE, {of} | {verify_s:.1f} / {overwrite_s:.1f} | {ratio_verify:.2f}",
        "backfill of a result in which nothing differs / INSERT OVERWRITE, {of} | "
        "{reconcile_s:.1f} / {overwrite_s:.1f} | {ratio_reconcile:.2f}",
    ),
    "reconcile": (
        "backfill after {changes:,} changes / INSERT OVERWRITE of the changed tables, {of} | "
        "{lakejoin_s:.1f} / {overwrite_s:.1f} | {ratio_overwrite:.2f}",
    ),
    "many": (
        "{changes:,} changed orders and {customers:,} customers, LEFT JOIN from the customers, {of}: "
        "full recompute / lakejoin | {full_s:.1f} / {lakejoin_s:.1f} | {ratio_full:.2f}",
    ),
    "overhead": (
        "nothing to do, {of} | {nothing_s:.1f} | {nothing_data_scans} scans of data, {nothing_jobs} Spark jobs",
        "one change / MERGE of that row, {of} | {one_s:.1f} / {merge_s:.1f} | "
        "{ratio_merge:.2f}, {spark_jobs} Spark jobs",
    ),
    "stream_table": (
        "stream-table in a driver of 2 GiB, {of}{half}: Spark's stream-static join / lakejoin | "
        "{spark_s:.1f} / {lakejoin_s:.1f} | {ratio_spark:.2f}",
    ),
    "stream_stream": tuple(
        f"stream-stream, {what}, {{rows:,}} rows a side within an hour: Spark's stream-stream join / lakejoin | "
        f"{{spark_{spark}:.1f}} / {{{ours}:.1f}} | {{ratio_{spark}:.2f}}"
        for what, spark, ours in (
            ("a load of one half and 20 epochs", "s", "lakejoin_s"),
            ("the load", "load_s", "load_s"),
            ("one of the epochs", "epoch_s", "epoch_s"),
        )
    ),
    "gate": (
        "a run of {changes:,} {shape} changes with its gate / without, {of} | {gated_s:.1f} / {ungated_s:.1f} | "
        "+{ratio_gate:.0%}, {gate_jobs} Spark jobs",
    ),
    "changelog": (
        "{commits:,} epochs of {changes:,} changes with a changelog, extrapolated / one epoch, {of} | "
        "{extrapolated_s:,.0f} / {lakejoin_s:.1f} | {ratio_extrapolated:.1f}",
    ),
    "versions": (
        "100 versions of {changes} changes, recipe / lakejoin, {of} | {recipe_s:.1f} / {lakejoin_s:.1f} | "
        "{ratio_recipe:.2f}",
    ),
}
"""For each benchmark that does not compare every way its rows: what was measured, the seconds, and their ratio."""


def _single(line: dict[str, Any]) -> list[str]:
    of = f"{line['rows']:,} rows, {line['width']}"
    if line.get("join", "table_table") != "table_table":
        of += f", {line['join']}"
    more = {
        "of": of,
        "customers": line["changes"] // 5,
        "half": ", half of the keys null, both sides shuffled" if line["shape"] == "skewed" else "",
    }
    if line["name"] == "stream_stream":
        for spark, ours in (("s", "lakejoin_s"), ("load_s", "load_s"), ("epoch_s", "epoch_s")):
            more[f"ratio_{spark}"] = line[f"spark_{spark}"] / line[ours]
    return [row.format_map({**line, **more}) for row in SINGLE[line["name"]]]


def _table(head: str, rows: Sequence[str]) -> str:
    return "\n".join(f"| {line} |" for line in (head, " | ".join(["---"] * len(head.split(" | "))), *rows))


if __name__ == "__main__":
    main()
