"""The groups that are tried: as a whole statement, and as an input that is looked up, keyed by, or paired."""

from collections import defaultdict
from decimal import Decimal

from .query_shapes import DOMAIN, TABLES
from .stars import How, Star, equal

GROUPED: list[Star] = []


def _tried(
    name: str, sql: str, inputs: tuple[str, ...], looks: tuple[str, ...], types: tuple[How, ...] = ((),), **given
):
    tables = {one: TABLES[one] for one in dict.fromkeys((*inputs, *looks))}
    options = {"on": (), **given}
    GROUPED.append(
        Star(name=name, types=types, sql=sql, tables=tables, domain=DOMAIN, inputs=inputs, looks=looks, **options)
    )


def of(rows, value) -> list:
    """Return the values of some rows that are not null."""
    return [found for row in rows if (found := value(row)) is not None]


def total(values: list) -> int | None:
    return sum(values) if values else None


def groups(rows, by, where=lambda row: True) -> dict:
    """Group rows by a value that is not null."""
    found = defaultdict(list)
    for row in rows:
        if where(row) and by(row) is not None:
            found[by(row)].append(row)
    return found


def is_first(row, rows, by, where=lambda row: True) -> bool:
    """Tell whether a row is the one that stands for its group: an oracle has rows, a statement has groups."""
    group = groups(rows, by, where).get(by(row), []) if where(row) else []
    return bool(group) and min(group) == row


_tried(
    "whole",
    "SELECT v AS id, count(*) AS n, count(on_l) AS c, sum(k) AS s, min(k) AS low, max(k) AS high FROM l"
    " WHERE v IS NOT NULL GROUP BY v",
    ("l",),
    ("l",),
    where=lambda a, rows: is_first(a, rows, lambda row: row.v),
    key=lambda a, rows: (a.v,),
    row=lambda a, rows: (
        len(groups(rows, lambda row: row.v)[a.v]),
        len(of(groups(rows, lambda row: row.v)[a.v], lambda row: row.on_l)),
        sum(row.k for row in groups(rows, lambda row: row.v)[a.v]),
        min(row.k for row in groups(rows, lambda row: row.v)[a.v]),
        max(row.k for row in groups(rows, lambda row: row.v)[a.v]),
    ),
    outputs=("n", "c", "s", "low", "high"),
)
_tried(
    "filtered",
    "SELECT r.w + 1 AS id, count(DISTINCT spare) AS n, sum(m) FILTER (WHERE on_r) AS s, bool_or(on_r) AS b FROM r"
    " WHERE w + 1 IS NOT NULL AND m > 1 GROUP BY 1 HAVING count(*) > 1 OR n > 1",
    ("r",),
    ("r",),
    where=lambda a, rows: (
        a.m > 1
        and is_first(a, rows, lambda row: row.w, lambda row: row.m > 1)
        and len(groups(rows, lambda row: row.w, lambda row: row.m > 1)[a.w]) > 1
    ),
    key=lambda a, rows: (a.w + 1,),
    row=lambda a, rows: (
        len({row.spare for row in groups(rows, lambda row: row.w, lambda row: row.m > 1)[a.w]}),
        total([row.m for row in groups(rows, lambda row: row.w, lambda row: row.m > 1)[a.w] if row.on_r]),
        any_of([row.on_r for row in groups(rows, lambda row: row.w, lambda row: row.m > 1)[a.w]]),
    ),
    outputs=("n", "s", "b"),
)
_tried(
    "distinct",
    "SELECT DISTINCT coalesce(v, 7) AS id, unused AS y FROM l WHERE unused IS NOT NULL",
    ("l",),
    ("l",),
    where=lambda a, rows: is_first(a, rows, lambda row: (7 if row.v is None else row.v, row.unused)),
    key=lambda a, rows: (7 if a.v is None else a.v, a.unused),
    row=lambda a, rows: (),
    outputs=(),
    key_outputs=("id", "y"),
)
_tried(
    "looked-up-by-key",
    "SELECT l.k AS id, l.v AS x, g.n, g.s FROM l LEFT JOIN"
    " (SELECT w, count(*) AS n, sum(w * 2) AS s, max(spare) AS unused FROM r WHERE w IS NOT NULL AND on_r GROUP BY w) g"
    " ON g.w = l.k",
    ("l",),
    ("r",),
    key=lambda a, r: (a.k,),
    row=lambda a, r: (
        (a.v, len(found) or None, total([2 * b.w for b in found]))
        if (found := [b for b in r if equal(b.w, a.k) and b.on_r]) is not None
        else ()
    ),
    outputs=("x", "n", "s"),
)
_tried(
    "looked-up-by-value",
    "WITH g AS (SELECT w, avg(m) AS a, count(w) AS n FROM r WHERE w IS NOT NULL GROUP BY w HAVING max(m) > 1)"
    " SELECT l.k AS id, CAST(g.a * 6 AS INT) AS x, g.n FROM l JOIN g ON g.w = l.v AND g.n <= l.k",
    ("l",),
    ("r",),
    where=lambda a, r: (
        bool(found := [b for b in r if equal(b.w, a.v)]) and max(b.m for b in found) > 1 and len(found) <= a.k
    ),
    key=lambda a, r: (a.k,),
    row=lambda a, r: (
        int(Decimal(sum(b.m for b in r if b.w == a.v)) / len([b for b in r if b.w == a.v]) * 6 + Decimal("0.0001")),
        len([b for b in r if b.w == a.v]),
    ),
    outputs=("x", "n"),
)
_tried(
    "of-groups-with-rows",
    "SELECT g.v AS id, g.n, r.w AS x FROM (SELECT v, count(*) AS n FROM l WHERE v IS NOT NULL GROUP BY v) g"
    " LEFT JOIN r ON r.m = g.n WHERE NOT EXISTS (SELECT 1 FROM r q WHERE q.w = g.v AND q.on_r)",
    ("l",),
    ("l", "r"),
    where=lambda a, rows, r: is_first(a, rows, lambda row: row.v) and not any(equal(b.w, a.v) and b.on_r for b in r),
    key=lambda a, rows, r: (a.v,),
    row=lambda a, rows, r: (
        number := len(groups(rows, lambda row: row.v)[a.v]),
        next((b.w for b in r if b.m == number), None),
    ),
    outputs=("n", "x"),
)
_tried(
    "of-pairs",
    "SELECT l.k AS id, g.w, g.n FROM l {0} JOIN"
    " (SELECT w, count(*) AS n FROM r WHERE w IS NOT NULL GROUP BY w) g ON g.n = l.v",
    ("l", "r"),
    ("r",),
    (("inner",),),
    on=(lambda a, b: True,),
    where=lambda a, b, r: (
        is_first(b, r, lambda row: row.w) and equal(len(groups(r, lambda row: row.w).get(b.w, ())), a.v)
    ),
    key=lambda a, b, r: (a.k, b.w),
    row=lambda a, b, r: (a.v,),
    key_outputs=("id", "w"),
    outputs=("n",),
    may_be_absent=True,
)


def any_of(values: list) -> bool | None:
    known = [value for value in values if value is not None]
    return any(known) if known else None
