"""Hands out producer ids one by one, from blocks that the controller allocates.

Callers that need an id while a new block is requested wait for it, so that each block is requested once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.metadata.registration import Registration
from penstock.broker.net.peers import PeerFailed
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

logger = logging.getLogger("penstock.producers")

TIMEOUT_S: Final = 10.0

Taker = Callable[[int | KafkaError], None]
Waiter = Callable[[KafkaError | None], None]


class ProducerIds:
    def __init__(self, registration: Registration, controller: ControllerChannel) -> None:
        self._registration = registration
        self._controller = controller
        self._next = 0
        self._end = 0
        self._waiting: list[Waiter] = []

    def take(self, taker: Taker) -> None:
        def at_hand(error: KafkaError | None) -> None:
            taker(self._take() if error is None else error)

        self.when_any(at_hand)

    def take_if_any(self) -> int | None:
        """Take an id that is available now; if there is none, None, and a new block is requested."""
        if self._next < self._end:
            return self._take()
        self.when_any(lambda error: None)
        return None

    def when_any(self, waiter: Waiter) -> None:
        """Run `waiter` when an id is available, or with the error if there is none."""
        if self._next < self._end:
            waiter(None)
            return
        self._waiting.append(waiter)
        if len(self._waiting) == 1:
            self._allocate()

    def _take(self) -> int:
        self._next += 1
        return self._next - 1

    def _allocate(self) -> None:
        request = AllocateProducerIdsRequest(
            broker_id=self._registration.broker_id, broker_epoch=self._registration.broker_epoch
        )
        self._controller.send(request, self._allocated, timeout=TIMEOUT_S)

    def _allocated(self, outcome: AllocateProducerIdsResponse | PeerFailed) -> None:
        waiting, self._waiting = self._waiting, []
        if isinstance(outcome, PeerFailed) or outcome.error_code:
            # Clients retry; a stale broker epoch is renewed meanwhile.
            logger.warning("no producer ids from the controller: %s", outcome)
            for waiter in waiting:
                waiter(KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, "The controller gave no producer ids yet."))
            return
        self._next = outcome.producer_id_start
        self._end = outcome.producer_id_start + outcome.producer_id_len
        for waiter in waiting:
            self.when_any(waiter)
