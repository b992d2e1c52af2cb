"""
Run a pipeline in a process of its own, on the JVM of the test session, and die at a write.

Arguments: the pipeline file, the number of the write (from 1), before or after. The JVM lives on, so that a kill costs
seconds; nothing is in flight when it comes.
"""

import os
import signal
import sys

from pyspark import SparkContext
from pyspark.sql import SparkSession

from lakehouse import writing
from pipelines import Pipeline


def attach() -> SparkSession:
    """Join the JVM that PYSPARK_GATEWAY_PORT and PYSPARK_GATEWAY_SECRET name."""
    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    assert jvm is not None
    running = jvm.org.apache.spark.SparkContext.getOrCreate()
    context = SparkContext(
        gateway=SparkContext._gateway,
        jsc=jvm.org.apache.spark.api.java.JavaSparkContext(running),
        conf=None,
    )
    return SparkSession(context)


def main() -> None:
    path, number, moment = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    seen = {"before": 0, "after": 0}

    def observe(when: str, what: str) -> None:
        seen[when] += 1
        if when == moment and seen[when] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    writing.observers.append(observe)
    Pipeline.load(path).run(attach())


if __name__ == "__main__":
    main()
