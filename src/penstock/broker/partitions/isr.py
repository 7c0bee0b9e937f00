"""Proposes ISR changes to the controller: AlterPartition, one request at a time for all partitions.

Proposals made while a request is in flight go with the next one. A proposal without an answer, or missing from the
answer, is repeated as long as its partition still wants it: newer metadata may have overtaken it.

A leader that hears neither from its followers nor from any controller may have been replaced long ago, and is the last
to learn of it. Clients that can reach it would stay, because librdkafka asks the broker it uses most where the leaders
are. So each time the leader cannot ask the controller to remove followers from the ISR, it closes its clients'
connections: they ask other brokers, and return if those know no other leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.metadata.registration import Registration
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.partitions.wakeups import Wakeups
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    AlterPartitionResponsePartitionData,
    BrokerState,
)
from penstock.replication.partition import Proposal

logger = logging.getLogger("penstock.replica")

RETRY_S = 0.05
TIMEOUT_S = 10.0
RECOVERED = 0  # an unclean leader has recovered by the time it leads: its log is taken as complete


class InSyncProposals:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        registration: Registration,
        controller: ControllerChannel,
        replicas: Replicas,
        wakeups: Wakeups,
        lag_max_ms: Callable[[], int],
        hang_up: Callable[[], None],
    ) -> None:
        """`hang_up` closes the connections of all clients, which may reconnect."""
        self._loop = loop
        self._registration = registration
        self._controller = controller
        self._replicas = replicas
        self._wakeups = wakeups
        self._lag_max_ms = lag_max_ms
        self._hang_up = hang_up
        self._due: dict[Replica, Proposal] = {}
        self._is_busy = False  # a request is in flight, or about to be
        self._check: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Start the periodic check for lagging replicas."""
        if self._check is None:
            self._check_later()

    def close(self) -> None:
        self._due.clear()
        if self._check is not None:
            self._check.cancel()

    def _check_later(self) -> None:
        seconds = self._lag_max_ms() / 2000
        self._check = self._loop.call_later(seconds, self._check_all)

    def _check_all(self) -> None:
        self._check_later()
        for replica in self._replicas:
            replica.check_in_sync()
        self._wakeups.run()

    def propose(self, replica: Replica, proposal: Proposal) -> None:
        self._due[replica] = proposal
        if not self._is_busy:
            self._is_busy = True
            self._loop.call_soon(self._send)

    def _send(self) -> None:
        proposals = {
            (replica.topic_id, replica.topic_partition.partition): (replica, proposal)
            for replica, proposal in self._due.items()
            if replica.leader is not None and replica.leader.pending is proposal
        }
        self._due.clear()
        if not proposals:
            self._is_busy = False
            return
        topics: dict[bytes, AlterPartitionRequestTopicData] = {}
        for (topic_id, index), (_, proposal) in proposals.items():
            topic = topics.setdefault(topic_id, AlterPartitionRequestTopicData(topic_id=topic_id))
            topic.partitions.append(
                AlterPartitionRequestPartitionData(
                    partition_index=index,
                    leader_epoch=proposal.leader_epoch,
                    partition_epoch=proposal.partition_epoch,
                    leader_recovery_state=RECOVERED,
                    new_isr_with_epochs=[
                        BrokerState(broker_id=broker_id, broker_epoch=epoch) for broker_id, epoch in proposal.isr
                    ],
                )
            )
        request = AlterPartitionRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self._registration.broker_epoch,
            topics=list(topics.values()),
        )
        self._controller.send(request, lambda answer: self._answered(proposals, answer), timeout=TIMEOUT_S)

    def _answered(self, proposals: dict[tuple[bytes, int], tuple[Replica, Proposal]], answer: object) -> None:
        unanswered = dict(proposals)
        try:
            if not isinstance(answer, AlterPartitionResponse):
                logger.warning("the controller did not answer about in-sync replicas: %s", answer)
                # A leader that hears neither from the controller nor from any follower may have been replaced. One
                # silent follower of several proves nothing: the others would not follow an old leader.
                now_ms = int(self._loop.time() * 1000)
                leaders = [replica.leader for replica, _ in proposals.values()]
                if any(leader is not None and leader.is_abandoned(now_ms) for leader in leaders):
                    self._hang_up()
            elif answer.error_code:
                logger.warning("the controller refused new in-sync replicas: %s", ErrorCode(answer.error_code).name)
            else:
                for topic in answer.topics:
                    for partition in topic.partitions:
                        found = unanswered.pop((topic.topic_id, partition.partition_index), None)
                        if found is not None:
                            self._settle(*found, partition)
        finally:  # the next request must follow even if a partition fails
            for replica, proposal in unanswered.values():
                self._due.setdefault(replica, proposal)
            if self._due:
                self._loop.call_later(RETRY_S, self._send)
            else:
                self._is_busy = False
        self._wakeups.run()

    def _settle(self, replica: Replica, proposal: Proposal, answer: AlterPartitionResponsePartitionData) -> None:
        leader = replica.leader
        if leader is None or leader.pending is not proposal:
            return  # newer metadata arrived first
        code = ErrorCode(answer.error_code)
        if code == ErrorCode.NONE:
            if answer.leader_epoch != leader.leader_epoch:
                return  # another leader was elected; the metadata will arrive soon
            moved = leader.accepted(proposal, answer.isr, answer.partition_epoch, int(self._loop.time() * 1000))
            logger.info("%s: in sync are %s now", replica.topic_partition, sorted(leader.isr))
            replica.in_sync_changed(moved)
            return
        logger.info("%s: %s cannot be in sync: %s", replica.topic_partition, proposal.isr, code.name)
        if leader.refused(proposal, code):
            self._due.setdefault(replica, proposal)
