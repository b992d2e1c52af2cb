"""What people do without lakejoin: create the table anew, overwrite it, or merge by hand from the change feeds."""

from tests.benchmarks.workload import Workload
from tests.lake import Lake

PROPERTIES = "TBLPROPERTIES ('delta.enableChangeDataFeed' = 'true', 'delta.enableDeletionVectors' = 'true')"
"""Those of a result that lakejoin keeps."""


def create(lake: Lake, workload: Workload, name: str) -> None:
    lake.spark.sql(f"CREATE OR REPLACE TABLE {lake.at(name)} USING delta {PROPERTIES} AS {workload.query(lake)}")


def overwrite(lake: Lake, workload: Workload, name: str) -> None:
    lake.spark.sql(f"INSERT OVERWRITE {lake.at(name)} {workload.query(lake)}")


def recipe(lake: Lake, workload: Workload, name: str, since: dict[str, int]) -> None:
    """
    Merge by the recipe that articles give: keys from the feeds of all sources, the join for these, MERGE on the key.
    """
    first, *_ = workload.sources
    keys = []
    for source in workload.sources:
        if lake.version(source.name) == since[source.name]:
            continue
        reader = lake.spark.read.format("delta").option("readChangeFeed", "true")
        feed = reader.option("startingVersion", since[source.name] + 1).load(lake.path(source.name))
        feed.createOrReplaceTempView(f"feed_of_{source.name}")
        changed = f"SELECT id FROM feed_of_{source.name}"
        reference = f"{source.name}_id"
        refers = reference in first.references
        keys.append(f"SELECT id FROM {lake.at(first.name)} WHERE {reference} IN ({changed})" if refers else changed)
    lake.spark.sql(f"SELECT DISTINCT id FROM ({' UNION ALL '.join(keys)})").createOrReplaceTempView("touched")
    joined = workload.query(lake, f"SELECT * FROM {lake.at(first.name)} WHERE id IN (SELECT id FROM touched)")
    rows = f"SELECT k.id AS touched_id, j.* FROM touched k LEFT JOIN ({joined}) j ON k.id = j.id"
    lake.spark.sql(
        f"MERGE INTO {lake.at(name)} t USING ({rows}) s ON t.id = s.touched_id "
        "WHEN MATCHED AND s.id IS NULL THEN DELETE WHEN MATCHED THEN UPDATE SET * "
        "WHEN NOT MATCHED AND s.id IS NOT NULL THEN INSERT *"
    ).collect()
