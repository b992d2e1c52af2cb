"""Hold what is published to the suites that gate it, and to what the file expects of a whole table; write nothing."""

from expectations.catalogue import each
from expectations.declared import judge
from expectations.gate import gate_loaded
from lakehouse.conditions import reading
from lakehouse.errors import GateFailed, NotLoaded
from lakehouse.tables import get, read
from pipelines.binding import bind_join
from pipelines.publishing import Stopwatch
from pipelines.report import JoinReport
from pipelines.workspace import Workspace


def validate_join(workspace: Workspace, name: str) -> JoinReport:
    """
    Validate the result of a join as its readers see it: at its newest version, whoever wrote that.

    Its key is present and comes once, if it is a table, and all expectations of the pipeline file hold: those that gate
    each epoch for all of its rows, and those about a whole table.

    Args:
        workspace: Where to work.
        name: The join.

    Returns:
        The report; `counts` has rows and expectations (those of the pipeline file).

    Raises:
        GateFailed: The result does not meet them; the message says which, with numbers and examples.
        GateErrored: An expectation could not be evaluated.
        NotLoaded: It has no committed epoch.
        LakejoinError: A table is missing.
    """
    watch, last = Stopwatch(), workspace.ledger.of(name).committed
    if last is None:
        raise NotLoaded(name, "nothing is published: it has not run yet", hint=f"run `lakejoin run --select {name}`")
    declared = workspace.file.joins[name].expectations
    with watch.step("validate"), reading(name):
        bound = bind_join(workspace, name)
        version = get(workspace.spark, bound.result).version
        result = read(workspace.spark, bound.result, version)
        rows = result.count()
        findings: tuple[str, ...] = ()
        if bound.join.key:
            findings += gate_loaded(workspace.spark, bound.result, version, list(bound.join.key)).findings
        findings += judge(name, result, declared).findings
    which = f"{bound.result.label} at version {version}, the last epoch is {last.epoch}"
    if findings:
        raise GateFailed(
            name,
            f"what is published does not meet its expectations: {which}",
            found="; ".join(findings),
            hint="correct the sources and run; of a result that is wrong itself `lakejoin verify` says more",
        )
    number = len(list(each(declared)))
    return JoinReport(
        join=name,
        outcome="done",
        epoch=last.epoch,
        strategy="validate",
        reason=which,
        counts={"rows": rows, "expectations": number},
        seconds=dict(watch.seconds),
        details=(f"{rows:,} rows, {number} expectations of the pipeline file",),
    )
