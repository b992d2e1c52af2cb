"""What a statement must be for the semantics that its join asks for."""

from collections.abc import Iterator, Mapping

from pipelines.spec.sql.dialect import as_written
from pipelines.spec.sql.lengths import lateness
from pipelines.spec.sql.objection import Objection
from pipelines.spec.statement.statement import Statement

UNORDERED = 0
"""The position of the rows of a first load that nothing orders."""


def unlike_upstream(semantics: str, upstream: Mapping[str, str]) -> Iterator[Objection]:
    """
    Find the joins that a join with a changelog reads under other semantics: its changelog is made of their rows.

    Args:
        semantics: Those of the join.
        upstream: Those of the joins that it reads, by name.

    Yields:
        Each that differs.
    """
    for name, other in upstream.items():
        if other != semantics:
            problem = f"FROM: `{name}` has semantics `{other}`, and the changelog of this join `{semantics}`"
            yield Objection(problem, "give both the same semantics, or this one no changelog", "FROM")


def unlike_kafka(statement: Statement, semantics: str) -> Iterator[Objection]:
    """
    Find what Kafka Streams has no join for, where its semantics are asked for.

    Args:
        statement: The statement.
        semantics: What the file says.

    Yields:
        More than two inputs, further conditions of ON, and foreign keys before Kafka 2.4.
    """
    if not semantics.startswith("kafka"):
        return
    said = f"semantics `{semantics}`"
    if len(statement.sides) > 2 and not statement.reads_stream:
        hint = "write a join of two, and another one that reads its result"
        yield Objection(f"{said}: a statement of {len(statement.sides)} inputs", hint)
    than = "equalities and a window of time" if statement.is_windowed else "the equality of keys"
    for step in statement.steps:
        for condition in step.further:
            problem = f"{said}: ON: `{as_written(condition)}` is more than {than}"
            yield Objection(problem, "leave it out, or use `semantics: strict`", condition)
    if semantics.startswith("kafka-0.10") and statement.keys.links and not statement.reads_stream:
        problem = f"{said}: a join over a foreign key, which came with Kafka 2.4"
        yield Objection(problem, "use `semantics: kafka`, or `strict`")
    if statement.is_windowed:
        yield from _unlike_window(statement, said)


def _unlike_window(statement: Statement, said: str) -> Iterator[Objection]:
    """Kafka Streams has one time for a join of two streams, and one grace period."""
    sides = [side for side in statement.sides if not side.is_result]
    for side in sides:
        if len(side.times) > 1:
            problem = f"{said}: {side.source} has several `watermarks`; a window has one time for each input"
            yield Objection(problem, "leave one, or use `semantics: strict`")
    late = {lateness(written)[0] for side in sides for _, written in side.times}
    if len(late) > 1:
        each = (f"{side.source} {written}" for side in sides for _, written in side.times)
        listed = ", ".join(dict.fromkeys(each))
        yield Objection(f"{said}: lateness {listed}: a window has one grace period", "give both streams the same")
