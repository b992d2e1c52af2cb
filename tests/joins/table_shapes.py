"""The joins of two tables on their keys that are tried; the key of the result comes from the side that is preserved."""

from .histories import NAN, Row
from .schemas import DOUBLE, INT, LONG, STRING
from .stars import Star, equal, first, table

ODD = ("select", "a.b", "x`y", "two words")
"""Column names that need quotes, two of each side."""


def _of_two(how, name, sql, left, right, on=lambda left, right: True, **options):
    """Describe a join of one type; `{key}` stands for the key of the result."""
    parts = list(zip(left.key, right.key, strict=True))
    either = {"full": "coalesce(l.{0}, r.{1})", "right": "r.{1}"}.get(how, "l.{0}")
    key = ", ".join(
        f"{either.format(*part)} AS {output}" for part, output in zip(parts, options["key_outputs"], strict=True)
    )

    def keys(left, right):
        return [(getattr(left, one), getattr(right, other)) for one, other in parts]

    return Star(
        name=name,
        types=((how,),),
        sql=sql.replace("{key}", key),
        tables={"left": left, "right": right},
        inputs=("left", "right"),
        on=(lambda left, right: equal(*(part for pair in keys(left, right) for part in pair)) and on(left, right),),
        key=lambda left, right: tuple(first(*pair) for pair in keys(left, right)),
        **options,
    )


def using(how: str) -> Star:
    return _of_two(
        how,
        "using",
        "SELECT * EXCEPT (spare) FROM left l {0} JOIN right r USING (Id)",
        table("ID", **dict.fromkeys(("ID", "select", "spare", "a.b"), STRING)),
        table("id", **dict.fromkeys(("x`y", "id", "two words"), STRING)),
        domain={"ID": ["a", "b", "", None], "select": ["1", "2", None], "a.b": ["3", None], "spare": ["8", "9"]}
        | {"id": ["a", "b", "", None], "x`y": ["5", "6", None], "two words": ["7", None]},
        row=lambda left, right: (left[1], left[3], right[0], right[2]),
        outputs=ODD,
        key_outputs=("id" if how == "right" else "ID",),
    )


TEXTS, NUMBERS, FLOATS = ["a", "a", "b", None], [0, 7, 7, None], [NAN, 0.0, -0.0, 1.5, None]


def composite(how: str) -> Star:
    return _of_two(
        how,
        "composite",
        "SELECT coalesce(l.v, 0) + coalesce(r.w, 0) AS total, {key}, l.x AS x, l.v IS NULL AND r.w IS NULL AS bare,"
        " CASE WHEN l.v > r.w THEN 'more' WHEN l.v <= r.w THEN 'less' END AS which, r.y AS y FROM left l {0} JOIN"
        " right r ON r.n = l.number AND l.name = r.a WHERE coalesce(l.v, r.w, 1) <> 2 OR r.y > 0",
        table("name", "number", number=INT, v=INT, name=STRING, x=DOUBLE),
        table("a", "n", a=STRING, n=LONG, w=INT, y=DOUBLE),
        domain={"name": TEXTS, "a": TEXTS, "number": NUMBERS, "n": NUMBERS, "v": [0, 1, 2, None], "w": [0, 1, 2, None]}
        | {"x": FLOATS, "y": FLOATS},
        row=lambda left, right: _composite_row(left.v, right.w, left.x, right.y),
        where=lambda left, right: (
            first(left.v, right.w, 1) != 2 or (right.y is not None and (right.y != right.y or right.y > 0))
        ),
        outputs=("total", "x", "bare", "which", "y"),
        key_outputs=("k1", "k2"),
    )


def conditions(how: str) -> Star:
    return _of_two(
        how,
        "conditions",
        "SELECT {key}, l.v AS v, r.w AS w FROM left l {0} JOIN right r"
        " ON l.v >= r.w AND l.k = r.k AND r.kind <> 'off' WHERE l.v IS NULL OR l.v < 3",
        table("k", k=STRING, v=INT),
        table("k", k=STRING, w=INT, kind=STRING),
        lambda left, right: None not in (left.v, right.w, right.kind) and left.v >= right.w and right.kind != "off",
        domain={
            "k": ["a", "a", "a", "a", "b", None],
            "v": [0, 1, 1, 2, 2, 2, 2, 3, None],
            "w": [-2, -1, 0, 0, 1, 1, 2, None],
            "kind": ["on", "on", "on", "on", "on", "on", "off", None],
        },
        row=lambda left, right: (left.v, right.w),
        where=lambda left, right: left.v is None or left.v < 3,
        outputs=("v", "w"),
        key_outputs=("k",),
    )


def _composite_row(v: int | None, w: int | None, x: float | None, y: float | None) -> Row:
    which = None if v is None or w is None else "more" if v > w else "less"
    return ((v or 0) + (w or 0), x, v is None and w is None, which, y)


SHAPES = {
    how: [using(how), composite(how), *([conditions(how)] if how != "full" else [])]
    for how in ("inner", "left", "right", "full")
}
"""By type; a FULL JOIN with a further condition may give two rows for one key."""
