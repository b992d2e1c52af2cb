"""
Our own Great Expectations classes, for any plain table. Their arguments are columns; they do not depend on joins.

Importing this package imports Great Expectations, which takes some seconds, and registers the classes with it.
"""

from expectations.own.effects import (
    ExpectNoRepeatedValue,
    ExpectNoTombstoneAfterTombstone,
    ExpectNoUnnecessaryTombstone,
)
from expectations.own.keys import (
    ExpectKeyToBePresent,
    ExpectOneChangePerKey,
    ExpectPartOfKeyToBePresent,
    ExpectPositionsToGrow,
)
from expectations.own.partners import ExpectForeignKeyToBeAnswered, ExpectNoPaddedRowWithMatch

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
