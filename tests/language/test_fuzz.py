"""Whatever the text, a file is read or refused; nothing else ever happens."""

import contextlib
import io
from pathlib import Path

import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lakehouse.errors.errors import PipelineFileError
from pipelines.cli import main
from pipelines.commands.init import example
from pipelines.language import bind, parse
from pipelines.language.sql.vocabulary import words

from .examples import COLUMNS, SOURCES

TOKENS = words(
    """
    SELECT FROM JOIN LEFT FULL OUTER CROSS ON USING WHERE AND OR NOT IN IS NULL AS CASE WHEN THEN END BETWEEN LIKE
    ESCAPE CAST INTERVAL DAY DATE LATERAL WITH UNION DISTINCT GROUP BY OVER EXISTS TABLESAMPLE EXCEPT ARRAY MAP STRUCT
    IF ( ) [ ] { } , . ; : :: * + - / % = == <=> <> -> => || ? $ @ ! ~ ^ & | < > 1 1.5 1.5BD 7L 0x1 'a' 'it\\'s' "d"
    r'x' `a``b` f s flights status flight_id f.flight_id s.flight_id addr.city hops x -- /* */ concat( upper( count(
    """
)
LEAVES = st.one_of(st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=8), st.dates())
OPTIONS = ["pipeline", "storage", "sources", "joins", "timezone"]
MORE = ["sql", "key", "table", "path", "schema", "stage", "kind", "semantics", "expectations", "a", "b"]
KEYS = st.one_of(st.sampled_from(OPTIONS + MORE), st.text(max_size=4), st.integers())
TREES = st.recursive(
    LEAVES, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4), max_leaves=12
)
relaxed = settings(deadline=None, max_examples=150, suppress_health_check=list(HealthCheck))


def never_fails_to_answer(path: Path) -> None:
    """`check` says yes or lists faults; nothing escapes, and nothing is called unexpected."""
    said = io.StringIO()
    with contextlib.redirect_stderr(said), contextlib.redirect_stdout(said):
        code = main(["check", "-f", str(path)])
    assert code in (0, 2), said.getvalue()


def never_crashes(sql: str) -> None:
    with contextlib.suppress(PipelineFileError):
        bind(parse("j", sql, SOURCES), COLUMNS)


@relaxed
@given(st.text())
def test_any_text_as_a_statement(text):
    never_crashes(text)
    never_crashes(f"SELECT {text} FROM flights f JOIN status s ON f.flight_id = s.flight_id")


@relaxed
@given(st.lists(st.sampled_from(sorted(TOKENS)), max_size=25).map(" ".join))
def test_any_words_as_a_statement(text):
    never_crashes(f"SELECT {text}")
    never_crashes(f"SELECT {text} FROM flights f JOIN status s ON f.flight_id = s.flight_id")
    never_crashes(f"SELECT f.* FROM flights f JOIN status s ON {text}")
    never_crashes(f"SELECT f.* FROM {text}")
    never_crashes(f"SELECT f.* FROM flights f JOIN status s USING (flight_id) WHERE {text}")


@relaxed
@given(content=st.binary() | st.text().map(str.encode) | TREES.map(lambda tree: yaml.safe_dump(tree).encode()))
def test_any_bytes_as_a_file(tmp_path: Path, content):
    path = tmp_path / "lakejoin.yml"
    path.write_bytes(content)
    never_fails_to_answer(path)


@relaxed
@given(tree=st.fixed_dictionaries({}, optional=dict.fromkeys(OPTIONS, TREES)))
def test_any_values_as_options(tmp_path: Path, tree):
    path = tmp_path / "lakejoin.yml"
    path.write_text(yaml.safe_dump(tree, allow_unicode=True))
    never_fails_to_answer(path)


@relaxed
@given(
    replaced=st.integers(0, 15),
    by=st.text(max_size=12) | st.sampled_from(["${var.x}", "${env.HOME}", "${", "[", "*a", "&a"]),
)
def test_a_good_file_with_a_word_replaced(tmp_path: Path, replaced, by):
    words_of = example("example/lakejoin.yml").split(" ")
    words_of[replaced * len(words_of) // 16] = by
    path = tmp_path / "lakejoin.yml"
    path.write_bytes(" ".join(words_of).encode("utf-8", "replace"))
    never_fails_to_answer(path)
