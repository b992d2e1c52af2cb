"""How far the running Spark jobs are, by the tasks of their stages."""

from typing import Any

from pyspark.sql import SparkSession

from lakehouse.session.session import is_over_connect


class RunningTasks:
    """
    The tasks of the jobs that Spark is running.

    Args:
        spark: The session. Over Spark Connect only jobs of this session are seen.
    """

    def __init__(self, spark: SparkSession) -> None:
        self._spark, self._is_remote = spark, is_over_connect(spark)
        self._stages: tuple[Any, ...] = ()
        if self._is_remote:
            spark.registerProgressHandler(self._handle)

    def now(self) -> tuple[int, int]:
        """Return the number of finished tasks and of all tasks, of the stages that are running."""
        if self._is_remote:
            running = [(stage.num_completed_tasks, stage.num_tasks) for stage in self._stages if not stage.done]
        else:
            tracker = self._spark.sparkContext.statusTracker()
            stages = map(tracker.getStageInfo, tracker.getActiveStageIds())
            running = [(stage.numCompletedTasks, stage.numTasks) for stage in stages if stage is not None]
        return sum(done for done, _ in running), sum(total for _, total in running)

    def stop(self) -> None:
        """Stop following the jobs of a session over Spark Connect."""
        if self._is_remote:
            self._spark.removeProgressHandler(self._handle)

    def _handle(self, stages: Any, inflight_tasks: int, operation_id: str | None, done: bool) -> None:
        self._stages = () if done else tuple(stages or ())
