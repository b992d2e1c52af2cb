"""The ledger's table: few files, however many steps."""

from lakehouse.address import Address
from lakehouse.entries import PUBLISHING
from lakehouse.ledger import NAME, Ledger
from lakehouse.session import own_session
from tests.lake import Lake
from tests.ledgers import entry


def test_its_files_stay_few_and_every_step_is_read(lake: Lake) -> None:
    spark = own_session(lake.spark, "UTC")
    spark.conf.set("spark.databricks.delta.autoCompact.minNumFiles", "4")  # of 50
    kept = Ledger(spark, Address(NAME, lake.path(NAME)))
    for epoch in range(1, 4):
        for step in (PUBLISHING, "committed"):
            kept.append(entry(epoch, step))
    assert lake.sql(f"DESCRIBE DETAIL {lake.at(NAME)}")[0]["numFiles"] <= 4
    assert sorted((e.epoch, e.step) for e in kept.of("result").entries) == sorted(
        (epoch, step) for epoch in range(1, 4) for step in (PUBLISHING, "committed")
    )
