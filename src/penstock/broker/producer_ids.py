"""Producer ids for idempotent producers: handed out one by one from blocks that the controller allocates.

Whoever asks while a new block is on its way waits for it, so that a block is asked for once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from penstock.broker.peers import PeerFailed
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

if TYPE_CHECKING:
    from penstock.broker.node import Node

logger = logging.getLogger("penstock.producers")

TIMEOUT_S: Final = 10.0

Taker = Callable[[int | KafkaError], None]


class ProducerIds:
    def __init__(self, node: Node) -> None:
        self._node = node
        self._next = 0
        self._end = 0
        self._waiting: list[Taker] = []

    def take(self, taker: Taker) -> None:
        if self._next < self._end:
            self._next += 1
            taker(self._next - 1)
            return
        self._waiting.append(taker)
        if len(self._waiting) == 1:
            self._allocate()

    def _allocate(self) -> None:
        request = AllocateProducerIdsRequest(
            broker_id=self._node.settings.node_id, broker_epoch=self._node.broker_epoch
        )
        self._node.controller.send(request, self._allocated, timeout=TIMEOUT_S)

    def _allocated(self, outcome: AllocateProducerIdsResponse | PeerFailed) -> None:
        waiting, self._waiting = self._waiting, []
        if isinstance(outcome, PeerFailed) or outcome.error_code:
            # Clients try again; an epoch that is out of date is renewed meanwhile.
            logger.warning("no producer ids from the controller: %s", outcome)
            for taker in waiting:
                taker(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The controller gave no producer ids yet."))
            return
        self._next = outcome.producer_id_start
        self._end = outcome.producer_id_start + outcome.producer_id_len
        for taker in waiting:
            self.take(taker)
