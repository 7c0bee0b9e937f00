"""Balances the cluster by itself where `penstock.balance.enable` is set: as `penstock cluster balance` does, a few
partitions at a time.

One broker does it, the one with the lowest id of those that are up. It does nothing while a broker is down, or while
a partition moves or lacks a replica in sync: a copy would compete with what the cluster needs first. It asks every
broker for the sizes of its replicas and disks, plans in a thread, and sends the first moves of the plan to the
controller. It keeps no state: whichever broker looks next sees what was done.

The principal of the brokers needs Describe and Alter on the cluster, if it is not a super user.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any, Final

from penstock.broker.metadata.brokers import Brokers
from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.net.peers import PeerFailed
from penstock.controller.balance import BrokerState, CannotBalance, Move, PartitionState, plan_balance
from penstock.metadata.cluster import BrokerRegistration
from penstock.metadata.image import Metadata, MetadataImage
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from penstock.protocol.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResult
from penstock.settings.live import LiveSettings

logger = logging.getLogger("penstock.balance")

CHANNEL: Final = "balance"
TIMEOUT_S: Final = 30.0


@owned_by_loop()
class Balancer:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        metadata: Metadata,
        brokers: Brokers,
        controller: ControllerChannel,
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._metadata = metadata
        self._brokers = brokers
        self._controller = controller

    async def run(self) -> None:
        while True:
            await asyncio.sleep(self._settings.now.penstock_balance_interval_seconds)
            if not self._settings.now.penstock_balance_enable:
                continue
            try:
                await self._balance()
            except (PeerFailed, KafkaError, CannotBalance) as error:
                logger.warning("the cluster is not balanced now: %s", error)

    async def _balance(self) -> None:
        image = self._metadata.image
        if min(image.brokers, default=-1) != self._settings.static.node_id or not _is_settled(image):
            return
        described = await asyncio.gather(*map(self._describe, image.brokers))
        listener = self._settings.static.inter_broker_listener
        brokers = [
            _broker_state(broker, broker.host(listener), directories)
            for broker, directories in zip(image.brokers.values(), described, strict=True)
        ]
        plan = partial(plan_balance, brokers, _partition_states(image, described))
        moves = (await self._loop.run_in_executor(None, plan))[: self._settings.now.penstock_balance_max_moves]
        if moves:
            await self._move(moves)

    async def _describe(self, broker_id: int) -> list[DescribeLogDirsResult]:
        peer = self._brokers.peer(broker_id, CHANNEL)
        if peer is None:
            raise PeerFailed(f"the address of broker {broker_id} is not known")
        answered = self._loop.create_future()
        peer.send(DescribeLogDirsRequest(topics=None), partial(_settle, answered), timeout=TIMEOUT_S)
        response = await answered
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), f"broker {broker_id} does not describe its disks")
        return [each for each in response.results if not each.error_code]

    async def _move(self, moves: Sequence[Move]) -> None:
        topics: dict[str, list[ReassignablePartition]] = {}
        for move in moves:
            partition = ReassignablePartition(partition_index=move.partition, replicas=list(move.after))
            topics.setdefault(move.topic, []).append(partition)
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=name, partitions=partitions) for name, partitions in topics.items()]
        )
        answered = self._loop.create_future()
        self._controller.send(request, partial(_settle, answered), timeout=TIMEOUT_S)
        response = await answered
        if response.error_code:
            raise KafkaError(ErrorCode(response.error_code), response.error_message or "the controller refuses")
        refused = [
            f"{topic.name}-{each.partition_index}: {each.error_message}"
            for topic in response.responses
            for each in topic.partitions
            if each.error_code
        ]
        for why in refused:
            logger.warning("cannot be moved: %s", why)
        for move in moves:
            logger.info("%s-%d moves from %s to %s", move.topic, move.partition, move.before, move.after)


def _settle(answered: asyncio.Future[Any], outcome: object) -> None:
    if answered.done():
        return
    if isinstance(outcome, PeerFailed):
        answered.set_exception(outcome)
    else:
        answered.set_result(outcome)


def _is_settled(image: MetadataImage) -> bool:
    return all(broker.active for broker in image.brokers.values()) and all(
        len(partition.isr) == len(partition.replicas) and not partition.adding_replicas
        for topic in image.topics
        for partition in topic.partitions.values()
    )


def _broker_state(
    broker: BrokerRegistration, host: str | None, directories: Iterable[DescribeLogDirsResult]
) -> BrokerState:
    used = list(directories)
    open_ones = [each for each in used if not each.is_cordoned]
    are_sizes_known = bool(used) and all(each.total_bytes >= 0 and each.usable_bytes >= 0 for each in used)
    return BrokerState(
        broker.broker_id,
        broker.rack,
        host,
        takes_replicas=bool(open_ones),
        disk_bytes=sum(each.total_bytes for each in used) if are_sizes_known else None,
        free_bytes=sum(each.usable_bytes for each in open_ones) if are_sizes_known else None,
    )


def _partition_states(
    image: MetadataImage, described: Iterable[Iterable[DescribeLogDirsResult]]
) -> list[PartitionState]:
    sizes: dict[tuple[str, int], int] = {}
    for directories in described:
        for directory in directories:
            for topic in directory.topics:
                for each in topic.partitions:
                    key = topic.name, each.partition_index
                    sizes[key] = max(sizes.get(key, 0), each.partition_size)
    return [
        PartitionState(topic.name, number, partition.replicas, sizes.get((topic.name, number), 0))
        for topic in image.topics
        for number, partition in topic.partitions.items()
    ]
