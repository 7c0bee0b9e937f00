"""Registers this controller: its endpoints and supported features, once per start.

The registration goes to the active controller, which may be this node itself, and is repeated until the metadata shows
it. Admin clients of the quorum use it to find controllers, and an upgrade waits until all controllers support it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.net.peers import PeerFailed
from penstock.metadata.cluster import features_message
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.model.errors import ErrorCode
from penstock.model.ids import Uuid
from penstock.protocol.messages.broker_registration import Listener
from penstock.protocol.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)

logger = logging.getLogger("penstock.controller")

TIMEOUT_S: Final = 10.0
RETRY_S: Final = 1.0


class ControllerPresence:
    def __init__(
        self,
        *,
        node_id: int,
        incarnation_id: Uuid,
        listeners: list[Listener],
        loop: asyncio.AbstractEventLoop,
        quorum: MetadataQuorum,
        controller: ControllerChannel,
    ) -> None:
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._listeners = listeners
        self._loop = loop
        self._quorum = quorum
        self._controller = controller
        self._is_asking = False
        self._timer: asyncio.TimerHandle | None = None

    def check(self) -> None:
        """Register unless the metadata has it. Called when a controller becomes active or metadata changes."""
        image = self._quorum.image
        known = image.controllers.get(self._node_id)
        is_known = known is not None and known.incarnation_id == self._incarnation_id
        if is_known or self._is_asking or self._quorum.controller_id < 0 or image.metadata_version == 0:
            return
        self._is_asking = True
        request = ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self._incarnation_id,
            listeners=self._listeners,
            features=features_message(SUPPORTED_FEATURES),
        )
        self._controller.send(request, self._answered, timeout=TIMEOUT_S)

    def _answered(self, outcome: ControllerRegistrationResponse | PeerFailed) -> None:
        if isinstance(outcome, PeerFailed) or outcome.error_code:
            why = outcome.message if isinstance(outcome, PeerFailed) else ErrorCode(outcome.error_code).name
            logger.warning("this controller is not registered yet: %s", why)
        # The answer may arrive before the metadata. Check again later, in case the metadata does not arrive either.
        self._timer = self._loop.call_later(RETRY_S, self._again)

    def _again(self) -> None:
        self._is_asking = False
        self.check()

    def close(self) -> None:
        self._is_asking = True
        if self._timer is not None:
            self._timer.cancel()
