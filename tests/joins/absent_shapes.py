"""
The joins that read results whose rows may lack a side, so that parts of their keys are null. `r` and `s` stand for such
results: a row of them has one part of its key, or both.
"""

from dataclasses import replace

from .pair_shapes import EVERY
from .schemas import INT, STRING
from .stars import Star, equal, first, table

TABLES = {
    "r": replace(table("x", "y", x=INT, y=INT, v=INT, gref=INT), may_be_absent=True),
    "s": replace(table("p", "q", p=INT, q=INT, w=INT), may_be_absent=True),
    "f": table("fid", fid=INT, x=INT, y=INT),
    "g": table("gid", gid=INT, g=STRING),
}
PARTS = [1, 2, 2, None, None]
DOMAIN = {
    **dict.fromkeys(("x", "y", "p", "q"), PARTS),
    **{name: [0, 1, 2, None] for name in ("v", "w")},
    "fid": [1, 2, 3, 4, 5, 6, None],
    "gref": [1, 1, 2, 9, None],
    "gid": [1, 1, 2, 2, 3, None],
    "g": ["p", "q", None],
}


def _reading(name, types, sql, on, **options):
    """Describe a join of some of the tables, which are its inputs in the order of their names in `inputs`."""
    inputs = options["inputs"]
    given = {"tables": {one: TABLES[one] for one in dict.fromkeys(inputs)}, "domain": DOMAIN}
    return Star(name=name, types=types, sql=sql, on=on, **(given | options))


DRIVING = _reading(
    "driving",
    (("inner",), ("left",)),
    "SELECT r.x, r.y, r.v, g.g FROM r {0} JOIN g ON r.gref = g.gid WHERE r.v IS NULL OR r.v < 2",
    (lambda r, g: equal(r.gref, g.gid),),
    inputs=("r", "g"),
    key=lambda r, g: (r.x, r.y),
    row=lambda r, g: (r.v, g.g),
    where=lambda r, g: r.v is None or r.v < 2,
    outputs=("v", "g"),
    key_outputs=("x", "y"),
    may_be_absent=True,
)


def _looked_up(name, types, on, condition):
    return _reading(
        name,
        types,
        f"SELECT f.fid, r.v, g.g FROM f {{0}} JOIN r ON {on} {{1}} JOIN g ON r.gref = g.gid",
        (condition, lambda f, r, g: equal(r.gref, g.gid)),
        inputs=("f", "r", "g"),
        key=lambda f, r, g: (f.fid,),
        row=lambda f, r, g: (r.v, g.g),
        outputs=("v", "g"),
        key_outputs=("fid",),
    )


LOOKED_UP = _looked_up(
    "looked-up",
    (("inner", "left"), ("left", "left")),
    "f.x = r.x AND f.y = r.y",
    lambda f, r: equal(f.x, r.x, f.y, r.y),
)
LOOKED_UP_WITH_NULLS = _looked_up(
    "looked-up-with-nulls",
    (("inner", "left"), ("left", "left")),
    "f.x <=> r.x AND r.y <=> f.y",
    lambda f, r: (f.x, f.y) == (r.x, r.y) and not f.x is f.y is None,
)
LOOKED_UP_BY_BOTH = _looked_up(
    "looked-up-by-both", (("left", "left"),), "f.x = r.x AND f.y <=> r.y", lambda f, r: equal(f.x, r.x) and f.y == r.y
)
LOOKED_UP_BY_TWO = _reading(
    "looked-up-by-two",
    (("left", "left"), ("left", "inner")),
    "SELECT f.fid, r.v, g.g FROM f {0} JOIN g ON f.x = g.gid AND g.g = 'p' {1} JOIN r ON r.x <=> g.gid AND r.y = f.y",
    (lambda f, g: equal(f.x, g.gid) and g.g == "p", lambda f, g, r: r.x == g.gid and equal(r.y, f.y)),
    inputs=("f", "g", "r"),
    key=lambda f, g, r: (f.fid,),
    row=lambda f, g, r: (r.v, g.g),
    outputs=("v", "g"),
    key_outputs=("fid",),
)
"""A row of `g` that does not satisfy ON counts as none: `<=>` takes its columns as nulls."""
ROOT = replace(
    LOOKED_UP_WITH_NULLS,
    name="root",
    types=(("right",),),
    sql="SELECT f.fid, r.v, r.gref FROM r {0} JOIN f ON f.x <=> r.x AND f.y <=> r.y",
    on=(lambda r, f: (f.x, f.y) == (r.x, r.y) and not f.x is f.y is None,),
    tables={"r": TABLES["r"], "f": TABLES["f"]},
    inputs=("r", "f"),
    key=lambda r, f: (f.fid,),
    row=lambda r, f: (r.v, r.gref),
    outputs=("v", "gref"),
)


def _whole(name, types, key, parts, on, condition):
    return _reading(
        name,
        types,
        f"SELECT {key[0]} AS x, {key[1]} AS y, r.v, s.w FROM r {{0}} JOIN s ON {on}",
        (condition,),
        inputs=("r", "s"),
        key=parts,
        row=lambda r, s: (r.v, s.w),
        outputs=("v", "w"),
        key_outputs=("x", "y"),
        may_be_absent=True,
    )


def _same(r, s):
    return (r.x, r.y) == (s.p, s.q)


BY_VALUE = "r.x <=> s.p AND r.y <=> s.q"
WHOLE = _whole("whole", (("inner",), ("left",)), ("r.x", "r.y"), lambda r, s: (r.x, r.y), BY_VALUE, _same)
WHOLE_RIGHT = replace(
    WHOLE,
    name="whole-right",
    types=(("right",),),
    sql=f"SELECT s.p AS x, s.q AS y, r.v, s.w FROM r {{0}} JOIN s ON {BY_VALUE} AND r.v <= s.w",
    on=(lambda r, s: _same(r, s) and None not in (r.v, s.w) and r.v <= s.w,),
    key=lambda r, s: (s.p, s.q),
)
WHOLE_FULL = _whole(
    "whole-full",
    (("full",),),
    ("coalesce(r.x, s.p)", "coalesce(r.y, s.q)"),
    lambda r, s: (first(r.x, s.p), first(r.y, s.q)),
    BY_VALUE,
    _same,
)
WHOLE_WITHOUT_NULLS = _whole(
    "whole-without-nulls",
    (("inner",), ("left",)),
    ("r.x", "r.y"),
    lambda r, s: (r.x, r.y),
    "r.x = s.p AND r.y = s.q",
    lambda r, s: equal(r.x, s.p, r.y, s.q),
)
PAIRED = _reading(
    "paired",
    EVERY,
    "SELECT r.x, r.y, f.fid, r.v, f.x AS w FROM r {0} JOIN f ON r.y = f.y",
    (lambda r, f: equal(r.y, f.y),),
    inputs=("r", "f"),
    key=lambda r, f: (r.x, r.y, f.fid),
    row=lambda r, f: (r.v, f.x),
    outputs=("v", "w"),
    key_outputs=("x", "y", "fid"),
    may_be_absent=True,
)
PAIRED_TWICE = _reading(
    "paired-twice",
    EVERY,
    "SELECT r.x, r.y, s.p, s.q, r.v, s.w FROM r {0} JOIN s ON r.y <=> s.q AND r.v <> s.w",
    (lambda r, s: r.y == s.q and None not in (r.v, s.w) and r.v != s.w,),
    inputs=("r", "s"),
    key=lambda r, s: (r.x, r.y, s.p, s.q),
    row=lambda r, s: (r.v, s.w),
    outputs=("v", "w"),
    key_outputs=("x", "y", "p", "q"),
    may_be_absent=True,
)
ON_TOP = _reading(
    "on-top",
    (("full", "left"), ("left", "inner")),
    "SELECT f.fid, s.p, s.q, r.v, f.y AS w FROM f {0} JOIN s ON f.x = s.w {1} JOIN r ON f.x <=> r.x AND f.y <=> r.y",
    (lambda f, s: equal(f.x, s.w), lambda f, s, r: (f.x, f.y) == (r.x, r.y) and not f.x is f.y is None),
    inputs=("f", "s", "r"),
    key=lambda f, s, r: (f.fid, s.p, s.q),
    row=lambda f, s, r: (r.v, f.y),
    outputs=("v", "w"),
    key_outputs=("fid", "p", "q"),
    may_be_absent=True,
)

READING = (
    DRIVING,
    LOOKED_UP,
    LOOKED_UP_WITH_NULLS,
    LOOKED_UP_BY_BOTH,
    LOOKED_UP_BY_TWO,
    ROOT,
    WHOLE,
    WHOLE_RIGHT,
    WHOLE_FULL,
    WHOLE_WITHOUT_NULLS,
    PAIRED,
    PAIRED_TWICE,
    ON_TOP,
)
