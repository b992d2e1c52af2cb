"""
What a user writes never changes the shape of a statement. A text that stands for an expression is refused or stays one
expression; a name or path that stands for a table stays one table. Each statement that lakejoin would run is parsed
back and compared with its template.
"""

from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from sqlglot import exp, parse

from lakehouse.errors.errors import PipelineFileError
from lakehouse.values.sqltext import Address, quote, text
from pipelines.language import ResolvedQuery, bind
from pipelines.language import parse as take_apart
from pipelines.language.sql.dialect import Verbatim
from tests.language.examples import COLUMNS, SOURCES

relaxed = settings(deadline=None, max_examples=200, suppress_health_check=list(HealthCheck))

NASTY = [*"'\"`)(;\\\n, .", "``", "--", "/*", "*/", " OR 1=1", "; DROP TABLE a", "航空"]
NAMES = st.lists(st.sampled_from(NASTY) | st.text(max_size=4), min_size=1, max_size=5).map("".join)
COLUMN = st.sampled_from(["f.delay", "s.state", "delay", "F.CARRIER", "s.`since`", "f.addr.city", "f.hops[0]"])
LITERAL = st.one_of(
    st.integers(0, 99).map(str),
    NAMES.map(text),
    NAMES.map(lambda name: f'"{name}"'),
    st.sampled_from(["NULL", "true", "1.5BD", "7L", "DATE '2024-01-01'", "INTERVAL '1 day'", "r'\\d'", "'it\\'s'"]),
)
ATOMS = COLUMN | LITERAL
EXPRESSIONS = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.tuples(
            inner, st.sampled_from(["+", "=", "<=>", "AND", "OR", "||", "<>", "LIKE", ",", "--\n", "/**/"]), inner
        ),
        st.tuples(
            st.sampled_from(["(", "upper(", "NOT (", "coalesce(1, ", "CAST("]),
            inner,
            st.sampled_from([")", " AS INT)"]),
        ),
        st.tuples(
            inner, st.sampled_from([" IS NULL", " BETWEEN 1 AND 2", " IN (1, 2)", "::int", ") OR (1", " AS b, 2"])
        ),
        st.tuples(st.just("CASE WHEN "), inner, st.just(" THEN "), inner, st.just(" END")),
    ).map(" ".join),
    max_leaves=6,
)
TYPES = {"JOIN": "inner", "LEFT JOIN": "left", "RIGHT OUTER JOIN": "right"}
KEYS = {"inner": "f.flight_id", "left": "f.flight_id", "right": "s.flight_id"}


def accepted(sql: str) -> ResolvedQuery | None:
    try:
        return bind(take_apart("j", sql, SOURCES), COLUMNS)
    except PipelineFileError:
        return None


def one_statement(sql: str) -> exp.Expr:
    (statement,) = parse(sql, read=Verbatim)
    assert statement is not None
    return statement


def one_expression(rendered: str) -> exp.Expr:
    """Parse an expression that lakejoin hands to Spark; it is one item of a SELECT and nothing besides."""
    select = one_statement(f"SELECT {rendered}")
    assert isinstance(select, exp.Select)
    assert {name for name, value in select.args.items() if value} == {"expressions"}
    (item,) = select.expressions
    assert not isinstance(item, exp.Alias)
    assert not list(item.find_all(exp.Query, exp.Table))
    return item


@relaxed
@given(item=EXPRESSIONS, condition=EXPRESSIONS, where=EXPRESSIONS, join=st.sampled_from(sorted(TYPES)))
def test_an_expression_stays_one(item, condition, where, join):
    """
    A statement of the template with three holes is refused, or is the template with three expressions in it. What the
    user writes into a hole may hold commas and brackets; then the items of the SELECT list are as many as an
    independent reading of the text says, and the inputs and the type of join are the template's all the same.
    """
    how = TYPES[join]
    sql = (
        f"SELECT {KEYS[how]} AS id, {item} AS x FROM flights f {join} status s"
        f" ON f.flight_id = s.flight_id AND ({condition}) WHERE ({where})"
    )
    found = accepted(sql)
    if found is None:
        return
    read = one_statement(sql)
    assert isinstance(read, exp.Select)
    assert (found.steps[0].how, found.sources) == (how, ("flights", "status"))
    assert [output.name for output in found.outputs] == [item.alias_or_name for item in read.expressions]
    assert found.key == ("id",)
    for rendered in (*(output.expression for output in found.outputs), found.steps[0].on, found.where or "true"):
        one_expression(rendered)


@relaxed
@given(item=EXPRESSIONS, where=EXPRESSIONS)
def test_the_rendered_statement_is_the_same_join(item, where):
    """Taken apart once more, what lakejoin made of a statement gives the same definition."""
    sql = (
        f"SELECT f.flight_id AS id, {item} AS x FROM flights f JOIN status s ON f.flight_id = s.flight_id WHERE {where}"
    )
    found = accepted(sql)
    assume(found is not None)
    assert found is not None
    items = ", ".join(f"{output.expression} AS {quote(output.name)}" for output in found.outputs)
    again = accepted(f"SELECT {items} FROM flights AS f JOIN status AS s ON {found.steps[0].on} WHERE {found.where}")
    assert again == found


@relaxed
@given(path=NAMES, names=st.lists(NAMES.filter(str.strip), min_size=1, max_size=3))
def test_a_table_stays_one(path, names):
    """A path or a name with quotes, comments and line breaks in it is one table in every statement."""
    assert one_statement(f"SELECT * FROM {Address('x', path=path).sql} VERSION AS OF 3").find(exp.Identifier)
    for parts in (["delta", path], names):
        select = one_statement(f"SELECT * FROM {quote(*parts)}")
        assert isinstance(select, exp.Select)
        table = select.args["from_"].this
        assert {name for name, value in select.args.items() if value} == {"expressions", "from_"}
        assert [part.name for part in table.parts] == parts


@relaxed
@given(names=st.lists(NAMES.filter(str.strip), min_size=1, max_size=3))
def test_a_dotted_name_in_backticks_is_read_as_it_was_written(names):
    """What `table:` says in backticks reaches Spark as these parts and no others."""
    assert Address.by_name("x", quote(*names)).table == quote(*names)


@relaxed
@given(value=NAMES)
def test_a_text_stays_one(value):
    literal = one_expression(text(value))
    assert isinstance(literal, exp.Literal)
    assert literal.this == value
