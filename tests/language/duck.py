"""A definition as one statement for DuckDB, whose rows must be those of the statement as written."""

import random
import re
from collections.abc import Callable

import duckdb
from sqlglot import exp, parse_one

from pipelines.language import Input, ResolvedQuery, Source, bind, parse
from pipelines.language.sql.dialect import Verbatim
from tests.language.examples import complaints


def flat(join: ResolvedQuery) -> str:
    """Return a statement over the inputs as the definition describes them, in the words of DuckDB."""
    inputs = list(map(_input, join.inputs))
    steps = (f" {step.how} JOIN {text} ON {step.on}" for step, text in zip(join.steps, inputs[1:], strict=True))
    outputs = ", ".join(f"{output.expression} AS `{output.name}`" for output in join.outputs)
    sql = f"SELECT {outputs} FROM {inputs[0]}{''.join(steps)} WHERE {join.where or 'TRUE'}"
    return in_duckdb(sql.replace("EXISTS(", "any_of("))


def in_duckdb(sql: str) -> str:
    """Translate a statement; the look-ups of semi joins are lists of structs."""

    def rewritten(node: exp.Expr) -> exp.Expr:
        if isinstance(node, exp.Anonymous) and node.name == "any_of":
            found = exp.Anonymous(this="list_filter", expressions=node.expressions)
            return exp.GT(this=exp.Anonymous(this="len", expressions=[found]), expression=exp.Literal.number(0))
        return node

    text = parse_one(sql, read=Verbatim).transform(rewritten).sql("duckdb")
    packed = (
        ", ".join(f"{name} := {name}" for name in one.split(", ")) for one in re.findall(r"STRUCTS\((.*?)\)", text)
    )
    return re.sub(r"STRUCTS\(.*?\)", lambda _: f"list(struct_pack({next(packed)}))", text)


def _input(item: Input) -> str:
    if item.grouping is None:
        return f"{item.source} `{item.alias}`"
    grouping, rows = item.grouping, item.grouping.rows
    assert rows.query is not None
    named = ", ".join(f"{value} AS `{name}`" for name, value in zip(rows.columns, rows.query.values, strict=True))
    query = f"SELECT {named} FROM {rows.source} `{rows.alias}` WHERE {rows.query.where or 'TRUE'}"
    keys = ", ".join(f"`{name}`" for name in item.key)
    structs = f"structs({', '.join(grouping.collected)})"
    values = [f"{structs if grouping.collected else sql} AS `{name}`" for name, sql in grouping.values]
    having = f" HAVING {grouping.having}" if grouping.having else ""
    return f"(SELECT {', '.join([keys, *values])} FROM ({query}) GROUP BY {keys}{having}) `{item.alias}`"


def compare(statement: Callable[[random.Random], str], seed: int, number: int) -> int:
    """
    Let DuckDB compute random statements as they are written and as their definitions describe them, over random tables
    a and b (id, x, y); return how many of those that are taken have rows.
    """
    dice, database, compared = random.Random(seed), duckdb.connect(), 0
    sources = {name: Source(key="id") for name in "ab"}
    for _ in range(number):
        sql = statement(dice)
        if complaints(lambda sql=sql: parse("j", sql, sources)):
            continue
        join = bind(parse("j", sql, sources), {name: ["id", "x", "y"] for name in "ab"})
        for name in "ab":
            database.execute(f"CREATE OR REPLACE TABLE {name} (id INT, x INT, y INT)")
            for key in dice.sample(range(8), 6):
                values = [key, *(dice.choice([None, 0, 1, 2, 3]) for _ in range(2))]
                database.execute(f"INSERT INTO {name} VALUES (?, ?, ?)", values)
        expected, found = (sorted(database.execute(text).fetchall(), key=repr) for text in (in_duckdb(sql), flat(join)))
        assert found == expected, sql
        compared += bool(expected)
    return compared
