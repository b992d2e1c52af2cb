"""
Our own Great Expectations classes, for any plain table. Their arguments are columns; they do not depend on joins.

Importing this package imports Great Expectations, which takes some seconds, and registers the classes with it.
"""

from expectations.own.rules import (
    ExpectForeignKeyToBeAnswered,
    ExpectKeyToBePresent,
    ExpectNoPaddedRowWithMatch,
    ExpectNoRepeatedValue,
    ExpectNoTombstoneAfterTombstone,
    ExpectNoUnnecessaryTombstone,
    ExpectOneChangePerKey,
    ExpectPartOfKeyToBePresent,
    ExpectPositionsToGrow,
)

__all__ = [
    "ExpectForeignKeyToBeAnswered",
    "ExpectKeyToBePresent",
    "ExpectNoPaddedRowWithMatch",
    "ExpectNoRepeatedValue",
    "ExpectNoTombstoneAfterTombstone",
    "ExpectNoUnnecessaryTombstone",
    "ExpectOneChangePerKey",
    "ExpectPartOfKeyToBePresent",
    "ExpectPositionsToGrow",
]
