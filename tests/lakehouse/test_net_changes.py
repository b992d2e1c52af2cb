"""Null keys and null references, by the parts that are null and by how they are compared."""

import pytest

from lakehouse.values.net_changes import no_reference
from tests.cases import cases


@cases(
    "null_safe, refers_to_nothing",
    ((), {(None, None), (None, 1), (1, None)}),
    ((0,), {(None, None), (1, None)}),
    ((1,), {(None, None), (None, 1)}),
    ((0, 1), {(None, None)}),
    ids=["=, =", "<=>, =", "=, <=>", "<=>, <=>"],
)
@pytest.mark.every_case
def test_a_reference_is_null_by_its_plain_parts_or_if_all_are_null(spark, null_safe, refers_to_nothing):
    rows = spark.sql("SELECT * FROM VALUES (NULL, NULL), (NULL, 1), (1, NULL), (1, 1) AS t(a, b)")
    assert {tuple(row) for row in rows.where(no_reference(["a", "b"], null_safe)).collect()} == refers_to_nothing
