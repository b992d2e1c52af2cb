"""The pages of the project as text: sections, blocks of code, links and anchors."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
README, CONF, JOINS, PIPELINES, EXPECTATIONS, LAKEHOUSE, TESTS = PAGES = (
    "README.md",
    "conf/README.md",
    "conf/joins.md",
    "pipelines/README.md",
    "expectations/README.md",
    "lakehouse/README.md",
    "tests/README.md",
)


def text_of(page: str) -> str:
    return (ROOT / page).read_text()


def section(page: str, title: str) -> str:
    """Return the text below a heading, up to the next of its level or a higher one."""
    found = re.search(rf"^(##+) {re.escape(title)}\n", text_of(page), re.MULTILINE)
    assert found, (page, title)
    below = text_of(page)[found.end() :]
    return re.split(rf"^#{{1,{len(found.group(1))}}} ", below, maxsplit=1, flags=re.MULTILINE)[0]


def blocks(language: str, text: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def prose(page: str) -> str:
    """Return a page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", text_of(page), flags=re.MULTILINE | re.DOTALL)


def links(page: str) -> Iterator[tuple[str, str]]:
    yield from re.findall(r"\[([^\]]*)\]\(([^)\s]+)\)", prose(page))


def spans(page: str) -> list[str]:
    return [" ".join(code.split()) for code in re.findall(r"`([^`]+)`", prose(page))]


def anchors(page: str) -> set[str]:
    """Return what GitHub makes of the headings of a page."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE):
        slug = re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")
        found.add(f"{slug}-{seen[slug]}" if seen[slug] else slug)
        seen[slug] += 1
    return found
