"""A sink that dies at a chosen point: format("penstock-failing"), for tests.

It is `penstock` with another name and one option more, a directory. A file `NAME` in there arms the point of that name:
the first process to pass it takes the file away and does what it says.

    kill        the process dies (kill -9)
    kill jvm    and the Spark process it works for, before: of a task the executor, of a commit the driver
    wait        it stops there until a file `go` appears

Spark ships this module by value to the processes that need it (`register`), so they need not be able to import it.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from penstock.spark.datasource import PenstockDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FORMAT = "penstock-failing"
# In the order in which a batch passes them.
IN_WRITE, BEFORE_DECISION, AFTER_DECISION, BETWEEN_COMMITS, BEFORE_CHECKPOINT = POINTS = (
    "in-write",
    "before-decision",
    "after-decision",
    "between-commits",
    "before-checkpoint",
)
BEFORE_PREPARE = "before-prepare"
SLOW_ATTEMPT = "slow-attempt"


def register(spark: SparkSession) -> None:
    import sys

    from pyspark import cloudpickle

    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    spark.dataSource.register(FailingSource)


def arm(directory: str | os.PathLike[str], point: str, action: str) -> None:
    path = os.path.join(directory, point)
    with open(path + ".new", "w") as file:
        file.write(action)
    os.rename(path + ".new", path)


def is_armed(directory: str | os.PathLike[str], point: str) -> bool:
    return os.path.exists(os.path.join(directory, point))


def is_reached(directory: str | os.PathLike[str], point: str) -> bool:
    return os.path.exists(os.path.join(directory, point + ".reached"))


def pass_by(directory: str, point: str) -> None:
    reached = os.path.join(directory, point + ".reached")
    try:
        os.rename(os.path.join(directory, point), reached)
    except FileNotFoundError:
        return
    with open(reached) as file:
        action = file.read()
    if action == "wait":
        while not os.path.exists(os.path.join(directory, "go")):
            time.sleep(0.02)
        return
    if action == "kill jvm":
        with open(f"/proc/{os.getppid()}/stat") as stat:
            jvm = int(stat.read().rpartition(")")[2].split()[1])
        with contextlib.suppress(ProcessLookupError):
            os.kill(jvm, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def install(directory: str) -> None:
    """Into this process, once."""
    from penstock.spark.sink.brokers import SinkBrokers
    from penstock.spark.sink.two_phase import Decide, Prepare
    from penstock.spark.sink.worker_connections import WorkerConnections

    if getattr(SinkBrokers, "fails_in", None) == directory:
        return
    as_it_is = (SinkBrokers.perform, SinkBrokers.commit, WorkerConnections.write)
    perform, commit, write = originals = getattr(SinkBrokers, "originals", as_it_is)

    def failing_perform(self: Any, sink: str, step: Any) -> Any:
        if isinstance(step, Prepare):
            pass_by(directory, BEFORE_PREPARE)
        if not isinstance(step, Decide):
            return perform(self, sink, step)
        pass_by(directory, BEFORE_DECISION)
        perform(self, sink, step)
        pass_by(directory, AFTER_DECISION)
        return None

    def failing_commit(self: Any, sink: str, batch: int, transaction: Any) -> None:
        commit(self, sink, batch, transaction)
        pass_by(directory, BETWEEN_COMMITS)

    def failing_write(self: Any, topic: str, table: Any, transaction: Any) -> None:
        write(self, topic, table, transaction)
        pass_by(directory, IN_WRITE)
        with contextlib.suppress(FileNotFoundError):
            os.rename(os.path.join(directory, SLOW_ATTEMPT), os.path.join(directory, SLOW_ATTEMPT + ".reached"))
            time.sleep(3600)

    SinkBrokers.perform = failing_perform  # type: ignore[method-assign]
    SinkBrokers.commit = failing_commit  # type: ignore[method-assign]
    WorkerConnections.write = failing_write  # type: ignore[method-assign]
    SinkBrokers.originals = originals  # type: ignore[attr-defined]
    SinkBrokers.fails_in = directory  # type: ignore[attr-defined]


class FailingSource(PenstockDataSource):
    @classmethod
    def name(cls) -> str:
        return FORMAT

    def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802
        from pyspark.sql.datasource import DataSourceStreamArrowWriter

        options = {name: value for name, value in self.options.items() if name.lower() != "faults"}
        directory = self.options["faults"]

        class FailingSink(DataSourceStreamArrowWriter):
            def __init__(self, sink: Any) -> None:
                self.sink = sink

            def write(self, iterator: Iterator[Any]) -> Any:
                install(directory)
                return self.sink.write(iterator)

            def commit(self, messages: Any, batchId: int) -> None:  # noqa: N803
                install(directory)
                self.sink.commit(messages, batchId)
                pass_by(directory, BEFORE_CHECKPOINT)

            def abort(self, messages: Any, batchId: int) -> None:  # noqa: N803
                self.sink.abort(messages, batchId)

        from penstock.spark.sink.writer import stream_sink

        return FailingSink(stream_sink(options, schema, overwrite=overwrite))
