"""Chains of three tables that are joined on their keys, and what refers to two tables with one key."""

from .schemas import INT, LONG, STRING
from .stars import Reference, Star, equal, first, table

TABLES = {
    "a": table("k", k=INT, v=INT, spare=STRING),
    "b": table("k", v=INT, k=LONG),
    "c": table("key", key=INT, v=INT),
}
DOMAIN = {"k": [1, 2, 3, 4, None], "key": [1, 2, 3, 4, None], "v": [0, 1, 1, 2, None], "spare": ["s", "t"]}


def chain(one: str, two: str) -> Star:
    """
    Join a with b and both with c on their keys; WHERE is over all of them. A FULL JOIN has the key alone in ON; the
    other joins with c have a condition besides.
    """
    both = {"right": "b.k", "full": "coalesce(a.k, b.k)"}.get(one, "a.k")
    key = {"right": "c.key", "full": f"coalesce({both}, c.key)"}.get(two, both)
    more = "" if two == "full" else " AND coalesce(a.v, 0) <= c.v"
    return Star(
        name="chain",
        types=((one, two),),
        sql=(
            f"SELECT {key} AS id, a.v AS av, b.v AS bv, c.v AS cv FROM a {{0}} JOIN b ON a.k = b.k"
            f" {{1}} JOIN c ON {both} = c.key{more} WHERE coalesce(b.v, 1) + coalesce(c.v, 1) <> 3"
        ),
        tables=TABLES,
        domain=DOMAIN,
        inputs=("a", "b", "c"),
        on=(
            lambda a, b: equal(a.k, b.k),
            lambda a, b, c: equal(_both(one, a, b), c.key) and (two == "full" or _meets(a, c)),
        ),
        key=lambda a, b, c: (_key(one, two, a, b, c),),
        row=lambda a, b, c: (a.v, b.v, c.v),
        outputs=("av", "bv", "cv"),
        where=lambda a, b, c: first(b.v, 1) + first(c.v, 1) != 3,
    )


def _both(one, a, b):
    return b.k if one == "right" else first(a.k, b.k) if one == "full" else a.k


def _key(one, two, a, b, c):
    return c.key if two == "right" else first(_both(one, a, b), c.key) if two == "full" else _both(one, a, b)


def _meets(a, c):
    return c.v is not None and first(a.v, 0) <= c.v


CHAINS = [
    chain(one, two)
    for one, two in (
        ("inner", "inner"),
        ("inner", "full"),
        ("left", "left"),
        ("left", "full"),
        ("left", "right"),
        ("full", "inner"),
        ("full", "left"),
        ("full", "full"),
        ("right", "left"),
    )
]

ASIDE = Star(
    name="chain-aside",
    types=(("full", "left"),),
    sql=(
        "SELECT coalesce(a.k, b.k) AS id, a.v AS av, b.v AS bv, c.v AS cv FROM a {0} JOIN b ON a.k = b.k"
        " {1} JOIN c ON a.k = c.key WHERE coalesce(c.v, 1) <> 2"
    ),
    tables=TABLES,
    domain=DOMAIN,
    inputs=("a", "b", "c"),
    on=(lambda a, b: equal(a.k, b.k), lambda a, b, c: equal(a.k, c.key)),
    key=lambda a, b, c: (first(a.k, b.k),),
    row=lambda a, b, c: (a.v, b.v, c.v),
    outputs=("av", "bv", "cv"),
    where=lambda a, b, c: c.v != 2,
)
"""A third table is joined on the key of one that may be missing: it is referred to, and is no part of the chain."""

REFERS_TO_BOTH = Star(
    name="refers-to-both",
    types=(("full", "right"),),
    sql=(
        "SELECT f.id, a.v AS av, b.v AS bv FROM a {0} JOIN b ON a.k = b.k"
        " {1} JOIN facts f ON coalesce(a.k, b.k) = f.ref"
    ),
    tables={"a": TABLES["a"], "b": TABLES["b"], "facts": table("id", id=INT, ref=INT)},
    domain=DOMAIN | {"id": [1, 2, 3, 4, 5, 6, None], "ref": [1, 1, 1, 2, 2, 3, 9, None]},
    inputs=("a", "b", "facts"),
    on=(lambda a, b: equal(a.k, b.k), lambda a, b, f: equal(first(a.k, b.k), f.ref)),
    key=lambda a, b, f: (f.id,),
    row=lambda a, b, f: (a.v, b.v),
    outputs=("av", "bv"),
    references=(Reference("facts", "a", lambda f: (f.ref,)), Reference("facts", "b", lambda f: (f.ref,))),
)

PLACES = table("x", "y", x=INT, y=INT, g=STRING)
FEW = [1, 1, 1, 2, 2, 9, None]

REFERRED_BY_BOTH = Star(
    name="referred-by-both",
    types=(("full", "left"), ("full", "inner")),
    sql=(
        "SELECT coalesce(a.k, b.k) AS id, a.v AS av, p.g FROM a {0} JOIN b ON a.k = b.k"
        " {1} JOIN places p ON p.x = a.v AND p.y = b.v WHERE coalesce(p.g, 'y') <> 'x'"
    ),
    tables={"a": TABLES["a"], "b": TABLES["b"], "places": PLACES},
    domain=DOMAIN | {"v": FEW, "x": FEW, "y": FEW, "g": ["x", "y", "z", None]},
    inputs=("a", "b", "places"),
    on=(lambda a, b: equal(a.k, b.k), lambda a, b, p: equal(p.x, a.v, p.y, b.v)),
    key=lambda a, b, p: (first(a.k, b.k),),
    row=lambda a, b, p: (a.v, p.g),
    outputs=("av", "g"),
    where=lambda a, b, p: p.g != "x",
)
"""Both tables with the key have a part in the key of a third one."""

REFERRED_IN_STEPS = Star(
    name="referred-in-steps",
    types=(("left", "left"), ("inner", "left"), ("left", "inner")),
    sql=("SELECT f.id, f.ref, p.g FROM facts f {0} JOIN a ON f.ref = a.k {1} JOIN places p ON p.x = f.w AND p.y = a.v"),
    tables={"facts": table("id", id=INT, ref=INT, w=INT), "a": TABLES["a"], "places": PLACES},
    domain=DOMAIN
    | {"id": [1, 2, 3, 4, 5, 6, None], "ref": [1, 1, 1, 2, 2, 3, 9, None]}
    | {"v": FEW, "w": FEW, "x": FEW, "y": FEW, "g": ["x", "y", None]},
    inputs=("facts", "a", "places"),
    on=(lambda f, a: equal(f.ref, a.k), lambda f, a, p: equal(p.x, f.w, p.y, a.v)),
    key=lambda f, a, p: (f.id,),
    row=lambda f, a, p: (f.ref, p.g),
    outputs=("ref", "g"),
)
"""A table and the one to which it refers have each a part in the key of a third one."""
