"""What the driver reads of a stage is small, in bytes and in rows."""

from lakehouse import limits
from lakehouse.publish.stage import Stage
from lakehouse.session.files import Files


def test_many_rows_in_a_small_file_stay_out_of_the_driver(spark, tmp_path, monkeypatch):
    """Rows with few different values make a small file, however many they are."""
    monkeypatch.setattr(limits, "ROWS_ON_DRIVER", 3)
    stage = Stage(str(tmp_path), Files())
    for number in (3, 4):
        stage.put(f"rows_{number}", spark.range(number).selectExpr("'hot' AS city"))
        rows, on_driver = stage.rows(spark, f"rows_{number}")
        assert (rows.count(), on_driver) == (number, number == 3)
