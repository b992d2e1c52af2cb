"""
The constructs and functions that an expression may contain: all others are refused, so that unknown ones are.

Spark gives the output of `render` the same meaning as the original text; a test compares them. Each function returns
the same value for the same arguments, at any time and on any machine; the time zone is part of the definition. Spark's
own classification does not help: it calls `current_date()` deterministic.
"""

import re
from collections.abc import Iterator

from sqlglot import exp

from pipelines.language.names import nearest
from pipelines.language.sql.dialect import Verbatim, as_written
from pipelines.language.sql.objection import Objection


def words(text: str) -> frozenset[str]:
    """Return the set of words in a text."""
    return frozenset(text.split())


OPERATORS: tuple[type[exp.Expr], ...] = (
    exp.Paren, exp.Not, exp.Neg, exp.And, exp.Or, exp.EQ, exp.NEQ, exp.GT, exp.GTE, exp.LT, exp.LTE, exp.NullSafeEQ,
    exp.NullSafeNEQ, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.IntDiv, exp.Mod, exp.DPipe, exp.BitwiseAnd, exp.BitwiseOr,
    exp.BitwiseXor, exp.BitwiseNot, exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike, exp.Escape,
)  # fmt: skip

OPERANDS: tuple[type[exp.Expr], ...] = (
    exp.Column, exp.Identifier, exp.Literal, exp.RawString, exp.Boolean, exp.Null, exp.Var, exp.Case, exp.If, exp.Cast,
    exp.TryCast, exp.DataType, exp.DataTypeParam, exp.ColumnDef, exp.Interval, exp.IntervalSpan, exp.Anonymous,
    exp.Lambda, exp.Bracket, exp.Dot, exp.Extract,
)  # fmt: skip

VOCABULARY = frozenset(OPERATORS + OPERANDS)

TYPES = frozenset(
    exp.DataType.build(name, dialect=Verbatim).this
    for name in words(
        """
        boolean tinyint smallint int bigint float double decimal string binary date timestamp timestamp_ntz
        timestamp_ltz array<int> map<int,int> struct<a:int>
        """
    )
)

TIMES = frozenset(exp.DataType.build(name, dialect=Verbatim).this for name in words("date timestamp timestamp_ltz"))
CLOCK_WORD = re.compile(r"\s*(now|today|tomorrow|yesterday)(?![a-z])\s*([a-z+-]\S*)?\s*", re.IGNORECASE)
TIME_OF_DAY = re.compile(r"\s*T?\d{1,2}:.*", re.IGNORECASE | re.DOTALL)

ALLOWED = words(
    """
    coalesce if ifnull nullif nvl nvl2 nanvl isnull isnotnull isnan greatest least decode equal_null nullifzero
    zeroifnull

    abs acos acosh asin asinh atan atan2 atanh bin bit_count bround cbrt ceil ceiling conv cos cosh cot csc degrees e
    exp expm1 factorial floor getbit hex hypot ln log log10 log1p log2 mod negative pi pmod positive pow power radians
    rint round sec shiftleft shiftright shiftrightunsigned sign signum sin sinh sqrt tan tanh try_add try_divide try_mod
    try_multiply try_subtract unhex width_bucket

    ascii base64 btrim char char_length character_length chr concat concat_ws contains crc32 elt encode endswith
    find_in_set format_number format_string hash initcap instr lcase left length levenshtein locate lower lpad ltrim
    md5 bit_length octet_length overlay parse_url printf regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_like regexp_replace regexp_substr repeat replace reverse right rpad rtrim sha sha1 sha2 soundex space split
    split_part startswith substr substring substring_index to_binary to_char to_number translate trim try_to_binary
    try_to_number ucase unbase64 upper url_decode url_encode xxhash64

    add_months convert_timezone date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc
    datediff datepart day dayname dayofmonth dayofweek dayofyear from_unixtime from_utc_timestamp hour last_day
    make_date make_dt_interval make_interval make_timestamp make_timestamp_ltz make_timestamp_ntz make_ym_interval
    minute month monthname months_between next_day quarter second timestamp_micros timestamp_millis timestamp_seconds
    to_date to_timestamp to_timestamp_ltz to_timestamp_ntz to_unix_timestamp to_utc_timestamp trunc try_to_timestamp
    unix_date unix_micros unix_millis unix_seconds unix_timestamp weekday weekofyear year

    aggregate array array_append array_compact array_contains array_distinct array_except array_insert array_intersect
    array_join array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort
    array_union arrays_overlap arrays_zip cardinality element_at exists filter flatten forall from_json get
    get_json_object json_array_length map map_concat map_contains_key map_entries map_filter map_from_arrays
    map_from_entries map_keys map_values named_struct reduce sequence size slice sort_array str_to_map struct to_json
    transform transform_keys transform_values try_element_at zip_with
    """
)

AGGREGATES = words(
    """
    any any_value approx_count_distinct approx_percentile array_agg avg bit_and bit_or bit_xor bool_and bool_or
    collect_list collect_set corr count count_if covar_pop covar_samp every first first_value grouping grouping_id
    histogram_numeric kurtosis last last_value listagg max max_by mean median min min_by mode percentile
    percentile_approx regr_slope skewness some std stddev stddev_pop stddev_samp string_agg sum try_avg try_sum
    var_pop var_samp variance
    """
)

OF_GROUPS = words(
    """
    any avg bit_and bit_or bit_xor bool_and bool_or count count_if every max mean min some sum
    """
)
"""The aggregates of which a group has one value, whatever the order of its rows."""

GENERATORS = words("explode explode_outer inline inline_outer json_tuple posexplode posexplode_outer stack")
WINDOWS = words("cume_dist dense_rank lag lead nth_value ntile percent_rank rank row_number")

UNSTABLE = words(
    """
    curdate current_catalog current_database current_date current_schema current_time current_timestamp
    current_timezone current_user getdate input_file_name localtime localtimestamp monotonically_increasing_id now rand
    randn random randstr session_user shuffle spark_partition_id uniform user uuid version
    """
)

BARE = UNSTABLE & words("current_date current_time current_timestamp current_user localtime localtimestamp")

ELSEWHERE = "no join means the same: leave it out, and apply it where you read the result"

CALLED: dict[type[exp.Expr], Objection] = {
    exp.Window: Objection("window functions (OVER) are not supported", ELSEWHERE),
    exp.Query: Objection("subqueries are not supported", ELSEWHERE),
    exp.Exists: Objection("subqueries (EXISTS) are not supported", ELSEWHERE),
    exp.Parameter: Objection("parameters are not supported", "write the value: it is part of the join's definition"),
    exp.Placeholder: Objection("parameters are not supported", "write the value: it is part of the join's definition"),
    exp.Distinct: Objection("DISTINCT is not supported"),
    exp.Order: Objection("ORDER BY inside a function is not supported"),
    exp.Star: Objection("`*` inside an expression is not supported", "name the columns"),
    exp.Alias: Objection("AS inside an expression is not supported", "name fields with named_struct"),
    exp.Aliases: Objection("an output has several names", "give each result column one name"),
    exp.Concat: Objection("adjacent strings are not joined", r"join them with `||`; write a quote in a string as \'"),
}


def refused(expression: exp.Expr) -> Iterator[Objection]:
    """Find the constructs of an expression that a statement may not use, but not the parts of a refused one."""
    pending = [expression]
    while pending:
        node = pending.pop()
        found = _objection(node)
        if found:
            yield found._replace(about=node)
        else:
            pending.extend(node.iter_expressions(reverse=True))


def grouping_calls(expression: exp.Expr) -> Iterator[exp.Expr]:
    """Yield the aggregates of an expression over groups, with their FILTER, but not those within others."""
    pending = [expression]
    while pending:
        node = pending.pop()
        call = node.this if isinstance(node, exp.Filter) else node
        if isinstance(call, exp.Anonymous) and call.name.lower() in OF_GROUPS:
            yield node
        elif not isinstance(node, exp.Query):
            pending.extend(node.iter_expressions(reverse=True))


def refused_of_groups(expression: exp.Expr) -> Iterator[Objection]:
    """Find the constructs that an expression over groups may not use: around its aggregates, and within them."""
    calls = list(grouping_calls(expression))
    for node in calls:
        call = node.this if isinstance(node, exp.Filter) else node
        if node is not expression and node.find_ancestor(exp.Lambda):
            yield Objection(f"`{as_written(call)}` inside of a lambda is not supported", "write it outside", node)
        if call.name.lower() == "count" and len(call.expressions) == 1 and isinstance(call.expressions[0], exp.Star):
            yield from refused(node.expression.this) if isinstance(node, exp.Filter) else ()
            continue
        for one in (*call.expressions, *([node.expression.this] if isinstance(node, exp.Filter) else [])):
            for part in one.expressions if isinstance(one, exp.Distinct) else [one]:
                yield from refused(part)
    if expression in calls:
        return
    around = expression.copy()
    for node, twin in zip(list(expression.walk()), list(around.walk()), strict=True):
        if any(node is call for call in calls):
            twin.replace(exp.Null())
    for found in refused(around):
        called = found.about
        is_other = isinstance(called, exp.Anonymous) and called.name.lower() in AGGREGATES
        yield _other_aggregate(called) if is_other and isinstance(called, exp.Anonymous) else found


def _other_aggregate(node: exp.Anonymous) -> Objection:
    problem = f"`{node.name}` of a group is not among the aggregates that lakejoin keeps up to date"
    return Objection(problem, f"use one of {', '.join(sorted(OF_GROUPS))}", node)


def _objection(node: exp.Expr) -> Objection | None:
    for kind, called in CALLED.items():
        if isinstance(node, kind):
            return called
    if node.args.get("query"):
        return CALLED[exp.Query]
    if type(node) not in VOCABULARY or _is_other_form(node):
        return Objection(f"`{as_written(node)}` is not supported in a join")
    if isinstance(node, exp.Anonymous):
        return objection(node.name, len(node.expressions))
    if isinstance(node, exp.Column):
        return _bare_function(node)
    if isinstance(node, exp.Lambda):
        return _mixed_case(node)
    if isinstance(node, exp.Literal | exp.RawString):
        return _clock(node)
    return None


def _is_other_form(node: exp.Expr) -> bool:
    if type(node) is exp.DataType:
        return node.this not in TYPES or bool(node.args.get("collate"))
    if isinstance(node, exp.In):
        return not node.expressions
    if isinstance(node, exp.Between):
        return node.args.get("symmetric") is not None
    if isinstance(node, exp.Interval):
        return not isinstance(node.this, exp.Literal)
    if isinstance(node, exp.Dot):
        return not isinstance(node.expression, exp.Identifier)
    if isinstance(node, exp.Bracket):
        return len(node.expressions) != 1
    if isinstance(node, exp.Cast):
        return any(node.args.get(option) for option in ("format", "action", "default"))
    return False


def _bare_function(column: exp.Column) -> Objection | None:
    name = column.this
    if not column.table and not name.args.get("quoted") and name.name.lower() in BARE:
        return objection(name.name, 0)
    return None


def _mixed_case(function: exp.Lambda) -> Objection | None:
    """Refuse names that differ from a lambda's parameter only in case: Spark reads the parameter, sqlglot a column."""
    parameters = {parameter.name.lower() for parameter in function.expressions}
    for column in function.this.find_all(exp.Column):
        if column.parts[0].name.lower() in parameters:
            return Objection(f"`{column.parts[0].name}` differs from the lambda's parameter only in case")
    return None


def _clock(literal: exp.Expr) -> Objection | None:
    text = literal.name
    if (isinstance(literal, exp.RawString) or literal.is_string) and CLOCK_WORD.fullmatch(text):
        return Objection(
            f"'{text}' means the time of the query where Spark expects a date or a timestamp",
            "write a date; to compare with this text itself, write concat('to', 'day')",
        )
    cast = literal.parent
    if isinstance(cast, exp.Cast) and cast.to.this in TIMES and TIME_OF_DAY.fullmatch(text):
        return Objection(f"'{text}' as a timestamp is a time on the day of the query", "write date and time")
    return None


def objection(name: str, arguments: int) -> Objection | None:
    """Return the objection to a call of a function with a number of arguments; None if it is allowed."""
    function = name.lower()
    if function == "unix_timestamp" and not arguments:
        return Objection("`unix_timestamp()` is the time of the query", "pass the column to convert")
    if function in ALLOWED:
        return None
    if function in AGGREGATES:
        problem = f"`{name}` is an aggregate; a join computes each result row from one row of each input"
        return Objection(problem, ELSEWHERE)
    if function in GENERATORS:
        return Objection(f"`{name}` produces several rows from one; a result has one row for each key", ELSEWHERE)
    if function in WINDOWS:
        problem = f"`{name}` is a window function; a join computes each result row from one row of each input"
        return Objection(problem, ELSEWHERE)
    if function in UNSTABLE:
        return Objection(
            f"`{name}` does not depend on the rows alone, so the result could not be recomputed",
            "use a column of a source instead",
        )
    return Objection(f"`{name}` is not among the deterministic functions that a join may use", nearest(name, ALLOWED))
