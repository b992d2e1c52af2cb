"""A text as one SELECT over two inputs, or what is wrong with it, clause by clause; no names are looked up here."""

from collections.abc import Iterator

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError

from pipelines.spec.dialect import Verbatim
from pipelines.spec.statement import Objection
from pipelines.spec.vocabulary import refused

DEEPEST = 100

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
    try:
        parsed = sqlglot.parse(sql, read=Verbatim)
    except ParseError as error:
        return None, [_syntax_error(error)]
    except TokenError as error:
        return None, [Objection(f"not Spark SQL: {error}", "is a quote or a backtick left open?")]
    except RecursionError:
        return None, [Objection("the statement is nested too deep")]
    except Exception as error:  # sqlglot is given arbitrary text; whatever it stumbles over is a fault of the text
        return None, [Objection(f"the statement cannot be read: {' '.join(str(error).split())[:200]}")]
    statements = [found for found in parsed if found and not isinstance(found, exp.Semicolon)]
    if len(statements) != 1:
        return None, [Objection(f"{len(statements)} statements where one SELECT belongs")]
    statement = statements[0]
    if _depth(statement) > DEEPEST:
        return None, [Objection(f"the statement is nested deeper than {DEEPEST} levels")]
    if isinstance(statement, exp.SetOperation):
        return None, [Objection(f"{statement.key.upper()} of queries; a join is one SELECT")]
    if not isinstance(statement, exp.Select) or not statement.args.get("from_"):
        return None, [Objection("not a SELECT ... FROM ... JOIN ...")]
    return statement, list(dict.fromkeys([*_clauses(statement), *_expressions(statement, sql)]))


def _syntax_error(error: ParseError) -> Objection:
    if not error.errors:
        return Objection(f"not Spark SQL: {' '.join(str(error).split())[:200]}")
    first = error.errors[0]
    near = f" near `{first['highlight']}`" if first.get("highlight") else ""
    description = str(first.get("description", "")).rstrip(".")
    return Objection(f"not Spark SQL: {description}{near} (line {first.get('line')}, column {first.get('col')})")


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
                yield Objection(f"{CLAUSES.get(argument, argument.upper())} is not something that a join may use")
    for table in tables:
        if isinstance(table, exp.Lateral):
            yield Objection("LATERAL is not something that a join may use")
        elif isinstance(table, exp.Subquery):
            yield Objection("FROM: a subquery", "name two sources in FROM and JOIN")
        elif not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            yield Objection("FROM: a function or expression in the place of a source")


def _expressions(select: exp.Select, sql: str) -> Iterator[Objection]:
    parts = [("SELECT", _starless(item)) for item in select.expressions]
    parts += [("ON", join.args["on"]) for join in select.args.get("joins") or () if join.args.get("on")]
    if where := select.args.get("where"):
        parts.append(("WHERE", where.this))
    for clause, expression in parts:
        for found in refused(expression) if expression else ():
            yield Objection(f"{clause}: {found.problem}", found.hint)
    written = sum(token.text.upper() == "INTERVAL" for token in sqlglot.tokenize(sql, read=Verbatim))
    if len(list(select.find_all(exp.Interval))) > written:
        yield Objection("an INTERVAL with several units", "write INTERVAL '1 day 2 hours', or add two of them")


def _starless(item: exp.Expr) -> exp.Expr | None:
    """Give the expression to look at: the item without its alias, nothing for `*` and `alias.*`."""
    star = item.this if isinstance(item, exp.Column) else item
    if not isinstance(star, exp.Star):
        return item.this if type(item) is exp.Alias else item
    others = [name for name, value in star.args.items() if value and name != "except_"]
    return exp.Star(**{others[0]: True}) if others else None
