"""The benchmarks' joins."""

from collections.abc import Callable
from dataclasses import replace

from tests.benchmarks.workload import WIDE, Shape, Source, Width, Workload

FAN_OUT = 20
DIMENSIONS = {"planes": 200_000, "customers": 50_000, "products": 10_000, "stores": 1_000, "regions": 100}
"""Rows of each table that the star's facts refer to."""


def table_table(rows: int, changes: int, shape: Shape, width: Width) -> Workload:
    left, right = (WIDE * 2 // 3 - 1, WIDE // 3) if width == "wide" else (3, 2)
    sources = (Source("orders", rows, left), Source("payments", rows, right))
    return Workload(
        sources,
        f"SELECT o.*, {_values('p', sources[1])} FROM {{orders}} o LEFT JOIN {{payments}} p ON o.id = p.id",
        {"orders": changes - changes // 2, "payments": changes // 2},
        shape,
    )


def foreign_key(rows: int, changes: int, shape: Shape, width: Width) -> Workload:
    """
    Join orders with their customers, of whom each has 20 on average; customers change. The orders of a customer lie
    anywhere, but together where the shape is recent, and are very many for the first customers where it is skewed.
    """
    left, right = (WIDE * 2 // 3 - 2, WIDE // 3) if width == "wide" else (3, 2)
    parents = max(rows // FAN_OUT, 1)
    place = {
        "recent": f"n DIV {FAN_OUT}",
        "uniform": f"pmod(n * 7919, {parents})",
        "skewed": f"floor({parents} * pow(pmod(xxhash64(n), 1000000) / 1000000D, 4))",
    }
    sources = (
        Source("orders", rows, left, {"customers_id": f"CAST(2 * {place[shape]} AS BIGINT)"}),
        Source("customers", parents, right),
    )
    return Workload(
        sources,
        f"SELECT o.*, {_values('c', sources[1])} FROM {{orders}} o LEFT JOIN {{customers}} c ON o.customers_id = c.id",
        {"customers": changes},
        shape,
    )


def many(rows: int, changes: int, shape: Shape, width: Width) -> Workload:
    """
    Keep all customers with their orders, of which each has four on average, anywhere in the table. Orders change, and a
    fifth as many customers.
    """
    left, right = (WIDE // 3, WIDE * 2 // 3 - 2) if width == "wide" else (2, 3)
    parents = max(rows // 4, 1)
    sources = (
        Source("customers", parents, left),
        Source("orders", rows, right, {"customers_id": f"CAST(2 * pmod(n * 7919, {parents}) AS BIGINT)"}),
    )
    outputs = f"{_values('c', sources[0])}, {_values('o', sources[1])}"
    return Workload(
        sources,
        f"SELECT c.id, o.id AS orders_id, {outputs} FROM {{customers}} c LEFT JOIN {{orders}} o "
        "ON o.customers_id = c.id",
        {"orders": changes, "customers": changes // 5},
        shape,
    )


def star(rows: int, changes: int, shape: Shape, width: Width) -> Workload:
    """Join facts with five tables that they refer to; the facts change, and a row or two of each of the others."""
    references = {
        f"{name}_id": f"CAST(2 * pmod(n * 7919 + {place}, {size}) AS BIGINT)"
        for place, (name, size) in enumerate(DIMENSIONS.items())
    }
    per_table = 4 if width == "wide" else 1
    facts = Source("facts", rows, WIDE - 1 - len(DIMENSIONS) * (per_table + 1) if width == "wide" else 2, references)
    dimensions = [Source(name, size, per_table) for name, size in DIMENSIONS.items()]
    joins = " ".join(f"LEFT JOIN {{{name}}} {name} ON f.{name}_id = {name}.id" for name in DIMENSIONS)
    outputs = ", ".join(_values(source.name, source) for source in dimensions)
    small = {source.name: 1 for source in dimensions}
    return Workload(
        (facts, *dimensions), f"SELECT f.*, {outputs} FROM {{facts}} f {joins}", {"facts": changes, **small}, shape
    )


def filtered(rows: int, changes: int, shape: Shape, width: Width) -> Workload:
    """Join orders with the payments that a filter takes, half of all; both change, and payments enter and leave it."""
    plain = table_table(rows, changes, shape, width)
    _, payments = plain.sources
    taken = f"(SELECT id, {', '.join(payments.columns[1:])} FROM {{payments}} WHERE payments_0 < 50000)"
    sql = f"SELECT o.*, {_values('p', payments)} FROM {{orders}} o LEFT JOIN {taken} p ON o.id = p.id"
    return replace(plain, sql=sql)


def semi(rows: int, changes: int, shape: Shape, width: Width) -> Workload:
    """
    Keep the orders for which a payment over an amount exists. The payments of an order lie anywhere, but near it where
    the shape is recent; both change.
    """
    left, right = (WIDE - 1, WIDE // 3) if width == "wide" else (3, 2)
    place = "n" if shape == "recent" else f"pmod(n * 7919, {rows})"
    sources = (
        Source("orders", rows, left),
        Source("payments", rows, right, {"orders_id": f"CAST(2 * {place} AS BIGINT)"}),
    )
    exists = "EXISTS (SELECT 1 FROM {payments} p WHERE p.orders_id = o.id AND p.payments_0 < 50000)"
    changed = {"orders": changes - changes // 2, "payments": changes // 2}
    return Workload(sources, f"SELECT o.* FROM {{orders}} o WHERE {exists}", changed, shape)


JOINS: dict[str, Callable[[int, int, Shape, Width], Workload]] = {
    "table_table": table_table,
    "foreign_key": foreign_key,
    "star": star,
    "many": many,
    "filtered": filtered,
    "semi": semi,
}


def _values(alias: str, source: Source) -> str:
    return ", ".join(f"{alias}.{name}" for name in source.columns[1:])
