"""Many commits to a Delta table in seconds: files are rewritten with pyarrow and the log is written by hand."""

import json
import time
import uuid
from pathlib import Path

import pyarrow
import pyarrow.compute
import pyarrow.parquet

from tests.lake import Lake


def in_small_files(lake: Lake, name: str, files: int) -> None:
    """Rewrite a table so that its rows lie in so many files, in the order of `id`."""
    rows = f"SELECT /*+ REPARTITION_BY_RANGE({files}, id) */ * FROM {lake.at(name)}"
    lake.spark.sql(f"CREATE OR REPLACE TEMP VIEW sorted AS {rows}")
    lake.spark.sql(f"INSERT OVERWRITE {lake.at(name)} SELECT * FROM sorted").collect()


def rewrite_each_file(lake: Lake, name: str, column: str) -> int:
    """Add 1 to a column of all rows of each file by one commit a file, as a copy-on-write UPDATE does."""
    folder = Path(lake.path(name))
    version = lake.version(name)
    actions = map(json.loads, (folder / "_delta_log" / f"{version:020}.json").read_text().splitlines())
    adds = [action["add"] for action in actions if "add" in action]
    for number, add in enumerate(adds, start=1):
        rows = pyarrow.parquet.read_table(folder / add["path"])
        place = rows.schema.get_field_index(column)
        values = pyarrow.compute.add(rows.column(place), 1)
        path = f"part-{uuid.uuid4()}.parquet"
        pyarrow.parquet.write_table(rows.set_column(place, rows.schema.field(place), values), folder / path)
        now, size = int(time.time() * 1000), (folder / path).stat().st_size
        stats = json.dumps({"numRecords": rows.num_rows})
        written = {**add, "path": path, "size": size, "modificationTime": now, "stats": stats, "dataChange": True}
        known = {name: add[name] for name in ("path", "partitionValues", "size")}
        removed = {**known, "deletionTimestamp": now, "dataChange": True, "extendedFileMetadata": True}
        metrics = {"numUpdatedRows": str(rows.num_rows)}
        info = {"timestamp": now, "operation": "UPDATE", "operationParameters": {}, "operationMetrics": metrics}
        lines = ({"commitInfo": info}, {"remove": removed}, {"add": written})
        log = folder / "_delta_log" / f"{version + number:020}.json"
        log.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return len(adds)
