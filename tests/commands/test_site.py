"""The pages about a pipeline, from values to HTML: what is on them, that all of it is escaped, and where things lie."""

import re
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html.parser import HTMLParser
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from lakehouse.errors.errors import FilesExist
from lakehouse.ledger.entries import BROKEN, COMMITTED, PUBLISHING, REJECTED
from lakehouse.values.recorded import SourceVersions
from pipelines.commands.docs import join_facts, site_of, standing
from pipelines.commands.history import newest
from pipelines.commands.site import JoinFacts, SiteFacts, SourceEntry, pages, write_files
from pipelines.commands.site.graph import Layout, Node, Place, graph, laid_out
from pipelines.commands.site.pages import versions, words
from pipelines.commands.site.plots import NEWEST, Plot, drawn, every, plots_of, shown, ticks
from pipelines.commands.site.svg import fitted, length
from pipelines.language import load
from pipelines.report import EpochReport
from tests.ledgers import at, entry, ledger

NOW = datetime(2026, 11, 22, 6, tzinfo=UTC)
EVIL = "<script>alert(1)</script>"
FLIGHTS = load(Path(__file__).parents[2] / "conf" / "flights.yml")
COUNTS = {"inserted": 3, "updated": 5, "deleted": 2, "touched": 12}
SECONDS = {"plan": 0.5, "compute": 2.0, "merge": 1.5}


def epochs(*rows: Any) -> tuple[EpochReport, ...]:
    return newest("result", ledger(*rows), 1_000).epochs


def many(number: int, **counts: int) -> tuple[EpochReport, ...]:
    rows = (entry(n, hours=n, counts=counts or COUNTS, seconds=SECONDS) for n in range(1, number + 1))
    return epochs(*rows)


def site(*joins: JoinFacts, **fields: Any) -> SiteFacts:
    sources = (("left", "table"), ("right", "table"))
    return SiteFacts(pipeline="shop", made_at=NOW, sources=sources, joins=joins, **fields)


def join(name: str = "result", **fields: Any) -> JoinFacts:
    sources = tuple(SourceEntry(name=source, kind="table", key=("k",)) for source in ("left", "right"))
    return JoinFacts(**{"name": name, "kind": "table-table", "sources": sources, **fields})


class Page(HTMLParser):
    """What a browser makes of a page: its elements with their attributes, and the texts."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def named(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.tags if name == tag]


def test_every_text_of_a_user_is_escaped() -> None:
    """Names, statements, keys, reasons and messages: the only script of each page is ours."""
    source = SourceEntry(
        name=EVIL, kind=EVIL, key=(EVIL,), address=EVIL, alias=EVIL, change=EVIL, watermarks=((EVIL, EVIL),),
        read=SourceVersions(EVIL, "i", -1, 3),
    )  # fmt: skip
    wrong = epochs(entry(1, REJECTED, 1, message=f"two rows\n{EVIL}", counts={EVIL: 1}, seconds={EVIL: 1.0}))
    right = epochs(entry(1, hours=1, counts=COUNTS, seconds={EVIL: 1.0}, strategy=EVIL))
    evil = JoinFacts(
        name=f'a"{EVIL[:8]}', kind=EVIL, sources=(source,), state="rejected", note=f"`{EVIL}` {EVIL}", types=EVIL,
        why=(EVIL,), key=(EVIL,), result=EVIL, semantics=EVIL, sql=f"SELECT '{EVIL}' -- {EVIL}", notes=(f"`{EVIL}`",),
        epochs=(*right, *wrong),
    )  # fmt: skip
    made = pages(SiteFacts(pipeline=EVIL, made_at=NOW, sources=((EVIL, EVIL),), joins=(evil,)))
    assert len(made) == 2
    for text in made.values():
        assert EVIL not in text
        page = Page(text)
        assert len(page.named("script")) == 1
        assert not any(name.startswith("on") for _, attributes in page.tags for name in attributes)
        assert EVIL in page.text, "it is there to be read"


def test_no_page_refers_to_anything_beyond_its_folder() -> None:
    """Links are relative, and the policy in each page forbids the browser all but our own script and styles."""
    flights = site_of(FLIGHTS, list(FLIGHTS.joins), {}, NOW, data_docs=True)
    made = pages(flights)
    assert list(made)[-1] == "index.html"
    for path, text in made.items():
        assert not re.search(r"https?:|[\"'(]//|url\((?!#)|@import", text), path
        page = Page(text)
        assert "default-src 'none'" in str(page.named("meta"))
        links = [attributes["href"] for attributes in page.named("a")]
        assert any(link and link.endswith("data_docs/index.html") for link in links)
        for link in links:
            assert link
            assert link.startswith("#") or "data_docs" in link or _target(path, link) in made, (path, link)
        assert not page.named("link")
        assert not page.named("img")


def _target(path: str, link: str) -> str:
    return str((Path("/") / path).parent.joinpath(link).resolve()).lstrip("/")


def test_a_name_is_a_file_and_quoted_in_its_address() -> None:
    odd = join("50% & so #1?")
    made = pages(site(odd))
    assert "joins/50% & so #1?.html" in made
    assert "joins/50%25%20%26%20so%20%231%3F.html" in [a["href"] for a in Page(made["index.html"]).named("a")]


def test_the_overview_has_a_row_for_each_join_with_its_last_committed_epoch() -> None:
    rows = epochs(
        entry(1, hours=0, counts={"inserted": 9}),
        entry(2, hours=1, counts={"appended": 1_234, "late": 7, "buffered": 42}),
        entry(3, REJECTED, 2, message="two rows"),
    )
    text = Page(pages(site(join(epochs=rows, state="rejected", semantics="strict"), join("other")))["index.html"]).text
    assert "result rejected table-table strict left, right 2 2026-11-21 13:00 UTC 1,234 appended 7 42" in text
    assert "other not loaded table-table – left, right – – – – –" in text  # noqa: RUF001
    assert "has not run yet" not in text


def test_a_pipeline_that_never_ran_says_so_on_every_page() -> None:
    made = pages(site_of(FLIGHTS, list(FLIGHTS.joins), {}, NOW))
    assert "This pipeline has not run yet" in made["index.html"]
    for name in FLIGHTS.joins:
        assert "No epochs yet" in made[f"joins/{name}.html"]
        assert f"{name} has never run." in made[f"joins/{name}.html"]
    assert "Data quality" not in made["index.html"]


def test_the_page_of_a_join_tells_what_explain_tells_and_the_statement_as_written() -> None:
    page = Page(pages(site_of(FLIGHTS, list(FLIGHTS.joins), {}, NOW))["joins/returns.html"])
    assert "arrivals and departures are streams" in page.text
    assert "arrived_at, up to 1 hour late" in page.text
    assert " ".join(FLIGHTS.joins["returns"].sql.split()) in page.text


def test_the_epochs_are_listed_newest_first_and_what_went_wrong_is_marked_with_its_message() -> None:
    rows = epochs(
        entry(1, hours=0, counts=COUNTS, seconds=SECONDS),
        entry(2, REJECTED, 1, message="two rows for a key\n  k = 4"),
        entry(2, hours=2, counts=COUNTS, seconds=SECONDS),
        entry(3, PUBLISHING, 3),
        entry(3, BROKEN, 3.1, message="2 for 1"),
    )
    text = pages(site(join(epochs=rows)))["joins/result.html"]
    bodies = re.findall(r"<tbody( class=\"wrong\")?>(.*?)</tbody>", text.split('id="ledger"')[1], re.DOTALL)
    told = [(bool(wrong), Page(body).text) for wrong, body in bodies]
    assert [(wrong, told.split()[1]) for wrong, told in told] == [(True, "3"), (False, "2"), (True, "2"), (False, "1")]
    assert "✕ broken" in told[0][1]
    assert told[0][1].endswith("2 for 1")
    assert told[2][1].endswith("two rows for a key k = 4")
    assert (
        "committed incremental changes 3 5 2 4.0 more Counts: touched 12 Seconds: plan 0.5, compute 2.0" in told[1][1]
    )


def test_where_a_join_stands_is_told_from_its_ledger_and_the_file_alone() -> None:
    load_, later = [entry(1, PUBLISHING), entry(1, COMMITTED, 1)], entry(2, PUBLISHING, 2)
    assert standing(ledger(), "d")[0] == "not loaded"
    assert standing(ledger(*load_), "d") == ("committed", "")
    assert standing(ledger(*load_), "other")[0] == "redefined"
    assert standing(ledger(*load_, later), "d")[0] == "open"
    broken = standing(ledger(*load_, later, entry(2, BROKEN, 3, message="2 for 1")), "d")
    assert broken == ("broken", "Epoch 2 is broken: 2 for 1")
    assert standing(ledger(*load_, entry(2, REJECTED, 3, message="two rows")), "d") == (
        "rejected",
        "The gate stopped epoch 2: two rows",
    )


def test_a_join_knows_what_its_last_committed_epoch_read() -> None:
    facts = join_facts(FLIGHTS, "flight_status", ledger(entry(1), entry(2, hours=1)))
    assert [(source.name, source.read) for source in facts.sources] == [("schedule", None), ("operations", None)]
    assert versions(None) == "never"
    assert versions(SourceVersions("left", "i", -1, 3)) == "all of version 3"
    assert versions(SourceVersions("left", "i", 3, 3)) == "nothing after version 3"
    assert versions(SourceVersions("left", "i", 3, 4)) == "version 4"
    assert versions(SourceVersions("left", "i", 3, 6)) == "versions 4 to 6"


def test_what_stands_between_backticks_is_set_as_code() -> None:
    assert words("run `a < b` now") == "run <code>a &lt; b</code> now"
    assert words("one ` <alone>") == "one ` &lt;alone&gt;"


def chain(number: int) -> dict[str, tuple[str, ...]]:
    """Make a source and joins, each of which reads the source and the join before."""
    return {"s": (), "j1": ("s",), **{f"j{n}": ("s", f"j{n - 1}") for n in range(2, number)}}


GRAPHS: dict[str, Mapping[str, Sequence[str]]] = {
    "one": {"a": ()},
    "unread": {"a": (), "b": (), "j": ("a",)},
    "star": {**{f"s{n}": () for n in range(10)}, "j": [f"s{n}" for n in range(10)]},
    "chain": chain(20),
    "wide": {
        **{f"s{n}": () for n in range(8)},
        **{f"j{n}": (f"s{n % 8}", f"s{(3 * n + 1) % 8}", *([f"j{n - 4}"] if n > 3 else [])) for n in range(12)},
    },
    "twice": {"a": (), "j": ("a", "a")},
}


@pytest.mark.parametrize("reads", GRAPHS.values(), ids=GRAPHS)
def test_no_two_nodes_overlap_and_no_arrow_passes_through_one(reads: Mapping[str, Sequence[str]]) -> None:
    """Each way goes from column to column; within a column it has a place of its own."""
    layout = laid_out(reads, 120)
    for one, other in combinations(layout.at, 2):
        assert not _overlap(layout, one, other), (one, other)
    for place, (x, y) in layout.at.items():
        assert x >= 0
        assert y >= 0
        assert x + layout.node_width <= layout.width
        assert y + place.height <= layout.height
    assert {(way.read, way.reader) for way in layout.ways} == {(r, name) for name, rs in reads.items() for r in rs}
    for way in layout.ways:
        assert [place.node for place in (way.places[0], way.places[-1])] == [way.read, way.reader]
        assert all(place.is_lane for place in way.places[1:-1])
        assert all(after.column == before.column + 1 for before, after in pairwise(way.places))
    columns = {name: layout.nodes[name][0] for name in reads}
    assert all(columns[read] < columns[name] for name, others in reads.items() for read in others)


def _overlap(layout: Layout, one: Place, other: Place) -> bool:
    (left, top), (right, bottom) = layout.at[one], layout.at[other]
    apart = abs(left - right) >= layout.node_width
    return not apart and top < bottom + other.height and bottom < top + one.height


def test_sources_are_ordered_so_that_arrows_need_not_cross() -> None:
    layout = laid_out({"a": (), "b": (), "c": (), "d": (), "x": ("b", "d"), "y": ("a", "c")}, 120)
    heights = {name: y for name, (_, y) in layout.nodes.items()}
    (above, first), (below, second) = sorted([("x", "bd"), ("y", "ac")], key=lambda pair: heights[pair[0]])
    assert heights[above] < heights[below]
    assert max(heights[name] for name in first) < min(heights[name] for name in second)


def test_the_picture_has_every_node_every_arrow_and_the_kinds_in_words() -> None:
    """A long name is cut, and whole in the title; a node that has a page leads there."""
    long = "a_join_with_a_name_that_is_far_too_long_for_its_box"
    nodes = [Node(name="left", kind="table"), Node(name="clicks", kind="stream")]
    nodes.append(Node(name=long, kind="stream-table", reads=("clicks", "left"), page="x.html"))
    picture = ET.fromstring(graph(nodes))
    titles = [title.text for title in picture.iter("title")]
    assert f"{long}: stream-table join" in titles
    assert {f"{long} reads clicks", f"{long} reads left"} <= set(titles)
    texts = [text.text for text in picture.iter("text")]
    assert {"left", "table", "clicks", "stream", "stream-table join"} <= set(texts)
    (cut,) = [text for text in texts if text and text.endswith("…")]
    assert long.startswith(cut[:-1])
    assert [link.get("href") for link in picture.iter("a")] == ["x.html"]
    assert picture.get("aria-label") == f"Dependencies: {long} reads clicks, left."


def test_a_text_is_cut_only_where_it_does_not_fit() -> None:
    assert fitted("orders", 100, 13) == "orders"
    assert length(fitted("x" * 100, 100, 13), 13) <= 100
    assert length("日本", 10) > length("ab", 10)


def plot(title: str, rows: Sequence[EpochReport]) -> Plot:
    return next(found for found in plots_of(rows) if found.title == title)


def test_plots_without_anything_to_show_say_so_in_words() -> None:
    assert all(found.empty == "No epoch has been committed yet." for found in plots_of(()))
    assert all(found.empty for found in plots_of(epochs(entry(1, REJECTED, counts=COUNTS, seconds=SECONDS))))
    assert plot("Late rows", many(3)).empty.startswith("Not counted: only")
    assert plot("Late rows", many(3, late=0)).empty == "No row was late."
    assert plot("Tombstones", many(3, appended=4)).empty.startswith("Not counted: rows")
    assert [found.title for found in plots_of(many(3)) if not found.empty] == [
        "Rows changed", "Tombstones", "Seconds by step",
    ]  # fmt: skip


@pytest.mark.parametrize("number", [1, 2, 30, 500])
def test_a_plot_has_axes_units_words_for_each_epoch_and_bars_within_its_frame(number: int) -> None:
    """Of very many epochs the newest are drawn."""
    found = plot("Rows changed", many(number))
    picture = ET.fromstring(drawn(found))
    slots = [group for group in picture.iter("g") if group.get("class") == "slot"]
    assert len(slots) == min(number, NEWEST)
    assert slots[-1].findtext("title") == (
        f"epoch {number}, {at(number):%Y-%m-%d %H:%M} UTC: 3 inserted, 5 updated, 2 deleted"
    )
    texts = [text.text for text in picture.iter("text")]
    assert {"rows", "epoch", "0", "10"} <= set(texts)
    assert 1 <= len([text for text in picture.iter("text") if text.get("class") == "across"]) <= 12
    for bar in picture.iter("rect"):
        x, y, width, height = (float(bar.get(side, "")) for side in ("x", "y", "width", "height"))
        assert x >= 0
        assert y >= 0
        assert x + width <= 440.1
        assert y + height <= 182.1
    assert "epochs" in picture.get("aria-label", "")


def test_the_heights_of_stacked_bars_are_in_the_proportion_of_the_counts() -> None:
    picture = ET.fromstring(drawn(plot("Rows changed", many(2))))
    slot = next(group for group in picture.iter("g") if group.get("class") == "slot")
    heights = {bar.get("class"): float(bar.get("height", "")) for bar in slot.iter("rect")}
    assert heights["rows-updated"] / heights["rows-inserted"] == pytest.approx(5 / 3, rel=0.01)
    assert heights["rows-deleted"] / heights["rows-inserted"] == pytest.approx(2 / 3, rel=0.01)


def test_a_bar_that_would_leave_the_others_flat_is_cut_off_and_bears_its_number() -> None:
    load_ = entry(1, hours=0, counts={"inserted": 336_776})
    rows = epochs(load_, *(entry(n, hours=n, counts=COUNTS) for n in range(2, 9)))
    found = plot("Rows changed", rows)
    assert found.cut == 0
    texts = [text.text for text in ET.fromstring(drawn(found)).iter("text")]
    assert "▲ 336,776" in texts
    assert "10" in texts, "the axis is that of the others"
    assert plot("Rows changed", many(8)).cut is None


def test_an_attempt_that_failed_is_a_cross_and_none_of_its_counts_are_drawn() -> None:
    rows = epochs(
        entry(1, hours=0, counts=COUNTS), entry(2, REJECTED, 1, counts={"inserted": 9_999}), entry(2, hours=2)
    )
    found = plot("Rows changed", rows)
    assert [slot.wrong for slot in found.slots] == ["", "rejected", ""]
    picture = ET.fromstring(drawn(found))
    assert [text.text for text in picture.iter("text") if text.get("class") == "cross"] == ["✕"]
    assert max(found.totals) == 10


def test_rows_that_wait_are_a_line_and_tombstones_those_that_the_ledger_counts() -> None:
    picture = ET.fromstring(drawn(plot("Buffered rows", many(5, buffered=4))))
    (line,) = picture.iter("polyline")
    assert len(line.get("points", "").split()) == 5
    assert len(list(picture.iter("circle"))) == 5
    assert plot("Tombstones", many(2, deleted=0, tombstones=3)).totals == (3, 3)
    assert plot("Tombstones", many(2, deleted=2)).totals == (2, 2)


def test_the_steps_are_stacked_in_the_order_in_which_they_are_taken() -> None:
    rows = epochs(entry(1, seconds={"merge": 1.5, "odd": 1.0, "plan": 0.5, "compute": 2.0}))
    assert [one.name for one in plot("Seconds by step", rows).series] == ["plan", "compute", "merge", "odd"]


def test_the_marks_of_an_axis_are_round_and_reach_the_top() -> None:
    assert ticks(10, whole=True) == (0, 5, 10)
    assert ticks(1, whole=True) == (0, 1)
    assert ticks(336_776, whole=True) == (0, 100_000, 200_000, 300_000, 400_000)
    assert [shown(mark) for mark in ticks(0.7, whole=False)] == ["0", "0.2", "0.4", "0.6", "0.8"]
    for top in (0.001, 0.3, 1, 7, 99, 101, 12_345, 7e9):
        found = ticks(top, whole=False)
        assert found[-1] >= top * (1 - 1e-6)
        assert 2 <= len(found) <= 6
    assert [shown(mark) for mark in (1_500, 20_000, 1_500_000, 2e9)] == ["1,500", "20k", "1.5M", "2G"]
    assert [every(number, 9) for number in (1, 9, 10, 30, 120)] == [1, 1, 2, 5, 20]


def test_pages_of_ours_are_written_anew_and_nobody_elses_file_is_touched(tmp_path: Path) -> None:
    """The new page takes the place of the old one at once; nothing is left beside it."""
    folder = tmp_path / "site"
    first, second = pages(site(join())), pages(site(join(state="open")))
    write_files(folder, first)
    (folder / "mine.txt").write_text("mine")
    write_files(folder, second)
    assert (folder / "joins" / "result.html").read_text() == second["joins/result.html"]
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == [
        "index.html", "mine.txt", "result.html",
    ]  # fmt: skip
    (folder / "index.html").write_text("<h1>my own</h1>")
    with pytest.raises(FilesExist) as refused:
        write_files(folder, first)
    assert str(folder / "index.html") in refused.value.problem
    assert (folder / "index.html").read_text() == "<h1>my own</h1>"
    assert (folder / "joins" / "result.html").read_text() == second["joins/result.html"], "nothing was written"


def test_pages_are_no_more_open_than_other_files_of_the_user(tmp_path: Path) -> None:
    write_files(tmp_path, pages(site(join())))
    (tmp_path / "other").write_text("")
    modes = {path.stat().st_mode & 0o777 for path in tmp_path.rglob("*") if path.is_file()}
    assert len(modes) == 1
