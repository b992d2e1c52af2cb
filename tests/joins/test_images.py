"""The two images of a source."""

from pyspark.sql.types import DoubleType, LongType, StringType, StructField, StructType

from lakehouse.values.net_changes import net
from pipelines.joins.difference import IMAGE
from pipelines.joins.kernel import images
from pipelines.language import Input
from tests.joins.schemas import DOUBLE, INT, STRING, columns

SOURCE = columns(_case=STRING, n=INT, v=STRING, d=DOUBLE)
CHANGE_TYPE = StructField("_change_type", StringType())
KINDS = {field.name: field.dataType for field in SOURCE}
SIDE = Input("left", "l", ("_case", "n", "d"), ("_case", "n", "d", "v"))
TYPES = (StringType(), LongType(), DoubleType())


def changes(spark, rows):
    feed = spark.createDataFrame(rows, StructType([SOURCE["_case"], CHANGE_TYPE, *SOURCE.fields[1:]]))
    return net(feed, SIDE.key, TYPES, {name: KINDS[name] for name in SIDE.columns})


def test_images_are_the_source_as_it_was_and_as_it_is(spark):
    """A changed key has its rows from the change, in this case alone; any other the looked-up row in both images."""
    feed = [
        ("one", "update_preimage", 1, "old", 0.0),
        ("one", "update_postimage", 1, "new", -0.0),
        ("one", "delete", 2, "gone", 0.0),
        ("one", "insert", 3, "come", 0.0),
        ("two", "insert", 4, None, 0.0),
    ]
    held = [
        ("one", 1, "new", -0.0),
        ("one", 3, "come", 0.0),
        ("one", 4, "quiet", 0.0),
        ("one", 1, "another", 1.0),
        ("two", 1, "new", 0.0),
        ("two", 4, None, 0.0),
    ]
    looked_up = spark.createDataFrame(held, SOURCE).select(*SIDE.columns)
    given = images(changes(spark, feed), looked_up, SIDE, TYPES)
    assert given.columns == [IMAGE, *SIDE.columns]
    assert sorted((row["_case"], row["n"], row[IMAGE], row["v"]) for row in given.collect() if row["v"]) == [
        ("one", 1, "new", "another"),
        ("one", 1, "new", "new"),
        ("one", 1, "old", "another"),
        ("one", 1, "old", "old"),
        ("one", 2, "old", "gone"),
        ("one", 3, "new", "come"),
        ("one", 4, "new", "quiet"),
        ("one", 4, "old", "quiet"),
        ("two", 1, "new", "new"),
        ("two", 1, "old", "new"),
    ]
    assert given.where("v IS NULL").selectExpr("_case", "n", IMAGE).collect() == [("two", 4, "new")]
