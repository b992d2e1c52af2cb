"""What a change of each source does to the result of a join, in words."""

from pipelines.language import How, Statement
from pipelines.language.sql.dialect import as_written
from pipelines.language.statement.statement import PairingClause, Side

OUTER_SIDES: dict[How, tuple[bool, bool]] = {
    "inner": (False, False),
    "left": (True, False),
    "right": (False, True),
    "full": (True, True),
}
"""Whether unmatched rows of the left side, and of the right side, are in the result."""


def change_of(statement: Statement, place: int) -> str:
    """Describe the effect of a change of an input on the result."""
    if statement.reads_stream:
        return _change_with_stream(statement, place)
    before = "" if statement.where is None else "before WHERE: "
    if place not in statement.keys.members:
        return before + _change_of_referenced(statement, place)
    if statement.keys.is_many_to_many:
        return before + _change_of_many(statement, statement.keys.paired, place)
    if statement.kind == "table-table":
        side, other = statement.sides[place], statement.sides[1 - place]
        outer = OUTER_SIDES[statement.steps[0].how]
        return before + _change_of_pair(side, other, outer[place], outer[1 - place])
    return f"{before}inserts, updates or deletes the result row of its key"


def _change_with_stream(statement: Statement, place: int) -> str:
    if statement.is_windowed:
        outer = OUTER_SIDES[statement.steps[0].how][place]
        unmatched = "; an unmatched row is added with nulls once no other row can match it" if outer else ""
        return f"adds a row to the result for each matching row of the other stream{unmatched}"
    if place:
        return "adds nothing to the result: later rows of the stream look up the changed row"
    adds_each = all(step.how == "left" for step in statement.steps) and statement.where is None
    adds = f"adds {'one row' if adds_each else 'at most one row'} to the result for each new row"
    if statement.sides[0].is_result:
        return adds
    return f"{adds}; updates and deletes are refused, unless `ignore_changes` skips them"


def _change_of_pair(side: Side, other: Side, outer: bool, other_outer: bool) -> str:
    """
    Describe the effect of a change of one side of a table-table join.

    An outer side is one whose unmatched rows are in the result: `outer` is about the side that changes.
    """
    mine, theirs = side.source, other.source
    if outer and other_outer:
        return (
            f"inserts or updates the result row of its key, with nulls for {theirs} while it lacks the key; a delete "
            f"leaves nulls for {mine} while {theirs} has the key, else it deletes the row"
        )
    if outer:
        return f"inserts, updates or deletes the result row of its key, with nulls for {theirs} while it lacks the key"
    if other_outer:
        return (
            f"updates the result row of its key, if {theirs} has the key: sets the columns of {mine}, to nulls after a "
            f"delete"
        )
    return f"inserts, updates or deletes the result row of its key, if {theirs} has the key; else it changes nothing"


def _change_of_many(statement: Statement, pairing: PairingClause, place: int) -> str:
    is_left = place == pairing.left
    other = called(statement, pairing.right if is_left else pairing.left)
    outer = OUTER_SIDES[pairing.how] if is_left else OUTER_SIDES[pairing.how][::-1]
    own = f", or one row with nulls for {other} if it matches none" if outer[0] else ""
    theirs = f"; a row of {other} that loses its last match keeps a row with nulls" if outer[1] else ""
    return f"inserts, updates or deletes a result row for each row of {other} that it matches{own}{theirs}"


def _change_of_referenced(statement: Statement, place: int) -> str:
    side, how, pairing = statement.sides[place], _how_joined(statement, place), statement.keys.pairing
    rows = f"every result row that refers to it by {reference(statement, place)}"
    if pairing is not None and (place == pairing.over or statement.steps[pairing.right - 1].uses(side)):
        left, right = (called(statement, side) for side in (pairing.left, pairing.right))
        return f"alters {rows}, and which rows of {right} those rows of {left} match"
    if statement.kind in ("star", "many-to-many"):
        return f"alters {rows}"
    if how == "inner":
        return f"inserts, updates or deletes {rows}"
    return f"updates {rows}: sets the columns of {side.source}, to nulls after a delete"


def _how_joined(statement: Statement, place: int) -> How:
    """Return the type of join between the input that refers (left) and the referenced input (right)."""
    how = statement.steps[max(place, 1) - 1].how
    return "left" if how in ("left", "right") else "inner"


def reference(statement: Statement, place: int) -> str:
    """Name the reference to an input by the expressions that equal its key."""
    link = next(link for link in statement.keys.links if link.side == place)
    written = [f"`{as_written(expression)}`" for expression in link.expressions]
    return written[0] if len(written) == 1 else f"({', '.join(written)})"


def called(statement: Statement, place: int) -> str:
    """Name an input by its source, or by its alias if several inputs have the same source."""
    side = statement.sides[place]
    return side.source if [other.source for other in statement.sides].count(side.source) == 1 else side.alias
