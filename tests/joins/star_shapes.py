"""The foreign-key joins, stars and chains that are tried: small domains, so that rows meet often."""

from .histories import NAN
from .schemas import DOUBLE, INT, LONG, STRING
from .stars import Reference, Star, equal, first, table

IDS = [1, 2, 3, 4, 5, 6, 7, 8, None]
"""Keys of rows that refer; more than there are keys to refer to, so that several rows refer to one."""

FACTS = table("id", id=INT, ref=STRING, v=INT, spare=STRING)
PARENTS = table("pid", pid=STRING, w=DOUBLE, gref=INT)
GRANDS = table("gid", gid=LONG, g=STRING)
DOMAIN = {
    "id": IDS,
    "ref": ["a", "a", "a", "b", "b", "c", "lost", None],
    "v": [0, 1, 2, None],
    "spare": ["s", "t"],
    "pid": ["a", "a", "a", "b", "b", "c", "d", None],
    "w": [NAN, 0.0, -0.0, 1.5, None],
    "gref": [1, 1, 1, 2, 2, 3, 9, None],
    "gid": [1, 1, 1, 2, 2, 3, None],
    "g": ["x", "y", None],
}
TO_PARENTS = Reference("facts", "parents", lambda f: (f.ref,))
TO_GRANDS = Reference("parents", "grands", lambda p: (p.gref,))

FOREIGN_KEY = Star(
    name="fk",
    types=(("left",), ("inner",)),
    sql="SELECT f.id, f.v, p.w FROM facts f {0} JOIN parents p ON f.ref = p.pid",
    tables={"facts": FACTS, "parents": PARENTS},
    domain=DOMAIN,
    inputs=("facts", "parents"),
    on=(lambda f, p: equal(f.ref, p.pid),),
    key=lambda f, p: (f.id,),
    row=lambda f, p: (f.v, p.w),
    outputs=("v", "w"),
    references=(TO_PARENTS,),
)

OTHER_WAY_ROUND = Star(
    name="fk-reversed",
    types=(("right",), ("inner",)),
    sql="SELECT f.v AS v, p.w, f.id AS number, p.pid IS NULL AS alone FROM parents p {0} JOIN facts f ON f.ref = p.pid",
    tables={"facts": FACTS, "parents": PARENTS},
    domain=DOMAIN,
    inputs=("parents", "facts"),
    on=(lambda p, f: equal(f.ref, p.pid),),
    key=lambda p, f: (f.id,),
    row=lambda p, f: (f.v, p.w, p.pid is None),
    outputs=("v", "w", "alone"),
    key_outputs=("number",),
    references=(TO_PARENTS,),
)

EXPRESSION = Star(
    name="fk-expression",
    types=(("left",),),
    sql="SELECT f.*, p.pid FROM facts f {0} JOIN parents p ON upper(f.ref) = p.pid",
    tables={"facts": table("id", id=INT, ref=STRING), "parents": table("pid", pid=STRING, w=DOUBLE)},
    domain=DOMAIN | {"ref": ["a", "A", "A", "b", "B", "lost", None], "pid": ["A", "A", "B", "b", "C", None]},
    inputs=("facts", "parents"),
    on=(lambda f, p: equal(_upper(f.ref), p.pid),),
    key=lambda f, p: (f.id,),
    row=lambda f, p: (f.ref, p.pid),
    outputs=("ref", "pid"),
    references=(Reference("facts", "parents", lambda f: (_upper(f.ref),)),),
)

COMPOSITE = Star(
    name="fk-composite",
    types=(("left",), ("inner",)),
    sql=(
        "SELECT p.w AS w, p.note, f.id, f.v + p.w AS total FROM facts f {0} JOIN parents p ON p.a = f.x AND p.b = f.y"
        " AND p.w > f.v WHERE coalesce(f.v, 1) <> 0 AND (p.note IS NULL OR p.note <> 'off')"
    ),
    tables={
        "facts": table("id", id=LONG, x=STRING, y=INT, v=INT),
        "parents": table("b", "a", note=STRING, a=STRING, b=LONG, w=INT),
    },
    domain=DOMAIN
    | {"x": [*"aaaaab", None], "y": [1, 1, 1, 1, 1, 2, None], "v": [0, 1, 1, 1, 1, 1, 2, None]}
    | {"a": [*"aaaab", None], "b": [1, 1, 1, 1, 2, None], "w": [0, 2, 3, 4, None], "note": ["off", "on", "up", None]},
    inputs=("facts", "parents"),
    on=(lambda f, p: equal(p.a, f.x, p.b, f.y) and None not in (p.w, f.v) and p.w > f.v,),
    key=lambda f, p: (f.id,),
    row=lambda f, p: (p.w, p.note, None if None in (f.v, p.w) else f.v + p.w),
    outputs=("w", "note", "total"),
    where=lambda f, p: f.v != 0 and p.note != "off",
    references=(Reference("facts", "parents", lambda f: (f.y, f.x)),),
)

PEOPLE = table("id", id=INT, name=STRING, manager=INT)
SELF = Star(
    name="self",
    types=(("left",), ("inner",)),
    sql="SELECT e.id, e.name, m.name AS boss FROM employees e {0} JOIN employees m ON e.manager = m.id",
    tables={"employees": PEOPLE},
    domain={"id": [*IDS, 1, 2], "name": ["p", "q", "r"], "manager": [1, 1, 1, 2, 2, 3, 9, None]},
    inputs=("employees", "employees"),
    on=(lambda e, m: equal(e.manager, m.id),),
    key=lambda e, m: (e.id,),
    row=lambda e, m: (e.name, m.name),
    outputs=("name", "boss"),
    references=(Reference("employees", "employees", lambda e: (e.manager,)),),
)

SELF_TWICE = Star(
    name="self-twice",
    types=(("left", "left"),),
    sql=(
        "SELECT e.id, m.name AS boss, t.name AS top FROM employees e {0} JOIN employees m ON e.manager = m.id"
        " {1} JOIN employees t ON t.id = m.manager AND t.name <> e.name"
    ),
    tables=SELF.tables,
    domain=SELF.domain,
    inputs=("employees", "employees", "employees"),
    on=(lambda e, m: equal(e.manager, m.id), lambda e, m, t: equal(t.id, m.manager) and t.name != e.name),
    key=lambda e, m, t: (e.id,),
    row=lambda e, m, t: (m.name, t.name),
    outputs=("boss", "top"),
    references=SELF.references,
)

TWO_STEPS = Star(
    name="two-steps",
    types=(("left", "left"), ("left", "inner"), ("inner", "left")),
    sql=(
        "SELECT f.id, p.w, g.g, g.gid IS NOT NULL AS found FROM facts f {0} JOIN parents p ON f.ref = p.pid"
        " {1} JOIN grands g ON p.gref = g.gid"
    ),
    tables={"facts": FACTS, "parents": PARENTS, "grands": GRANDS},
    domain=DOMAIN,
    inputs=("facts", "parents", "grands"),
    on=(lambda f, p: equal(f.ref, p.pid), lambda f, p, g: equal(p.gref, g.gid)),
    key=lambda f, p, g: (f.id,),
    row=lambda f, p, g: (p.w, g.g, g.gid is not None),
    outputs=("w", "g", "found"),
    references=(TO_PARENTS, TO_GRANDS),
)

ROUTES = Star(
    name="routes",
    types=(("left", "left"),),
    sql=(
        "SELECT r.id, a.city AS start, b.city AS stop FROM routes r {0} JOIN ports a ON r.origin = a.code"
        " {1} JOIN ports b ON r.destination = b.code"
    ),
    tables={
        "routes": table("id", id=INT, origin=STRING, destination=STRING),
        "ports": table("code", code=STRING, city=STRING, berths=INT),
    },
    domain={"id": IDS, "city": ["x", "y", "z", None], "berths": [1, 2], "code": ["a", "a", "b", "b", "c", None]}
    | {"origin": ["a", "a", "b", "lost", None], "destination": ["a", "b", "b", "c", "lost", None]},
    inputs=("routes", "ports", "ports"),
    on=(lambda r, a: equal(r.origin, a.code), lambda r, a, b: equal(r.destination, b.code)),
    key=lambda r, a, b: (r.id,),
    row=lambda r, a, b: (a.city, b.city),
    outputs=("start", "stop"),
    references=(
        Reference("routes", "ports", lambda r: (r.origin,)),
        Reference("routes", "ports", lambda r: (r.destination,)),
    ),
)

REROOTED = Star(
    name="rerooted",
    types=(("inner", "inner"), ("left", "right")),
    sql=(
        "SELECT p.w, g.g AS g, f.id, f.v FROM parents p {0} JOIN grands g ON p.gref = g.gid"
        " {1} JOIN facts f ON f.ref = p.pid"
    ),
    tables=TWO_STEPS.tables,
    domain=DOMAIN,
    inputs=("parents", "grands", "facts"),
    on=(lambda p, g: equal(p.gref, g.gid), lambda p, g, f: equal(f.ref, p.pid)),
    key=lambda p, g, f: (f.id,),
    row=lambda p, g, f: (p.w, g.g, f.v),
    outputs=("w", "g", "v"),
    references=TWO_STEPS.references,
)


def _upper(text: str | None) -> str | None:
    return None if text is None else text.upper()


def _mixed(name: str, types: tuple[tuple[str, str], ...], key: str) -> Star:
    """Make the star of facts with their details, which have the same key, and the parents of the details."""
    return Star(
        name=name,
        types=types,
        sql=(
            f"SELECT f.v, {key} AS id, d.spare, p.w FROM facts f {{0}} JOIN details d ON f.id = d.id"
            " {1} JOIN parents p ON d.ref = p.pid"
        ),
        tables={
            "facts": table("id", id=INT, v=INT),
            "details": table("id", spare=STRING, ref=STRING, id=LONG),
            "parents": PARENTS,
        },
        domain=DOMAIN,
        inputs=("facts", "details", "parents"),
        on=(lambda f, d: equal(f.id, d.id), lambda f, d, p: equal(d.ref, p.pid)),
        key=lambda f, d, p: (first(f.id, d.id),),
        row=lambda f, d, p: (f.v, d.spare, p.w),
        outputs=("v", "spare", "w"),
        references=(Reference("details", "parents", lambda d: (d.ref,)),),
    )


MIXED = _mixed("mixed", (("left", "inner"), ("inner", "left")), "f.id")
MIXED_FULL = _mixed("mixed-full", (("full", "left"), ("full", "inner")), "coalesce(f.id, d.id)")
