"""Few rows through the driver: the same values come back, more than the limit never come."""

import pytest
from pyspark.sql import DataFrame, SparkSession

from lakehouse import limits
from lakehouse.values.compare import same
from lakehouse.values.driver_rows import TooLarge, to_driver
from tests.lake import Lake
from tests.test_types import VALUES

NOT_CARRIED = ["INTERVAL '1' DAY", "INTERVAL '1' YEAR", "'a' COLLATE UTF8_LCASE", "named_struct('x', 1, 'X', 2)"]


def rows_of(spark: SparkSession) -> DataFrame:
    kinds = ["STRING" if "CHAR(" in kind else kind for kind in VALUES]  # as tables give them
    images = [[value[n] for value in VALUES.values()] for n in (0, 1)] + [["NULL"] * len(kinds)]
    selects = (
        f"SELECT {place} AS k, "
        + ", ".join(
            f"CAST({value} AS {kind}) AS c{n}" for n, (value, kind) in enumerate(zip(image, kinds, strict=True))
        )
        for place, image in enumerate(images)
    )
    return spark.sql(" UNION ALL ".join(selects))


@pytest.mark.usefixtures("elsewhere")
def test_values_of_every_type_come_back_as_they_were(spark: SparkSession) -> None:
    """The driver's time zone does not matter, types stay, and a struct of nulls stays apart from no struct."""
    rows = rows_of(spark)
    found = to_driver(rows)
    assert [field.dataType for field in found.frame.schema] == [field.dataType for field in rows.schema]
    differs = " OR ".join(f"NOT {same(f'a.`{f.name}`', f'b.`{f.name}`', f.dataType)}" for f in rows.schema)
    both = rows.alias("a").join(found.frame.alias("b"), on="k")
    assert (both.count(), both.where(differs).count()) == (3, 0)
    structs = spark.sql("SELECT named_struct('x', CAST(NULL AS INT)) AS s UNION ALL SELECT NULL")
    held = to_driver(structs)
    assert sorted(row["s"] is None for row in held.frame.collect()) == [False, True]


@pytest.mark.parametrize("value", NOT_CARRIED)
def test_types_that_arrow_does_not_carry_stay_in_spark(spark: SparkSession, value: str) -> None:
    with pytest.raises(TooLarge):
        to_driver(spark.sql(f"SELECT array({value}) AS c"))


def test_more_rows_than_the_limit_stay_in_spark(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "ROWS_ON_DRIVER", 3)
    with pytest.raises(TooLarge):
        to_driver(spark.range(4).toDF("k"))
    assert to_driver(spark.range(3).toDF("k")).rows.num_rows == 3
    monkeypatch.setattr(limits, "BYTES_ON_DRIVER", 20)
    with pytest.raises(TooLarge):
        to_driver(spark.range(3).toDF("k"))


def test_columns_that_are_never_null_come_in_structs_that_may_be(lake: Lake) -> None:
    """Arrow refuses a null struct of fields that may not be null: the old row of an insert is one."""
    lake.create("t", "k INT NOT NULL, s STRUCT<x: INT>", "(1, named_struct('x', 1)), (2, NULL)")
    rows = lake.spark.sql(f"SELECT k, s, IF(k = 1, NULL, named_struct('k', k)) AS old FROM {lake.at('t')}")
    found = to_driver(rows).frame.orderBy("k").collect()
    assert [(row["k"], row["s"], row["old"]) for row in found] == [(1, (1,), None), (2, None, (2,))]


def test_rows_know_their_files_and_how_many_keys_they_have(lake: Lake) -> None:
    """Where Arrow and Spark tell values apart otherwise (0.0 and -0.0, structs), the number is not known."""
    lake.create("t", "k INT, d DOUBLE", "(1, 0.0), (1, -0.0), (2, 1.0)")
    found = to_driver(lake.spark.sql(f"SELECT * FROM {lake.at('t')}"))
    assert (found.distinct(["k"]), found.distinct(["d"])) == (2, None)
    assert all("/lake/t/part-" in file for file in found.files)
    assert found.files
