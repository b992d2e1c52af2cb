"""
The documentation of a pipeline: what the file says of each join, beside what the ledger says of its epochs.

    pipeline file, ledger ─► SiteFacts ─► pages ─► a folder        (what is right of the first arrow is `site`)
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from lakehouse import limits
from lakehouse.entries import STATE, JoinHistory, SourceVersions
from pipelines.binding.workspace import Workspace
from pipelines.commands.explain import explain
from pipelines.commands.history import newest
from pipelines.commands.site import JoinFacts, SiteFacts, SourceFacts, pages, write_files
from pipelines.commands.site.facts import State
from pipelines.commands.site.pages import DATA_DOCS, INDEX
from pipelines.commands.status import last_gate
from pipelines.report import JoinExplanation, SourceExplanation
from pipelines.spec import PipelineFile, changelog_fingerprint, fingerprint
from pipelines.spec.join.fingerprint import NO_SETTINGS

FOLDER = "docs"
"""Where the pages go, beside the pipeline file, if nobody says otherwise."""


def write_docs(workspace: Workspace, folder: Path | None = None) -> Path:
    """
    Write the pages about a pipeline.

    Args:
        workspace: Where to look; only its ledger is read, once.
        folder: Where the pages go; without it `docs` beside the pipeline file.

    Returns:
        The overview.

    Raises:
        FilesExist: A file that is not ours is where a page belongs; nothing was written.
        LakejoinError: The folder cannot be written to.
    """
    folder = folder or workspace.folder / FOLDER
    ledger = workspace.ledger.of_all()
    has_data_docs = (folder / DATA_DOCS).is_file()
    now, settings = datetime.now(UTC), workspace.deviations
    site = site_of(workspace.file, workspace.nodes(), ledger, now, settings, data_docs=has_data_docs)
    write_files(folder, pages(site))
    return folder / INDEX


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
    Gather what the pages tell.

    Args:
        file: The pipeline file.
        nodes: All that has epochs: changelog sources and joins, each after what it reads.
        ledger: What the ledger knows of each.
        now: The present, aware.
        settings: Settings of Spark that the runtime keeps at other values than lakejoin fixes.
        data_docs: Whether there is a page about data quality.
    """
    sources = tuple((name, source.kind) for name, source in file.sources.items())
    joins = tuple(
        (join_facts if name in file.joins else changelog_facts)(file, name, ledger.get(name, JoinHistory(())), settings)
        for name in nodes
    )
    return SiteFacts(file.pipeline, now, sources, joins, data_docs)


def join_facts(
    file: PipelineFile, name: str, history: JoinHistory, settings: Mapping[str, str] = NO_SETTINGS
) -> JoinFacts:
    """Tell what a join is, as `explain` does, and what its epochs did."""
    told = explain(file, name)
    state, note = standing(history, fingerprint(file, name, settings), name)
    epochs = newest(name, history, limits.EPOCHS_SHOWN)
    return JoinFacts(
        name=name,
        kind=told.kind,
        sources=_sources(file, told, history),
        state=state,
        note=note,
        types=told.types(),
        why=told.why,
        key=told.key,
        result=told.result,
        semantics=told.semantics,
        sql=file.joins[name].sql,
        notes=told.notes,
        epochs=epochs.epochs,
        more=epochs.more,
    )


def changelog_facts(
    file: PipelineFile, name: str, history: JoinHistory, settings: Mapping[str, str] = NO_SETTINGS
) -> JoinFacts:
    """Tell what is kept of a changelog source, and what its epochs did."""
    source = file.sources[name]
    deletes = f"a row for which `{source.tombstone}` deletes its key" if source.tombstone else "no row deletes its key"
    state, note = standing(history, changelog_fingerprint(file, name, settings))
    epochs = newest(name, history, limits.EPOCHS_SHOWN)
    return JoinFacts(
        name=name,
        kind=source.kind,
        sources=(
            SourceFacts(
                name,
                source.kind,
                source.key,
                source.table or source.path or "",
                change=f"counts if it has a greater {source.order_by} than the row that is held for its key",
                read=_read(history).get(name),
            ),
        ),
        state=state,
        note=note,
        why=(
            f"rows are only added to it: of each key the one with the greatest {source.order_by} is held, {deletes}",
            "joins read what is held, its KTable, in its place",
        ),
        key=source.key,
        result=name + STATE,
        epochs=epochs.epochs,
        more=epochs.more,
    )


def standing(history: JoinHistory, definition: str, join: str = "") -> tuple[State, str]:
    """
    Say where a join stands, as far as its ledger tells.

    Args:
        history: Its ledger.
        definition: The fingerprint of how the file defines it now.
        join: The join that commands select; empty for the table kept of a changelog source, which none selects.

    Returns:
        The state, and what a reader should know about it.
    """
    select = f" --select {join}" if join else ""
    if history.broken is not None:
        return "broken", f"Epoch {history.broken.epoch} is broken: {history.broken.message}"
    if history.open is not None:
        return "open", f"Epoch {history.open.epoch} waits to be finished by `lakejoin run{select}`."
    gate = last_gate(history)
    if gate is not None and not gate.passed:
        return "rejected", f"The gate stopped epoch {gate.epoch}: {gate.findings}"
    if history.committed is None:
        return "not loaded", ""
    if history.committed.definition != definition:
        return "redefined", f"`lakejoin backfill{select}` reconciles the result with the new definition."
    return "committed", ""


def _sources(file: PipelineFile, told: JoinExplanation, history: JoinHistory) -> tuple[SourceFacts, ...]:
    read = _read(history)
    return tuple(_source(file, source, read.get(source.name)) for source in told.sources)


def _source(file: PipelineFile, told: SourceExplanation, read: SourceVersions | None) -> SourceFacts:
    source = file.sources.get(told.name)
    return SourceFacts(
        name=told.name,
        kind=told.kind,
        key=told.key or (source.key if source else ()),
        address=told.address,
        alias=told.alias if told.alias.lower() != told.name.lower() else "",
        change=told.change,
        watermarks=tuple(source.watermarks.items()) if source else (),
        read=read,
    )


def _read(history: JoinHistory) -> dict[str, SourceVersions]:
    """Give what the last committed epoch read of each source."""
    return {source.name: source for source in history.committed.sources} if history.committed else {}
