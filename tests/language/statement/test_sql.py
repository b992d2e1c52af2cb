"""What a statement may not hold is refused by the name of its clause."""

import pytest

from lakehouse.errors.errors import PipelineFileError
from pipelines.language.join.chains import chains
from pipelines.language.sql.syntax import CLAUSES, REMEDIES
from tests.cases import cases
from tests.language.examples import ON, SOURCES, refusals, taken_apart


@cases(
    "sql, named",
    (f"WITH w AS (SELECT 1) SELECT * {ON}", "a subquery of no table"),
    (f"WITH RECURSIVE w AS (SELECT * FROM planes) SELECT * {ON}", "RECURSIVE"),
    (f"SELECT DISTINCT f.flight_id {ON}", "DISTINCT"),
    (f"SELECT * {ON} GROUP BY f.flight_id", "GROUP BY"),
    (f"SELECT * {ON} GROUP BY ALL HAVING true", "HAVING"),
    (f"SELECT * {ON} ORDER BY 1", "ORDER BY"),
    (f"SELECT * {ON} SORT BY f.delay", "SORT BY"),
    (f"SELECT * {ON} CLUSTER BY f.delay", "CLUSTER BY"),
    (f"SELECT * {ON} DISTRIBUTE BY f.delay", "DISTRIBUTE BY"),
    (f"SELECT * {ON} LIMIT 5", "LIMIT"),
    (f"SELECT * {ON} LIMIT 5 OFFSET 2", "OFFSET"),
    (f"SELECT * {ON} QUALIFY true", "QUALIFY"),
    (f"SELECT * {ON} WINDOW w AS (PARTITION BY f.delay)", "WINDOW"),
    (f"SELECT /*+ BROADCAST(s) */ * {ON}", "a hint"),
    (f"SELECT * {ON} LATERAL VIEW explode(f.hops) h AS hop", "LATERAL VIEW"),
    (f"SELECT * {ON} UNION ALL SELECT * {ON}", "UNION"),
    (f"SELECT * {ON} EXCEPT SELECT * {ON}", "EXCEPT"),
    (f"SELECT * {ON} INTERSECT SELECT * {ON}", "INTERSECT"),
    ("SELECT * FROM flights TABLESAMPLE (5 PERCENT) f JOIN status s USING (flight_id)", "TABLESAMPLE"),
    ("SELECT * FROM flights VERSION AS OF 3 f JOIN status s USING (flight_id)", "time travel"),
    ("SELECT * FROM flights JOIN status TIMESTAMP AS OF '2024-01-01' USING (flight_id)", "time travel"),
    ("SELECT * FROM flights PIVOT (max(delay) FOR carrier IN ('A')) JOIN status USING (flight_id)", "PIVOT"),
    ("SELECT * FROM flights f (a, b) JOIN status s USING (flight_id)", "a column list after an alias"),
    ("SELECT * FROM (SELECT * FROM flights) JOIN status s USING (flight_id)", "a subquery has no name"),
    ("SELECT * FROM (flights JOIN status USING (flight_id))", "parentheses"),
    ("SELECT * FROM flights f JOIN (status s) ON f.flight_id = s.flight_id", "parentheses"),
    ("SELECT * FROM flights f JOIN LATERAL (SELECT 1) s", "LATERAL"),
    ("SELECT * FROM flights f JOIN range(5) r ON f.flight_id = r.id", "a function"),
    ("SELECT * FROM flights f CROSS JOIN status s", "no equality compares `s`"),
    ("SELECT * FROM flights f, status s WHERE f.flight_id > s.flight_id", "no equality compares `s`"),
    ("SELECT * FROM flights f NATURAL JOIN status s", "NATURAL JOIN"),
    ("SELECT * FROM flights f LEFT SEMI JOIN status s ON f.flight_id > s.flight_id", "SEMI JOIN: no equality"),
    ("SELECT * FROM flights f LEFT ANTI JOIN status s", "ANTI JOIN is not supported"),
    ("SELECT * FROM flights f JOIN status s", "no equality compares `s`"),
    ("SELECT * FROM flights f LEFT JOIN status s", "no ON or USING"),
    ("SELECT * FROM flights f JOIN status s ON TRUE", "no equality compares `s`"),
    ("SELECT * FROM flights f LEFT JOIN status s ON TRUE", "ON TRUE compares nothing"),
    ("SELECT * FROM departures d", "the only input"),
    ("SELECT 1", "not a SELECT"),
    ("SELECT 1 WHERE true", "not a SELECT"),
    ("DELETE FROM flights", "not a SELECT"),
    ("; EXPLAIN SELECT 1", "not a SELECT"),
    (f"SELECT * {ON} |> WHERE true", "pipe syntax"),
    ("FROM flights |> SELECT flight_id", "pipe syntax"),
    (f"SELECT * {ON}; SELECT * {ON}", "2 statements"),
    ("", "0 statements"),
    ("-- nothing", "0 statements"),
    ("SELECT * FROM flights f JOIN status s ON (f.flight_id = ", "not Spark SQL"),
    ("SELECT 'open FROM flights", "not Spark SQL"),
    ("SELECT * FROM flights f JOIN status f ON f.flight_id = f.flight_id", "same name"),
)
def test_clauses_are_refused_by_name(sql, named):
    """A statement is one SELECT over two sources with ON or USING, perhaps WHERE, and nothing else."""
    assert any(named in fault for fault in refusals(sql)), refusals(sql)


@pytest.mark.parametrize("clause", sorted(CLAUSES))
def test_every_clause_that_is_refused_has_a_remedy(clause):
    """Statements of other systems have clauses that no join needs; the message says what to do without."""
    assert REMEDIES[clause]


def test_what_with_defines_hides_sources_and_joins():
    """Also where its name is that of a source, or of the join itself."""
    for name in ("w", "status", "J"):
        sql = f"WITH {name} AS (SELECT * FROM planes) SELECT f.* FROM flights f LEFT JOIN {name} x ON f.a = x.tailnum"
        assert refusals(sql) == []
        assert not list(chains(SOURCES, {"j": sql}).objections("j", sql))


def test_with_hides_no_other_fault():
    faults = refusals("WITH w AS (SELECT * FROM planes) SELECT * FROM w JOIN stat s ON w.a = s.flight_id LIMIT 1")
    problems = [fault.split(" | ")[0].split(" is ")[0] for fault in faults]
    assert problems == ["FROM: unknown source `stat`", "LIMIT"]


def test_what_a_lookup_lacks_is_one_equality_for_each_column():
    (fault,) = refusals("SELECT d.at FROM departures d JOIN legs l ON d.at > l.at")
    assert fault.endswith("add to ON: d.<column> = l.day AND d.<column> = l.number")


@cases(
    "expression, named",
    ("count(*)", "`count` is an aggregate"),
    ("count(DISTINCT f.delay)", "`count` is an aggregate"),
    ("MAX(f.delay)", "`MAX` is an aggregate"),
    ("sum(f.delay) OVER (PARTITION BY f.carrier)", "window functions"),
    ("row_number()", "`row_number` is a window function"),
    ("first(f.delay) IGNORE NULLS", "IGNORE NULLS"),
    ("sum(f.delay) FILTER (WHERE true)", "FILTER"),
    ("explode(f.hops)", "several rows from one"),
    ("(SELECT 1)", "subqueries"),
    ("EXISTS (SELECT 1)", "subqueries"),
    ("f.delay IN (SELECT 1)", "subqueries"),
    (":minimum", "parameters"),
    ("?", "parameters"),
    ("${minimum}", "parameters"),
    ("current_date()", "does not depend on the rows alone"),
    ("current_date", "does not depend on the rows alone"),
    ("current_timestamp", "does not depend on the rows alone"),
    ("now()", "does not depend on the rows alone"),
    ("rand()", "does not depend on the rows alone"),
    ("uuid()", "does not depend on the rows alone"),
    ("current_user()", "does not depend on the rows alone"),
    ("monotonically_increasing_id()", "does not depend on the rows alone"),
    ("unix_timestamp()", "the time of the query"),
    ("'Today' = f.delay", "the time of the query"),
    ("f.delay > DATE 'now'", "the time of the query"),
    ("CAST(' tomorrow Europe/Oslo ' AS DATE)", "the time of the query"),
    ("r'yesterday'", "the time of the query"),
    ("TIMESTAMP '12:30:00'", "a time on the day of the query"),
    ("CAST('T12:30' AS TIMESTAMP)", "a time on the day of the query"),
    ("my_udf(f.delay)", "not among the deterministic functions"),
    ("main.tools.my_udf(f.delay)", "is not supported in a join"),
    ("array_contain(f.hops, 1)", "did you mean `array_contains`?"),
    ("concat(*)", "`*` inside an expression"),
    ("struct(f.delay AS d)", "AS inside an expression"),
    ("f.delay AS (a, b)", "several names"),
    ("transform(f.hops, X -> x + 1)", "only in case"),
    ("'it''s'", "adjacent strings"),
    ("'a' 'b'", "adjacent strings"),
    ("CAST(f.delay AS STRING COLLATE UTF8_LCASE)", "is not supported in a join"),
    ("f.carrier COLLATE UTF8_LCASE", "is not supported in a join"),
    ("f.carrier LIKE ANY ('a', 'b')", "is not supported in a join"),
    ("f.since AT TIME ZONE 'UTC'", "is not supported in a join"),
    ("(f.delay, 1) IN ((1, 1))", "is not supported in a join"),
    ("f.delay BETWEEN SYMMETRIC 1 AND 2", "is not supported in a join"),
    ("position('x' IN f.carrier)", "not among the deterministic"),
    ("map_from_arrays(x => 1)", "is not supported in a join"),
    ("* REPLACE (f.delay AS delay)", "`*` inside an expression"),
)
def test_expressions_are_refused_wherever_they_stand(expression, named):
    """What may differ from one run to the next, or has no single value for one row, is refused in every clause."""
    assert any(fault.startswith("SELECT") and named in fault for fault in refusals(f"SELECT *, {expression} {ON}"))
    if " AS (" in expression or expression.startswith("*"):
        return
    assert any(fault.startswith("WHERE") and named in fault for fault in refusals(f"SELECT * {ON} WHERE {expression}"))
    assert any(fault.startswith("ON") and named in fault for fault in refusals(f"SELECT * {ON} AND ({expression})"))


def test_an_interval_of_several_units_is_refused():
    """sqlglot would read it as a sum, which after a minus is something else."""
    assert "an INTERVAL with several units" in refusals(f"SELECT *, s.since - INTERVAL 1 DAY 2 HOURS AS x {ON}")[0]
    assert refusals(f"SELECT *, s.since - INTERVAL 1 DAY - INTERVAL '2 hours 1 minute' AS x {ON}") == []


@pytest.mark.parametrize("text", ["'nowhere'", "'todays'", "'12:30'", "'now playing at home'", "'not now'"])
def test_harmless_texts_stay(text):
    assert refusals(f"SELECT *, f.carrier = {text} AS x {ON}") == []


@cases(
    "table, named",
    ("flihgts", "unknown source `flihgts` | did you mean `flights`?"),
    ("zzz", "the sources are `flights`, `status`"),
    ("main.aviation.flights", "`main.aviation.flights` is a qualified name"),
    ("enrichd", "unknown source `enrichd` | did you mean `enriched`?"),
    ("status2", "unknown source `status2` | did you mean `status`?"),
    ("airlines", "`airlines` is a global table: its changes trigger no epoch, so only a stream can join it"),
)
def test_from_names_sources_of_the_file(table, named):
    """Nothing else can be joined; a global table only with a stream."""
    (fault,) = refusals(f"SELECT * FROM {table} t JOIN status s ON t.flight_id = s.flight_id")
    assert named in fault


def test_using_is_for_two_inputs():
    """With three, what a column of USING stands for would depend on the order of the joins."""
    (fault,) = refusals(
        "SELECT * FROM flights f JOIN status s USING (flight_id) JOIN planes p ON p.tailnum = f.tailnum"
    )
    assert "USING in a join of three or more inputs is not yet supported" in fault


def test_all_faults_of_a_statement_come_at_once():
    """One reading names the clauses, the functions and the inputs that are wrong."""
    sql = "SELECT now(), nope(f.x) FROM flihgts f JOIN status s ON f.a = s.b AND rand() > 1 WHERE max(f.x) > 1 LIMIT 3"
    faults = refusals(sql)
    for named in ("`now`", "`nope`", "flihgts", "ON: `rand`", "WHERE: `max`", "LIMIT"):
        assert any(named in fault for fault in faults)


def test_faults_name_their_place_in_the_file():
    with pytest.raises(PipelineFileError) as caught:
        taken_apart("SELECT 1")
    assert [fault.path for fault in caught.value.faults] == ["joins.j.sql"]


def test_what_spark_allows_in_a_statement_is_allowed():
    """A semicolon, comments, any case of names and keywords, an input without an alias."""
    items = "FLIGHTS.*, Status.state /* why */"
    sql = f"select {items} from FLIGHTS -- all\njoin status on Flights.FLIGHT_ID = STATUS.flight_id;"
    statement = taken_apart(sql)
    assert statement.sources == ("flights", "status")
    assert statement.sides[0].alias == "FLIGHTS"
    assert set(statement.sources) <= set(SOURCES)


@cases(
    "sql, said",
    (f"SELECT * {ON} WHERE", "something is missing after `WHERE`"),
    (f"SELECT * {ON} AND", "something is missing after `AND`"),
    (f"SELECT * {ON} WHERE; ", "something is missing after `WHERE`"),
    ("SELECT * FROM flights f JOIN status s ON (f.flight_id = )", "something is missing before `)`"),
    (f"SELECT f.delay + {ON}", "something is missing before `FROM`"),
    (f"SELECT CASE WHEN END {ON}", "something is missing before `FROM`"),
    ("SELECT * FROM", "Expected table name near `FROM`"),
    ("SELECT * FROM flights f JOIN", "Expected table name near `JOIN`"),
)
def test_a_syntax_error_is_told_without_the_parsers_own_terms(sql, said):
    """No class of sqlglot's, no token; the word before or after the gap."""
    assert refusals(sql) == [f"not Spark SQL: {said} | "]


@pytest.mark.parametrize("deep", ["(" * 300 + "1" + ")" * 300, "1" + " + 1" * 3000, "NOT " * 3000 + "true", "[" * 90])
def test_deep_nesting_is_a_fault_not_a_crash(deep):
    assert refusals(f"SELECT *, {deep} AS x {ON}")
