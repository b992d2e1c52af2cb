"""The semi and anti joins, EXISTS and IN that are tried: by key and by value, with further conditions, among joins."""

from .query_shapes import DOMAIN, TABLES
from .stars import How, Star, equal, first

SEMI_JOINS: list[Star] = []


def _tried(
    name: str, sql: str, inputs: tuple[str, ...], looks: tuple[str, ...], types: tuple[How, ...] = ((),), **options
) -> None:
    tables = {one: TABLES[one] for one in dict.fromkeys((*inputs, *looks))}
    given = {"key": lambda a, *_: (a.k,), "row": lambda a, *_: (a.v,), "outputs": ("x",), "on": (), **options}
    SEMI_JOINS.append(
        Star(name=name, types=types, sql=sql, tables=tables, domain=DOMAIN, inputs=inputs, looks=looks, **given)
    )


def over(*pair: int | None) -> bool:
    """Tell whether the first value is greater than the second; null is not."""
    return None not in pair and pair[0] > pair[1]


ROWS = "SELECT l.k AS id, l.v AS x FROM l"

_tried(
    "semi-by-key", f"{ROWS} LEFT SEMI JOIN r ON r.w = l.k", ("l",), ("r",), where=lambda a, r: a.k in {b.w for b in r}
)
_tried(
    "anti-by-key", f"{ROWS} ANTI JOIN r ON l.k = r.w", ("l",), ("r",), where=lambda a, r: a.k not in {b.w for b in r}
)
_tried(
    "exists",
    f"{ROWS} WHERE EXISTS (SELECT 1 FROM r WHERE r.w = l.v AND on_r)",
    ("l",),
    ("r",),
    where=lambda a, r: any(equal(b.w, a.v) and b.on_r for b in r),
)
_tried(
    "not-exists",
    f"{ROWS} WHERE NOT EXISTS (SELECT * FROM r b WHERE l.v = b.w)",
    ("l",),
    ("r",),
    where=lambda a, r: not any(equal(b.w, a.v) for b in r),
)
_tried(
    "in",
    f"{ROWS} WHERE v IN (SELECT DISTINCT w FROM r WHERE on_r) AND l.k > 0",
    ("l",),
    ("r",),
    where=lambda a, r: any(equal(b.w, a.v) and b.on_r for b in r),
)
_tried(
    "not-in",
    f"{ROWS} WHERE l.k NOT IN (SELECT w FROM r WHERE w IS NOT NULL)",
    ("l",),
    ("r",),
    where=lambda a, r: not any(b.w == a.k for b in r),
)
_tried(
    "further",
    f"{ROWS} WHERE EXISTS (SELECT 1 FROM r WHERE r.w = l.v AND r.m > l.k)",
    ("l",),
    ("r",),
    where=lambda a, r: any(equal(b.w, a.v) and b.m > a.k for b in r),
)
_tried(
    "not-further",
    f"{ROWS} WHERE NOT EXISTS (SELECT 1 FROM r WHERE r.w = l.v AND r.m <> l.k AND l.on_l AND r.spare <> l.unused)",
    ("l",),
    ("r",),
    where=lambda a, r: not any(equal(b.w, a.v) and b.m != a.k and a.on_l and b.spare != a.unused for b in r),
)
_tried(
    "anywhere",
    "SELECT l.k AS id, IF(EXISTS (SELECT 1 FROM r WHERE r.w = l.v), 1, 0) AS x FROM l"
    " WHERE l.on_l OR NOT EXISTS (SELECT 1 FROM r WHERE r.w = l.k AND r.on_r)",
    ("l",),
    ("r",),
    where=lambda a, r: a.on_l or not any(b.w == a.k and b.on_r for b in r),
    row=lambda a, r: (int(any(equal(b.w, a.v) for b in r)),),
)
_tried(
    "pairs-in",
    f"{ROWS} WHERE (l.k, l.v) IN (SELECT m, w FROM r)",
    ("l",),
    ("r",),
    where=lambda a, r: any(equal(b.m, a.k, b.w, a.v) for b in r),
)
_tried(
    "by-an-expression",
    f"{ROWS} WHERE EXISTS (SELECT 1 FROM r WHERE r.w + 1 = l.v + l.k)",
    ("l",),
    ("r",),
    where=lambda a, r: any(None not in (b.w, a.v) and b.w + 1 == a.v + a.k for b in r),
)
_tried(
    "of-itself",
    "SELECT a.k AS id, a.v AS x FROM l a WHERE NOT EXISTS (SELECT 1 FROM l b WHERE b.v = a.v AND b.k <> a.k)",
    ("l",),
    ("l",),
    where=lambda a, rows: not any(equal(b.v, a.v) and b.k != a.k for b in rows),
)
_tried(
    "through-with",
    f"WITH c AS (SELECT w FROM r WHERE on_r) {ROWS} WHERE l.v IN (SELECT w FROM c)",
    ("l",),
    ("r",),
    where=lambda a, r: any(equal(b.w, a.v) and b.on_r for b in r),
)
_tried(
    "after-a-look-up",
    "SELECT l.k AS id, l.v AS x, g.g FROM l {0} JOIN g ON l.v = g.gid LEFT ANTI JOIN r ON r.w = g.gid AND r.on_r",
    ("l", "g"),
    ("r",),
    (("left",), ("inner",)),
    on=(lambda a, g: equal(a.v, g.gid),),
    where=lambda a, g, r: not any(equal(b.w, g.gid) and b.on_r for b in r),
    row=lambda a, g, r: (a.v, g.g),
    outputs=("x", "g"),
)
_tried(
    "after-a-full-join",
    "SELECT coalesce(l.k, r.m) AS id, l.v AS x FROM l {0} JOIN r ON l.k = r.m"
    " WHERE NOT EXISTS (SELECT 1 FROM versions p WHERE p.w = l.v AND p.n >= r.w)",
    ("l", "r"),
    ("versions",),
    (("full",),),
    on=(lambda a, b: equal(a.k, b.m),),
    where=lambda a, b, p: not any(equal(one.w, a.v) and not over(b.w, one.n) and b.w is not None for one in p),
    key=lambda a, b, p: (first(a.k, b.m),),
    row=lambda a, b, p: (a.v,),
)
_tried(
    "of-a-result",
    "SELECT a.x, a.y, a.v FROM result a WHERE EXISTS (SELECT 1 FROM r WHERE r.w = a.v)",
    ("result",),
    ("r",),
    where=lambda a, r: any(equal(b.w, a.v) for b in r),
    key=lambda a, r: (a.x, a.y),
    key_outputs=("x", "y"),
    outputs=("v",),
    may_be_absent=True,
)
_tried(
    "by-a-result",
    f"{ROWS} WHERE EXISTS (SELECT 1 FROM result a WHERE a.v = l.v AND a.y > 1)",
    ("l",),
    ("result",),
    where=lambda a, rows: any(equal(b.v, a.v) and over(b.y, 1) for b in rows),
)
_tried(
    "of-pairs",
    "SELECT a.k AS aid, b.m AS bid, a.v AS x FROM l a {0} JOIN r b ON a.v = b.w"
    " WHERE EXISTS (SELECT 1 FROM versions p WHERE p.vk = a.k AND p.w = b.m)",
    ("l", "r"),
    ("versions",),
    (("inner",),),
    on=(lambda a, b: equal(a.v, b.w),),
    where=lambda a, b, p: any(one.vk == a.k and one.w == b.m for one in p),
    key=lambda a, b, p: (a.k, b.m),
    row=lambda a, b, p: (a.v,),
    key_outputs=("aid", "bid"),
    may_be_absent=True,
)
