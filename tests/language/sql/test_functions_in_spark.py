"""What Spark evaluates is what was written: every function, operator and literal, as written and as rendered."""

import re

import pytest

from pipelines.language import Source, bind, parse
from pipelines.language.sql.vocabulary import ALLOWED

COLUMNS = {
    "i": "7",
    "s": "'Wide World'",
    "x": "1.25D",
    "d": "DATE '2024-02-29'",
    "t": "TIMESTAMP '2024-02-29 13:14:15.678'",
    "b": "true",
    "a": "array(3, 1, 2)",
    "m": "map('k', 1, 'l', 2)",
    "r": "named_struct('u', 1, 'v', 'w')",
    "n": "CAST(NULL AS INT)",
    "`order`": "5",
    "`a-b c.d``é`": "'odd'",
}

FUNCTIONS = """
coalesce(n, i); if(b, i, n); ifnull(n, i); nullif(i, 7); nvl(n, i); nvl2(n, 1, i); nanvl(x, 1D); isnull(n)
isnotnull(n); isnan(x); greatest(i, 9); least(i, n); decode(i, 7, 'seven', 'other'); equal_null(n, n); nullifzero(i)
zeroifnull(n); abs(-i); acos(x - 1); acosh(x); asin(x - 1); asinh(x); atan(x); atan2(x, 2); atanh(x - 1); bin(i)
bit_count(i); bround(2.5, 0); cbrt(x); ceil(x); ceiling(x); conv('ff', 16, 10); cos(x); cosh(x); cot(x); csc(x)
degrees(x); e(); exp(x); expm1(x); factorial(5); floor(x); getbit(i, 1); hex(i); hypot(x, 2); ln(x); log(2, x)
log10(x); log1p(x); log2(x); mod(i, 4); negative(i); pi(); pmod(-i, 4); positive(i); pow(x, 2); power(x, 2)
radians(x); rint(x); round(x, 1); sec(x); shiftleft(i, 2); shiftright(i, 1); shiftrightunsigned(i, 1); sign(x)
signum(x); sin(x); sinh(x); sqrt(x); tan(x); tanh(x); try_add(i, 1); try_divide(i, 0); try_mod(i, 0)
try_multiply(i, 2); try_subtract(i, 1); unhex('4A'); width_bucket(x, 0, 5, 10); ascii(s); base64(CAST(s AS BINARY))
btrim(' x '); char(65); char_length(s); character_length(s); chr(66); concat(s, 'x'); concat_ws(',', s, n, 'y')
contains(s, 'World'); crc32(CAST(s AS BINARY)); elt(2, 'p', 'q'); encode(s, 'utf-8'); endswith(s, 'ld')
find_in_set('b', 'a,b'); format_number(i, 2); format_string('%s-%d', s, i); hash(i, s); initcap(s); instr(s, 'W')
lcase(s); left(s, 2); length(s); levenshtein(s, 'Wide'); locate('W', s, 3); lower(s); lpad(s, 12, '*')
ltrim('  x'); md5(CAST(s AS BINARY)); bit_length(s); octet_length(s); overlay(s, '_', 3, 1)
parse_url('http://h/p?q=1', 'HOST'); printf('%d', i); regexp_count(s, 'd'); regexp_extract(s, '(\\\\w+) (\\\\w+)', 2)
regexp_extract_all(s, '(\\\\w+)', 1); regexp_instr(s, 'W'); regexp_like(s, 'W.r'); regexp_replace(s, 'd', 'D')
regexp_substr(s, 'W..'); repeat(s, 2); replace(s, 'W', 'V'); reverse(s); right(s, 2); rpad(s, 12, '*')
rtrim('x  '); sha('a'); sha1('a'); sha2('a', 256); soundex(s); space(2); split(s, ' ', 2); split_part(s, ' ', 2)
startswith(s, 'Wi'); substr(s, 2, 3); substring(s, -3); substring_index(s, ' ', 1); to_binary('4A', 'hex')
to_char(454, '999'); to_number('454', '999'); translate(s, 'W', 'V'); trim(' x '); try_to_binary('zz', 'hex')
try_to_number('x', '999'); ucase(s); unbase64('QQ=='); upper(s); url_decode('a%20b'); url_encode('a b')
xxhash64(i, s); add_months(d, 1); convert_timezone('UTC', 'Europe/Oslo', TIMESTAMP_NTZ '2024-01-01 00:00:00')
date_add(d, 1); date_diff(d, DATE '2024-01-01'); date_format(t, 'yyyy-MM-dd HH'); date_from_unix_date(5)
date_part('YEAR', d); date_sub(d, 1); date_trunc('month', t); datediff(d, DATE '2024-01-01'); datepart('month', d)
day(d); dayname(d); dayofmonth(d); dayofweek(d); dayofyear(d); from_unixtime(i, 'yyyy-MM-dd HH:mm:ss')
from_utc_timestamp(t, 'Asia/Tokyo'); hour(t); last_day(d); make_date(2024, 2, i); make_dt_interval(1, 2, 3, 4.5)
make_interval(1, 2); make_timestamp(2024, 1, 2, 3, 4, 5.5); make_timestamp_ltz(2024, 1, 2, 3, 4, 5)
make_timestamp_ntz(2024, 1, 2, 3, 4, 5); make_ym_interval(1, 2); minute(t); month(d); monthname(d)
months_between(d, DATE '2023-12-31'); next_day(d, 'MO'); quarter(d); second(t); timestamp_micros(i)
timestamp_millis(i); timestamp_seconds(i); to_date('29/02/2024', 'dd/MM/yyyy'); to_timestamp('2024 05', 'yyyy MM')
to_timestamp_ltz('2024-01-01'); to_timestamp_ntz('2024-01-01'); to_unix_timestamp(t); to_utc_timestamp(t, 'Asia/Tokyo')
trunc(d, 'month'); try_to_timestamp('nothing'); unix_date(d); unix_micros(t); unix_millis(t); unix_seconds(t)
unix_timestamp(t); weekday(d); weekofyear(d); year(d); aggregate(a, 0, (acc, v) -> acc + v, acc -> acc * i)
array(i, 1); array_append(a, 4); array_compact(array(1, n)); array_contains(a, 3); array_distinct(array(1, 1))
array_except(a, array(1)); array_insert(a, 1, 9); array_intersect(a, array(1)); array_join(a, '-'); array_max(a)
array_min(a); array_position(a, 2); array_prepend(a, 0); array_remove(a, 1); array_repeat(i, 2); array_size(a)
array_sort(a, (p, q) -> q - p); array_union(a, array(9)); arrays_overlap(a, array(1)); arrays_zip(a, array(1, 2, 3))
cardinality(a); element_at(a, -1); exists(a, v -> v = i); filter(a, v -> v > 1); flatten(array(a, a))
forall(a, v -> v > 0); from_json('{"z": 1}', 'z INT'); get(a, 0); get_json_object('{"z": 1}', '$.z')
json_array_length('[1,2]'); map('y', i); map_concat(m, map('z', 3)); map_contains_key(m, 'k'); map_entries(m)
map_filter(m, (k, v) -> v > 1); map_from_arrays(array('p'), array(i)); map_from_entries(array(struct('p', i)))
map_keys(m); map_values(m); named_struct('p', i, 'q', s); reduce(a, 0, (acc, v) -> acc + v); sequence(1, i, 2)
size(a); slice(a, 2, 2); sort_array(a, false); str_to_map('a:1,b:2'); struct(i, s); to_json(r)
transform(a, (v, j) -> v * j + i); transform_keys(m, (k, v) -> upper(k)); transform_values(m, (k, v) -> v + i)
try_element_at(a, 9); zip_with(a, a, (p, q) -> p * q)
"""

SYNTAX = r"""
i / 2;; i DIV 2 * 3;; i % 4;; i - -1;; - - i;; -i;; ~i & 3 | 8 ^ 1;; s || '-' || i;; NOT b OR b AND n IS NULL;; !b = b
(i + 1) * 2;; i + 1 * 2;; i = 7;; i == 7;; i <> 7;; i != 7;; n <=> NULL;; n <=> i = b;; n IS DISTINCT FROM i
n IS NOT DISTINCT FROM n;; i IS NOT NULL;; b IS TRUE;; b IS NOT FALSE;; i IN (1, 7);; i NOT IN (1, n)
i BETWEEN 1 AND 9;; i NOT BETWEEN 1 AND 9;; s LIKE 'W%';; s NOT LIKE 'W_d!%' ESCAPE '!';; s LIKE '%\_%'
s ILIKE 'wide%';; s RLIKE 'W.*d$';; s NOT RLIKE '\\d';; s REGEXP 'W';; CASE WHEN b THEN 1 ELSE 2 END
CASE i WHEN 7 THEN 'x' END;; CAST('8' AS INT);; TRY_CAST('x' AS INT);; i::STRING;; '1.5'::DECIMAL(5, 2)
CAST(i AS DECIMAL);; CAST(x AS FLOAT);; CAST(t AS TIMESTAMP_NTZ);; CAST('2024-01-01' AS TIMESTAMP)
CAST(t AS TIMESTAMP_LTZ);; CAST(i AS LONG);; CAST(i AS SHORT);; CAST(i AS BYTE);; CAST(i AS REAL)
CAST(i AS NUMERIC(9, 1));; CAST(a AS ARRAY<STRING>);; CAST(m AS MAP<STRING, BIGINT>)
CAST(r AS STRUCT<u: BIGINT, v: STRING>);; CAST(s AS BINARY);; CAST(d AS TIMESTAMP);; CAST(i AS BOOLEAN)
CAST(s AS VARCHAR(3));; CAST(s AS CHAR(30));; m['k'];; a[0];; a[i - 6];; r.u;; r.V;; named_struct('p', r).p.v
transform(array(r), q -> q.v);; transform(a, v -> exists(a, w -> w > v))
transform(a, v -> transform(array(v), w -> w + v + i));; EXTRACT(YEAR FROM d);; DATE '2024-01-02'
TIMESTAMP '2024-01-02 03:04:05';; TIMESTAMP_NTZ '2024-01-02 03:04:05';; TIMESTAMP_LTZ '2024-01-02 03:04:05'
t + INTERVAL 1 DAY;; t - INTERVAL '3' HOURS;; d + INTERVAL 2 MONTHS;; INTERVAL '1 2' DAY TO HOUR
INTERVAL '1-2' YEAR TO MONTH;; INTERVAL '1 day 2 hours';; INTERVAL -1 DAY;; 1.5;; .5;; 5.;; 1e3;; 1.50;; 1.5BD
0.001BD;; 10.10BD;; 1.5e3BD;; 1.5e-3BD;; 12BD;; 7L;; 7S;; 7Y;; 1.5D;; 0.1D;; 1e3D;; 1.5F;; 0.1F;; 16777217F;; 1e-3
12345678901;; 123456789012345678901234567890;; TRUE;; NULL;; 'it\'s';; "double \"quoted\" it's"
'tab\tnewline\n\r\b\Z\0';; '\d\w\.\x41\a\%\_\q\'\"';; 'back\\slash\\n';; '\u00e9\101\177\U0001F600';; r'raw \d "x" \n'
R"raw \d 'x'";; 'é🙂 -- /* x */';; `order` + 1;; `a-b c.d``é` || 'x';; date_add(d, `order`);; I + 1;; '';; ' '
'12:30'
"""


def expressions(text: str, separator: str) -> list[str]:
    return [part.strip() for part in re.split(f"{separator}|\n", text) if part.strip()]


EXAMPLES = {"functions": expressions(FUNCTIONS, ";"), "syntax": [*expressions(SYNTAX, ";;"), "'a\nb'"]}


def rendered(expression: str) -> str:
    columns = ["k", *(name.strip("`").replace("``", "`") for name in COLUMNS)]
    sources = {"f": Source(key="k"), "g": Source(key="k")}
    statement = parse("j", f"SELECT f.k, {expression} AS out FROM f JOIN g ON f.k = g.k", sources)
    return bind(statement, {"f": columns, "g": ["k"]}).outputs[1].expression


def test_every_function_is_tried():
    assert {example.split("(")[0] for example in EXAMPLES["functions"]} == ALLOWED


def differences(spark, examples):
    """Evaluate all examples in one query, each as written and as rendered, and give those that differ."""
    table = ", ".join(f"{value} AS {name}" for name, value in COLUMNS.items())
    texts = [text for example in examples for text in (example, rendered(example))]
    items = ", ".join(f"to_json(struct({text} AS v)) || typeof({text})" for text in texts)
    row = spark.sql(f"SELECT {items} FROM (SELECT {table}) AS f").head()
    pairs = zip(examples, row[::2], row[1::2], strict=True)
    return [(example, before, after) for example, before, after in pairs if before is None or before != after]


@pytest.mark.parametrize("examples", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.slow
def test_rendered_means_what_was_written(spark, examples):
    """Every example has the same value and type in Spark as written and as rendered."""
    assert differences(spark, examples) == []
