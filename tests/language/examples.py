"""What the tests of this folder share: two tables, and the ways to take a statement apart."""

from collections.abc import Callable

from lakehouse.errors.errors import PipelineFileError
from pipelines.language import ResolvedQuery, Source, Statement, bind, parse
from pipelines.language.statement.statement import Produced

SOURCES = {
    "flights": Source(key="flight_id"),
    "status": Source(key="flight_id"),
    "planes": Source(key="tailnum"),
    "hubs": Source(key="hub"),
    "legs": Source(key=["day", "number"]),
    "crews": Source(key=["num", "on_day"]),
    "departures": Source(key="flight_id", kind="stream", watermarks={"at": "5 minutes"}),
    "airlines": Source(key="carrier", kind="global_table"),
    "orders": Source(key="order_id", kind="changelog", order_by="seq", tombstone="op = 'd'"),
}
ODD = ("order", "select", "end", "1st", "a-b", "a b", "a.b", "a`b", "'", '"', "\\", "--", "/*x*/", "{x}", "$", "日本")
"""Names that only backticks make one."""

JOINS = {"enriched": Produced(("id",)), "daily": Produced(("on_day", "num"))}
"""The joins that a statement may read, by what they give."""

COLUMNS = {
    "enriched": ["id", "carrier", "seats"],
    "daily": ["on_day", "num", "delay"],
    "flights": ["Flight_ID", "carrier", "tailnum", "delay", "addr", "hops"],
    "status": ["flight_id", "state", "since", "Delay_Code"],
    "planes": ["tailnum", "seats"],
    "legs": ["day", "number", "miles"],
    "crews": ["num", "pilot", "on_day"],
}
ON = "FROM flights f JOIN status s ON f.flight_id = s.flight_id"


def taken_apart(sql: str) -> Statement:
    return parse("j", sql, SOURCES, JOINS)


def bound(sql: str) -> ResolvedQuery:
    return bind(taken_apart(sql), COLUMNS)


def outputs(sql: str) -> dict[str, str]:
    return {output.name: output.expression for output in bound(sql).outputs}


def complaints(call: Callable[[], object]) -> list[str]:
    try:
        call()
    except PipelineFileError as error:
        return [f"{fault.problem} | {fault.hint}" for fault in error.faults]
    return []


def refusals(sql: str) -> list[str]:
    return complaints(lambda: taken_apart(sql))


def misfits(sql: str) -> list[str]:
    return complaints(lambda: bound(sql))
