"""Reports to the controller in which log directory each replica is: AssignReplicasToDirs (KIP-858).

`assign` queues a report. One request is in flight at a time; reports queued meanwhile go with the next one. A report is
repeated until the controller acknowledges it, until a later report about the same replica supersedes it, or until the
metadata says that this broker no longer holds the replica. Nothing is sent before this process has registered.

The controller uses these reports to determine which replicas a failed directory takes offline. So a directory's failure
is reported only after all reports about that directory (`is_pending`), and a broker asks to be unfenced only after the
reports of its start (`all_acknowledged`).

The controller recognises a replaced disk by these reports: a replica reported in another directory than before was
created anew, and loses all trust (`controller/directories.py`).
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from itertools import islice
from typing import Final, NamedTuple

from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.metadata.registration import Registration
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid, uuid_text
from penstock.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsRequestDirectoryData,
    AssignReplicasToDirsRequestPartitionData,
    AssignReplicasToDirsRequestTopicData,
    AssignReplicasToDirsResponse,
)

logger = logging.getLogger("penstock.storage")

RETRY_S: Final = 0.1
TIMEOUT_S: Final = 10.0
# As in Kafka: this many partition changes fit into one batch of metadata records.
ASSIGNMENTS_PER_REQUEST_MAX: Final = 2250


class _ReplicaKey(NamedTuple):
    topic_id: Uuid
    partition: int


@dataclass(slots=True, eq=False)
class _Report:
    """One queued or sent assignment. Compared by identity: a later report about the same replica is a different one."""

    directory_id: Uuid
    # True: acknowledged. False: superseded or obsolete.
    outcome: asyncio.Future[bool]


class DirectoryAssignments:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        registration: Registration,
        controller: ControllerChannel,
        metadata: Metadata,
    ) -> None:
        self._loop = loop
        self._registration = registration
        self._controller = controller
        self._metadata = metadata
        # In queue order; a report stays here until its outcome is known.
        self._reports: dict[_ReplicaKey, _Report] = {}
        self._is_busy = False  # a request is in flight, or about to be
        self._is_closed = False
        self._idle: asyncio.Future[None] | None = None

    def assign(self, topic_id: Uuid, partition: int, directory_id: Uuid) -> asyncio.Future[bool]:
        """Report that the replica is in this directory.

        The future is True once the controller has acknowledged it; False if a later report about this replica
        superseded it, the replica is no longer this broker's, or the broker stops.
        """
        key = _ReplicaKey(topic_id, partition)
        report = _Report(directory_id, self._loop.create_future())
        superseded = self._reports.pop(key, None)
        self._reports[key] = report
        if superseded is not None:
            _settle(superseded, acknowledged=False)
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._send)
        return report.outcome

    def is_pending(self, directory_id: Uuid) -> bool:
        """Whether a report about this directory is not acknowledged yet."""
        return any(report.directory_id == directory_id for report in self._reports.values())

    @property
    def has_pending(self) -> bool:
        return bool(self._reports)

    async def all_acknowledged(self) -> None:
        """Returns when no report is left."""
        if self._reports:
            if self._idle is None:
                self._idle = self._loop.create_future()
            await asyncio.shield(self._idle)

    def close(self) -> None:
        self._is_closed = True
        for key in list(self._reports):
            self._finish(key, acknowledged=False)

    def _send(self) -> None:
        self._drop_pointless()
        if not self._reports or self._is_closed:
            self._is_busy = False
            return
        registration = self._registration
        if registration.broker_epoch < 0:  # not registered yet
            self._loop.call_later(RETRY_S, self._send)
            return
        sent = dict(islice(self._reports.items(), ASSIGNMENTS_PER_REQUEST_MAX))
        request = AssignReplicasToDirsRequest(
            broker_id=registration.broker_id,
            broker_epoch=registration.broker_epoch,
            directories=_grouped(sent),
        )
        self._controller.send(request, lambda answer: self._answered(sent, answer), timeout=TIMEOUT_S)

    def _drop_pointless(self) -> None:
        """Drop reports about replicas whose topic was deleted or that were reassigned to other brokers."""
        image = self._metadata.image
        for key in list(self._reports):
            topic = image.topics.by_id(key.topic_id)
            partition = None if topic is None else topic.partitions.get(key.partition)
            if partition is None or self._registration.broker_id not in partition.replicas:
                self._finish(key, acknowledged=False)

    def _answered(self, sent: dict[_ReplicaKey, _Report], answer: object) -> None:
        acknowledged = 0
        if not isinstance(answer, AssignReplicasToDirsResponse):
            logger.warning("the controller did not answer about log directories: %s", answer)
        elif answer.error_code:
            logger.warning("the controller refused log directories: %s", ErrorCode(answer.error_code).name)
        else:
            acknowledged = self._read(sent, answer)
        if not self._reports:
            self._is_busy = False
        elif acknowledged:
            self._send()
        else:
            self._loop.call_later(RETRY_S, self._send)

    def _read(self, sent: dict[_ReplicaKey, _Report], answer: AssignReplicasToDirsResponse) -> int:
        """Settle the acknowledged reports; returns how many the controller acknowledged."""
        acknowledged = 0
        for directory in answer.directories:
            for topic in directory.topics:
                for partition in topic.partitions:
                    key = _ReplicaKey(topic.topic_id, partition.partition_index)
                    if partition.error_code:
                        logger.warning(
                            "the controller refused directory %s of %s-%d: %s",
                            uuid_text(directory.id),
                            uuid_text(topic.topic_id),
                            partition.partition_index,
                            ErrorCode(partition.error_code).name,
                        )
                    else:
                        acknowledged += 1
                        if key in sent and self._reports.get(key) is sent[key]:
                            self._finish(key, acknowledged=True)
        return acknowledged

    def _finish(self, key: _ReplicaKey, *, acknowledged: bool) -> None:
        _settle(self._reports.pop(key), acknowledged=acknowledged)
        if not self._reports and self._idle is not None:
            self._idle.set_result(None)
            self._idle = None


def _settle(report: _Report, *, acknowledged: bool) -> None:
    if not report.outcome.done():
        report.outcome.set_result(acknowledged)


def _grouped(reports: dict[_ReplicaKey, _Report]) -> list[AssignReplicasToDirsRequestDirectoryData]:
    directories: dict[Uuid, dict[Uuid, AssignReplicasToDirsRequestTopicData]] = {}
    for (topic_id, partition), report in reports.items():
        topics = directories.setdefault(report.directory_id, {})
        topic = topics.setdefault(topic_id, AssignReplicasToDirsRequestTopicData(topic_id=topic_id))
        topic.partitions.append(AssignReplicasToDirsRequestPartitionData(partition_index=partition))
    return [
        AssignReplicasToDirsRequestDirectoryData(id=directory_id, topics=list(topics.values()))
        for directory_id, topics in directories.items()
    ]
