"""The ledger's table: few files, however many steps."""

import pytest

from lakehouse import ledger
from lakehouse.address import Address
from lakehouse.entries import PUBLISHING
from lakehouse.ledger import Ledger
from lakehouse.session import own_session
from tests.lake import Lake
from tests.ledgers import entry


def test_its_files_stay_few_and_every_step_is_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ledger, "FILES", dict.fromkeys(ledger.FILES, "4"))
    kept = Ledger(own_session(lake.spark, "UTC"), Address(ledger.NAME, lake.path(ledger.NAME)))
    for epoch in range(1, 6):
        for step in (PUBLISHING, "committed"):
            kept.append(entry(epoch, step))
    assert lake.sql(f"DESCRIBE DETAIL {lake.at(ledger.NAME)}")[0]["numFiles"] <= 4
    assert sorted((e.epoch, e.step) for e in kept.of("result").entries) == sorted(
        (epoch, step) for epoch in range(1, 6) for step in (PUBLISHING, "committed")
    )
