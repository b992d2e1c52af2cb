"""
Run a pipeline in processes of their own, on the JVM of the test session, which die at a write. Each line on standard
input is one such run in JSON: the pipeline file, the number of the write (from 1), before or after. For each, standard
output says how its process ended. The processes are forks of this one, which has imported everything and started
nothing. The JVM lives on, so that a kill costs seconds; nothing is in flight when it comes.
"""

import json
import os
import signal
import sys
import traceback

import great_expectations  # noqa: F401  (a gate imports it; the forks have it already)
import pandas  # noqa: F401
from pyspark import SparkContext
from pyspark.sql import SparkSession

import expectations.own  # noqa: F401
from lakehouse.session import writing
from pipelines import Pipeline


def attach() -> SparkSession:
    SparkContext._ensure_initialized()
    jvm = SparkContext._jvm
    assert jvm is not None
    running = jvm.org.apache.spark.SparkContext.getOrCreate()
    context = SparkContext(
        gateway=SparkContext._gateway, jsc=jvm.org.apache.spark.api.java.JavaSparkContext(running), conf=None
    )
    return SparkSession(context)


def die(path: str, number: int, moment: str) -> None:
    seen = {"before": 0, "after": 0}

    def observe(when: str, what: str) -> None:
        seen[when] += 1
        if when == moment and seen[when] == number:
            os.kill(os.getpid(), signal.SIGKILL)

    writing.observers.append(observe)
    signal.alarm(300)
    Pipeline.load(path).run(attach())


def main() -> None:
    for line in sys.stdin:
        process = os.fork()
        if process == 0:
            try:
                die(*json.loads(line))
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        print(os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]), flush=True)


if __name__ == "__main__":
    main()
