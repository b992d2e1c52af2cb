"""
The functions that a statement may use.

Each function returns the same value for the same arguments, at any time and on any machine; the time zone is part of
the definition. Spark's own classification does not help: it calls `current_date()` deterministic.
"""

from pipelines.language.names import nearest
from pipelines.language.sql.objection import Objection


def words(text: str) -> frozenset[str]:
    """Return the set of words in a text."""
    return frozenset(text.split())


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


def objection(name: str, arguments: int) -> Objection | None:
    """Return the objection to a call of a function with a number of arguments; None if it is allowed."""
    function = name.lower()
    if function == "unix_timestamp" and not arguments:
        return Objection("`unix_timestamp()` is the time of the query", "pass the column to convert")
    if function in ALLOWED:
        return None
    if function in AGGREGATES:
        return Objection(f"`{name}` is an aggregate; a join computes each result row from one row of each input")
    if function in GENERATORS:
        return Objection(f"`{name}` produces several rows from one; a result has one row for each key")
    if function in WINDOWS:
        return Objection(f"`{name}` is a window function; a join computes each result row from one row of each input")
    if function in UNSTABLE:
        return Objection(
            f"`{name}` does not depend on the rows alone, so the result could not be recomputed",
            "use a column of a source instead",
        )
    return Objection(f"`{name}` is not among the deterministic functions that a join may use", nearest(name, ALLOWED))
