"""A fault of a statement shows its line and underlines the clause."""

import pytest

from lakehouse.errors.errors import Fault
from pipelines.language.sql.objection import Span, excerpt, span_of, span_of_word
from pipelines.language.sql.syntax import read
from tests.cases import cases


def underlined(sql: str) -> list[str]:
    _, objections = read(sql)
    spans = [objection.span(sql) for objection in objections]
    return [sql[span.start : span.end] for span in spans if span]


@cases(
    "written, found",
    ("now()", "now()"),
    ("rand( /* seed */ 5 )", "rand( /* seed */ 5 )"),
    ("upper(nope(f.x))", "nope(f.x)"),
    ("nope(f.x[1], (2))", "nope(f.x[1], (2))"),
    ("f.x + (1 + max(f.y))", "max(f.y)"),
    ("(SELECT max(x) FROM status)", "(SELECT max(x) FROM status)"),
    ("((SELECT 1))", "(SELECT 1)"),
    ("sum(f.x) OVER (PARTITION BY f.y)", "sum(f.x) OVER (PARTITION BY f.y)"),
    ("f.x IN (SELECT 1)", "f.x IN (SELECT 1)"),
    ("EXISTS (SELECT 1 FROM x)", "EXISTS (SELECT 1 FROM x)"),
    ("NOT exists(SELECT max(1) FROM x)", "exists(SELECT max(1) FROM x)"),
    ("f.d > DATE 'now'", "'now'"),
    ("CASE WHEN true THEN uuid() END", "uuid()"),
    ("current_date", "current_date"),
    ("'a' 'b'", "'a'"),
)
def test_an_expression_is_underlined_with_its_brackets(written, found):
    """No more than what is wrong, wherever it stands."""
    assert underlined(f"SELECT f.k, {written} AS z FROM flights f JOIN status s ON f.k = s.k") == [found]


def test_a_keyword_is_that_of_the_statement_not_of_a_bracket_or_a_text():
    """The outermost one counts; one inside brackets only where there is no other."""
    sql = "SELECT 'LIMIT', (SELECT 1 LIMIT 2) -- LIMIT\nFROM a\nlimit 3"
    assert span_of_word("LIMIT", sql) == Span(sql.index("limit 3"), sql.index("limit 3") + 5)
    nested = "SELECT (SELECT 1 LIMIT 2)"
    assert span_of_word("LIMIT", nested) == Span(nested.index("LIMIT"), nested.index("LIMIT") + 5)
    assert span_of_word("GROUP BY", "SELECT 1 group\n  by 2") == Span(9, 19)
    assert span_of_word("HAVING", sql) is None
    assert span_of_word("FROM", "SELECT 'open") is None


def test_a_keyword_is_no_part_of_a_longer_word_and_no_column():
    """Names that begin as a clause does are not underlined in its place."""
    sql = "SELECT limits, f.limit, windows, `having`, havings FROM a HAVING true LIMIT 3"
    assert span_of_word("LIMIT", sql) == Span(sql.index("LIMIT 3"), sql.index("LIMIT 3") + 5)
    assert span_of_word("HAVING", sql) == Span(sql.index("HAVING true"), sql.index("HAVING true") + 6)
    assert span_of_word("WINDOW", sql) is None
    assert span_of_word("/*+", "SELECT /*+BROADCAST(a)*/ 1") == Span(7, 10)
    assert span_of_word(";", "SELECT 1;SELECT 2") == Span(8, 9)


def test_the_first_word_of_what_is_no_select_is_underlined():
    """Not a comment before it."""
    assert underlined("/* c */ DELETE FROM a") == ["DELETE"]
    assert underlined("-- c\nEXPLAIN SELECT 1") == ["EXPLAIN"]
    assert underlined("SELECT * FROM a o(x, y) JOIN b USING (x)") == ["o(x, y)"]


@pytest.mark.parametrize("inside", ["\f", "\x0b", "\x1c", "\x85", "\u2028", "\u2029", "\r"])
def test_only_a_line_feed_ends_a_line(inside):
    """What else Python calls the end of a line is a blank in it, and moves no mark."""
    sql = f"SELECT f.*,{inside} f.x +\nFROM a f{inside}JOIN b USING (k)"
    assert underlined(sql) == ["FROM"]
    begin = sql.index("JOIN")
    fault = Fault("joins.j.sql", "wrong", excerpt=excerpt(sql, Span(begin, begin + 4)))
    assert str(fault).split("\n") == ["joins.j.sql: wrong", "  | FROM a f JOIN b USING (k)", "  |          ^^^^"]


@cases(
    "sql, span, shown, marks",
    ("SELECT nope(1)", Span(7, 14), "SELECT nope(1)", "       ^^^^^^^"),
    ("SELECT\n\tnope(1)\nFROM a", Span(8, 15), " nope(1)", " ^^^^^^^"),
    ("a\nnope(1,\n2)", Span(2, 12), "nope(1,", "^^^^^^^"),
    ("SELECT '航空', nope(1)", Span(13, 20), "SELECT '航空', nope(1)", "               ^^^^^^^"),
    ("SELECT nope('航')", Span(7, 16), "SELECT nope('航')", "       ^^^^^^^^^^"),
    ("SELECT 1", Span(8, 8), "SELECT 1", "        ^"),
    ("SELECT '\x1b[31m', \x00nope(1)", Span(17, 24), "SELECT ' [31m',  nope(1)", "                 ^^^^^^^"),
)
def test_the_marks_stand_below_the_clause(sql, span, shown, marks):
    """Tabs and what a terminal would obey are blanks, wide characters take two columns, of lines the first is shown."""
    assert excerpt(sql, span) == f"{shown}\n{marks}"


@pytest.mark.parametrize("start", [0, 50, 150, 290, 393])
def test_a_long_line_is_cut_around_the_clause(start):
    """Little more than a hundred characters, dots where something was left out, and the marks still below it."""
    sql = "".join(f"{number:04},"[:5] for number in range(80))
    span = Span(start, start + 7)
    shown, marks = excerpt(sql, span).split("\n")
    assert len(shown) <= 106
    assert shown[marks.index("^") : marks.index("^") + 7] == sql[start : start + 7]
    assert shown.startswith("...") is (start > 34)
    assert shown.endswith("...") is (start < 300)


@cases(
    "output", "CAST(a.x AS INT) AS y", "(a.x + 1) * 2 AS y", "CASE WHEN (a.x > 1) THEN 1 END AS y", "upper(a.x)", "a.x"
)
def test_the_span_of_an_output_ends_with_it(output):
    """A bracket that was opened before its first column does not carry the span on to FROM."""
    sql = f"SELECT a.k, {output} FROM a JOIN b ON a.k = b.k"
    select, _ = read(sql)
    assert select is not None
    found = span_of(select.expressions[-1], sql)
    assert found is not None
    assert found.end == sql.index(" FROM")
