"""Each statement that Hazelcast's planner saw, and what we find in it; how often each quirk is met is fixed."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.cases import cases
from tests.language.statement.planned_bounds import AGREES, DIFFERS, joins_of, judged

VECTORS = Path(__file__).parents[4] / "shared" / "vectors" / "hazelcast"

recorded = pytest.mark.skipif(not VECTORS.is_dir(), reason="the recorded vectors are not beside the repository")


def vectors(path: Path) -> list[dict[str, Any]]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [vector for line in lines if (vector := json.loads(line))["level"] == "sql"]


FILES = sorted(VECTORS.glob("*.jsonl"))
EXPECTED = {"design.jsonl": {AGREES: 11, "FULL JOIN": 1}}
"""How the statements of a file compare; of a file that is not here only that nothing differs without a quirk."""


@recorded
@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_statements_are_taken_with_the_recorded_bounds(path):
    """Each statement over streams is taken or refused as recorded, with the same bounds, but for the quirks."""
    taken_apart = [(vector, joins_of(vector["params"]["sql"])) for vector in vectors(path)]
    verdicts = {vector["id"]: judged(joins, vector) for vector, joins in taken_apart if joins}
    assert [name for name, verdict in verdicts.items() if verdict == DIFFERS] == []
    if path.name in EXPECTED:
        assert Counter(verdicts.values()) == EXPECTED[path.name]


BETWEEN = "r.t BETWEEN l.t - 1 AND l.t + 4"
AN_HOUR = "r.t BETWEEN l.t AND l.t + INTERVAL '1' HOUR"

TAKEN = [
    f"l JOIN r ON {BETWEEN}",
    "l JOIN r ON l.t >= r.t - 4 AND l.t <= r.t + 1",
    "l JOIN r ON l.t - r.t <= 1 AND r.t - l.t <= 1",
    "l JOIN r ON NOT (l.t < r.t - 4) AND r.t + 1 > l.t",
    "l JOIN r ON l.k = r.k WHERE l.t >= r.t - 4 AND l.t <= r.t + 1",
    "l JOIN r USING (t)",
    "l NATURAL JOIN r",
    "l JOIN r ON l.t = r.t",
    "l JOIN r ON l.t = r.t + 5",
    "l JOIN r ON r.t + 5 = l.t",
    "l JOIN r ON l.t >= r.t + 4 AND r.t >= l.t + 4",
    f"l JOIN r ON {BETWEEN} AND l.k = r.k AND l.v <> r.v AND (l.v = 1 OR r.v = 2) AND l.u > r.u",
    "l JOIN r ON r.t BETWEEN l.t - (3 - 2) AND l.t + 2 + 2",
    "l JOIN r ON l.t BETWEEN r.t - CAST(4 AS BIGINT) AND r.t - (-4)",
    f"lt l JOIN rt r ON {AN_HOUR}",
    f"ltz l JOIN rtz r ON {AN_HOUR}",
    "ld l JOIN rd r ON l.t = r.t",
    f"l RIGHT JOIN r ON {BETWEEN}",
    f"l JOIN r ON {BETWEEN} LEFT JOIN o ON o.t BETWEEN r.t - 1 AND r.t + 4",
]
"""Statements of the README that the planner takes."""

REFUSED = [
    "l JOIN r ON l.k = r.k",
    "l JOIN r ON TRUE",
    "l JOIN r ON 1 = 2",
    "l CROSS JOIN r",
    "l JOIN r ON l.t >= r.t - 4",
    "l JOIN r ON l.t <> r.t",
    "l JOIN r ON l.t IN (r.t)",
    "l JOIN r ON (l.t = r.t AND l.k = 1) OR (l.t = r.t AND l.k = 2)",
    "l JOIN r ON l.t BETWEEN r.t - r.v AND r.t + r.v",
    "l JOIN r ON l.t BETWEEN r.t - RAND() AND r.t + RAND()",
    "l JOIN r ON l.t BETWEEN r.t - ? AND r.t + ?",
    "l JOIN r ON l.t BETWEEN r.t AND r.t * 2",
    "l JOIN r ON ABS(l.t - r.t) <= 5",
    "l JOIN r ON l.t / 2 = r.t / 2",
    "l JOIN r ON l.t BETWEEN r.t AND r.t + 4.5",
    "l JOIN r ON l.u = r.u",
    "l JOIN r ON l.t BETWEEN l.t - 1 AND l.t + 1",
    "l JOIN r ON l.t BETWEEN 1 AND 5 AND r.t BETWEEN 1 AND 5",
    "lt l JOIN rt r ON r.t BETWEEN l.t AND l.t + INTERVAL '1' MONTH",
    "lt l JOIN rt r ON r.t BETWEEN l.t AND l.t + INTERVAL '1' YEAR",
]
"""Statements of the README that it refuses."""

REFUSED_FOR = {
    f"l FULL JOIN r ON {BETWEEN}": "FULL JOIN",
    f"l JOIN r ON {BETWEEN} RIGHT JOIN o ON o.t BETWEEN r.t - 1 AND r.t + 4": "RIGHT JOIN of three",
    "l JOIN r ON l.t + 5 = r.t": "offset on the left time of an equality",
    "l JOIN r ON l.t - 5 = r.t": "offset on the left time of an equality",
    "l JOIN r ON r.t = l.t - 5": "offset on the left time of an equality",
    "l JOIN r ON l.t BETWEEN r.t - 2 * 2 AND r.t + 2 * 2": "product of constants",
    f"ld l JOIN rd r ON {AN_HOUR}": "DATE with INTERVAL",
    "lt l JOIN rt r ON r.t - l.t BETWEEN INTERVAL '0' HOUR AND INTERVAL '1' HOUR": "timestamps subtracted",
    f"l JOIN r ON {BETWEEN} AND FALSE": "constant term",
}
"""Statements of the README that it refuses for a quirk."""


@cases(
    "sources, is_taken, verdict",
    *((sources, True, AGREES) for sources in TAKEN),
    *((sources, False, AGREES) for sources in REFUSED),
    *((sources, False, quirk) for sources, quirk in REFUSED_FOR.items()),
)
def test_statements_of_the_readme_are_taken_or_refused(sources, is_taken, verdict):
    """What the notes on the recording list, with the quirk where we take it and the planner does not."""
    joins = joins_of(f"SELECT * FROM {sources}")
    assert joins
    assert judged(joins, {"accepted": is_taken}) == verdict
