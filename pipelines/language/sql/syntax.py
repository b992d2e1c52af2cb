"""Parse a SELECT, an expression or a length of time, and check it clause by clause. Names are not resolved here."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import pairwise
from typing import Literal

import sqlglot
from sqlglot import exp
from sqlglot.errors import ParseError, TokenError
from sqlglot.tokenizer_core import Token, TokenType

from pipelines.language.names import PREFIX
from pipelines.language.sql.dialect import Verbatim
from pipelines.language.sql.objection import Objection, Span
from pipelines.language.sql.vocabulary import ELSEWHERE, refused, refused_of_groups

DEEPEST = 100

VARIABLE = re.compile(r"\$\{(var|env)\.[^}]*\}")
"""Matches a variable, which other strings of the file may contain."""

MISREAD_INTERVAL = re.compile(r"\bago\b|[+-]\s+\d|(^|[\s+-])\.\d|\d\s*[a-z]\b", re.IGNORECASE)
"""Spellings of intervals that Spark and the parser read differently."""

GROUPING = frozenset({"group", "having", "distinct"})
"""The clauses that make groups of the rows of one table."""

CLAUSES = {
    "recursive": "RECURSIVE", "distinct": "DISTINCT", "group": "GROUP BY", "having": "HAVING", "order": "ORDER BY",
    "sort": "SORT BY", "cluster": "CLUSTER BY", "distribute": "DISTRIBUTE BY", "limit": "LIMIT", "offset": "OFFSET",
    "qualify": "QUALIFY", "windows": "WINDOW", "laterals": "LATERAL VIEW", "hint": "a hint", "kind": "SELECT AS",
    "locks": "FOR UPDATE", "sample": "TABLESAMPLE", "version": "time travel", "pivots": "PIVOT",
    "joins": "a nested JOIN", "columns": "a column list after an alias",
}  # fmt: skip
WHOLE = "leave it out: each epoch reads its sources whole, at versions that it records"
IN_A_ROW = "write one JOIN after another without parentheses, or make the inner one a join of its own under `joins:`"
GROUP_ITS_RESULT = (
    "make the rest of it a join of its own under `joins:`, and group its result in another one: SELECT <columns>, "
    "<aggregates> FROM <join> GROUP BY <columns>"
)
OF_ITS_OWN = "make it a join of its own under `joins:`, and read its result"
REMEDIES = {
    "distinct": "leave it out if SELECT has the key of the result, as no two rows are equal then; else no join means "
    "the same: select the key here, and DISTINCT rows where you read the result",
    "order": "leave it out: a table has no order; sort where you read the result",
    "sort": "leave it out: a table has no order; sort where you read the result",
    **dict.fromkeys(("group", "having"), GROUP_ITS_RESULT),
    **dict.fromkeys(("limit", "offset", "qualify", "windows", "laterals", "pivots", "recursive"), ELSEWHERE),
    **dict.fromkeys(("sample", "version"), WHOLE),
    **dict.fromkeys(("cluster", "distribute", "hint", "kind", "locks"), "leave it out"),
    "joins": IN_A_ROW,
    "columns": "name columns with AS in the SELECT list",
}
"""The hints for refused clauses."""
OF_ONE_TABLE = "an input has a row for each row of its table that the filter takes: leave it out"
REMEDIES_OF_INPUTS = REMEDIES | {
    **dict.fromkeys(("limit", "offset", "qualify", "windows", "laterals", "pivots"), OF_ONE_TABLE),
}
"""The hints for refused clauses of a subquery in FROM."""
KEYWORDS = {"hint": "/*+", "kind": "AS", "laterals": "LATERAL", "version": "AS OF", "locks": "FOR"}
"""The keyword in the statement, for clauses with another name in messages."""

EXPECTED = {
    exp.Select: {"with_", "expressions", "from_", "joins", "where"},
    exp.With: {"expressions"},
    exp.CTE: {"this", "alias"},
    exp.Subquery: {"this", "alias"},
    exp.Table: {"this", "alias", "db", "catalog"},
    exp.TableAlias: {"this"},
}


@lru_cache(maxsize=1024)
def read(sql: str) -> tuple[exp.Select | None, tuple[Objection, ...]]:
    """
    Parse a text as one SELECT with FROM, else None, and return all objections to its clauses and expressions.

    Results are cached, so callers must not change the tree.
    """
    tokens, statements, found = _parsed(sql, partial(sqlglot.parse, read=Verbatim))
    if found is not None:
        return None, (found,)
    if len(statements) != 1:
        hint = (
            "make each a join of its own under `joins:`" if statements else "write SELECT ... FROM ... JOIN ... ON ..."
        )
        return None, (Objection(f"{len(statements)} statements where one SELECT is expected", hint, ";"),)
    statement = statements[0]
    if _depth(statement) > DEEPEST:
        return None, (Objection(f"the statement is nested deeper than {DEEPEST} levels"),)
    if isinstance(statement, exp.SetOperation):
        kind = statement.key.upper()
        operator = f"{kind} ALL" if kind == "UNION" and not statement.args.get("distinct") else kind
        hint = (
            "make each SELECT a join of its own under `joins:`, and read them by a view, which needs no upkeep: CREATE "
            f"VIEW ... AS SELECT * FROM <first> {operator} SELECT * FROM <second>"
        )
        return None, (Objection(f"{kind} of queries: a join is one SELECT, and no join means the same", hint, kind),)
    if not isinstance(statement, exp.Select) or not statement.args.get("from_"):
        first = next(token for token in tokens if token.token_type != TokenType.SEMICOLON)
        return None, (Objection("not a SELECT ... FROM ... JOIN ...", about=_place(first)),)
    return statement, (*_clauses(statement, REMEDIES), *_expressions(statement, tokens))


def read_expression(sql: str) -> tuple[exp.Expr | None, list[Objection]]:
    """Parse a text as one expression, such as `tombstone:`, else None, and return all objections to its parts."""
    tokens, expressions, found = _parsed(sql, partial(Verbatim().parse_into, exp.Condition))
    if found is not None:
        return None, [found]
    if len(expressions) != 1:
        return None, [Objection(f"{len(expressions)} expressions where one is expected", about=";")]
    if _depth(expressions[0]) > DEEPEST:
        return None, [Objection(f"the expression is nested deeper than {DEEPEST} levels")]
    return expressions[0], [*refused(expressions[0]), *_intervals(expressions[0], tokens)]


ASOF = (
    "store until when each row is valid, and write LEFT JOIN with both ends, as in ON o.sku = p.sku AND o.day >= "
    "p.valid_from AND o.day < p.valid_to"
)


def _parsed(
    sql: str, parse: Callable[[str], list[exp.Expr | None]]
) -> tuple[list[Token], list[exp.Expr], Objection | None]:
    """Return the tokens and the statements of a text, or the objection that prevents parsing it."""
    if variable := VARIABLE.search(sql):
        hint = "write the value itself: it is part of the join's definition"
        return [], [], Objection("variables are not allowed in SQL", hint, Span(*variable.span()))
    tokens: list[Token] = []
    try:
        tokens = sqlglot.tokenize(sql, read=Verbatim)
        if pipe := next((token for token in tokens if token.token_type == TokenType.PIPE_GT), None):
            hint = "write SELECT ... FROM ... JOIN ... WHERE ..."
            return [], [], Objection("`|>` (pipe syntax) is not supported in a join", hint, _place(pipe))
        if asof := next((one for one, after in pairwise(tokens) if _is_asof(one, after)), None):
            return [], [], Objection("ASOF JOIN is not supported: no join means the same", ASOF, _place(asof))
        if comma := next((comma for comma, after in pairwise(tokens) if _is_trailing(comma, after)), None):
            return [], [], Objection("not Spark SQL: a comma after the last column", "leave it out", _place(comma))
        parsed = parse(sql)
    except ParseError as error:
        return [], [], _syntax_error(error, tokens)
    except TokenError as error:
        return [], [], Objection(f"not Spark SQL: {error}", "is a quote or a backtick left open?")
    except RecursionError:
        return [], [], Objection("the statement is nested too deeply")
    except Exception as error:  # the text is arbitrary, and sqlglot may raise any error
        return [], [], Objection(f"the statement cannot be read: {' '.join(str(error).split())[:200]}")
    return tokens, [found for found in parsed if found and not isinstance(found, exp.Semicolon)], None


def _is_asof(one: Token, after: Token) -> bool:
    return (one.text.upper(), after.text.upper()) == ("ASOF", "JOIN")


def _is_trailing(comma: Token, after: Token) -> bool:
    """Return whether a comma ends a list of columns; sqlglot accepts it, and Spark does not."""
    return comma.token_type == TokenType.COMMA and after.token_type == TokenType.FROM


def _place(token: Token) -> Span:
    return Span(token.start, token.end + 1)


def _syntax_error(error: ParseError, tokens: Sequence[Token]) -> Objection:
    """Convert an error of sqlglot to an objection with its place; replace messages in terms of sqlglot."""
    if not error.errors:
        return Objection(f"not Spark SQL: {' '.join(str(error).split())[:200]}")
    first = error.errors[0]
    description = str(first.get("description", "")).split(" but got <")[0].rstrip(".")
    here = [n for n, token in enumerate(tokens) if (token.line, token.col) == (first.get("line"), first.get("col"))]
    if not here:
        return Objection(f"not Spark SQL: {description}")
    token, following = tokens[here[0]], tokens[here[0] + 1 :]
    if description.startswith("Required keyword"):
        is_end = (not following or following[0].token_type == TokenType.SEMICOLON) and token.text not in (")", "]")
        problem = f"something is missing {'after' if is_end else 'before'} `{token.text}`"
    else:
        problem = f"{description} near `{token.text}`"
    return Objection(f"not Spark SQL: {problem}", about=_place(token))


def _depth(statement: exp.Expr) -> int:
    level, depth = [statement], 0
    while level:
        level = [child for node in level for child in node.iter_expressions()]
        depth += 1
    return depth


def _clauses(select: exp.Select, remedies: Mapping[str, str]) -> Iterator[Objection]:
    """Yield the objections to the clauses of a SELECT, and to those of the queries that its FROM may name or has."""
    tables, with_ = _tables(select), select.args.get("with_")
    named = with_.expressions if with_ else []
    aliases = [table.args["alias"] for table in (*tables, *named) if table.args.get("alias")]
    groups = GROUPING if not select.args.get("joins") else frozenset[str]()
    yield from group_clauses(select) if groups else ()
    for node in [select, *([with_] if with_ else []), *named, *tables, *aliases]:
        for argument in sorted(key for key, value in node.args.items() if value):
            if node is select and argument in groups:
                continue
            if argument not in EXPECTED.get(type(node), node.args):
                clause = CLAUSES.get(argument, argument.upper())
                about = node if argument == "columns" else KEYWORDS.get(argument, clause)
                yield Objection(f"{clause} is not supported in a join", remedies.get(argument, ""), about)
    names = set[str]()
    for query in named:
        if query.alias.lower() in names:
            yield Objection(f"WITH: two queries are called `{query.alias}`", "give each a name of its own", query)
        names.add(query.alias.lower())
        yield from _input_clauses(query.this, query)
    for table in tables:
        if isinstance(table, exp.Lateral):
            yield Objection("LATERAL is not supported in a join", ELSEWHERE, "LATERAL")
        elif isinstance(table, exp.Subquery) and isinstance(table.unnest(), exp.Table):
            yield Objection("FROM: parentheses are not supported in a join", IN_A_ROW, table)
        elif isinstance(table, exp.Subquery):
            if not table.alias and remedies is REMEDIES:
                yield Objection("FROM: a subquery has no name", "write an alias after it", table)
            yield from _input_clauses(table.unnest(), table)
        elif not isinstance(table, exp.Table) or not isinstance(table.this, exp.Identifier):
            yield Objection("FROM: a function or expression where a source is expected", about=table)


def group_clauses(select: exp.Select) -> Iterator[Objection]:
    """Yield the objections to GROUP BY and DISTINCT of a SELECT from one table."""
    group, distinct = select.args.get("group"), select.args.get("distinct")
    if distinct is not None and (distinct.args.get("on") or group is not None):
        yield Objection("DISTINCT of groups, or ON columns, is not supported", "write GROUP BY alone", "DISTINCT")
    if group is None:
        return
    others = [name for name, value in group.args.items() if value and name not in ("expressions", "all")]
    sets = (one for one in group.expressions if isinstance(one, exp.Rollup | exp.Cube | exp.GroupingSets))
    for name in (*others, *("grouping sets" if isinstance(one, exp.GroupingSets) else one.key for one in sets)):
        yield Objection(
            f"GROUP BY with {name.upper()} is not supported", "write a statement for each grouping", "GROUP"
        )


def _tables(select: exp.Select) -> list[exp.Expr]:
    return [select.args["from_"].this, *(join.this for join in select.args.get("joins") or ())]


def _input_clauses(query: exp.Expr, about: exp.Expr) -> Iterator[Objection]:
    """Yield the objections to a query that is to filter and project one table."""
    query = query.unnest()
    if isinstance(query, exp.SetOperation):
        problem = f"FROM: {query.key.upper()} as an input is not supported"
        yield Objection(problem, "make each SELECT a join of its own under `joins:`, and join both results", about)
    elif not isinstance(query, exp.Select) or not query.args.get("from_"):
        yield Objection(
            "FROM: a subquery of no table is not supported", "write SELECT ... FROM <source> WHERE ...", about
        )
    elif query.args.get("joins"):
        yield Objection("FROM: a subquery of several inputs is not supported", OF_ITS_OWN, about)
    else:
        yield from _clauses(query, REMEDIES_OF_INPUTS)


def _selects(select: exp.Select) -> Iterator[exp.Select]:
    """Yield a SELECT and the queries that its FROM may name or has, step by step."""
    yield select
    with_ = select.args.get("with_")
    queries = [named.this for named in with_.expressions] if with_ else []
    queries += [table for table in _tables(select) if isinstance(table, exp.Subquery)]
    for query in (each.unnest() for each in queries):
        if isinstance(query, exp.Select) and query.args.get("from_"):
            yield from _selects(query)


def objections_to_query(node: exp.Exists | exp.In, query: exp.Select) -> Iterator[Objection]:
    """Yield the objections to the query of a condition, and to what IN compares."""
    value = node.this if isinstance(node, exp.In) else None
    for part in value.expressions if isinstance(value, exp.Tuple) else [value] if value is not None else []:
        yield from refused(part)
    own = query.copy()
    own.set("distinct", None)  # which does not matter here
    if isinstance(node, exp.Exists):
        own.set("expressions", [item for item in own.expressions if not item.is_star])
    yield from _clauses(own, REMEDIES_OF_INPUTS)
    yield from _refused_parts(own)


def _expressions(select: exp.Select, tokens: Sequence[Token]) -> Iterator[Objection]:
    yield from _refused_parts(select)
    for column in select.find_all(exp.Column):
        for part in column.parts:
            if isinstance(part, exp.Literal):
                yield Objection(f"the string {part.sql()} where a name is expected", f"write `{part.name}`", column)
            elif part.name.lower().startswith(PREFIX):
                yield Objection(f"`{part.name}`: names that begin with {PREFIX} are lakejoin's own", about=column)
    yield from _intervals(select, tokens)


def _refused_parts(select: exp.Select) -> Iterator[Objection]:
    """Yield the objections to the expressions of a SELECT and of the queries of its FROM."""
    parts: list[tuple[str, exp.Expr | None]] = []
    for each in _selects(select):
        if each.args.get("group") and not each.args.get("joins"):
            yield from _refused_of_groups(each)
        else:
            parts += [("SELECT", _without_alias(item)) for item in each.expressions]
        parts += [("ON", join.args["on"]) for join in each.args.get("joins") or () if join.args.get("on")]
        parts += [("WHERE", where.this)] if (where := each.args.get("where")) else []
    for clause, expression in parts:
        for found in refused(expression) if expression else ():
            yield found._replace(problem=f"{clause}: {found.problem}")


def _refused_of_groups(select: exp.Select) -> Iterator[Objection]:
    """Yield the objections to the expressions over groups, and to those by which a SELECT groups."""
    having = select.args.get("having")
    items = [("SELECT", item.unalias()) for item in select.expressions]
    items += [("HAVING", having.this)] if having else []
    for clause, expression in items:
        for found in refused_of_groups(expression) if not isinstance(expression, exp.Star) else ():
            yield found._replace(problem=f"{clause}: {found.problem}")
    sets = (exp.Rollup, exp.Cube, exp.GroupingSets)
    for expression in select.args["group"].expressions:
        for found in refused(expression) if not isinstance(expression, sets) else ():
            yield found._replace(problem=f"GROUP BY: {found.problem}")


def _intervals(expression: exp.Expr, tokens: Sequence[Token]) -> Iterator[Objection]:
    """Find intervals that the parser would split into several, and intervals of which it would lose a part."""
    for token, following in pairwise(tokens):
        if token.text.upper() == "INTERVAL" and MISREAD_INTERVAL.search(following.text):
            hint = "write signs directly before numbers, and full names of units: INTERVAL '-1 day 2 hours'"
            yield Objection(f"INTERVAL '{following.text}' is not supported", hint, _place(following))
    written = sum(token.text.upper() == "INTERVAL" for token in tokens)
    if len(list(expression.find_all(exp.Interval))) > written:
        hint = "write INTERVAL '1 day 2 hours', or add two intervals"
        yield Objection("an INTERVAL with several units outside of quotes is not supported", hint, "INTERVAL")


def _without_alias(item: exp.Expr) -> exp.Expr | None:
    """Return the expression of an item without its alias; None for a star without clauses other than EXCEPT."""
    star = item.this if isinstance(item, exp.Column) else item
    if not isinstance(star, exp.Star):
        return item.this if type(item) is exp.Alias else item
    others = [name for name, value in star.args.items() if value and name != "except_"]
    return exp.Star(**{others[0]: True}) if others else None


Unit = Literal["", "number", "interval"]
"""The unit of a constant next to a time: a whole number, or an interval in microseconds; a plain 0 can be either."""

SECOND = 1_000_000
DAY = 86_400 * SECOND
UNITS = {
    "week": 7 * DAY, "day": DAY, "hour": 3600 * SECOND, "minute": 60 * SECOND, "second": SECOND, "millisecond": 1000,
    "microsecond": 1,
}  # fmt: skip
FIELDS = ("year", "month", "day", "hour", "minute", "second")
LENGTHS_VARY = {"month", "year"}

QUANTITY = re.compile(r"\s*([+-]?)\s*(\d{1,18})(?:\.(\d{1,9}))?\s+([a-z]+)(?=\s|$)", re.IGNORECASE)


class NoLength(Exception):
    """An interval has no fixed length; the text says why."""


def lateness(written: str) -> tuple[int, Unit]:
    """
    Parse the allowed lateness of a watermarked column to microseconds, or a number, and its unit; a 0 has no unit.

    The text is an interval without the keyword, such as `15 minutes`, or a whole number for an integer column; a
    `ValueError` says that it is neither, or negative.
    """
    text = written.strip()
    if text.isdigit() and len(text) <= 18:
        return int(text), "number" if int(text) else ""
    interval, objections = read_expression(f"INTERVAL '{text}'") if re.fullmatch(r"[\w\s.]+", text) else (None, [])
    try:
        length = None if objections or not isinstance(interval, exp.Interval) else microseconds(interval)
    except NoLength as error:
        raise ValueError(f"`{written}`: {error}") from error
    if length is None or length < 0:
        raise ValueError(f"`{written}` is not a length of time")
    return length, "interval"


def spelled_out(length: int) -> str:
    """Format a length in microseconds for users, for example `1 hour 30 minutes`."""
    parts = []
    for name, unit in UNITS.items():
        if name != "week" and length >= unit:
            parts.append(f"{length // unit} {name}{'s' if length // unit > 1 else ''}")
            length %= unit
    return " ".join(parts)


def microseconds(interval: exp.Interval) -> int | None:
    """Compute the length of an interval; None if Spark does not accept it, `NoLength` with months or years."""
    text, unit = interval.name.strip(), interval.args.get("unit")
    if isinstance(unit, exp.IntervalSpan):
        text = _spelled_out(text, unit.this.name.lower(), unit.expression.name.lower())
    elif unit:
        text = f"{text} {unit.name}"
    total = 0
    for sign, whole, fraction, name in QUANTITY.findall(text):
        name = name.lower().removesuffix("s")
        if name in LENGTHS_VARY:
            raise NoLength("months and years have no fixed length")
        if name not in UNITS or (fraction and name != "second"):
            return None
        amount = int(whole) * UNITS[name] + int(fraction[:6].ljust(6, "0"))
        total += -amount if sign == "-" else amount
    return None if QUANTITY.sub("", text) or not text else total


def _spelled_out(text: str, first: str, last: str) -> str:
    """Convert `1 02:03` DAY TO MINUTE to `1 day 02 hour 03 minute`; return nothing if the fields do not match."""
    sign, amounts = text[:1].strip("0123456789"), re.split("[ :-]", text.lstrip("+-"))
    names = FIELDS[FIELDS.index(first) : FIELDS.index(last) + 1] if {first, last} <= set(FIELDS) else ()
    if len(amounts) != len(names):
        return ""
    return " ".join(f"{sign}{amount} {name}" for amount, name in zip(amounts, names, strict=True))
