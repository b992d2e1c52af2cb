"""
Feed recorded vectors to lakejoin's own functions and compare the outputs, record by record.

    python -m tests.conformance [--mode strict] [--mutate drop|add|swap] [--show ID] [--through delta] FILE...

In recorded mode the changelog under the semantics of Kafka Streams must be the recorded output to the letter. In strict
mode the changelog, and the change sets of epochs of one record each, must be the recorded output without unnecessary
tombstones and unchanged repeats. Each changelog is computed three times: in one epoch, cut at random, and with one
record an epoch; so is what a join of a stream with a table emits, which is the same in both modes. What a global table
holds depends on the cut, so that there is one record an epoch.
Joins of two streams, of Kafka Streams and of Hazelcast, are cut in the same three ways, and compared as bags in both
modes: what lakejoin does otherwise than the recorded engine has names, and is counted under them.
All cases of one kind and type of join, of all files, are one Spark job; of joins of two streams all of one definition.
Everything here translates formats; what joins is the product.
"""

import argparse
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

from lakehouse.session.session import local_session, own_session
from pipelines.joins.meaning import meaning
from tests import window_conformance
from tests.joins.changelogs import changelogs
from tests.joins.claims import literal
from tests.joins.epochs import bound, change_sets, key_types
from tests.joins.kafka_streams import JOINS
from tests.joins.schemas import STRING, columns
from tests.joins.statements import SIDES, statement
from tests.joins.streams import KINDS, emissions, kept_since_kip_962, recorded
from tests.joins.vectors import SEMANTICS, Case, Change, Logged, apply, logged, put, strict_changes
from tests.joins.vectors import case_of as table_case_of
from tests.joins.windows import Definition

SOURCE = columns(key=STRING, value=STRING)
CASE, EPOCH = StructField("_case", IntegerType()), StructField("_seq", IntegerType())
CHANGE_TYPE = StructField("_change_type", StringType())
FIRST_FAILURES = 5
NOT_RUN = 2
"""Exit code where nothing was compared: wrong usage, or nothing that can be run yet."""


Outputs = list[Change] | list[Logged]
Recorded = Case | window_conformance.Case
EPOCHS = "change sets"
"""What strict mode looks at beside changelogs."""


@dataclass
class Outcome:
    case: Recorded
    actual: list[tuple[int, str]]
    expected: list[tuple[int, str]]
    problems: list[str]
    seconds: float
    differences: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True)
class Computed:
    outputs: dict[str, Outputs]
    final: dict[str, str] | None


@dataclass
class FileReport:
    path: Path
    runnable: list[Recorded] = field(default_factory=list)
    skipped: Counter[str] = field(default_factory=Counter)
    outcomes: list[Outcome] = field(default_factory=list)


def read(path: Path) -> list[Recorded]:
    with path.open(encoding="utf-8") as lines:
        return [_case_of(json.loads(line)) for line in lines if line.strip()]


def _case_of(line: dict[str, Any]) -> Recorded:
    return window_conformance.case_of(line) if line["join"] in JOINS else table_case_of(line)


def why_skipped(case: Recorded, mode: str) -> str | None:
    return case.why_skipped(mode) if isinstance(case, Case) else window_conformance.why_skipped(case)


def run_strict(
    spark: SparkSession, kind: str, how: str, cases: Sequence[Case]
) -> list[tuple[list[Change], dict[str, str]]]:
    sides = SIDES[kind]
    feeds, rows, last = ({side: [] for side in sides} for _ in range(3))
    for number, case in enumerate(cases):
        tables: dict[str, dict[str | None, str]] = {side: {} for side in sides}
        for record in case.input:
            changed = apply(tables[record.side], record.key, record.value)
            feeds[record.side] += [(number, record.seq, row.key, row.value, row.change_type) for row in changed]
            for side in sides:
                rows[side] += [(number, record.seq, key, value) for key, value in tables[side].items()]
        for side in sides:
            last[side] += [(number, key, value) for key, value in tables[side].items()]

    def frames(data: dict[str, list], *scope: StructField, extra: Sequence[StructField] = ()) -> dict[str, DataFrame]:
        schema = StructType([*scope, *SOURCE, *extra])
        return {side: literal(spark, data[side], schema) for side in sides}

    schemas = dict.fromkeys(sides, SOURCE)
    join = bound(statement(kind, how), dict.fromkeys(sides, ("key",)), schemas)
    epochs = [CASE.name, EPOCH.name]
    changed = change_sets(
        join,
        key_types(join, schemas),
        frames(feeds, CASE, EPOCH, extra=[CHANGE_TYPE]),
        frames(rows, CASE, EPOCH),
        epochs,
    )
    finals = meaning(list(frames(last, CASE).values()), join, [CASE.name])
    return list(zip(_changes(changed, len(cases)), _tables(finals, len(cases)), strict=True))


def _changes(frame: DataFrame, cases: int) -> list[list[Change]]:
    found: list[list[Change]] = [[] for _ in range(cases)]
    for row in frame.select("_case", "_seq", "op", "key.key", "before", "after", "copies").collect():
        assert row["copies"] == 1, row
        before, after = (image and image["value"] for image in (row["before"], row["after"]))
        found[row["_case"]].append(Change(row["_seq"], row["op"], row["key"], before, after))
    return [sorted(changes, key=lambda change: (change.after, change.key)) for changes in found]


def _tables(frame: DataFrame, cases: int) -> list[dict[str, str]]:
    found: list[dict[str, str]] = [{} for _ in range(cases)]
    for number, key, value in frame.select("_case", "key", "value").collect():
        assert key not in found[number], key
        found[number][key] = value
    return found


def run_mode(spark: SparkSession, mode: str, kind: str, how: str, cases: Sequence[Case]) -> list[Computed]:
    if kind in KINDS:
        semantics = SEMANTICS[cases[0].semantics] if mode == "recorded" else "strict"
        return [Computed(dict(ways), None) for ways in emissions(spark, kind, how, cases, semantics)]
    if mode == "recorded":
        recorded = changelogs(spark, kind, how, cases, SEMANTICS[cases[0].semantics])
        return [Computed(dict(ways), None) for ways in recorded]
    sets = run_strict(spark, kind, how, cases)
    strict = changelogs(spark, kind, how, cases, "strict")
    return [Computed({EPOCHS: changes, **ways}, final) for (changes, final), ways in zip(sets, strict, strict=True)]


def expected_outputs(case: Case, mode: str, way: str) -> Outputs:
    """Give what a case must give, as change sets, as rows of a changelog, or as rows of a stream."""
    if case.join in KINDS:
        return recorded(case)
    if mode == "recorded":
        return logged(case, case.output)
    changes = list(strict_changes(case.output))
    return changes if way == EPOCHS else logged(case, changes)


def compared(case: Case, mode: str, computed: Computed, seconds: float) -> Outcome:
    problems, shown = [], ""
    for way, outputs in computed.outputs.items():
        actual = kept_since_kip_962(case, outputs) if case.join in KINDS else outputs
        expected = expected_outputs(case, mode, way)
        if list(actual) != list(expected):
            shown = shown or way
            at = _first_difference(expected, actual)
            wanted, found = (made[at] if at < len(made) else None for made in (expected, actual))
            problems.append(f"{way}: output {at + 1}: expected {_brief(wanted)}, found {_brief(found)}")
        if case.final is not None and _summed(actual) != case.final:
            problems.append(f"{way}: final: recorded {case.final}, the outputs add up to {_summed(actual)}")
    if computed.final is not None and computed.final != case.final:
        problems.append(f"final: recorded {case.final}, the meaning is {computed.final}")
    shown = shown or next(iter(computed.outputs))
    actual, expected = computed.outputs[shown], expected_outputs(case, mode, shown)
    return Outcome(case, _told(actual), _told(expected), problems, seconds)


def _told(outputs: Outputs) -> list[tuple[int, str]]:
    return [(one.after, f"{one.key}={one.value}") for one in outputs]


def _summed(outputs: Outputs) -> dict[str, str]:
    result: dict[str, str] = {}
    for output in outputs:
        put(result, output.key, output.value)
    return result


def _first_difference(expected: Sequence[object], actual: Sequence[object]) -> int:
    pairs = enumerate(zip(expected, actual, strict=False))
    return next((at for at, (one, other) in pairs if one != other), min(len(expected), len(actual)))


def _brief(output: Change | Logged | None) -> str:
    if output is None:
        return "nothing"
    cause = f" by {output.cause}" if isinstance(output, Logged) else ""
    return f"{output.op} {output.key}={output.value} after {output.after}{cause}"


def _drop(outputs: Outputs, case: Case) -> Outputs:
    middle = len(outputs) // 2
    return outputs[:middle] + outputs[middle + 1 :]


def _add(outputs: Outputs, case: Case) -> Outputs:
    if not outputs:
        first = case.input[0]
        return [Change(first.seq, "delete", first.key or "", None, None)]
    middle = len(outputs) // 2
    return [*outputs[: middle + 1], outputs[middle], *outputs[middle + 1 :]]


def _swap(outputs: Outputs, case: Case) -> Outputs:
    for at in range(len(outputs) - 1):
        one, other = outputs[at : at + 2]
        if one[1:] != other[1:]:
            swapped = [other._replace(after=one.after), one._replace(after=other.after)]
            return [*outputs[:at], *swapped, *outputs[at + 2 :]]
    return outputs


DAMAGES: dict[str, Callable[[Outputs, Case], Outputs]] = {"drop": _drop, "add": _add, "swap": _swap}
"""Ways to damage the product's outputs; a case without enough of them stays as it is."""


def run_files(spark: SparkSession, reports: Sequence[FileReport], mode: str, damage: str | None) -> None:
    """Run the cases of all files, those of one kind and type of join at once, and put the outcomes into the reports."""
    session = own_session(spark, "UTC")
    session.conf.set("spark.sql.adaptive.enabled", "false")  # many plans over few rows
    session.conf.set("spark.sql.shuffle.partitions", "1")
    session.conf.set("spark.sql.codegen.wholeStage", "false")
    session.conf.set("spark.sql.codegen.factoryMode", "NO_CODEGEN")
    alike: dict[tuple[str, str, str], list[tuple[FileReport, Case]]] = {}
    windows: dict[Definition | None, list[tuple[FileReport, window_conformance.Case]]] = {}
    for report in reports:
        for case in report.runnable:
            if not isinstance(case, Case):
                windows.setdefault(window_conformance.definition_of(case), []).append((report, case))
                continue
            semantics = case.semantics if mode == "recorded" else ""
            alike.setdefault((case.join, case.type, semantics), []).append((report, case))
    for (kind, how, _), owners in alike.items():
        start = time.monotonic()
        computed = run_mode(session, mode, kind, how, [case for _, case in owners])
        share = (time.monotonic() - start) / len(owners)
        for (report, case), found in zip(owners, computed, strict=True):
            if damage:
                outputs = {way: DAMAGES[damage](actual, case) for way, actual in found.outputs.items()}
                found = Computed(outputs, found.final)
            report.outcomes.append(compared(case, mode, found, share))
    for definition, those in windows.items():
        start = time.monotonic()
        made = run_windows(session, definition, [case for _, case in those])
        share = (time.monotonic() - start) / len(those)
        for (report, one), attempts in zip(those, made, strict=True):
            damaged = window_conformance.damaged(attempts, damage) if damage else attempts
            problems, differences, expected, actual = window_conformance.compared(one, damaged)
            report.outcomes.append(Outcome(one, actual, expected, problems, share, differences))


run_windows = window_conformance.run


def show(outcome: Outcome) -> str:
    """Lay out the records of a case with the expected and the actual outputs, an arrow at the first difference."""
    case = outcome.case
    lines = [f"{case.id}: {'FAILED' if outcome.problems else 'passed'}"]
    lines.append(_line("", "seq", "side", "key", "value", "expected", "actual"))
    differs = False
    for seq, record in _records(case):
        here, there = (
            [text for after, text in outputs if after == seq] for outputs in (outcome.expected, outcome.actual)
        )
        for place in range(max(1, len(here), len(there))):
            wanted, found = (outputs[place] if place < len(outputs) else "" for outputs in (here, there))
            arrow = "-->" if wanted != found and not differs else ""
            differs = differs or wanted != found
            shown = ["" if place else cell for cell in (str(seq), *record)]
            lines.append(_line(arrow, *shown, wanted, found))
    lines += [f"final {case.final}"] if isinstance(case, Case) else []
    lines += [f"differences: {_counted(outcome.differences)}"] if outcome.differences else []
    return "\n".join([*lines, *(f"  {problem}" for problem in outcome.problems)])


def _records(case: Recorded) -> list[tuple[int, list[str]]]:
    if not isinstance(case, Case):
        return window_conformance.steps_of(case)
    return [(record.seq, [record.side, str(record.key), str(record.value)]) for record in case.input]


def _counted(differences: Counter[str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in sorted(differences.items()))


def _line(arrow: str, seq: str, side: str, key: str, value: str, expected: str, actual: str) -> str:
    return f"{arrow:4}{seq:>4}  {side:6}{key:6}{value:10}{expected:24}{actual}".rstrip()


def summary(reports: Sequence[FileReport]) -> list[str]:
    """Write a line for each file, with the first failures below it, and a last line for all."""
    lines = []
    for report in reports:
        failed = [outcome for outcome in report.outcomes if outcome.problems]
        counts = f"{len(report.outcomes)} cases, {len(report.outcomes) - len(failed)} passed, {len(failed)} failed"
        seconds = sum(outcome.seconds for outcome in report.outcomes)
        lines.append(f"{report.path.name}: {counts}, {seconds:.1f} s")
        lines += [f"  skipped {number}: {why}" for why, number in sorted(report.skipped.items())]
        differences = sum((outcome.differences for outcome in report.outcomes), Counter())
        lines += [f"  differences: {_counted(differences)}"] if differences else []
        lines += [f"  {outcome.case.id}: {outcome.problems[0]}" for outcome in failed[:FIRST_FAILURES]]
        if len(failed) > FIRST_FAILURES:
            lines.append(f"  and {len(failed) - FIRST_FAILURES} more")
    outcomes = [outcome for report in reports for outcome in report.outcomes]
    failures = sum(bool(outcome.problems) for outcome in outcomes)
    skipped = sum(report.skipped.total() for report in reports)
    last = f"{len(outcomes) - failures} passed, {failures} failed"
    return [*lines, f"{last}, {skipped} skipped" if skipped else last]


def main(argv: Sequence[str] | None = None, spark: SparkSession | None = None) -> int:
    options = _parser().parse_args(argv)
    if options.mode == "recorded" and options.through:
        return _refuse("--through delta drives strict joins; it does not go together with --mode recorded")
    if options.through and options.mutate:
        return _refuse("--mutate damages computed outputs; it does not go together with --through")
    reports = []
    for path in options.files:
        try:
            cases = read(path)
        except (OSError, ValueError, KeyError) as error:
            return _refuse(f"{path}: no file of vectors: {error}")
        chosen = [case for case in cases if options.show in (None, case.id)]
        reports.append(_report(path, options.mode, chosen, through_delta=bool(options.through)))
    if options.show and not any(report.runnable or report.skipped for report in reports):
        return _refuse(f"no case is called {options.show}")
    if not any(report.runnable for report in reports):
        print("\n".join(summary(reports)))
        return NOT_RUN
    session = spark or local_session()
    try:
        if options.through:
            from tests.joins.through_delta import run_sample

            run_sample(session, reports)
        else:
            run_files(session, reports, options.mode, options.mutate)
    finally:
        if spark is None:
            session.stop()
    outcomes = [outcome for report in reports for outcome in report.outcomes]
    if options.show and not options.through:
        print("\n".join(show(outcome) for outcome in outcomes))
    print("\n".join(summary(reports)))
    return int(any(outcome.problems for outcome in outcomes))


def _report(path: Path, mode: str, cases: Sequence[Recorded], *, through_delta: bool) -> FileReport:
    skipped = {case.id: why for case in cases if (why := why_skipped(case, mode))}
    if through_delta:
        skipped |= {case.id: "not yet driven through tables" for case in cases if not isinstance(case, Case)}
        streams = [case for case in cases if isinstance(case, Case) and case.join in KINDS]
        skipped |= {case.id: "tests/test_streams.py has real tables" for case in streams}
    return FileReport(path, [case for case in cases if case.id not in skipped], Counter(skipped.values()))


def _refuse(message: str) -> int:
    print(message, file=sys.stderr)
    return NOT_RUN


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description="Compare with recorded vectors.")
    parser.add_argument("--mode", choices=["strict", "recorded"], default="strict", help="what must come out")
    parser.add_argument("--mutate", choices=list(DAMAGES), help="damage every output, to see that it is noticed")
    parser.add_argument("--show", metavar="ID", help="run this case alone and print input, expected and actual outputs")
    parser.add_argument("--through", choices=["delta"], help="drive the first case of each file through real tables")
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="vectors, one case a line")
    return parser


if __name__ == "__main__":
    sys.exit(main())
