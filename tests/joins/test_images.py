"""The two images of a source."""

from pyspark.sql.types import DoubleType, IntegerType, LongType, StringType, StructField, StructType

from lakehouse.values.net_changes import net
from pipelines.joins.difference import IMAGE
from pipelines.joins.kernel import images
from pipelines.spec import Input

SOURCE = StructType([StructField("n", IntegerType()), StructField("v", StringType()), StructField("d", DoubleType())])
SCOPE = StructField("_case", StringType())
CHANGE_TYPE = StructField("_change_type", StringType())
KINDS = {field.name: field.dataType for field in SOURCE}
SIDE = Input("left", "l", ("n", "d"), ("n", "d", "v"))
TYPES = (LongType(), DoubleType())


def changes(spark, rows):
    feed = spark.createDataFrame(rows, StructType([SCOPE, CHANGE_TYPE, *SOURCE]))
    return net(feed, SIDE.key, TYPES, {name: KINDS[name] for name in SIDE.columns}, [SCOPE.name])


def test_images_are_the_source_as_it_was_and_as_it_is(spark):
    """A changed key has its rows from the change, in this scope alone; any other the looked-up row in both images."""
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
    looked_up = spark.createDataFrame(held, StructType([SCOPE, *SOURCE])).select("_case", *SIDE.columns)
    given = images(changes(spark, feed), looked_up, SIDE, TYPES, [SCOPE.name])
    assert given.columns == ["_case", IMAGE, *SIDE.columns]
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
