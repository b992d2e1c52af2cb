"""
The bounds that Hazelcast took out of statements, and ours. Where they differ, its planner has a quirk that is named
here and told by the statement alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import sqlglot
from sqlglot import exp

from pipelines.language.sql.dialect import Verbatim
from pipelines.language.statement.columns import conjuncts
from pipelines.language.statement.windows import Time, find_bounds

STREAMS = {"l", "r", "o", "lt", "rt", "ltz", "rtz", "ld", "rd", "li", "ri"}
"""The tables that have the columns below and a watermark on t."""
COLUMNS = ("id", "k", "v", "t", "u")

AGREES, DIFFERS = "as recorded", "not as recorded"


@dataclass(frozen=True)
class Joined:
    """A JOIN: its type, the tables up to the one it adds by their aliases, and all that their rows have to meet."""

    how: str
    tables: Mapping[str, str]
    conditions: Sequence[exp.Expr]

    @property
    def right(self) -> str:
        return list(self.tables)[-1]

    def time_of(self, column: exp.Column) -> Time | None:
        alias = column.table.lower()
        if alias not in self.tables or column.name.lower() != "t":
            return None
        return Time(int(alias == self.right), f"{alias}.t")

    def parts(self) -> Iterator[exp.Expr]:
        for condition in self.conditions:
            yield from conjuncts(condition)


def joins_of(sql: str) -> list[Joined]:
    """Take a statement apart; nothing if it is other than a join of streams that have watermarks."""
    statement = sqlglot.parse_one(sql, read=Verbatim)
    if not isinstance(statement, exp.Select) or statement.args.get("order"):
        return []
    joins = statement.args.get("joins") or ()
    sources = [statement.args["from_"].this, *(join.this for join in joins)]
    if not all(isinstance(source, exp.Table) and source.name.lower() in STREAMS for source in sources):
        return []
    aliases = [source.alias_or_name.lower() for source in sources]
    where = [] if any(join.side for join in joins) else [part.this for part in statement.find_all(exp.Where)]
    found = []
    for number, join in enumerate(joins, 1):
        tables = {alias: source.name.lower() for alias, source in zip(aliases[: number + 1], sources, strict=False)}
        on = [join.args["on"]] if join.args.get("on") else []
        using = COLUMNS if join.method == "NATURAL" else [name.name for name in join.args.get("using") or ()]
        equal = [exp.column(name, aliases[0]).eq(exp.column(name, aliases[number])) for name in using]
        found.append(Joined(join.side.lower() or "inner", tables, [*on, *equal, *where]))
    return found


Found = dict[tuple[Time, Time], int]


def found_in(join: Joined) -> tuple[Found, bool]:
    """Our bounds, of intervals in milliseconds, and whether they suffice."""
    bounds, objections = find_bounds(join.conditions, join.time_of, ("the left", join.right))
    lengths = {bound: bound.allowance // 1000 if bound.unit == "interval" else bound.allowance for bound in bounds}
    return {(bound.greater, bound.lesser): length for bound, length in lengths.items()}, not objections


def recorded_in(join: Joined, planned: Mapping[str, Any]) -> Found:
    """The planner's bounds: it calls times by their places, or `l.t` where a side has only one."""
    aliases = {0: [alias for alias in join.tables if alias != join.right], 1: [join.right]}
    times = {}
    for place, side in enumerate("lr"):
        keys = sorted(
            (key for key in planned["watermark_keys"].values() if key[0] == side), key=lambda key: int(key[2:-1])
        )
        for key, alias in zip(keys, aliases[place], strict=True):
            times[key] = times[f"{side}.t"] = Time(place, f"{alias}.t")
    found: Found = {}
    for bound in planned["bounds"]:
        pair = times[bound["greater"]], times[bound["lesser"]]
        found[pair] = min(found.get(pair, bound["constant"]), bound["constant"])
    return found


def moves_the_left_time(join: Joined) -> bool:
    """Whether an equality adds something to a time of the left input: the planner then takes nothing from it."""
    ends = [end.unnest() for part in join.parts() if isinstance(part, exp.EQ) for end in (part.this, part.expression)]
    times = [(end, time) for end in ends for column in end.find_all(exp.Column) if (time := join.time_of(column))]
    return any(time.input == 0 and not isinstance(end, exp.Column) for end, time in times)


def multiplies_constants(join: Joined) -> bool:
    products = (product for part in join.parts() for product in part.find_all(exp.Mul))
    return any(not product.find(exp.Column) for product in products)


def has_intervals(join: Joined) -> bool:
    return any(part.find(exp.Interval) for part in join.parts())


def adds_intervals_to_dates(join: Joined) -> bool:
    return bool({"ld", "rd"} & set(join.tables.values())) and has_intervals(join)


def subtracts_timestamps(join: Joined) -> bool:
    differences = (difference for part in join.parts() for difference in part.find_all(exp.Sub))
    ends = ((one.this.unnest(), one.expression.unnest()) for one in differences)
    return has_intervals(join) and any(isinstance(end, exp.Column) and isinstance(of, exp.Column) for end, of in ends)


def has_constant_terms(join: Joined) -> bool:
    """Whether a term has no columns: the planner makes FALSE of a whole condition with a false one."""
    return any(not part.find(exp.Column) for part in join.parts())


QUIRKS: dict[str, Callable[[Joined], bool]] = {
    "FULL JOIN": lambda join: join.how == "full",
    "RIGHT JOIN of three": lambda join: join.how == "right" and len(join.tables) > 2,
    "offset on the left time of an equality": moves_the_left_time,
    "product of constants": multiplies_constants,
    "DATE with INTERVAL": adds_intervals_to_dates,
    "timestamps subtracted": subtracts_timestamps,
    "constant term": has_constant_terms,
}
"""Why the planner refuses, or takes less from, what bounds the times of both inputs."""


def judged(joins: Sequence[Joined], vector: Mapping[str, Any]) -> str:
    """Compare with what was recorded: the quirk that makes them differ, if they do."""
    ours = [found_in(join) for join in joins]
    is_bounded = all(suffices for _, suffices in ours)
    if not vector["accepted"]:
        agrees, is_more = not is_bounded, is_bounded
    elif "joins" not in vector:
        agrees, is_more = is_bounded, False
    else:
        theirs = [recorded_in(join, planned) for join, planned in zip(joins, vector["joins"], strict=True)]
        found = [bounds for bounds, _ in ours]
        agrees = is_bounded and found == theirs
        pairs = list(zip(found, theirs, strict=True))
        is_more = all(pair in one and one[pair] <= other[pair] for one, other in pairs for pair in other)
    if agrees:
        return AGREES
    quirks = (name for name, is_met in QUIRKS.items() if any(map(is_met, joins)))
    return next(quirks, DIFFERS) if is_more else DIFFERS
