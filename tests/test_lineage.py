"""Columns followed through the history of a table, as values: no Spark, no table."""

import json
from datetime import UTC, datetime

import pytest

from lakehouse.tables.delta_log import Commit
from lakehouse.tables.identity import ColumnPath, lowest_target, other_columns
from tests.cases import cases

W, X, S, B = ("w",), ("x",), ("s",), ("s", "b")


def rename(old: str, new: str) -> tuple[str, dict[str, str]]:
    return "RENAME COLUMN", {"oldColumnPath": old, "newColumnPath": new}


def drop(*paths: str) -> tuple[str, dict[str, str]]:
    return "DROP COLUMNS", {"columns": json.dumps(paths)}


def add(*paths: str) -> tuple[str, dict[str, str]]:
    return "ADD COLUMNS", {"columns": json.dumps([{"column": {"name": path, "type": "string"}} for path in paths])}


def restore(version: int) -> tuple[str, dict[str, str]]:
    return "RESTORE", {"version": str(version)}


WRITE: tuple[str, dict[str, str]] = ("WRITE", {})


def followed(
    *operations: tuple[str, dict[str, str]], since: int = 0, paths: tuple[ColumnPath, ...] = (W, X, S, B)
) -> str:
    """Follow paths from a version to the end of commits 1, 2, ...; name those that are others, each with a version."""
    commits = [
        Commit(version, datetime.now(UTC), operation, "", {}, parameters=parameters)
        for version, (operation, parameters) in enumerate(operations, start=1)
    ]
    found = other_columns(paths, commits, since, len(commits))
    return ", ".join(f"{'.'.join(path)} {commit.version}" for path, commit in found.items())


def test_a_column_is_another_once_it_was_dropped_though_one_of_its_name_came_back() -> None:
    assert followed(drop("w"), add("w")) == "w 1"
    assert followed(WRITE, drop("w"), WRITE) == "w 2", "a write with schema evolution adds a column without a word"
    assert followed(drop("s.b"), add("s.b")) == "s.b 1"
    assert followed(drop("s"), add("s")) == "s 1, s.b 1"


def test_columns_that_were_swapped_are_others_and_one_renamed_there_and_back_is_not() -> None:
    assert followed(rename("w", "y"), rename("x", "w"), rename("y", "x")) == "w 1, x 2"
    assert followed(rename("w", "y"), add("w")) == "w 1"
    assert followed(rename("w", "y"), WRITE, rename("y", "w")) == ""
    assert followed(rename("s", "t"), rename("t.b", "t.c"), rename("t", "s"), rename("s.c", "s.b")) == ""
    assert followed(rename("s", "t"), rename("t.b", "t.c"), rename("t", "s"), add("s.b")) == "s.b 1"


def test_columns_beside_those_followed_do_not_count() -> None:
    assert followed(drop("u", "s.c"), add("u", "s.c"), rename("u", "v"), rename("s.c", "s.d")) == ""
    assert followed(("CHANGE COLUMN", {"column": '{"name":"w"}'}), ("SET TBLPROPERTIES", {})) == ""


def test_fields_of_arrays_and_maps_are_followed() -> None:
    paths = (("a", "element", "x"), ("m", "value", "x"), ("m", "key"))
    assert followed(rename("a.element.x", "a.element.y"), rename("a.element.y", "a.element.x"), paths=paths) == ""
    assert followed(drop("m.value.x"), add("m.value.x"), paths=paths) == "m.value.x 1"


def test_names_count_whatever_their_case() -> None:
    assert followed(rename("W", "Y"), rename("y", "w")) == ""
    assert followed(drop("W"), add("w"), paths=(("W",),)) == "W 1"


@pytest.mark.parametrize("written", ["`a.b`", "s.`a.b`", "w x", "w-é$"])
def test_odd_names_are_read_as_delta_writes_them(written: str) -> None:
    path = tuple(written.replace("s.`", "s|").replace("`", "").split("|"))
    assert followed(drop(written), add(written), paths=(path, W)) == f"{'.'.join(path)} 1"


@cases(
    "unclear",
    rename("w `tick", "y"),
    rename("`x`.`y`", "y"),
    rename("", "y"),
    ("RENAME COLUMN", {}),
    ("DROP COLUMNS", {"columns": "u"}),
    ("DROP COLUMNS", {"columns": '[{"name": "u"}]'}),
    ("DROP COLUMNS", {}),
    ("REPLACE COLUMNS", {"columns": '[{"name":"w"}]'}),
    ("RESTORE", {}),
)
def test_what_a_commit_does_not_show_may_concern_every_column(unclear: tuple[str, dict[str, str]]) -> None:
    """Delta quotes names with a dot only, so that a backtick may mean two things; a RESTORE may be to a time."""
    assert followed(WRITE, unclear, WRITE) == "w 2, x 2, s 2, s.b 2"


def test_a_restore_brings_back_the_columns_of_its_target() -> None:
    assert followed(drop("w"), restore(0)) == ""
    assert followed(drop("w"), add("w"), restore(0), since=2) == "w 2", "the added one is gone"
    assert followed(drop("w"), add("w"), restore(0), WRITE, since=0) == ""
    assert followed(rename("w", "y"), rename("y", "w"), restore(1), rename("y", "w"), since=2) == ""
    assert followed(rename("w", "y"), restore(0), rename("x", "z"), rename("w", "x"), rename("z", "w")) == "w 4, x 3"
    assert followed(drop("w"), add("w"), restore(0), restore(2), since=2) == "", "taken back"
    assert followed(WRITE, WRITE, drop("w"), add("w"), WRITE, restore(1), since=5) == "w 4"


def test_the_lowest_version_that_matters_is_the_lowest_target_of_a_restore() -> None:
    at = datetime.now(UTC)
    commits = [
        Commit(8, at, "WRITE", "", {}, parameters={"version": "1"}),
        Commit(9, at, "RESTORE", "", {}, parameters={"version": "4"}),
        Commit(10, at, "RESTORE", "", {}, parameters={}),
    ]
    assert lowest_target(commits, 7) == 4
    assert lowest_target(commits, 3) == 3
    assert lowest_target(commits[2:], 7) == 7
