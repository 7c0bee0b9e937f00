"""Requests of share groups, good and bad, get the same answers as from Apache Kafka (`share_requests`).

They are compared field by field, but for texts of errors, and for numbers that differ between any two clusters.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from apache_kafka import apache_kafka
from penstock.model.ids import ZERO_UUID
from penstock.protocol.apis import API
from penstock.protocol.declaration import Message
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from penstock.protocol.messages.find_coordinator import FindCoordinatorRequest
from penstock.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from penstock.protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from penstock.testing.nodes import start_node
from share_requests import SCRIPT, UNKNOWN_ID, Step
from waiting import wait_until
from wire import Closed, Wire, batch, create_topic, headers, metadata_of, produce

GROUP, SHARE = 0, 2
PROPERTIES = {
    "offsets.topic.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
}
# Texts; and numbers that depend on the history of the cluster, or on when something asynchronous was done.
MASKED = frozenset(
    {
        "error_message",
        "acknowledge_error_message",
        "leader_epoch",
        "leader_id",
        "port",
        "host",
        "node_id",
        "authorized_operations",
        "group_epoch",
        "assignment_epoch",
        "state_epoch",
    }
)


class Node:
    """A cluster of one node, prepared for the script."""

    def __init__(self, stack: ExitStack, address: tuple[str, int]) -> None:
        self._stack = stack
        self._address = address
        self._wires: dict[str, Wire] = {}
        self._topic_ids = {"zzz": UNKNOWN_ID, "zero": ZERO_UUID}
        self._prepare(self._wire("first"))
        served = self._wire("first").ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
        self.versions = {key.api_key: key.max_version for key in served.api_keys}

    def _wire(self, name: str) -> Wire:
        if name not in self._wires:
            self._wires[name] = self._stack.enter_context(Wire(self._address, timeout=10.0))
        return self._wires[name]

    def _prepare(self, wire: Wire) -> None:
        for name, partitions in (("a", 2), ("b", 1)):
            create_topic(wire, name, partitions=partitions)
            wait_until(lambda name=name: not metadata_of(wire, name).error_code)  # type: ignore[misc]
            self._topic_ids[name] = metadata_of(wire, name).topic_id
            for first in range(0, 20, 5):
                data = batch(*(f"{first + index}" for index in range(5)))
                wait_until(lambda name=name, data=data: not produce(wire, name, data).error_code)  # type: ignore[misc]
        for kind, key in ((GROUP, "g"), (SHARE, f"h:{'A' * 22}:0")):
            request = FindCoordinatorRequest(key_type=kind, coordinator_keys=[key])
            wait_until(lambda request=request: not wire.ask(request, 6).coordinators[0].error_code)  # type: ignore[misc]
        joins = ConsumerGroupHeartbeatRequest(
            group_id="consumers",
            member_id="c" * 22,
            member_epoch=0,
            rebalance_timeout_ms=300_000,
            subscribed_topic_names=["a"],
            topic_partitions=[],
        )
        wait_until(lambda: not wire.ask(joins, 1).error_code)
        part = OffsetCommitRequestPartition(partition_index=0, committed_offset=1)
        commit = OffsetCommitRequest(group_id="classic", topics=[OffsetCommitRequestTopic(name="a", partitions=[part])])
        wait_until(lambda: not wire.ask(commit, 8).topics[0].partitions[0].error_code)

    def topic_id(self, name: str) -> bytes:
        return self._topic_ids[name]

    def ask(self, step: Step, version: int) -> Any:
        message = step.request(self)
        wire = self._wire(step.connection)
        try:
            answer = wire.ask(message, version)
        except (Closed, OSError) as error:  # a time-out, too
            del self._wires[step.connection]
            return "no answer" if isinstance(error, TimeoutError) else "closed"
        return self._shown(answer, isinstance(message, ShareGroupHeartbeatRequest))

    def _shown(self, value: Any, is_heartbeat: bool) -> Any:
        if isinstance(value, Message):
            return {
                name: self._shown(getattr(value, name), is_heartbeat)
                for name in value.__schema__.names
                if name not in MASKED
            }
        if isinstance(value, list):
            return [self._shown(each, is_heartbeat) for each in value]
        if isinstance(value, memoryview):
            return [(each.base_offset, each.last_offset) for each in headers(value)]
        names = {topic_id: name for name, topic_id in self._topic_ids.items()}
        return names.get(value, value) if isinstance(value, bytes) else value


@contextmanager
def clusters(directory: Path) -> Iterator[tuple[Node, Node]]:
    with ExitStack() as stack:
        host, _, port = stack.enter_context(apache_kafka(directory / "kafka", PROPERTIES)).rpartition(":")
        kafka = Node(stack, (host, int(port)))
        running = stack.enter_context(start_node(directory / "penstock", properties=PROPERTIES))
        yield kafka, Node(stack, (running.host, running.port))


# What Kafka and we answer differently on purpose, and why.
KNOWN = {
    "offsets of a partition that does not exist": "Kafka does not answer; we have no offset for it",
    "a topic that does not exist": "Kafka fails (UNKNOWN_SERVER_ERROR); we name the partition, with UNKNOWN_TOPIC_ID",
    "an unknown mode": "Kafka fails (UNKNOWN_SERVER_ERROR); for us it is an INVALID_REQUEST",
    "no bytes": "nothing is read; Kafka does not list the partition, we list it without records",
    "negative bytes": "Kafka fails in the partition (UNKNOWN_SERVER_ERROR); we read nothing",
}


@pytest.mark.soak
def test_answers(tmp_path: Path) -> None:
    assert len(SCRIPT) >= 100
    assert len({each.name for each in SCRIPT}) == len(SCRIPT)
    assert KNOWN.keys() <= {each.name for each in SCRIPT}
    different: list[str] = []
    with clusters(tmp_path) as (kafka, ours):
        for step in SCRIPT:
            key = step.request(ours).__schema__.key
            assert key is not None
            version = min(kafka.versions[key], ours.versions[key])
            expected, answer = kafka.ask(step, version), ours.ask(step, version)
            if (expected != answer) != (step.name in KNOWN):
                different.append(f"{step.name} ({API[key].name} {version}):\n  kafka {expected}\n  ours  {answer}")
    assert not different, f"{len(different)} of {len(SCRIPT)} answers differ:\n" + "\n".join(different)
