"""Ends a streaming query between two batches.

Spark's own `stop` interrupts the query wherever it is: a running batch is cancelled, and the next run repeats it. This
module lets the running batch finish. It sets the state of the query to TERMINATED, as `stop` does, but does not
interrupt the thread. Spark checks the state before each batch, so no further batch begins. A query that sleeps until
its next trigger is woken by `stop`. Once the state is set, Spark reports the query as inactive although its last batch
still runs, and `awaitTermination` with a timeout returns at once. Therefore `Ending` waits for the query's thread.

The state of a query is not part of Spark's API. It is the same in all versions that Penstock supports (4.2 and later).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql.streaming.query import StreamingQuery


class Ending:
    """How a query ends. `step` is called now and then, once it shall end."""

    def __init__(self, query: StreamingQuery) -> None:
        self._query = query
        self._thread: Any = query._jsq.streamingQuery().queryExecutionThread()
        self._refused = False
        self._slept = False

    def has_ended(self, seconds: float) -> bool:
        """Waits so long for it."""
        self._thread.join(int(seconds * 1000))
        return not self._thread.isAlive()

    def step(self) -> None:
        if not self._refused:
            refuse_batches(self._query)
            self._refused = True
        elif self._query.status["isTriggerActive"]:
            self._slept = False
        elif self._slept:  # also the last time: a batch that was about to begin would have begun
            self._query.stop()
        else:
            self._slept = True


def refuse_batches(query: StreamingQuery) -> None:
    """From now on no batch of this query begins."""
    execution: Any = query._jsq.streamingQuery()
    state = execution.state()
    package = state.get().getClass().getPackageName()
    classes = query._jsq.getClass().getClassLoader()
    state.set(classes.loadClass(f"{package}.TERMINATED$").getField("MODULE$").get(None))
