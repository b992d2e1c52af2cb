"""The recorded joins as a pipeline file would write them."""

HOW = {"inner": "INNER", "left": "LEFT", "outer": "FULL"}
"""The types of join in the vectors, and their names in SQL."""

SIDES = {
    "table_table": ("left", "right"),
    "foreign_key": ("left", "right"),
    "table_table_chain": ("a", "b", "c"),
    "stream_table": ("left", "right"),
    "stream_global_table": ("left", "right"),
}
"""The sides of each kind of join, which are the names of its sources; other kinds are not yet supported."""


def statement(kind: str, how: str, sides: tuple[str, str] = ("left", "right")) -> str:
    if kind in ("table_table", "stream_table"):
        return _table_table(how, *sides)
    return _chain(how) if kind == "table_table_chain" else _foreign_key(how)


def _table_table(how: str, left: str, right: str) -> str:
    key = "coalesce(l.key, r.key)" if how == "outer" else "l.key"
    value = "concat(coalesce(l.value, 'null'), '-', coalesce(r.value, 'null'))"
    return f"SELECT {key} AS key, {value} AS value FROM {left} l {HOW[how]} JOIN {right} r ON l.key = r.key"


def _foreign_key(how: str) -> str:
    """The left value is the text of a JSON object with the foreign key and what goes into the output."""
    reference, mine = ("get_json_object(l.value, '$." + name + "')" for name in ("fk", "v"))
    value = f"concat(coalesce({mine}, 'null'), '-', coalesce(r.value, 'null'))"
    return f"SELECT l.key AS key, {value} AS value FROM left l {HOW[how]} JOIN right r ON {reference} = r.key"


def _chain(how: str) -> str:
    """(a join b) join c; a row of the first join that is not there is `null`, and so is a missing side of it."""
    first, second = how.split("_")
    key = "coalesce(a.key, b.key)" if first == "outer" else "a.key"
    both = "concat(coalesce(a.value, 'null'), '-', coalesce(b.value, 'null'))"
    value = f"concat(CASE WHEN {key} IS NULL THEN 'null' ELSE {both} END, '-', coalesce(c.value, 'null'))"
    whole = f"coalesce({key}, c.key)" if second == "outer" else key
    joins = f"FROM a {HOW[first]} JOIN b ON a.key = b.key {HOW[second]} JOIN c ON {key} = c.key"
    return f"SELECT {whole} AS key, {value} AS value {joins}"
