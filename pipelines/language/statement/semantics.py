"""Check that a statement is valid under the `semantics` of its join."""

from collections.abc import Iterator, Mapping

from pipelines.language.sql.dialect import as_written
from pipelines.language.sql.lengths import lateness
from pipelines.language.sql.objection import Objection
from pipelines.language.statement.statement import Statement

ALWAYS = -(2**63)
"""The position before all others, at which a version begins that no change made."""

UNORDERED = 0
"""The position of rows of an initial load without an order."""


def unlike_upstream(semantics: str, upstream: Mapping[str, str]) -> Iterator[Objection]:
    """
    Find joins, by name, with other semantics than a join with a changelog, which is computed from their changelogs.
    """
    for name, other in upstream.items():
        if other != semantics:
            problem = f"FROM: `{name}` has semantics `{other}`, but the changelog of this join needs `{semantics}`"
            yield Objection(problem, "give both joins the same semantics, or leave the changelog out", "FROM")


def unlike_kafka(statement: Statement, semantics: str) -> Iterator[Objection]:
    """
    Find features of a statement that Kafka Streams does not support, if the join uses its semantics.

    These are more than two inputs, further conditions of ON, foreign keys before Kafka 2.4, and several times or grace
    periods of a window.
    """
    if not semantics.startswith("kafka"):
        return
    said = f"semantics `{semantics}`"
    if statement.keys.is_many_to_many:
        yield Objection(f"{said}: a join in which many rows match many", "use `semantics: strict`")
    if len(statement.sides) > 2 and not statement.reads_stream:
        hint = "write a join of two inputs, and another join that reads its result"
        yield Objection(f"{said}: a statement of {len(statement.sides)} inputs", hint)
    than = "equalities and a time window" if statement.is_windowed else "the equality of keys"
    for step in statement.steps:
        for condition in step.further:
            problem = f"{said}: ON: `{as_written(condition)}` is a condition besides {than}"
            yield Objection(problem, "leave it out, or use `semantics: strict`", condition)
    if semantics.startswith("kafka-0.10") and statement.keys.links and not statement.reads_stream:
        problem = f"{said}: a foreign-key join, which Kafka supports since 2.4"
        yield Objection(problem, "use `semantics: kafka` or `strict`")
    if statement.is_windowed:
        yield from _unlike_window(statement, said)


def _unlike_window(statement: Statement, said: str) -> Iterator[Objection]:
    """Yield objections to several times or grace periods: a window of Kafka Streams has one of each."""
    sides = [side for side in statement.sides if not side.is_result]
    for side in sides:
        if len(side.times) > 1:
            problem = f"{said}: {side.source} has several `watermarks`; a window has one time for each input"
            yield Objection(problem, "leave one, or use `semantics: strict`")
    late = {lateness(written)[0] for side in sides for _, written in side.times}
    if len(late) > 1:
        each = (f"{side.source} {written}" for side in sides for _, written in side.times)
        listed = ", ".join(dict.fromkeys(each))
        yield Objection(f"{said}: lateness {listed}: a window has one grace period", "use the same for both")
