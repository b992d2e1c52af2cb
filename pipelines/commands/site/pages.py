"""The pages, whose templates escape all values except pictures, and writing them; other files are never changed."""

import base64
import hashlib
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lakehouse.errors.errors import FilesExist, LakejoinError
from lakehouse.values.recorded import SourceVersions
from pipelines.commands.site.facts import JoinFacts, SiteFacts, TableFacts
from pipelines.commands.site.graph import KINDS, Node, graph
from pipelines.commands.site.plots import CHANGED, NEWEST, drawn, plots_of
from pipelines.report import EpochReport
from pipelines.report.facts import estimated, in_order, moment

INDEX = "index.html"
QUALITY = "data_docs"
"""The folder of the pages about data quality, below the folder of the site; `lakejoin validate` writes them."""
DATA_DOCS = f"{QUALITY}/index.html"
GENERATOR = '<meta name="generator" content="lakejoin">'
"""The element near the top of each page that marks it as written by lakejoin."""
TOP = 1_000
STATES = {
    "committed": "its last epoch is published",
    "rejected": "its gate rejected the last attempt; nothing was published",
    "redefined": "its definition has changed since its last epoch",
    "open": "an epoch is not finished",
    "broken": "the commit of an epoch differs from what was staged; it needs your decision",
    "stopped": "its tables are not as its last epoch left them; it needs your decision",
    "not loaded": "it has no epoch yet",
}
"""The meaning of the states of a join."""
COUNTS = (*CHANGED, "tombstones", "changelog", "late", "buffered")
"""The counts with a column of their own, if any epoch has them; all other counts share one column."""
TITLES = {"changelog": "to the changelog"}
WRONG = ("rejected", "refused", "broken", "abandoned")
NONE = "–"  # noqa: RUF001


def pages(site: SiteFacts) -> dict[str, str]:
    """Render all pages by their paths below the folder of the site; the overview is last, so that its links exist."""
    return {**{f"joins/{join.name}.html": _join_page(site, join) for join in site.joins}, INDEX: _index_page(site)}


def quality_pages(pipeline: str, tables: Sequence[TableFacts], now: datetime) -> dict[str, str]:
    """Render the pages about data quality by their paths below the folder of the site; the overview is last."""
    site = SiteFacts(pipeline=pipeline, made_at=now, data_docs=True)
    rows, rendered = [], {}
    for table in tables:
        is_met = [result.is_met for part in table.parts for result in part.results]
        facts = {"table": table, "number": len(is_met), "met": sum(is_met)}
        rows.append(facts)
        if table.name:
            rendered[f"{QUALITY}/{table.name}.html"] = _render("suite.html", site, "../", title=table.name, **facts)
    return {**rendered, DATA_DOCS: _render("quality.html", site, "../", title="Data quality", rows=rows)}


def write_files(folder: Path, pages: Mapping[str, str], own_folder: str = "") -> None:
    """
    Write pages by their paths into a folder in order, each atomically; other pages below `own_folder` are deleted.

    Raises:
        FilesExist: A file that lakejoin did not write has the path of a page; nothing was written.
    """
    try:
        foreign = [str(folder / path) for path in pages if not _is_free(folder / path)]
        if foreign:
            are = "is" if len(foreign) == 1 else "are"
            hint = "move existing files away, or choose another folder: `lakejoin docs --folder FOLDER`"
            raise FilesExist("docs", f"{', '.join(foreign)} {are} not written by lakejoin and not replaced", hint=hint)
        for path, text in pages.items():
            _write(folder / path, text)
        for left in (folder / own_folder).glob("*.html") if own_folder else ():
            if f"{own_folder}/{left.name}" not in pages and _is_free(left):
                left.unlink()
    except OSError as error:
        raise LakejoinError("docs", f"cannot write {error.filename or folder}: {error.strerror or error}") from error


def _is_free(path: Path) -> bool:
    """Return whether the path does not exist, or is a page of lakejoin."""
    if not os.path.lexists(path):
        return True
    with path.open(encoding="utf-8", errors="replace") as file:
        return GENERATOR in file.read(TOP)


def _write(path: Path, text: str) -> None:
    """Write a page to a temporary file and move it to its path: a reader sees the old page or the new one."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.parent / f".lakejoin-{os.getpid()}.tmp"
    temporary.unlink(missing_ok=True)
    try:
        with temporary.open("x", encoding="utf-8", errors="replace") as file:
            file.write(text)
        temporary.replace(path)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise


def _index_page(site: SiteFacts) -> str:
    """Render the overview: the graph, and a table of the joins, each with its last committed epoch."""
    names = {join.name for join in site.joins}
    nodes = [Node(name=name, kind=kind) for name, kind in site.sources if name not in names]
    for join in site.joins:
        reads = tuple(source.name for source in join.sources if source.name != join.name)
        nodes.append(Node(name=join.name, kind=join.kind, reads=reads, page=_page(join.name), state=join.state))
    lines = [(join, next((e for e in join.epochs if e.step == "committed"), None)) for join in site.joins]
    kinds = [(kind, words) for kind, words in KINDS.items() if any(node.kind == kind for node in nodes)]
    return _render("index.html", site, title=site.pipeline, graph=graph(nodes), lines=lines, kinds=kinds)


def _join_page(site: SiteFacts, join: JoinFacts) -> str:
    """Render the page of a join: its definition, its sources, and its epochs."""
    counts = tuple(name for name in COUNTS if any(name in epoch.counts for epoch in join.epochs))
    rows = [_row(epoch, counts) for epoch in join.epochs]
    return _render(
        "join.html",
        site,
        "../",
        title=join.name,
        join=join,
        kind=KINDS.get(join.kind, join.kind),
        pages={other.name: _page(other.name, "") for other in site.joins},
        readers=[other.name for other in site.joins if join.name in {s.name for s in other.sources} - {other.name}],
        figures=[(plot, None if plot.empty else drawn(plot)) for plot in plots_of(join.epochs)],
        is_cut_short=join.more or len(join.epochs) > NEWEST,
        newest=NEWEST,
        titles=[TITLES.get(name, name) for name in counts],
        rows=rows,
        wrong=sum(row["is_wrong"] is True for row in rows),
    )


def _row(epoch: EpochReport, counts: Sequence[str]) -> dict[str, object]:
    """Format an epoch for its table: `code` and `reason` are why it has its strategy, `further` are other counts."""
    code, colon, words = epoch.reason.partition(": ")
    others = sorted((name, number) for name, number in epoch.counts.items() if name not in counts)
    return {
        "epoch": epoch,
        "is_wrong": epoch.step in WRONG,
        "code": code if colon else "",
        "reason": words if colon else code,
        "counts": [_count(epoch, name) for name in counts],
        "further": ", ".join(f"{name} {number:,}" for name, number in others),
        "seconds": f"{sum(epoch.seconds.values()):.1f}" if epoch.seconds else NONE,
        "steps": ", ".join(f"{name} {seconds:.1f}" for name, seconds in in_order(epoch.seconds)),
        "estimated": estimated(epoch.estimates),
    }


def _count(epoch: EpochReport | None, name: str) -> str:
    return f"{epoch.counts[name]:,}" if epoch is not None and name in epoch.counts else NONE


def _changed(epoch: EpochReport | None) -> str:
    if epoch is None:
        return NONE
    counts = {name: epoch.counts.get(name, 0) for name in CHANGED}
    return ", ".join(f"{number:,} {name}" for name, number in counts.items() if number) or "none"


def _page(name: str, folder: str = "joins/") -> str:
    """Return the address of a page: its file name, quoted for a URL."""
    return f"{folder}{quote(name, safe='')}.html"


def words(text: str) -> Markup:
    """Escape a sentence, and format text between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    code = Markup("<code>{}</code>")
    return Markup().join(code.format(part) if index % 2 else escape(part) for index, part in enumerate(parts))


def versions(read: SourceVersions | None) -> str:
    """Describe which versions of a source the last epoch read."""
    if read is None:
        return "never"
    first, last = read.from_version + 1, read.to_version
    if not first:
        return f"all of version {last}"
    if first > last:
        return f"nothing after version {last}"
    return f"version {last}" if first == last else f"versions {first} to {last}"


def _render(template: str, site: SiteFacts, root: str = "", **values: object) -> str:
    """Render a template for a page from which `root` leads to the site; the browser may run only the script of ours."""
    script = (files(__package__) / "templates" / "site.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values |= {
        "site": site,
        "root": root,
        "states": STATES,
        "made_at": moment(site.made_at),
        "data_docs": DATA_DOCS if site.data_docs else "",
        "script": Markup(script),
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'",
    }
    environment = Environment(
        loader=PackageLoader("pipelines.commands.site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters = {"words": words, "versions": versions, "moment": moment, "page": _page}
    environment.filters |= {**filters, "counted": _count, "changed": _changed}
    return environment.get_template(template).render(values)
