"""Delivers transaction markers: from the outboxes of transaction shards to partition leaders, and the results back.

A shard releases a marker when the record of its decision is committed, and hands it out once. The result goes back to
the same shard, if it still exists. All markers that are due at the same time for one broker go in one request.

The wait for the commit also applies after loading. A new coordinator may find a decision in its log that is not
committed yet. If it delivered some markers and then lost the end of its log to another leader, the remaining partitions
would get the opposite outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from penstock.broker.coordinators.coordinator import Coordinator
from penstock.broker.coordinators.partition import CoordinatorPartition
from penstock.broker.metadata.brokers import Brokers
from penstock.broker.net.peers import PeerFailed
from penstock.metadata.image import Metadata
from penstock.metadata.partition import NO_LEADER
from penstock.model.ids import TopicPartition
from penstock.protocol.messages.write_txn_markers import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from penstock.settings.live import LiveSettings
from penstock.transactions.markers import Markers, errors_of, request_of
from penstock.transactions.shard import TransactionShard

logger = logging.getLogger("penstock.transactions")

CHANNEL: Final = "transactions"


@dataclass(slots=True, eq=False)
class _Outgoing:
    """The pending positions of one shard: `positions` are pairs (offset, number of records replayed up to there)."""

    shard: TransactionShard
    position: int = field(default=-1, init=False)
    positions: deque[tuple[int, int]] = field(default_factory=deque, init=False)
    handle: asyncio.Handle | None = field(default=None, init=False)
    timer: asyncio.TimerHandle | None = field(default=None, init=False)

    def cancel(self) -> None:
        if self.handle is not None:
            self.handle.cancel()
        if self.timer is not None:
            self.timer.cancel()


class MarkerDelivery:
    def __init__(
        self,
        transactions: Coordinator[TransactionShard],
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        metadata: Metadata,
        brokers: Brokers,
        write_here: Callable[[WriteTxnMarkersRequest, Callable[[WriteTxnMarkersResponse], None]], None],
        completed: Callable[[str], None],
    ) -> None:
        """`write_here` writes markers to partitions that this broker leads. `completed` is called with the id of a
        transaction when all of its partitions have their marker."""
        self._settings = settings
        self._loop = loop
        self._metadata = metadata
        self._brokers = brokers
        self._write_here = write_here
        self._clock = transactions.clock
        self._completed = completed
        self._outgoing: dict[CoordinatorPartition[TransactionShard], _Outgoing] = {}
        transactions.on_changed = self._changed
        transactions.on_committed = self._committed
        transactions.on_dropped = self._dropped

    # -- shards release markers -------------------------------------------------------------------------------------

    def _changed(self, partition: CoordinatorPartition[TransactionShard]) -> None:
        shard = partition.shard
        assert shard is not None
        outgoing = self._outgoing.get(partition)
        if outgoing is None:
            outgoing = self._outgoing[partition] = _Outgoing(shard)
        if shard.position != outgoing.position:
            outgoing.position = shard.position
            outgoing.positions.append((partition.end_offset, shard.position))
        self._committed(partition)

    def _committed(self, partition: CoordinatorPartition[TransactionShard]) -> None:
        outgoing = self._outgoing.get(partition)
        if outgoing is None:
            return
        high_watermark = partition.replica.high_watermark
        positions = outgoing.positions
        while positions and positions[0][0] <= high_watermark:
            outgoing.shard.committed(positions.popleft()[1])
        self._send_in_time(partition, outgoing)

    def _dropped(self, partition: CoordinatorPartition[TransactionShard]) -> None:
        outgoing = self._outgoing.pop(partition, None)
        if outgoing is not None:
            outgoing.cancel()

    def _send_in_time(self, partition: CoordinatorPartition[TransactionShard], outgoing: _Outgoing) -> None:
        deadline = outgoing.shard.markers_deadline
        if deadline is None or outgoing.handle is not None:
            return
        delay = (deadline - self._clock.now_ms()) / 1000
        if delay <= 0:
            outgoing.handle = self._loop.call_soon(self._send_due, partition, outgoing)
        elif outgoing.timer is None:
            outgoing.timer = self._loop.call_later(delay, self._timer_fired, partition, outgoing)

    def _timer_fired(self, partition: CoordinatorPartition[TransactionShard], outgoing: _Outgoing) -> None:
        outgoing.timer = None
        self._send_in_time(partition, outgoing)

    # -- sending ----------------------------------------------------------------------------------------------------

    def _send_due(self, partition: CoordinatorPartition[TransactionShard], outgoing: _Outgoing) -> None:
        outgoing.handle = None
        if partition.shard is not outgoing.shard:
            return
        due = outgoing.shard.markers_due(self._leader_of, self._clock.now_ms())
        partition.carry_out(due.decision)
        for broker_id, markers in due.by_broker.items():
            if partition.shard is outgoing.shard:
                self._send(partition, outgoing, broker_id, markers)

    def _send(
        self,
        partition: CoordinatorPartition[TransactionShard],
        outgoing: _Outgoing,
        broker_id: int,
        markers: list[Markers],
    ) -> None:
        request = request_of(markers)

        def done(outcome: WriteTxnMarkersResponse | PeerFailed) -> None:
            if partition.shard is outgoing.shard:
                self._answered(partition, outgoing, markers, outcome)

        if broker_id == self._settings.static.node_id:
            self._write_here(request, done)
            return
        peer = self._brokers.peer(broker_id, CHANNEL)
        if peer is None:
            self._loop.call_soon(done, PeerFailed(f"broker {broker_id} has no listener for brokers"))
            return
        peer.send(request, done, timeout=self._settings.now.request_timeout_ms / 1000)

    def _answered(
        self,
        partition: CoordinatorPartition[TransactionShard],
        outgoing: _Outgoing,
        markers: list[Markers],
        outcome: WriteTxnMarkersResponse | PeerFailed,
    ) -> None:
        shard = outgoing.shard
        now_ms = self._clock.now_ms()
        if isinstance(outcome, PeerFailed):
            logger.debug("markers did not get through: %s", outcome.message)
            for sent in markers:
                shard.markers_lost(sent, now_ms)
            self._send_in_time(partition, outgoing)
            return
        errors = errors_of(outcome)
        for sent in markers:
            if partition.shard is shard:
                partition.carry_out(shard.markers_answered(sent, errors.get(sent.producer_id, {}), now_ms))
                transaction = shard.get(sent.transactional_id)
                if transaction is None or not transaction.prepared:
                    self._completed(sent.transactional_id)
        self._send_in_time(partition, outgoing)

    def _leader_of(self, topic_partition: TopicPartition) -> int | None:
        image = self._metadata.image
        partition = image.topics.partition(*topic_partition)
        if partition is None:
            return None
        broker = image.brokers.get(partition.leader)
        return NO_LEADER if broker is None or broker.fenced else partition.leader
