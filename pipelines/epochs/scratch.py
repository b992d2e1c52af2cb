"""Where an epoch keeps the rows between its feeds and its change set: on the driver, or in its stage."""

import logging
from collections.abc import Callable

from lakehouse.session import WITHOUT_BROADCASTS, settings, small_query_settings
from lakehouse.small import TooLarge
from lakehouse.stage import Stage
from pipelines.binding.shared_feeds import Distorted
from pipelines.binding.workspace import Workspace
from pipelines.plan.values import Computed, EpochPlan

log = logging.getLogger(__name__)


def via_driver_or_stage(
    workspace: Workspace, plan: EpochPlan, size: int, stage: Stage, compute: Callable[[bool], Computed]
) -> Computed:
    """
    Compute an epoch through the driver if its plan says so, or through the stage if its rows do not fit on the driver.

    If a change feed proves distorted, compute the epoch again with the feed repaired.

    Args:
        workspace: Where to work.
        plan: The epoch.
        size: The bytes of the tables that the epoch reads.
        stage: The stage of the epoch.
        compute: Computes the epoch into its stage; the argument is whether rows pass through the driver.

    Returns:
        The computed epoch.
    """
    via_driver = plan.via_driver
    while True:
        small = small_query_settings(size) | WITHOUT_BROADCASTS
        try:
            with settings(workspace.spark, small if via_driver else {}):
                return compute(via_driver)
        except TooLarge:
            log.info("%s: the epoch touches more rows than fit on the driver; taking the stage instead", plan.join)
            via_driver = False
        except Distorted:
            log.info("%s: a change feed distorts rows; computing again with these rows from the table", plan.join)
            stage.delete()
