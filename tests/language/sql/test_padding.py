"""Columns of subqueries in which Spark would pad values of CHAR columns."""

import pytest

from pipelines.language.sql.padding import column_parts


@pytest.mark.parametrize(
    ("sql", "parts"),
    [("`s`.`code`", ("s", "code")), ("((`s`.`code`))", ("s", "code")), ("upper(`s`.`code`)", ()), ("'a'", ())],
)
def test_a_column_in_parentheses_is_a_column(sql: str, parts: tuple[str, ...]) -> None:
    assert column_parts(sql) == parts
