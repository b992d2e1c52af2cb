"""
The gate: checks what an epoch is about to publish against the result and the sources, which it reads again.

It imports nothing of `pipelines.joins`, so that it does not repeat a mistake of the joins. Both use the statement as it
was parsed, and `lakehouse.values`.
"""

from expectations.gate.affected import Paired
from expectations.gate.appended import LookedUp, gate_changelog, gate_looked_up, gate_stream, stream_facts
from expectations.gate.by_key import InputTable
from expectations.gate.changes import PrefetchedRows, gate_change_set, prefetch_rows
from expectations.gate.loaded import gate_keys, gate_loaded
from expectations.gate.pairs import gate_loaded_pairs, gate_pairs
from expectations.gate.sources import GateSources, PlainGroups, PlainQuery, PlainStatement, Reference
from expectations.gate.window import gate_window
from expectations.gate.window_pairs import EARLIEST, FACTS, IDS, TimeBound, WatermarkedColumn, WindowedJoin

__all__ = [
    "EARLIEST",
    "FACTS",
    "IDS",
    "GateSources",
    "InputTable",
    "LookedUp",
    "Paired",
    "PlainGroups",
    "PlainQuery",
    "PlainStatement",
    "PrefetchedRows",
    "Reference",
    "TimeBound",
    "WatermarkedColumn",
    "WindowedJoin",
    "gate_change_set",
    "gate_changelog",
    "gate_keys",
    "gate_loaded",
    "gate_loaded_pairs",
    "gate_looked_up",
    "gate_pairs",
    "gate_stream",
    "gate_window",
    "prefetch_rows",
    "stream_facts",
]
