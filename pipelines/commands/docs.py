"""The documentation of a pipeline: each join as the pipeline file defines it, and its epochs from the ledger."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from lakehouse.errors.errors import LakejoinError
from lakehouse.ledger.entries import Entry, JoinHistory
from lakehouse.values.recorded import STATE, SourceVersions
from pipelines.binding.workspace import Workspace
from pipelines.commands.explain import explain
from pipelines.commands.history import last_gate, newest
from pipelines.commands.runs import runs_of
from pipelines.commands.site import JoinFacts, SiteFacts, SourceEntry, pages, write_files
from pipelines.commands.site.facts import State
from pipelines.commands.site.pages import DATA_DOCS, INDEX
from pipelines.epochs.targets import inspect_targets
from pipelines.language import PipelineFile, changelog_fingerprint, fingerprint
from pipelines.language.join.fingerprint import NO_SETTINGS
from pipelines.report import SourceExplanation
from pipelines.report.facts import moment

EPOCHS_SHOWN = 500
"""The number of epochs of each join, the newest first."""
RUNS_SHOWN = 10
"""The number of runs on the overview."""
FOLDER = "docs"
"""The default folder of the pages, beside the pipeline file."""


def write_docs(workspace: Workspace, folder: Path | None = None) -> Path:
    """
    Write the pages about a pipeline, by default to `docs` beside its file; return the path of the overview.

    Raises:
        FilesExist: A file that lakejoin did not write has the path of a page; nothing was written.
    """
    folder = folder or workspace.folder / FOLDER
    ledger = workspace.ledger.of_all()
    has_data_docs = (folder / DATA_DOCS).is_file()
    now, settings = datetime.now(UTC), workspace.deviations
    site = site_of(workspace.file, workspace.nodes(), ledger, now, settings, data_docs=has_data_docs)
    verified = workspace.ledger.all_verified()
    faults = {name: inspect_targets(workspace, name, ledger[name])[1] for name in workspace.nodes() if name in ledger}
    joins = tuple(_as_observed(join, verified.get(join.name), faults.get(join.name)) for join in site.joins)
    write_files(folder, pages(replace(site, joins=joins, runs=runs_of(workspace, RUNS_SHOWN))))
    return folder / INDEX


def _as_observed(join: JoinFacts, verified: Entry | None, fault: LakejoinError | None) -> JoinFacts:
    """Add when its checksum was last verified, and why its tables are not as its last epoch left them."""
    if verified is not None and verified.at is not None:
        join = replace(join, verified=f"{moment(verified.at)}, epoch {verified.epoch}")
    if fault is None or join.state == "broken":
        return join
    return replace(join, state="stopped", note=f"{fault.where}: {fault.problem} ({fault.found}); {fault.hint}.")


def site_of(
    file: PipelineFile,
    nodes: list[str],
    ledger: Mapping[str, JoinHistory],
    now: datetime,
    settings: Mapping[str, str] = NO_SETTINGS,
    *,
    data_docs: bool = False,
) -> SiteFacts:
    """
    Collect the facts for the pages of changelog sources and joins, the `nodes`, each after those that it reads.

    `settings` are those of Spark that deviate; `data_docs` tells whether the pages about data quality exist.
    """
    sources = tuple((name, source.kind) for name, source in file.sources.items())
    joins = tuple(join_facts(file, name, ledger.get(name, JoinHistory(())), settings) for name in nodes)
    return SiteFacts(pipeline=file.pipeline, made_at=now, sources=sources, joins=joins, data_docs=data_docs)


def join_facts(
    file: PipelineFile, name: str, history: JoinHistory, settings: Mapping[str, str] = NO_SETTINGS
) -> JoinFacts:
    """Collect the facts of a join, as in `explain`, or of the KTable of a changelog source, and its epochs."""
    read = {source.name: source for source in history.committed.sources} if history.committed else {}
    if name in file.joins:
        facts, definition, join = _of_join(file, name, read), fingerprint(file, name, settings), name
    else:
        facts, definition, join = _of_ktable(file, name, read), changelog_fingerprint(file, name, settings), ""
    state, note = standing(history, definition, join)
    epochs = newest(name, history, EPOCHS_SHOWN)
    return replace(facts, state=state, note=note, epochs=epochs.epochs, more=epochs.more)


def _of_join(file: PipelineFile, name: str, read: Mapping[str, SourceVersions]) -> JoinFacts:
    explained = explain(file, name)
    return JoinFacts(
        name=name,
        kind=explained.kind,
        sources=tuple(_source(file, source, read.get(source.name)) for source in explained.sources),
        types=explained.types(),
        why=explained.why,
        key=explained.key,
        result=explained.result,
        semantics=explained.semantics,
        sql=file.joins[name].sql,
        notes=explained.notes,
    )


def _source(file: PipelineFile, explained: SourceExplanation, read: SourceVersions | None) -> SourceEntry:
    source = file.sources.get(explained.name)
    return SourceEntry(
        name=explained.name,
        kind=explained.kind,
        key=explained.key or (source.key if source else ()),
        address=explained.address,
        alias=explained.alias if explained.alias.lower() != explained.name.lower() else "",
        change=explained.change,
        watermarks=tuple(source.watermarks.items()) if source else (),
        read=read,
    )


def _of_ktable(file: PipelineFile, name: str, read: Mapping[str, SourceVersions]) -> JoinFacts:
    source = file.sources[name]
    deletes = f"a row that satisfies `{source.tombstone}` deletes" if source.tombstone else "no row deletes"
    entry = SourceEntry(
        name=name,
        kind=source.kind,
        key=source.key,
        address=source.table or source.path or "",
        change=f"replaces the row of its key in the KTable if its {source.order_by} is greater",
        read=read.get(name),
    )
    row = f"for each key the row with the greatest {source.order_by}; {deletes} its key"
    why = (f"it is append-only: its KTable has {row}", "joins read the KTable instead of the source")
    return JoinFacts(name=name, kind=source.kind, sources=(entry,), why=why, key=source.key, result=name + STATE)


def standing(history: JoinHistory, definition: str, join: str = "") -> tuple[State, str]:
    """
    Return the state of a join, and an explanation for the user, which is empty if the state needs none.

    `definition` is its fingerprint in the pipeline file; `join` is empty for a changelog source, without `--select`.
    """
    select = f" --select {join}" if join else ""
    if history.broken is not None:
        return "broken", f"Epoch {history.broken.epoch} is broken: {history.broken.message}"
    if history.open is not None:
        return "open", f"Epoch {history.open.epoch} is not finished: run `lakejoin run{select}`."
    gate = last_gate(history)
    if gate is not None and not gate.passed:
        return "rejected", f"The gate stopped epoch {gate.epoch}: {gate.findings}"
    if history.committed is None:
        return "not loaded", ""
    if history.committed.definition != definition:
        return "redefined", f"`lakejoin backfill{select}` reconciles the result with the new definition."
    return "committed", ""
