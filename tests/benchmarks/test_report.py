"""The figures of the pages are those that were measured."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.benchmarks.report import BEGIN, END, README, TESTS, details, grouped, summary


@pytest.mark.parametrize(("page", "written"), [(README, summary), (TESTS, details)], ids=["README", "tests"])
def test_a_page_shows_what_was_recorded(page: Path, written: Callable[[dict[str, list[dict[str, Any]]]], str]) -> None:
    shown = page.read_text().split(BEGIN)[1].split(END)[0].strip()
    assert shown == written(grouped())


def test_every_recorded_figure_is_on_a_page() -> None:
    pages = summary(grouped()) + details(grouped())
    for group, lines in grouped().items():
        assert lines, group
        assert all(f"{line['lakejoin_s']:.1f}" in pages for line in lines if "lakejoin_s" in line), group
