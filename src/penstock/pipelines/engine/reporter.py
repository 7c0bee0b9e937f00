"""The thread that reports a pipeline's state to a cluster, and receives commands for the pipeline.

It reads `__pipelines` from the end that the topic had before the first report: a command can only be for a run that has
reported, so none is missed. A slow or unreachable cluster never delays the pipeline; reports follow when it is
reachable.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING

from penstock.client.errors import ClientError
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition
from penstock.pipelines.operate.reports import (
    CONTROL_KEY,
    REPORT_KEY,
    Control,
    PipelineReport,
    UnreadableReport,
    is_due,
)

if TYPE_CHECKING:
    from penstock.client.librdkafka.consumer import Consumer
    from penstock.spark.progress.topic import PipelinesTopic

logger = logging.getLogger("penstock.pipelines")

_REQUEST_S = 2.0
_LISTEN_S = 0.25
_AGAIN_S = 2.0
_LAST_WORD_S = 3.0
_CLOSE_S = 6.0


class Reporter:
    def __init__(self, bootstrap: str, report: Callable[[], PipelineReport], obey: Callable[[Control], None]) -> None:
        self._bootstrap = bootstrap
        self._report = report
        self._obey = obey
        self._control_key = f"{CONTROL_KEY}{report().name}".encode()
        self._closing = threading.Event()
        self._give_up_at = 0.0
        self._last_written: PipelineReport | None = None
        self._troubled = False
        self._topic: PipelinesTopic | None = None
        self._orders: Consumer[bytes, bytes] | None = None
        self._thread = threading.Thread(target=self._run, name="penstock-pipeline-report", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        """Send the last report, within a few seconds."""
        self._give_up_at = time.monotonic() + _LAST_WORD_S
        self._closing.set()
        if self._thread.is_alive():
            self._thread.join(_CLOSE_S)

    def _run(self) -> None:
        ended = False
        while not ended:
            ended = self._closing.is_set()
            try:
                self._tell()
                if not ended:
                    self._listen()
                self._troubled = False
            except (ClientError, KafkaError, OSError) as error:
                if not self._troubled:
                    logger.warning("cannot report the pipeline's state to %s yet: %s", self._bootstrap, error)
                self._troubled = True
                if ended and time.monotonic() < self._give_up_at:
                    ended = False
                    time.sleep(_LISTEN_S)
                self._closing.wait(_AGAIN_S)
        if self._orders is not None:
            self._orders.close()
        if self._topic is not None:
            self._topic.close()

    def _tell(self) -> None:
        from penstock.spark.progress.topic import PipelinesTopic

        topic = self._topic = self._topic or PipelinesTopic(self._bootstrap, timeout=_REQUEST_S)
        if self._orders is None:
            topic.make()
            self._orders = self._opened()
        report = self._report()
        if is_due(self._last_written, report):
            topic.put(f"{REPORT_KEY}{report.name}", report.to_json())
            self._last_written = report

    def _opened(self) -> Consumer[bytes, bytes]:
        from penstock.client.librdkafka.consumer import Consumer
        from penstock.spark.progress.topic import TOPIC

        orders: Consumer[bytes, bytes] = Consumer(self._bootstrap, timeout=_REQUEST_S)
        try:
            orders.assign({TopicPartition(TOPIC, 0): "latest"})
        except BaseException:
            orders.close()
            raise
        return orders

    def _listen(self) -> None:
        assert self._orders is not None
        until = time.monotonic() + _LISTEN_S
        while (left := until - time.monotonic()) > 0 and not self._closing.is_set():
            record = self._orders.poll(left)
            if record is None or record.key != self._control_key or record.value is None:
                continue
            try:
                self._obey(Control.from_json(record.value.decode()))
            except (UnreadableReport, UnicodeDecodeError) as error:
                logger.warning("an order that cannot be read: %s", error)
