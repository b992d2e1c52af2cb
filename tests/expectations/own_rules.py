"""Each rule of `expectations.own` in plain Python, written from its sentence; and random tables to judge."""

import random
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime
from decimal import Decimal
from typing import Any

Row = Mapping[str, Any]
Rule = Callable[..., list[bool]]

COLUMNS: dict[str, tuple[str, list[Any]]] = {
    "case": ("INT", [0]),
    "k.1": ("STRING", ["", "a"]),
    "k `2`": ("DECIMAL(9,2)", [Decimal("1.00"), Decimal("1.50")]),
    "op": ("STRING", ["insert", "delete", "tombstone", "update"]),
    "at": ("TIMESTAMP_NTZ", [datetime(2020, 1, day, 0, 0, 0, 1) for day in (1, 2, 3, 4, 5)]),
    "on.day": ("DATE", [date(1969, 12, 31), date(2020, 1, 1), date(2020, 1, 2)]),
    "v 1": ("DOUBLE", [0.0, -0.0, 1.5]),
    "v`2": ("BINARY", [b"", b"\x00\xff"]),
    "b 1": ("DOUBLE", [0.0, -0.0, 1.5]),
    "b`2": ("BINARY", [b"", b"\x00\xff"]),
    "there": ("BOOLEAN", [True, False]),
    "p1": ("BIGINT", [2**53, 2**53 + 1]),
    "a1": ("BIGINT", [2**53, 2**53 + 1]),
    "p.2": ("STRING", ["x"]),
    "a.2": ("STRING", ["x"]),
    "row": ("BIGINT", []),
}
SCHEMA = ", ".join("`" + name.replace("`", "``") + "` " + kind for name, (kind, _) in COLUMNS.items())


def random_row(dice: random.Random, case: int, number: int) -> dict[str, Any]:
    """Make a row of few values, a fifth of them null."""
    row = {
        name: None if dice.random() < 0.2 else dice.choice(values or [None]) for name, (_, values) in COLUMNS.items()
    }
    return row | {"case": case, "row": number}


def random_rows(dice: random.Random, cases: int, size: int) -> list[dict[str, Any]]:
    """Make rows of several cases that share no key."""
    rows = [(case, _) for case in range(cases) for _ in range(dice.randint(0, size))]
    return [random_row(dice, case, number) for number, (case, _) in enumerate(rows)]


def _of(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row[name] for name in names)


def _place(row: Row, names: Sequence[str]) -> tuple[Any, ...]:
    return tuple((0,) if row[name] is None else (1, row[name]) for name in names)


class Before:
    def __init__(self, row: Row, rows: Sequence[Row], key: Sequence[str], order: Sequence[str]) -> None:
        others = [other for other in rows if other is not row and _of(other, key) == _of(row, key)]
        here = _place(row, order)
        self.tied = bool(order) and any(_place(other, order) == here for other in others)
        smaller = [other for other in others if _place(other, order) < here]
        nearest = max((_place(other, order) for other in smaller), default=None)
        last = [other for other in smaller if _place(other, order) == nearest]
        self.first = not last
        self.unsure = len(last) > 1
        self.row: Row = last[0] if last else {}


def key_present(rows: Sequence[Row], key_columns: Sequence[str]) -> list[bool]:
    return [None not in _of(row, key_columns) for row in rows]


def part_of_key_present(
    rows: Sequence[Row], key_columns: Sequence[str], left_columns: Sequence[str] = (), right_columns: Sequence[str] = ()
) -> list[bool]:
    def good(row: Row) -> bool:
        together = [[value is None for value in _of(row, side)] for side in (left_columns, right_columns)]
        return any(value is not None for value in _of(row, key_columns)) and all(len(set(one)) < 2 for one in together)

    return [good(row) for row in rows]


def one_change(rows: Sequence[Row], key_columns: Sequence[str]) -> list[bool]:
    keys = [_of(row, key_columns) for row in rows]
    return [keys.count(key) == 1 for key in keys]


def unnecessary_tombstone(
    rows: Sequence[Row],
    key_columns: Sequence[str],
    operation_column: str,
    tombstones: Sequence[str] = ("delete", "tombstone"),
    order_columns: Sequence[str] = (),
    present_before_column: str | None = None,
) -> list[bool]:
    def good(row: Row) -> bool:
        before = Before(row, rows, key_columns, order_columns)
        if before.tied:
            return False
        if before.unsure or row[operation_column] not in tombstones:
            return True
        if before.first:
            return present_before_column is not None and row[present_before_column] is True
        return before.row[operation_column] not in tombstones

    return [good(row) for row in rows]


def tombstone_after_tombstone(
    rows: Sequence[Row],
    key_columns: Sequence[str],
    operation_column: str,
    order_columns: Sequence[str],
    tombstones: Sequence[str] = ("delete", "tombstone"),
) -> list[bool]:
    def good(row: Row) -> bool:
        before = Before(row, rows, key_columns, order_columns)
        both = [row[operation_column] in tombstones, before.row.get(operation_column) in tombstones]
        return not before.tied and (before.unsure or not all(both))

    return [good(row) for row in rows]


def repeated_value(
    rows: Sequence[Row],
    key_columns: Sequence[str],
    value_columns: Sequence[str],
    operation_column: str,
    tombstones: Sequence[str] = ("delete", "tombstone"),
    order_columns: Sequence[str] = (),
    before_columns: Sequence[str] = (),
    present_before_column: str | None = None,
) -> list[bool]:
    def good(row: Row) -> bool:
        before = Before(row, rows, key_columns, order_columns)
        if before.tied:
            return False
        if before.unsure or row[operation_column] in tombstones:
            return True
        value = _of(row, value_columns)
        if not before.first:
            return before.row[operation_column] in tombstones or value != _of(before.row, value_columns)
        old = _of(row, before_columns)
        was_there = any(part is not None for part in old)
        if present_before_column is not None:
            was_there = row[present_before_column] is True
        return not before_columns or not was_there or value != old

    return [good(row) for row in rows]


def padded_row(rows: Sequence[Row], row_columns: Sequence[str], partner_columns: Sequence[str]) -> list[bool]:
    def good(row: Row) -> bool:
        own = _of(row, row_columns)
        if set(own) == {None} or set(_of(row, partner_columns)) != {None}:
            return True
        return not any(other is not row and _of(other, row_columns) == own for other in rows)

    return [good(row) for row in rows]


def foreign_key(
    rows: Sequence[Row],
    reference_columns: Sequence[str],
    answer_columns: Sequence[str],
    partner_columns: Sequence[str],
    how: str = "left",
    found_column: str | None = None,
) -> list[bool]:
    def good(row: Row) -> bool:
        partner = _of(row, partner_columns)
        found = row[found_column] is True if found_column else set(partner) != {None}
        if None in _of(row, reference_columns) or not found:
            return how == "left" and set(_of(row, answer_columns)) == {None}
        return _of(row, answer_columns) == partner

    return [good(row) for row in rows]


def positions_grow(
    rows: Sequence[Row], key_columns: Sequence[str], position_columns: Sequence[str], order_columns: Sequence[str] = ()
) -> list[bool]:
    def good(row: Row) -> bool:
        if None in _of(row, position_columns):
            return False
        if not order_columns:
            return one_change(rows, [*key_columns, *position_columns])[rows.index(row)]
        before = Before(row, rows, key_columns, order_columns)
        if before.tied:
            return False
        return before.first or before.unsure or _place(before.row, position_columns) < _place(row, position_columns)

    return [good(row) for row in rows]
