"""A text as one SELECT over two inputs, or what is wrong with it, clause by clause; no names are looked up here."""

import re
from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from pipelines.spec.dialect import Verbatim
from pipelines.spec.objection import Objection
from pipelines.spec.places import Span
from pipelines.spec.vocabulary import refused

DEEPEST = 100

VARIABLE = re.compile(r"\$\{(var|env)\.[^}]*\}")
"""What puts a value into other texts of the file."""

CLAUSES = {
    "with_": "WITH",
    "distinct": "DISTINCT",
    "group": "GROUP BY",
    "having": "HAVING",
    "order": "ORDER BY",
    "sort": "SORT BY",
    "cluster": "CLUSTER BY",
    "distribute": "DISTRIBUTE BY",
    "limit": "LIMIT",
    "offset": "OFFSET",
    "qualify": "QUALIFY",
    "windows": "WINDOW",
    "laterals": "LATERAL VIEW",
    "hint": "a hint",
    "kind": "SELECT AS",
    "locks": "FOR UPDATE",
    "sample": "TABLESAMPLE",
    "version": "time travel",
    "pivots": "PIVOT",
    "joins": "a join in parentheses or a nested JOIN",
}
KEYWORDS = {"hint": "/*+", "kind": "AS", "laterals": "LATERAL", "version": "AS OF", "locks": "FOR"}
"""The word of a clause that is not called by it."""

EXPECTED = {
    exp.Select: {"expressions", "from_", "joins", "where"},
    exp.Table: {"this", "alias", "db", "catalog"},
    exp.TableAlias: {"this"},
}


def read(sql: str) -> tuple[exp.Select | None, list[Objection]]:
    """
    Read a statement.

    Args:
        sql: The text.

    Returns:
        The statement, if the text is one SELECT with FROM, and all objections to its clauses and expressions.
    """
    if variable := VARIABLE.search(sql):
        hint = "write the value itself: it is part of the join's definition"
        return None, [Objection("a variable in SQL", hint, Span(*variable.span()))]
    try:
        parsed = sqlglot.parse(sql, read=Verbatim)
    except ParseError as error:
        return None, [_syntax_error(error, sql)]
    except TokenError as error:
        return None, [Objection(f"not Spark SQL: {error}", "is a quote or a backtick left open?")]
    except RecursionError:
        return None, [Objection("the statement is nested too deep")]
    except Exception as error:  # sqlglot is given arbitrary text; whatever it stumbles over is a fault of the text
        return None, [Objection(f"the statement cannot be read: {' '.join(str(error).split())[:200]}")]
    statements = [found for found in parsed if found and not isinstance(found, exp.Semicolon)]
    if len(statements) != 1:
        return None, [Objection(f"{len(statements)} statements where one SELECT belongs", about=";")]
    statement = statements[0]
    if _depth(statement) > DEEPEST:
        return None, [Objection(f"the statement is nested deeper than {DEEPEST} levels")]
    if isinstance(statement, exp.SetOperation):
        kind = statement.key.upper()
        return None, [Objection(f"{kind} of queries; a join is one SELECT", about=kind)]
    if not isinstance(statement, exp.Select) or not statement.args.get("from_"):
        return None, [Objection("not a SELECT ... FROM ... JOIN ...", about=sql.split()[0].upper())]
    return statement, [*_clauses(statement), *_expressions(statement, sql)]


def _syntax_error(error: ParseError, sql: str) -> Objection:
    if not error.errors:
        return Objection(f"not Spark SQL: {' '.join(str(error).split())[:200]}")
    first = error.errors[0]
    word = str(first.get("highlight") or "")
    near = f" near `{word}`" if word else ""
    description = str(first.get("description", "")).rstrip(".")
    rows = sql.splitlines(keepends=True)[: (first.get("line") or 1) - 1]
    end = sum(map(len, rows)) + (first.get("col") or 0)  # the column is that of the word's last character
    return Objection(f"not Spark SQL: {description}{near}", about=Span(max(end - len(word), 0), end))


def _depth(statement: exp.Expr) -> int:
    level, depth = [statement], 0
    while level:
        level = [child for node in level for child in node.iter_expressions()]
        depth += 1
    return depth


def _clauses(select: exp.Select) -> Iterator[Objection]:
    tables = [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]
    aliases = [table.args["alias"] for table in tables if table.args.get("alias")]
    for node in [select, *tables, *aliases]:
        for argument in sorted(key for key, value in node.args.items() if value):
            if argument not in EXPECTED.get(type(node), node.args):
                clause = CLAUSES.get(argument, argument.upper())
                keyword = KEYWORDS.get(argument, clause)
                yield Objection(f"{clause} is not something that a join may use", about=keyword)
    for table in tables:
        if isinstance(table, exp.Lateral):
            yield Objection("LATERAL is not something that a join may use", about="LATERAL")
        elif isinstance(table, exp.Subquery):
            yield Objection("FROM: a subquery", "name two sources in FROM and JOIN", table)
        elif not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            yield Objection("FROM: a function or expression in the place of a source", about=table)


def _expressions(select: exp.Select, sql: str) -> Iterator[Objection]:
    parts = [("SELECT", _starless(item)) for item in select.expressions]
    parts += [("ON", join.args["on"]) for join in select.args.get("joins") or () if join.args.get("on")]
    if where := select.args.get("where"):
        parts.append(("WHERE", where.this))
    for clause, expression in parts:
        for found in refused(expression) if expression else ():
            yield found._replace(problem=f"{clause}: {found.problem}")
    written = sum(token.text.upper() == "INTERVAL" for token in sqlglot.tokenize(sql, read=Verbatim))
    if len(list(select.find_all(exp.Interval))) > written:
        hint = "write INTERVAL '1 day 2 hours', or add two of them"
        yield Objection("an INTERVAL with several units", hint, "INTERVAL")


def _starless(item: exp.Expr) -> exp.Expr | None:
    """Give the expression to look at: the item without its alias, nothing for `*` and `alias.*`."""
    star = item.this if isinstance(item, exp.Column) else item
    if not isinstance(star, exp.Star):
        return item.this if type(item) is exp.Alias else item
    others = [name for name, value in star.args.items() if value and name != "except_"]
    return exp.Star(**{others[0]: True}) if others else None
