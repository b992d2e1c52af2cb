"""The fingerprint changes with what defines the result, and with nothing else."""

import pytest

from pipelines.language import PipelineFile, fingerprint
from pipelines.language.file.options import RULES
from tests.cases import cases

SQL = "SELECT f.*, upper(s.state) AS state FROM flights f JOIN status s ON f.id = s.id WHERE f.delay > 1"


def file(sql=SQL, storage=None, timezone="UTC", flights=None, **join) -> PipelineFile:
    return PipelineFile.model_validate(
        {
            "pipeline": "p",
            "storage": storage or {"path": "lake"},
            "sources": {"flights": {"key": "id", **(flights or {})}, "status": {"key": "id"}},
            "joins": {"j": {"sql": sql, **join}},
            "timezone": timezone,
        }
    )


def test_it_is_stable():
    """It is written to ledgers: a new version of lakejoin must not change it without saying so."""
    assert fingerprint(file(), "j") == "1b40d6d8ca07bc38"


@cases(
    "sql",
    SQL.replace(" ", "\n  "),
    SQL.lower(),
    SQL.replace(" JOIN", " /* a */ INNER JOIN") + " -- b\n;",
    SQL.replace("flights f", "flights AS `f`").replace("s.state", "s.`state`"),
)
def test_layout_does_not_count(sql):
    """White space, comments, keyword case, quotes that are not needed."""
    assert fingerprint(file(sql), "j") == fingerprint(file(), "j")


def test_how_it_is_kept_does_not_count():
    """Refresh and gates say how, not what."""
    assert fingerprint(file(refresh="full", on_failed_gate="warn"), "j") == fingerprint(file(), "j")


@pytest.mark.parametrize("optimizations", ["none", ["single_store_self_join"], ["share_change_reads"], [*RULES]])
def test_optimizations_do_not_count(optimizations):
    """A rule may be turned on and off between two epochs, of a stream joined with itself too."""
    departures = {"key": "id", "kind": "stream", "watermarks": {"t": "5 minutes"}}
    sql = "SELECT a.id FROM departures a JOIN departures b ON a.t = b.t"
    content = {**file().model_dump(), "storage": {"path": "lake"}, "sources": {"departures": departures}}
    made = [
        PipelineFile.model_validate({**content, "joins": {"j": {"sql": sql}}, "optimizations": given})
        for given in ("all", optimizations)
    ]
    assert made[0].optimizations != made[1].optimizations
    assert len({fingerprint(one, "j") for one in made}) == 1


@cases(
    "other",
    file(SQL.replace("> 1", "> 2")),
    file(SQL.replace("upper", "lower")),
    file(SQL.replace("AS state", "AS State")),
    file(SQL.replace("JOIN", "LEFT JOIN")),
    file(SQL.replace("f.*, upper(s.state) AS state", "upper(s.state) AS state, f.*")),
    file(SQL.replace("ON f.id = s.id", "USING (id)")),
    file(timezone="Europe/Oslo"),
    file(flights={"path": "elsewhere"}),
    file(flights={"table": "main.a.flights"}),
    file(storage={"path": "other"}),
    file(storage={"schema": "lake", "stage": "/s"}),
)
def test_what_defines_the_result_counts(other):
    """Statement, time zone, and where the sources lie."""
    assert fingerprint(other, "j") != fingerprint(file(), "j")


def test_keys_count():
    """Another key makes another result, though the statement is the same."""
    sql = "SELECT f.a, f.b, s.state FROM flights f JOIN status s ON f.a = s.a AND f.b = s.b"
    prints = set()
    for key in (["a", "b"], ["b", "a"]):
        made = file(sql, flights={"key": key})
        status = made.sources["status"].model_copy(update={"key": ("a", "b")})
        prints.add(fingerprint(made.model_copy(update={"sources": {**made.sources, "status": status}}), "j"))
    assert len(prints) == 2
