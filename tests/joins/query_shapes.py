"""The joins with subqueries that are tried: each type with a filter on each side, which rows enter and leave."""

from dataclasses import replace

from .schemas import BOOLEAN, INT, STRING
from .stars import How, Star, Through, equal, first, table

EVERY: tuple[How, ...] = (("inner",), ("left",), ("right",), ("full",))
TABLES = {
    "l": table("k", k=INT, v=INT, on_l=BOOLEAN, unused=STRING),
    "r": table("m", spare=STRING, m=INT, w=INT, on_r=BOOLEAN),
    "g": table("gid", gid=INT, g=STRING),
    "versions": table("vk", "n", vk=INT, n=INT, w=INT),
    "result": replace(table("x", "y", x=INT, y=INT, v=INT, gref=INT), may_be_absent=True),
}
FLAGS = [True, True, True, False, None]
"""A filter that is not true is false or null."""

FEW, TEXTS, PARTS = [0, 1, 1, 2, None], ["s", "t"], [1, 2, 2, None, None]
DOMAIN = {
    **{name: [1, 2, 2, 3, None] for name in ("k", "m", "vk")},
    **dict.fromkeys(("v", "w"), FEW),
    **dict.fromkeys(("on_l", "on_r"), FLAGS),
    **dict.fromkeys(("unused", "spare"), TEXTS),
    "gid": [0, 1, 2, None],
    "g": ["p", "q", None],
    "n": [1, 2, None],
    "gref": [1, 1, 2, 9, None],
    **dict.fromkeys(("x", "y"), PARTS),
}
QUERIES: list[Star] = []


def _tried(name: str, types: tuple[How, ...], sql: str, inputs: tuple[str, ...], **options) -> Star:
    tables = {one: TABLES[one] for one in dict.fromkeys(inputs)}
    given = {"domain": DOMAIN, "on": (), **options}
    QUERIES.append(Star(name=name, types=types, sql=sql, tables=tables, inputs=inputs, **given))
    return QUERIES[-1]


def plus(value: int | None, more: int) -> int | None:
    return None if value is None else value + more


LEFT = "(SELECT k AS id, v + 1 AS x, unused FROM l WHERE on_l)"
THROUGH_LEFT = Through(("id", "x"), lambda one: (one.k, plus(one.v, 1)) if one.on_l else None)
RIGHT = "(SELECT coalesce(w, 7) AS z, q.m AS id FROM (SELECT * FROM r WHERE on_r IS NULL OR on_r) q WHERE NOT q.w = 2)"
THROUGH_RIGHT = Through(("id", "z"), lambda r: (r.m, r.w) if r.on_r in (None, True) and r.w in (0, 1) else None)

_tried(
    "one",
    ((),),
    "SELECT k AS id, v + 1 AS x FROM l WHERE on_l",
    ("l",),
    where=lambda one: bool(one.on_l),
    key=lambda one: (one.k,),
    row=lambda one: (plus(one.v, 1),),
    outputs=("x",),
)
_tried(
    "one-nested",
    ((),),
    "WITH a AS (SELECT k, v, on_l FROM l WHERE v < 2) SELECT b.id, b.x FROM"
    " (SELECT k AS id, v + 1 AS x FROM a WHERE on_l) b WHERE b.x > 0 OR b.id > 2",
    ("l",),
    through={0: Through(("id", "x"), lambda one: (one.k, one.v + 1) if one.on_l and one.v in (0, 1) else None)},
    where=lambda b: b.x > 0 or b.id > 2,
    key=lambda b: (b.id,),
    row=lambda b: (b.x,),
    outputs=("x",),
)
for how, key in (("inner", "l.id"), ("left", "l.id"), ("right", "r.id"), ("full", "coalesce(l.id, r.id)")):
    _tried(
        f"by-key-{how}",
        ((how,),),
        f"SELECT {key} AS id, l.x, r.z FROM {LEFT} l {{0}} JOIN {RIGHT} r ON l.id = r.id",
        ("l", "r"),
        through={0: THROUGH_LEFT, 1: THROUGH_RIGHT},
        on=(lambda a, b: equal(a.id, b.id),),
        key=lambda a, b: (first(a.id, b.id),),
        row=lambda a, b: (a.x, b.z),
        outputs=("x", "z"),
    )
_tried(
    "split",
    (("full",),),
    "SELECT coalesce(a.k, b.k) AS id, a.v AS x, b.u AS y FROM (SELECT * FROM l WHERE on_l) a"
    " {0} JOIN (SELECT upper(unused) AS u, k FROM l WHERE v >= 1) b ON a.k = b.k",
    ("l", "l"),
    through={
        0: Through(("k", "v"), lambda one: (one.k, one.v) if one.on_l else None),
        1: Through(("k", "u"), lambda one: (one.k, one.unused.upper()) if one.v in (1, 2) else None),
    },
    on=(lambda a, b: equal(a.k, b.k),),
    key=lambda a, b: (first(a.k, b.k),),
    row=lambda a, b: (a.v, b.u),
    outputs=("x", "y"),
)
FACTS, PARENTS = "(SELECT k AS id, v + 1 AS ref FROM l WHERE on_l)", "(SELECT m - 1 + 1 AS c, m, w FROM r WHERE on_r)"
THROUGH_FACTS = Through(("id", "ref"), lambda one: (one.k, plus(one.v, 1)) if one.on_l else None)
THROUGH_PARENTS = Through(("m", "w"), lambda r: (r.m, r.w) if r.on_r else None)
_tried(
    "referring",
    (("inner",), ("left",)),
    f"SELECT f.id, f.ref AS x, p.w FROM {FACTS} f {{0}} JOIN {PARENTS} p ON f.ref = p.m",
    ("l", "r"),
    through={0: THROUGH_FACTS, 1: THROUGH_PARENTS},
    on=(lambda f, p: equal(f.ref, p.m),),
    key=lambda f, p: (f.id,),
    row=lambda f, p: (f.ref, p.w),
    outputs=("x", "w"),
)
_tried(
    "referring-reversed",
    (("right",),),
    f"SELECT f.id, f.ref AS x, p.w FROM {PARENTS} p {{0}} JOIN {FACTS} f ON f.ref = p.m",
    ("r", "l"),
    through={1: THROUGH_FACTS, 0: THROUGH_PARENTS},
    on=(lambda p, f: equal(f.ref, p.m),),
    key=lambda p, f: (f.id,),
    row=lambda p, f: (f.ref, p.w),
    outputs=("x", "w"),
)
_tried(
    "itself",
    (("left",), ("inner",)),
    "SELECT a.k AS id, a.v AS x, b.v AS y FROM l a {0} JOIN (SELECT k, v FROM l WHERE on_l) b ON a.v = b.k",
    ("l", "l"),
    through={1: Through(("k", "v"), lambda one: (one.k, one.v) if one.on_l else None)},
    on=(lambda a, b: equal(a.v, b.k),),
    key=lambda a, b: (a.k,),
    row=lambda a, b: (a.v, b.v),
    outputs=("x", "y"),
)
_tried(
    "twice",
    (("left", "left"),),
    "WITH p AS (SELECT m, w FROM r WHERE on_r) SELECT f.k AS id, a.w AS x, b.w AS y"
    " FROM l f {0} JOIN p a ON f.v = a.m {1} JOIN p b ON a.w = b.m AND b.w <> f.v",
    ("l", "r", "r"),
    through={1: THROUGH_PARENTS, 2: THROUGH_PARENTS},
    on=(lambda f, a: equal(f.v, a.m), lambda f, a, b: equal(a.w, b.m) and None not in (b.w, f.v) and b.w != f.v),
    key=lambda f, a, b: (f.k,),
    row=lambda f, a, b: (a.w, b.w),
    outputs=("x", "y"),
)
_tried(
    "one-of-versions",
    (("left",),),
    "SELECT f.k AS id, f.v AS x, p.w FROM l f {0} JOIN (SELECT vk, w FROM versions WHERE n = 1) p ON f.v = p.vk",
    ("l", "versions"),
    through={1: Through(("vk", "w"), lambda p: (p.vk, p.w) if p.n == 1 else None)},
    declared={"versions": ("vk",)},
    on=(lambda f, p: equal(f.v, p.vk),),
    key=lambda f, p: (f.k,),
    row=lambda f, p: (f.v, p.w),
    outputs=("x", "w"),
)
_tried(
    "of-a-result",
    (("left",),),
    "SELECT a.x, a.y, a.v, g.g FROM (SELECT * FROM result WHERE v < 2) a {0} JOIN"
    " (SELECT g, gid FROM g WHERE g = 'p') g ON a.gref = g.gid",
    ("result", "g"),
    through={
        0: Through(("x", "y", "v", "gref"), lambda a: a if a.v in (0, 1) else None),
        1: Through(("gid", "g"), lambda g: g if g.g == "p" else None),
    },
    on=(lambda a, g: equal(a.gref, g.gid),),
    key=lambda a, g: (a.x, a.y),
    row=lambda a, g: (a.v, g.g),
    key_outputs=("x", "y"),
    outputs=("v", "g"),
    may_be_absent=True,
)

MANY_LEFT, MANY_RIGHT = (
    "(SELECT k AS id, v AS city, upper(unused) AS x FROM l WHERE on_l)",
    "(SELECT m AS id, w AS city, upper(spare) AS y FROM r WHERE on_r)",
)
THROUGH_MANY = (
    Through(("id", "city", "x"), lambda one: (one.k, one.v, one.unused.upper()) if one.on_l else None),
    Through(("id", "city", "y"), lambda r: (r.m, r.w, r.spare.upper()) if r.on_r else None),
)
_tried(
    "many",
    EVERY,
    f"SELECT a.id AS aid, b.id AS bid, a.x, b.y FROM {MANY_LEFT} a {{0}} JOIN {MANY_RIGHT} b ON a.city = b.city",
    ("l", "r"),
    through=dict(enumerate(THROUGH_MANY)),
    on=(lambda a, b: equal(a.city, b.city),),
    key=lambda a, b: (a.id, b.id),
    row=lambda a, b: (a.x, b.y),
    key_outputs=("aid", "bid"),
    outputs=("x", "y"),
    may_be_absent=True,
)
_tried(
    "many-looking-up",
    (("left", "full"), ("inner", "left")),
    f"SELECT a.id AS aid, b.id AS bid, g.g, b.y FROM {MANY_LEFT} a {{0}} JOIN (SELECT * FROM g WHERE g = 'p') g"
    f" ON a.city = g.gid {{1}} JOIN {MANY_RIGHT} b ON a.city = b.city",
    ("l", "g", "r"),
    through={0: THROUGH_MANY[0], 1: Through(("gid", "g"), lambda g: g if g.g == "p" else None), 2: THROUGH_MANY[1]},
    on=(lambda a, g: equal(a.city, g.gid), lambda a, g, b: equal(a.city, b.city)),
    key=lambda a, g, b: (a.id, b.id),
    row=lambda a, g, b: (g.g, b.y),
    key_outputs=("aid", "bid"),
    outputs=("g", "y"),
    may_be_absent=True,
)
