"""Where an epoch keeps the rows between its feeds and its change set: on the driver, or in its stage."""

import logging
from collections.abc import Callable
from dataclasses import dataclass

from pyspark.sql import DataFrame

from lakehouse.publish.stage import Stage
from lakehouse.session.session import WITHOUT_BROADCASTS, settings, small_query_settings
from lakehouse.values.driver_rows import TooLarge, to_driver
from pipelines.binding.workspace import Distorted, Workspace
from pipelines.plan.values import Computed, EpochPlan

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Scratch:
    """
    Where an epoch keeps rows that it needs several times: its stage.

    Args:
        via_driver: Whether the rows are kept on the driver instead, and become literals of later plans.
    """

    stage: Stage
    via_driver: bool = False

    def keep(self, name: str, frame: DataFrame) -> DataFrame:
        """
        Keep the rows of a frame under a name, and return them from where they are.

        Raises:
            TooLarge: The rows do not fit on the driver.
        """
        if self.via_driver:
            return to_driver(frame).frame
        self.stage.put(name, frame)
        return self.stage.get(frame.sparkSession, name, frame.schema)


def via_driver_or_stage(
    workspace: Workspace, plan: EpochPlan, size: int, stage: Stage, compute: Callable[[Scratch], Computed]
) -> Computed:
    """
    Compute an epoch through the driver if its plan says so, or through the stage if its rows do not fit on the driver.

    If a change feed proves distorted, compute the epoch again with the feed repaired.

    Args:
        size: The bytes of the tables that the epoch reads.
        compute: Computes the epoch into its stage; the argument is where it keeps rows until then.
    """
    via_driver = plan.via_driver
    while True:
        small = small_query_settings(size) | WITHOUT_BROADCASTS
        try:
            with settings(workspace.spark, small if via_driver else {}):
                return compute(Scratch(stage, via_driver))
        except TooLarge:
            log.info("%s: the epoch touches more rows than fit on the driver; taking the stage instead", plan.join)
            via_driver = False
        except Distorted:
            log.info("%s: a change feed distorts rows; computing again with these rows from the table", plan.join)
            stage.delete()
