"""Creates topics on first use: each is requested from the controller once, and no request waits for the answer."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Final

from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.net.peers import PeerFailed
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

logger = logging.getLogger("penstock.node")

TIMEOUT_S: Final = 15.0


class TopicCreation:
    def __init__(self, controller: ControllerChannel, metadata: Metadata) -> None:
        self._controller = controller
        self._metadata = metadata
        self._under_way: set[str] = set()

    def ask(self, topics: Iterable[CreatableTopic]) -> None:
        """Request the topics that do not exist and are not requested already."""
        known = self._metadata.image.topics
        request = CreateTopicsRequest(
            topics=[each for each in topics if each.name not in self._under_way and known.by_name(each.name) is None]
        )
        if not request.topics:
            return
        names = {topic.name for topic in request.topics}
        self._under_way |= names

        def done(outcome: CreateTopicsResponse | PeerFailed) -> None:
            self._under_way -= names
            if isinstance(outcome, PeerFailed):
                logger.warning("cannot create %s: %s", ", ".join(sorted(names)), outcome.message)
                return
            for topic in outcome.topics:
                if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
                    logger.warning("cannot create %s: %s", topic.name, topic.error_message)

        self._controller.send(request, done, timeout=TIMEOUT_S)
