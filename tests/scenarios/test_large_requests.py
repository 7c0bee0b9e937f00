"""Large frames are received in buffers that connections keep for the next one, up to a limit for all of them.

What a request costs is limited by its elements, too: a partition without records takes five bytes.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable

import pytest

from penstock.protocol.codec import REQUEST_ELEMENTS_MAX
from penstock.protocol.declaration import Message
from penstock.protocol.messages.elect_leaders import ElectLeadersRequest
from penstock.protocol.messages.elect_leaders import TopicPartitions as TopicsToElect
from penstock.protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from penstock.testing.nodes import RunningNode
from wire import Closed, Wire, batch, create_topic, only_partition, produce_request, read_all


def test_large_and_small_requests_of_many_connections_arrive_whole(
    broker: RunningNode, wire: Wire, unique_topic: Callable[[str], str]
) -> None:
    topic = unique_topic("large")
    create_topic(wire, topic)
    sizes = [900_000, 10, 700_000, 100_000, 900_000, 600_000]
    sent: list[bytes] = []
    with contextlib.ExitStack() as connections:
        wires = [connections.enter_context(Wire(broker)) for _ in range(24)]
        for number in range(len(sizes)):
            for index, each in enumerate(wires):
                value = os.urandom(16) * (sizes[(number + index) % len(sizes)] // 16)
                frame = each.encode(produce_request(topic, batch(value)), 12)
                split = len(frame) * index // len(wires)
                each.socket.sendall(frame[:split])
                each.socket.sendall(frame[split:])
                # Another one behind it, so that a read may end in the middle of a frame.
                each.socket.sendall(each.encode(produce_request(topic, batch(value[:5000])), 12))
                sent += [value, value[:5000]]
                assert only_partition(each.receive()).error_code == 0
                assert only_partition(each.receive()).error_code == 0
    assert [record.value for record in read_all(wire, topic)] == sent


@pytest.mark.parametrize(
    "request_of",
    [
        lambda count: ProduceRequest(
            acks=1,
            topic_data=[
                TopicProduceData(name="none", partition_data=[PartitionProduceData(index=n) for n in range(count)])
            ],
        ),
        lambda count: ElectLeadersRequest(
            topic_partitions=[TopicsToElect(topic="none", partitions=list(range(count)))]
        ),
    ],
    ids=["empty batches", "numbers"],
)
def test_a_request_with_too_many_elements_closes_its_connection(
    broker: RunningNode, wire: Wire, request_of: Callable[[int], Message]
) -> None:
    with Wire(broker) as other:
        other.send(request_of(REQUEST_ELEMENTS_MAX))
        with pytest.raises(Closed):
            other.receive()
    assert "more elements than are read" in broker.log_text()
    wire.send(request_of(REQUEST_ELEMENTS_MAX // 10))
    assert wire.receive() is not None
