"""The joins in which rows match in any number that are tried: few values, so that many rows match many."""

from .schemas import INT, STRING
from .stars import Star, equal, first, table

IDS = [1, 2, 3, 4, 5, 6, 7, None]
EVERY = (("inner",), ("left",), ("right",), ("full",))
LEFT_TABLE = table("aid", aid=INT, city=STRING, v=INT, spare=STRING)
RIGHT_TABLE = table("bid", bid=INT, city=STRING, w=INT, gref=INT)
GRANDS = table("gid", gid=INT, g=STRING)
DOMAIN = {
    "aid": IDS,
    "bid": IDS,
    "city": ["x", "x", "x", "y", "y", "z", None],
    "v": [0, 1, 2, None],
    "w": [0, 1, 2, None],
    "spare": ["s", "t"],
    "gref": [1, 1, 2, 9, None],
    "gid": [1, 1, 2, 2, 3, None],
    "g": ["p", "q", None],
}


REFERRING_GRANDS = table("gid", gid=INT, g=STRING, href=INT)
TABLES = {"a": LEFT_TABLE, "h": REFERRING_GRANDS, "b": RIGHT_TABLE, "g": GRANDS}
PAIRS: list[Star] = []


def _pair(name, types, sql, on, inputs=("a", "b"), tables=TABLES, **options):
    """Describe a join of the two tables; the row has a value of each."""
    given = {
        "domain": DOMAIN,
        "key": lambda *rows: (rows[inputs.index("a")].aid, rows[inputs.index("b")].bid),
        "row": lambda *rows: (rows[inputs.index("a")].v, rows[inputs.index("b")].w),
        "outputs": ("v", "w"),
        "key_outputs": ("aid", "bid"),
        "may_be_absent": True,
    }
    tables = {table: rows for table, rows in (TABLES | tables).items() if table in inputs}
    PAIRS.append(Star(name=name, types=types, sql=sql, on=on, inputs=inputs, tables=tables, **(given | options)))
    return PAIRS[-1]


MANY = _pair(
    "many",
    EVERY,
    "SELECT a.aid, b.bid, a.v, b.w FROM a {0} JOIN b ON a.city = b.city",
    (lambda a, b: equal(a.city, b.city),),
)

CONDITION = _pair(
    "condition",
    EVERY,
    "SELECT a.aid, b.bid, a.v, b.w FROM a {0} JOIN b ON a.city = b.city AND a.v >= b.w AND b.gref <> 9",
    (lambda a, b: equal(a.city, b.city) and None not in (a.v, b.w, b.gref) and a.v >= b.w and b.gref != 9,),
)

WHERE = _pair(
    "where",
    EVERY,
    "SELECT b.bid, a.aid, a.v, b.w FROM a {0} JOIN b ON b.city = a.city WHERE coalesce(a.v, 0) <> coalesce(b.w, 1)",
    (lambda a, b: equal(a.city, b.city),),
    where=lambda a, b: (a.v or 0) != (1 if b.w is None else b.w),
)

NULL_SAFE = _pair(
    "null-safe",
    EVERY,
    "SELECT a.aid, b.bid, a.v, b.w FROM a {0} JOIN b ON a.city <=> b.city AND a.v = b.w",
    (lambda a, b: a.city == b.city and equal(a.v, b.w),),
)

PARENT = _pair(
    "parent",
    (("left",), ("full",)),
    "SELECT a.aid, b.bid, a.v, b.w FROM a {0} JOIN b ON b.w = a.aid",
    (lambda a, b: equal(a.aid, b.w),),
)

CHILD = _pair(
    "child",
    (("right",), ("full",)),
    "SELECT a.aid, b.bid, a.v, b.w FROM a {0} JOIN b ON a.v = b.bid",
    (lambda a, b: equal(a.v, b.bid),),
)

WHOLE_KEYS = _pair(
    "whole-keys",
    (("full",),),
    "SELECT a.aid, b.bid, a.v, b.w FROM a {0} JOIN b ON a.aid = b.bid AND a.v = b.w",
    (lambda a, b: equal(a.aid, b.bid, a.v, b.w),),
)

SELF = _pair(
    "self",
    EVERY,
    "SELECT x.aid AS aid, y.aid AS bid, x.v, y.spare AS w FROM a x {0} JOIN a y ON x.city = y.city AND x.v < y.v",
    (lambda x, y: equal(x.city, y.city) and None not in (x.v, y.v) and x.v < y.v,),
    inputs=("a", "a"),
    key=lambda x, y: (x.aid, y.aid),
    row=lambda x, y: (x.v, y.spare),
)

ON_TOP = _pair(
    "on-top",
    tuple((how, then) for (how,) in EVERY for then in ("inner", "left")),
    "SELECT a.aid, b.bid, a.v, g.g FROM a {0} JOIN b ON a.city = b.city {1} JOIN g ON b.gref = g.gid",
    (lambda a, b: equal(a.city, b.city), lambda a, b, g: equal(b.gref, g.gid)),
    inputs=("a", "b", "g"),
    row=lambda a, b, g: (a.v, g.g),
    outputs=("v", "g"),
)

BEFORE = _pair(
    "before",
    tuple((first, how) for first in ("left", "inner") for (how,) in EVERY if (first, how) != ("inner", "inner")),
    "SELECT a.aid, b.bid, g.g, b.w FROM a {0} JOIN g ON a.v = g.gid {1} JOIN b ON a.city = b.city",
    (lambda a, g: equal(a.v, g.gid), lambda a, g, b: equal(a.city, b.city)),
    inputs=("a", "g", "b"),
    row=lambda a, g, b: (g.g, b.w),
    outputs=("g", "w"),
)

RIGHT_WITH_TEXT = table("bid", bid=INT, city=STRING, w=INT, t=STRING)

ON_LOOKED_UP = _pair(
    "on-looked-up",
    tuple((first, how) for first in ("left", "inner") for (how,) in EVERY),
    "SELECT a.aid, b.bid, g.g, b.w FROM a {0} JOIN g ON a.v = g.gid {1} JOIN b ON a.city = b.city "
    "AND coalesce(g.g, 'p') = b.t",
    (lambda a, g: equal(a.v, g.gid), lambda a, g, b: equal(a.city, b.city, first(g.g, "p"), b.t)),
    tables={"b": RIGHT_WITH_TEXT},
    domain=DOMAIN | {"t": ["p", "p", "q", None], "v": [1, 1, 2, None]},
    inputs=("a", "g", "b"),
    row=lambda a, g, b: (g.g, b.w),
    outputs=("g", "w"),
)

OF_TEXT = DOMAIN | {"t": ["p", "p", "q", None], "v": [1, 1, 2, 3, None]}

THROUGH = _pair(
    "through",
    tuple((first, how) for first in ("left", "inner") for (how,) in EVERY),
    "SELECT a.aid, b.bid, a.v, b.w FROM a {0} JOIN g ON a.v = g.gid AND a.city <> 'z' {1} JOIN b ON b.t = g.g",
    (lambda a, g: equal(a.v, g.gid) and a.city not in ("z", None), lambda a, g, b: equal(b.t, g.g)),
    tables={"b": RIGHT_WITH_TEXT},
    domain=OF_TEXT,
    inputs=("a", "g", "b"),
)

NULL_SAFE_THROUGH = _pair(
    "null-safe-through",
    (("inner", "inner"), ("inner", "full")),
    "SELECT a.aid, b.bid, a.city, b.w FROM a {0} JOIN g ON a.v = g.gid {1} JOIN b ON b.t <=> g.g AND b.w <> a.v",
    (lambda a, g: equal(a.v, g.gid), lambda a, g, b: b.t == g.g and None not in (b.w, a.v) and b.w != a.v),
    tables={"b": RIGHT_WITH_TEXT},
    domain=OF_TEXT,
    inputs=("a", "g", "b"),
    row=lambda a, g, b: (a.city, b.w),
    outputs=("city", "w"),
)

SELF_THROUGH = _pair(
    "self-through",
    (("left", "full"),),
    "SELECT a.aid, k.gid AS bid, a.v, k.g AS w FROM a {0} JOIN g ON a.v = g.gid {1} JOIN g k ON k.g = g.g",
    (lambda a, g: equal(a.v, g.gid), lambda a, g, k: equal(k.g, g.g)),
    domain=OF_TEXT,
    inputs=("a", "g", "g"),
    key=lambda a, g, k: (a.aid, k.gid),
    row=lambda a, g, k: (a.v, k.g),
)

PLACES = table("x", "y", x=INT, y=INT, g=STRING)
OF_PLACES = DOMAIN | {"x": [0, 1, 1, 2, None], "y": [0, 1, 1, 2, None], "href": [0, 1, 2, None]}

BOTH_SIDES = _pair(
    "both-sides",
    tuple((how, then) for (how,) in EVERY for then in ("inner", "left")),
    "SELECT a.aid, b.bid, a.v, g.g FROM a {0} JOIN b ON a.city = b.city {1} JOIN g ON g.x = a.v AND g.y = b.w",
    (lambda a, b: equal(a.city, b.city), lambda a, b, g: equal(g.x, a.v, g.y, b.w)),
    tables={"g": PLACES},
    domain=OF_PLACES,
    inputs=("a", "b", "g"),
    row=lambda a, b, g: (a.v, g.g),
    outputs=("v", "g"),
)

FEW = [1, 1, 1, 2, None]
SEVERAL_INPUTS = _pair(
    "several-inputs",
    tuple(("left", how, then, "left") for how in ("left", "right", "full") for then in ("inner", "left")),
    "SELECT a.aid, b.bid, a.v, g.g, k.g AS last FROM a {0} JOIN h ON a.v = h.gid {1} JOIN b ON a.city = b.city "
    "{2} JOIN g ON g.y = b.w AND h.href = g.x AND g.g <> 'q' {3} JOIN h k ON k.gid = g.y",
    (
        lambda a, h: equal(a.v, h.gid),
        lambda a, h, b: equal(a.city, b.city),
        lambda a, h, b, g: equal(g.y, b.w, g.x, h.href) and g.g not in ("q", None),
        lambda a, h, b, g, k: equal(k.gid, g.y),
    ),
    tables={"g": PLACES},
    domain=OF_PLACES | dict.fromkeys(("v", "w", "x", "y", "href", "gid"), FEW),
    inputs=("a", "h", "b", "g", "h"),
    row=lambda a, h, b, g, k: (a.v, g.g, k.g),
    outputs=("v", "g", "last"),
)

THROUGH_STEPS = _pair(
    "through-steps",
    tuple(("right", how, how, then) for how in ("left", "inner") for (then,) in EVERY),
    "SELECT a.aid, b.bid, a.city, b.w, h.g FROM h {0} JOIN a ON a.v = h.gid {1} JOIN g ON g.y = a.y AND g.x = h.href "
    "{2} JOIN h k ON k.gid = g.y {3} JOIN b ON k.g = b.t AND a.city <> b.city",
    (
        lambda h, a: equal(a.v, h.gid),
        lambda h, a, g: equal(g.y, a.y, g.x, h.href),
        lambda h, a, g, k: equal(k.gid, g.y),
        lambda h, a, g, k, b: equal(k.g, b.t) and None not in (a.city, b.city) and a.city != b.city,
    ),
    tables={"a": table("aid", aid=INT, city=STRING, v=INT, y=INT), "b": RIGHT_WITH_TEXT, "g": PLACES},
    domain=OF_PLACES | dict.fromkeys(("v", "w", "x", "y", "href", "gid"), FEW) | {"t": ["p", "p", "q", None]},
    inputs=("h", "a", "g", "h", "b"),
    row=lambda h, a, g, k, b: (a.city, b.w, h.g),
    outputs=("city", "w", "g"),
)

NAMED_AS_COLUMN = _pair(
    "named-as-column",
    (("full",),),
    "SELECT city.aid, w.bid, city.v, w.w FROM a city {0} JOIN b w ON city.city = w.city AND city.v <> w.w",
    (lambda a, b: equal(a.city, b.city) and None not in (a.v, b.w) and a.v != b.w,),
)
