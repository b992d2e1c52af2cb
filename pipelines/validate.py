"""Hold what is published to the suites of its kind, and to what the file expects of it; write nothing."""

from collections.abc import Iterator
from typing import NamedTuple

from pyspark.sql.types import MapType

from expectations.declared import judge
from expectations.suites import Suite, of_changelog, of_stream, of_table, of_two_streams
from lakehouse.address import Address
from lakehouse.conditions import reading
from lakehouse.errors import GateFailed, NotLoaded
from lakehouse.tables import get, read
from lakehouse.values import INCOMPARABLE, contains
from pipelines.binding import BoundJoin, bind_join
from pipelines.joins.stream_stream import is_eager, preserved
from pipelines.publishing import Stopwatch
from pipelines.report import JoinReport
from pipelines.spec import CHANGELOG_COLUMNS, ROW_COLUMNS, STREAM_COLUMNS
from pipelines.workspace import Workspace


class Held(NamedTuple):
    """A published table, and what it is held to."""

    table: Address
    suite: Suite


def suites(workspace: Workspace, bound: BoundJoin) -> Iterator[Held]:
    """
    Give the tables of a join that readers see, each with what is expected of it by its kind and by the file.

    Under semantics that repeat rows by intent the rules against that are left out.
    """
    join, declared = bound.join, list(workspace.file.joins[bound.join.name].expectations)
    kind = of_stream(STREAM_COLUMNS) if bound.streams else of_table(join.key)
    if join.window is not None and not is_eager(bound.semantics):
        kind += of_two_streams(preserved(join), ROW_COLUMNS)
    yield Held(bound.result, [*kind, *declared])
    if bound.changelog is not None:
        comparable = (field.name for field in bound.columns if not contains(field.dataType, (MapType, *INCOMPARABLE)))
        values = [name for name in comparable if name not in join.key]
        operation, position = CHANGELOG_COLUMNS[0], (CHANGELOG_COLUMNS[3], CHANGELOG_COLUMNS[2])
        is_strict = bound.semantics == "strict"
        yield Held(bound.changelog, of_changelog(join.key, values, operation, position, strict=is_strict))


def validate_join(workspace: Workspace, name: str) -> JoinReport:
    """
    Validate the tables of a join as their readers see them: at their newest versions, whoever wrote these.

    Args:
        workspace: Where to work.
        name: The join.

    Returns:
        The report; `counts` has rows (of the result) and expectations (of all tables).

    Raises:
        GateFailed: A table does not meet them; the message says which, with numbers and examples.
        GateErrored: An expectation could not be evaluated.
        NotLoaded: The join has no committed epoch.
        LakejoinError: A table is missing.
    """
    watch, last = Stopwatch(), workspace.ledger.of(name).committed
    if last is None:
        raise NotLoaded(name, "nothing is published: it has not run yet", hint=f"run `lakejoin run --select {name}`")
    findings, looked_at, counts = [], [], {"rows": 0, "expectations": 0}
    with watch.step("validate"), reading(name):
        bound = bind_join(workspace, name)
        for table, suite in suites(workspace, bound):
            version = get(workspace.spark, table).version
            rows = read(workspace.spark, table, version)
            if table == bound.result:
                counts["rows"] = rows.count()
            counts["expectations"] += len(suite)
            looked_at.append(f"{table.label} at version {version}")
            findings += [f"{table.label}: {finding}" for finding in judge(name, rows, suite).findings]
    which = f"{', '.join(looked_at)}; the last epoch is {last.epoch}"
    if findings:
        raise GateFailed(
            name,
            f"what is published does not meet its expectations: {which}",
            found="; ".join(findings),
            hint="correct the sources and run; of a result that is wrong itself `lakejoin verify` says more",
        )
    return JoinReport(
        join=name,
        outcome="done",
        epoch=last.epoch,
        strategy="validate",
        reason=which,
        counts=counts,
        seconds=dict(watch.seconds),
        details=(f"rows of the result: {counts['rows']:,}, expectations: {counts['expectations']}",),
    )
