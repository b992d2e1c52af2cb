"""The pages: an overview, and one for each join. Templates escape all values except the generated pictures."""

import base64
import hashlib
from dataclasses import dataclass
from importlib.resources import files
from urllib.parse import quote

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from lakehouse.values.recorded import SourceVersions
from pipelines.commands.site.facts import JoinFacts, SiteFacts
from pipelines.commands.site.graph import KINDS, Node, graph
from pipelines.commands.site.plots import drawn
from pipelines.commands.site.series import NEWEST, Plot, plots_of
from pipelines.commands.site.tables import JoinRow, epoch_table, join_row
from pipelines.report.wording import moment

INDEX = "index.html"
DATA_DOCS = "data_docs/index.html"
"""The overview of the pages about data quality, below the folder of the site; `lakejoin validate` writes them."""
STEPS = {
    "committed": "its last epoch is published",
    "rejected": "its gate rejected the last attempt; nothing was published",
    "redefined": "its definition has changed since its last epoch",
    "open": "an epoch is not finished",
    "broken": "the commit of an epoch differs from what was staged; it needs your decision",
    "stopped": "its tables are not as its last epoch left them; it needs your decision",
    "not loaded": "it has no epoch yet",
}
"""The meaning of the states of a join."""


@dataclass(frozen=True)
class Figure:
    """A plot and its picture; None if the plot is empty."""

    plot: Plot
    picture: Markup | None

    @property
    def has_failures(self) -> bool:
        """Whether the picture has a cross for an attempt that failed."""
        return any(slot.wrong for slot in self.plot.slots)

    @property
    def cut(self) -> int | None:
        """The epoch whose bar is cut off, if any."""
        return None if self.plot.cut is None else self.plot.slots[self.plot.cut].epoch


@dataclass(frozen=True)
class Line:
    """A join in the overview."""

    join: JoinFacts
    page: str
    row: JoinRow


def pages(site: SiteFacts) -> dict[str, str]:
    """
    Render all pages by their paths below the folder of the site.

    The overview is last, so that its links exist when it is written.
    """
    made = {f"joins/{join.name}.html": join_page(site, join) for join in site.joins}
    return {**made, INDEX: index_page(site)}


def index_page(site: SiteFacts) -> str:
    """Render the overview: the graph, and a table of the joins."""
    known = {join.name for join in site.joins}
    nodes = [Node(name, kind) for name, kind in site.sources if name not in known]
    nodes += [
        Node(
            join.name,
            join.kind,
            tuple(s.name for s in join.sources if s.name != join.name),
            page(join.name),
            join.state,
        )
        for join in site.joins
    ]
    lines = [Line(join, page(join.name), join_row(join)) for join in site.joins]
    kinds = [(kind, words) for kind, words in KINDS.items() if any(node.kind == kind for node in nodes)]
    return render(
        "index.html", site, "", title=site.pipeline, graph=graph(nodes), lines=lines, kinds=kinds, states=STEPS
    )


def join_page(site: SiteFacts, join: JoinFacts) -> str:
    """Render the page of a join: its definition, its sources, and its epochs."""
    plots = plots_of(join.epochs)
    return render(
        "join.html",
        site,
        "../",
        title=join.name,
        join=join,
        kind=KINDS.get(join.kind, join.kind),
        pages={other.name: page(other.name, "") for other in site.joins},
        readers=[other.name for other in site.joins if join.name in {s.name for s in other.sources} - {other.name}],
        figures=[Figure(plot, None if plot.empty else drawn(plot)) for plot in plots],
        is_cut_short=join.more or len(join.epochs) > NEWEST,
        newest=NEWEST,
        epochs=epoch_table(join),
        states=STEPS,
    )


def page(name: str, folder: str = "joins/") -> str:
    """Return the address of the page of a join: its file name, quoted for a URL."""
    return f"{folder}{quote(name, safe='')}.html"


def words(text: str) -> Markup:
    """Escape a sentence, and format text between backticks as code."""
    parts = text.split("`")
    if len(parts) % 2 == 0:
        return escape(text)
    code = Markup("<code>{}</code>")
    return Markup().join(code.format(part) if place % 2 else escape(part) for place, part in enumerate(parts))


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


def render(template: str, site: SiteFacts, root: str, **values: object) -> str:
    """
    Render a template, with a policy that allows the browser to run only the script of the site.

    `root` is the relative path from the page to the folder of the site, and `site` the content that all pages share.
    """
    script = (files(__package__) / "templates" / "site.js").read_text(encoding="utf-8")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    values |= {
        "site": site,
        "root": root,
        "made_at": moment(site.made_at),
        "data_docs": DATA_DOCS if site.data_docs else "",
        "script": Markup(script),
        "policy": f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; base-uri 'none'",
    }
    return _environment().get_template(template).render(values)


def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("pipelines.commands.site"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"words": words, "versions": versions, "moment": moment}
    return environment
