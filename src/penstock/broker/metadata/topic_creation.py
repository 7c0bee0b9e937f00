"""Creates topics on first use: each is requested from the controller once, and no request waits for the answer."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from typing import Final

from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.net.peers import PeerFailed
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse

logger = logging.getLogger("penstock.node")

TIMEOUT_S: Final = 15.0
# How many refusals are remembered, the latest.
FAILURES_MAX: Final = 1000


class TopicCreation:
    def __init__(self, controller: ControllerChannel, metadata: Metadata) -> None:
        self._controller = controller
        self._metadata = metadata
        self._under_way: set[str] = set()
        self._failures: dict[str, str] = {}

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
            for name in names:
                self._failures.pop(name, None)
            if isinstance(outcome, PeerFailed):
                self._failed(dict.fromkeys(sorted(names), outcome.message))
                return
            fine = (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
            refused = [topic for topic in outcome.topics if topic.error_code not in fine]
            self._failed({topic.name: topic.error_message or ErrorCode(topic.error_code).text for topic in refused})

        self._controller.send(request, done, timeout=TIMEOUT_S)

    def failures_of(self, names: Iterable[str]) -> list[tuple[str, str]]:
        """Return the topics that could not be created when they were last requested, and why."""
        return [(name, self._failures[name]) for name in names if name in self._failures]

    def _failed(self, reasons: Mapping[str, str]) -> None:
        for name, reason in reasons.items():
            logger.warning("cannot create %s: %s", name, reason)
            self._failures[name] = reason
        while len(self._failures) > FAILURES_MAX:
            del self._failures[next(iter(self._failures))]
