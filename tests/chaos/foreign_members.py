"""Members of groups that are not Python: each in a process beside the program that stands for it, and dies with it."""

from __future__ import annotations

import os
from typing import Any

from clients.drivers import Refused as RefusedByBroker
from clients.drivers.java import JavaClient
from clients.drivers.kafkajs import KafkaJs
from clients.drivers.process import ClientCrashed, ProcessClient, ProcessMember
from clients.group_members import Given, NewMember, Read, Refused, Timing


class ForeignMember:
    def __init__(self, client: ProcessClient, group: str, topic: str, settings: dict[str, Any]) -> None:
        self.given: list[Given] = []
        self._client = client
        self._member = ProcessMember(client, group, topic, settings)
        self._noted = 0

    def poll(self) -> list[Read]:
        found = self._member.poll()
        given = self._member.given
        self.given.extend(self._note(each) for each in given[self._noted :])
        self._noted = len(given)
        return found

    def _note(self, given: Given) -> Given:
        return given

    def commit(self) -> dict[int, int]:
        try:
            return self._member.commit()
        except (RefusedByBroker, ClientCrashed) as error:  # a time-out, or a group that has moved on
            raise Refused(str(error)) from error

    def assignment(self) -> set[int]:
        return self._member.assignment()

    def leave(self) -> None:
        self._member.leave()
        self._client.close()


class KafkaJsMember(ForeignMember):
    """kafkajs does not expose its generation; so each of its assignments counts as a generation of its own, and that a
    partition has one owner is not checked."""

    def __init__(self, bootstrap: str, group: str, topic: str, timing: Timing) -> None:
        settings = {"sessionTimeout": timing.session_ms, "heartbeatInterval": timing.heartbeat_ms}
        settings["metadataMaxAge"] = timing.metadata_ms
        super().__init__(KafkaJs(bootstrap, timing.request_ms), group, topic, settings)

    def _note(self, given: Given) -> Given:
        return Given(int(f"{os.getpid()}{given.generation:06}"), given.partitions)


class JavaMember(ForeignMember):
    settings: dict[str, str] = {"group.protocol": "classic"}

    def __init__(self, bootstrap: str, group: str, topic: str, timing: Timing) -> None:
        settings = {"request.timeout.ms": str(timing.request_ms), **self.settings}
        if settings["group.protocol"] == "classic":
            settings["session.timeout.ms"] = str(timing.session_ms)
            settings["heartbeat.interval.ms"] = str(timing.heartbeat_ms)
        super().__init__(JavaClient(bootstrap), group, topic, settings)


class JavaConsumerProtocol(JavaMember):
    settings = {"group.protocol": "consumer"}


KINDS: dict[str, NewMember] = {
    "kafkajs": KafkaJsMember,
    "java": JavaMember,
    "java-consumer-protocol": JavaConsumerProtocol,
}
