"""`lakejoin check --add-keys` writes missing key columns into the file and changes nothing else."""

from pathlib import Path

import pytest

from pipelines.cli import main
from pipelines.language import load, statement_of
from tests.cases import cases

HEAD = """\
# The pipeline of the shop.
pipeline: shop   # its name
storage: {path: ./lake}

sources:
  orders:    {key: order_id}
  payments:  {key: order_id}
  customers: {key: customer}   # one row each

joins:
"""
PAIRED = "FROM orders o LEFT JOIN payments p ON p.method = o.method"
BOTH = "o.order_id AS o_order_id, p.order_id AS p_order_id"


def checked(folder: Path, joins: str, capsys: pytest.CaptureFixture[str], code: int = 0) -> tuple[str, str]:
    """Check a file with these joins, adding keys; return its joins afterwards and what was shown on stderr."""
    path = folder / "lakejoin.yml"
    path.write_bytes((HEAD + joins).encode())
    assert main(["check", "--add-keys", "-f", str(path)]) == code
    text = path.read_bytes().decode()
    assert text.startswith(HEAD)
    return text.removeprefix(HEAD), capsys.readouterr().err


@cases(
    "before, after",
    (
        f"  a:\n    sql: SELECT o.amount {PAIRED}   # why\n",
        f"  a:\n    sql: SELECT o.amount, {BOTH} {PAIRED}   # why\n",
    ),
    (
        f"  a:\n    sql: |\n      SELECT o.*, p.at -- when\n      {PAIRED}\n",
        f"  a:\n    sql: |\n      SELECT o.*, p.at, p.order_id AS p_order_id -- when\n      {PAIRED}\n",
    ),
    (
        "  a:\n    sql: |-\n\n      SELECT\n        o.amount,  -- of money\n        p.at       -- when\n"
        f"      {PAIRED}\n    changelog: true\n",
        "  a:\n    sql: |-\n\n      SELECT\n        o.amount,  -- of money\n        p.at,       -- when\n"
        f"        o.order_id AS o_order_id,\n        p.order_id AS p_order_id\n      {PAIRED}\n    changelog: true\n",
    ),
    (
        f"  a:\n    sql: >-\n      SELECT o.amount,\n      upper( p.at )\n      AS at\n      {PAIRED}\n",
        f"  a:\n    sql: >-\n      SELECT o.amount,\n      upper( p.at )\n      AS at, {BOTH}\n      {PAIRED}\n",
    ),
    (
        f"  a: {{sql: 'SELECT o.amount, ''x'' AS x {PAIRED}', refresh: full}}\n",
        f"  a: {{sql: 'SELECT o.amount, ''x'' AS x, {BOTH} {PAIRED}', refresh: full}}\n",
    ),
    (
        f'  a:\n    sql: "SELECT o.amount, \'\\"\' AS x {PAIRED}"\n',
        f'  a:\n    sql: "SELECT o.amount, \'\\"\' AS x, {BOTH} {PAIRED}"\n',
    ),
    (
        f"  a:\r\n    sql: SELECT o.* EXCEPT (order_id)\r\n      {PAIRED}\r\n",
        f"  a:\r\n    sql: SELECT o.* EXCEPT (order_id), {BOTH}\r\n      {PAIRED}\r\n",
    ),
    (
        "  a: {sql: 'SELECT c.name FROM orders o JOIN customers c ON o.customer = c.customer'}\n"
        "  b: {sql: 'SELECT p.method FROM a JOIN payments p ON a.order_id = p.order_id'}\n",
        "  a: {sql: 'SELECT c.name, o.order_id FROM orders o JOIN customers c ON o.customer = c.customer'}\n"
        "  b: {sql: 'SELECT p.method, a.order_id FROM a JOIN payments p ON a.order_id = p.order_id'}\n",
    ),
    (
        "  a: {sql: 'SELECT p.at FROM orders o FULL JOIN payments p USING (order_id)'}\n",
        "  a: {sql: 'SELECT p.at, coalesce(o.order_id, p.order_id) AS order_id "
        "FROM orders o FULL JOIN payments p USING (order_id)'}\n",
    ),
)
def test_columns_are_written_behind_the_last_item(tmp_path, capsys, before, after):
    """In every style of YAML, with comments and layout as they were; the diff is shown, and the file has no faults."""
    written, told = checked(tmp_path, before, capsys)
    assert written == after
    assert told.startswith("--- lakejoin.yml")
    assert all(statement_of(load(tmp_path / "lakejoin.yml"), name).key for name in ("a",))
    assert checked(tmp_path, after, capsys) == (after, "")


@cases(
    "item",
    "CAST(p.method AS STRING) AS m",
    "(p.method) AS m",
    "NOT (p.method = 'card') AS m",
    "(p.at + INTERVAL 1 DAY) AS m",
    "CASE WHEN (p.method > 'a') THEN 1 END AS m",
    "extract(YEAR FROM p.at) AS m",
    "p.`from` AS m",
)
def test_the_last_item_ends_before_from(tmp_path, capsys, item):
    """Whatever brackets and words it has."""
    sql = f"SELECT o.amount, {item}{{}} {PAIRED}"
    written, _ = checked(tmp_path, f"  a:\n    sql: |\n      {sql.format('')}\n", capsys)
    assert written == f"  a:\n    sql: |\n      {sql.format(f', {BOTH}')}\n"


def test_lines_end_as_in_the_file(tmp_path, capsys):
    lines = ["  a:", "    sql: |", "      SELECT", "        o.amount", f"      {PAIRED}", ""]
    written, _ = checked(tmp_path, "\r\n".join(lines), capsys)
    lines[3:4] = ["        o.amount,", "        o.order_id AS o_order_id,", "        p.order_id AS p_order_id"]
    assert written == "\r\n".join(lines)


def test_a_link_stays_a_link_and_the_file_keeps_its_mode(tmp_path):
    (tmp_path / "real").mkdir()
    path, link = tmp_path / "real" / "shop.yml", tmp_path / "lakejoin.yml"
    path.write_text(f"{HEAD}  a: {{sql: 'SELECT o.amount {PAIRED}'}}\n")
    path.chmod(0o640)
    link.symlink_to(path)
    assert main(["check", "--add-keys", "-f", str(link)]) == 0
    assert link.is_symlink()
    assert BOTH in path.read_text()
    assert path.stat().st_mode & 0o777 == 0o640
    assert [one.name for one in path.parent.iterdir()] == ["shop.yml"]


def test_the_diff_shows_what_was_added(tmp_path, capsys):
    _, told = checked(tmp_path, f"  a:\n    sql: |\n      SELECT o.*\n      {PAIRED}\n", capsys)
    assert [line for line in told.splitlines() if line[:1] in "+-"][2:] == [
        "-      SELECT o.*",
        "+      SELECT o.*, p.order_id AS p_order_id",
    ]


@cases(
    "joins, code",
    (f"  a: {{sql: 'SELECT o.amount {PAIRED}', key_columns: append}}\n", 0),
    ("  a: {sql: 'SELECT o.amount FROM orders o LEFT JOIN payments p ON o.order_id = p.ordr_id'}\n", 2),
    (f"  a: {{sql: 'SELECT nope(o.amount) AS x {PAIRED}'}}\n", 2),
    ("  a: {sql: [SELECT]}\n", 2),
)
def test_nothing_is_added_where_it_would_be_wrong(tmp_path, capsys, joins, code):
    """Appended keys need no text; a key that is misspelled, or a faulty statement, is for a person to mend."""
    assert checked(tmp_path, joins, capsys, code)[0] == joins


def test_a_text_that_cannot_be_edited_is_named(tmp_path, capsys):
    """YAML may write a letter in another way than the statement has it."""
    joins = f'  a:\n    sql: "SELECT o.\\x61mount {PAIRED}"\n'
    written, told = checked(tmp_path, joins, capsys, 2)
    assert written == joins
    assert "joins.a.sql: not changed" in told


def test_a_byte_order_mark_stays(tmp_path):
    path = tmp_path / "lakejoin.yml"
    path.write_bytes(b"\xef\xbb\xbf" + f"{HEAD}  a: {{sql: 'SELECT o.amount {PAIRED}'}}\n".encode())
    assert main(["check", "--add-keys", "-f", str(path)]) == 0
    assert path.read_bytes().startswith(b"\xef\xbb\xbf# The pipeline")
