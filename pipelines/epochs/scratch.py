"""Where an epoch keeps what lies between its feeds and its change set: on the driver, or in its stage."""

import logging
from collections.abc import Callable

from lakehouse.session import settings, small_query_settings
from lakehouse.small import TooMuch
from lakehouse.stage import Stage
from pipelines.binding.shared_feeds import Distorted
from pipelines.binding.workspace import Workspace
from pipelines.plan.values import EpochPlan

log = logging.getLogger(__name__)


def via_driver_or_stage(
    workspace: Workspace, plan: EpochPlan, size: int, stage: Stage, compute: Callable[[bool], dict[str, int]]
) -> dict[str, int]:
    """
    Compute an epoch through the driver where few rows changed, and through the stage where that proves too much.

    Where a feed proves distorted the epoch is computed once more, with the feed repaired.

    Args:
        workspace: Where to work.
        plan: The epoch.
        size: The bytes of the tables that are looked at.
        stage: Its stage.
        compute: Computes it into its stage; told whether few rows changed.

    Returns:
        What it counted.
    """
    via_driver = plan.via_driver
    while True:
        small = small_query_settings(size) | {"spark.sql.shuffle.partitions": "2"}
        try:
            with settings(workspace.spark, small if via_driver else {}):
                return compute(via_driver)
        except TooMuch:
            log.info("%s: what changed touches more than passes through the driver", plan.join)
            via_driver = False
        except Distorted:
            log.info("%s: rows that a change feed does not show as they are, are read from the table", plan.join)
            stage.delete()
