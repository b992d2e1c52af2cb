"""The identity of a stream's rows: each row has the same one whenever it is read."""

import pytest
from pyspark.sql import SparkSession

from pipelines.joins import pairs
from pipelines.joins.pairs import hashed, identified
from pipelines.joins.watermarks import TIME
from pipelines.language import Input, Output, ResolvedQuery, Step, Window
from pipelines.language.names import HAS_VALUE, HASH, NUMBER, VERSION

ROWS = {
    "INT": ("(5, NULL)", "(NULL, 5)", "(NULL, NULL)", "(5, 5)"),
    "ARRAY<INT>": ("(array(NULL, 5), array(5, NULL))", "(array(5, NULL), array(NULL, 5))"),
    "DOUBLE": ("(0.0D, -0.0D)", "(-0.0D, 0.0D)"),
    "MAP<STRING, INT>": ("(map('x', 1, 'y', 2), NULL)", "(map('y', 2, 'x', 1), NULL)", "(NULL, map('x', 1, 'y', 2))"),
    "STRING": ("('a, b', 'c')", "('a', 'b, c')", "('NULL', NULL)", "(NULL, 'NULL')"),
}


def _identities(spark: SparkSession, kind: str, rows: tuple[str, ...]) -> dict[str, tuple[int, int]]:
    """Give the hash and the number of each row of one commit, as they come in an order."""
    names = ("x", "y")
    inputs = tuple(Input(name, name, (), names) for name in "lr")
    window = Window((), (), (), ("TRUE", "TRUE"))
    join = ResolvedQuery(
        name="joined",
        inputs=inputs,
        steps=(Step("inner", "TRUE"),),
        members=(),
        links=(),
        where=None,
        outputs=(Output("l", "`l`"),),
        key=(),
        window=window,
    )
    values = spark.sql(
        " UNION ALL ".join(
            f"SELECT CAST(x AS {kind}) AS x, CAST(y AS {kind}) AS y FROM VALUES {row} AS t(x, y)" for row in rows
        )
    )
    came = values.coalesce(1).selectExpr(f"1L AS {TIME}", f"1L AS {VERSION}", f"TRUE AS {HAS_VALUE}", *names)
    found = (
        identified(hashed(came, join, 0), join, 0).selectExpr("l", "CAST(l AS STRING) AS text", HASH, NUMBER).collect()
    )
    return {f"{row['l']} {row['text']}": (row[HASH], row[NUMBER]) for row in found}


@pytest.mark.parametrize("collide", [False, True], ids=["", "all hashes collide"])
@pytest.mark.parametrize("kind", ROWS)
def test_a_row_has_its_identity_whatever_the_order_in_which_its_commit_is_read(spark, monkeypatch, kind, collide):
    """Identities that change hands between two readings give what is known of one row to another."""
    if collide:
        monkeypatch.setattr(pairs, "hash_of", lambda expression, kind: "0L")
    forward, backward = (_identities(spark, kind, rows) for rows in (ROWS[kind], ROWS[kind][::-1]))
    assert len(set(forward.values())) == len(ROWS[kind])
    assert forward == backward
