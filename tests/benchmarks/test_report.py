"""The README's figures are those that were measured."""

from tests.benchmarks.report import BEGIN, END, README, grouped, section


def test_the_readme_shows_what_was_recorded() -> None:
    shown = README.read_text().split(BEGIN)[1].split(END)[0].strip()
    assert shown == section(grouped())
