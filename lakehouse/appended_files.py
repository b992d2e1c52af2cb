"""The rows that commits have appended, read from the files that the log names: half the price of the change feed."""

import logging
from collections.abc import Sequence
from functools import reduce
from pathlib import Path

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from lakehouse import limits
from lakehouse.address import local_path
from lakehouse.direct_feed import READ_WHOLE, NotReadable, actions_of, files_of
from lakehouse.direct_rows import why_spark
from lakehouse.engine import Engine
from lakehouse.feed import FEED_COLUMNS
from lakehouse.sqltext import quote
from lakehouse.tables import Table, commits_since
from lakehouse.values import plain_schema

log = logging.getLogger(__name__)

GLOB = set("{}[]*?\\")
"""Characters that Spark does not take literally in the path of a file; it skips files that begin with `_` or a dot."""


def read_appended(engine: Engine, table: Table, after: int, to: int, columns: Sequence[str]) -> DataFrame | None:
    """
    Read the rows of commits (after, to] that only append.

    Args:
        engine: Our engines.
        table: The table.
        after: The last version that is already processed.
        to: The last version to read.
        columns: The columns of the table to read.

    Returns:
        What `read_feed` returns: the columns, then `_change_type`, `_commit_version`, `_commit_timestamp`. None if one
        of the commits does more than append, or if its files alone do not tell their rows.
    """
    if why_spark(table, columns):
        return None
    folder = Path(local_path(table.address.path) or "")
    schema = plain_schema([table.schema[name] for name in columns])
    parts = []
    try:
        commits = [one for one in commits_since(engine, table, after) if one.changes_data and one.version <= to]
        if len(commits) > limits.APPENDED_COMMITS:
            raise NotReadable("a plan for so many commits costs more than their feed")
        for commit in commits:
            files = files_of(folder, commit, actions_of(folder, commit, table.schema))
            if any(file.kind != READ_WHOLE["add"] for file in files):
                raise NotReadable(f"version {commit.version} changes or removes rows")
            paths = [file.path for file in files]
            unusable = [path for path in paths if GLOB & set(str(path)) or path.name[0] in "._" or not path.is_file()]
            if unusable or not paths:
                raise NotReadable(f"version {commit.version} names no file that can be read by its path")
            facts = (F.lit(READ_WHOLE["add"]), F.lit(commit.version).cast("bigint"), F.lit(commit.at))
            added_columns = (value.alias(name) for value, name in zip(facts, FEED_COLUMNS, strict=True))
            rows = engine.spark.read.schema(schema).parquet(*map(str, paths))
            parts.append(rows.select(*(F.col(quote(name)) for name in columns), *added_columns))
    except (OSError, ValueError, KeyError, TypeError, NotReadable) as error:
        log.info("%s: its feed is read: %s", table.address.label, str(error).partition("\n")[0])
        return None
    return reduce(DataFrame.unionAll, parts) if parts else None
