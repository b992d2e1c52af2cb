"""
How long lakejoin takes beside what people do without it, in one session.

    python -m tests.benchmarks NAME [--rows N --changes C --shape recent|uniform|skewed --width narrow|wide --repeat K]

NAME is table_table, foreign_key, star, many, filtered, semi, versions, backfill, reconcile, overhead, changelog, gate,
layout, stream_table, stream_stream or threads. With --file-bytes a load writes a file for so many bytes of its sources,
so that a small result has as many files as a large one. Prints one JSON line.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from lakehouse import limits
from lakehouse.session.session import local_session
from tests.benchmarks import single
from tests.benchmarks.cases import JOINS
from tests.benchmarks.compare import WAYS, compare
from tests.benchmarks.cost import Meter
from tests.benchmarks.streams import SHUFFLED, stream_table
from tests.benchmarks.threads import threads
from tests.benchmarks.windows import stream_stream
from tests.benchmarks.workload import Shape, Width
from tests.lake import Lake

MEMORY = {"stream_table": "2g"}
MEMORY_OF_OTHERS = "4g"
SINGLE: dict[str, Callable[..., dict[str, Any]]] = {
    "versions": single.versions,
    "backfill": single.backfill,
    "reconcile": single.reconcile,
    "overhead": single.overhead,
    "changelog": single.changelog,
    "gate": single.gate,
    "layout": single.layout,
}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("name", choices=[*JOINS, *SINGLE, "stream_table", "stream_stream", "threads"])
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--changes", type=int, default=1_000)
    parser.add_argument("--shape", choices=get_args(Shape), default="uniform")
    parser.add_argument("--width", choices=get_args(Width), default="narrow")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--ways", default=",".join(WAYS), help="what to compare; lakejoin must be among them")
    parser.add_argument("--join", choices=[*JOINS], default="table_table", help="what a benchmark of its own joins")
    parser.add_argument("--file-bytes", type=int, default=limits.BYTES_PER_FILE)
    options = parser.parse_args()
    limits.BYTES_PER_FILE = options.file_bytes
    with tempfile.TemporaryDirectory(prefix="benchmark-") as folder:
        events = Path(folder) / "events"
        events.mkdir()
        meter = Meter(events)
        further = SHUFFLED if (options.name, options.shape) == ("stream_table", "skewed") else {}
        memory = MEMORY.get(options.name, MEMORY_OF_OTHERS)
        spark = local_session({"spark.driver.memory": memory, **meter.settings, **further})
        lake = Lake(spark, Path(folder))
        if options.name == "stream_table":
            found = stream_table(meter, lake, options.rows, options.shape, options.repeat)
        elif options.name == "stream_stream":
            found = stream_stream(meter, lake, options.rows)
        elif options.name == "threads":
            found = threads(meter, lake, options.rows, options.repeat)
        elif options.name in JOINS:
            workload = JOINS[options.name](options.rows, options.changes, options.shape, options.width)
            found = compare(meter, lake, workload, options.ways.split(","), options.repeat)
        else:
            workload = JOINS[options.join](options.rows, options.changes, options.shape, options.width)
            found = {"join": options.join, **SINGLE[options.name](meter, lake, workload, options.repeat)}
        settings = {name: getattr(options, name) for name in ("name", "rows", "changes", "shape", "width")}
        print(json.dumps({**settings, **found}), flush=True)
        spark.stop()


if __name__ == "__main__":
    main()
