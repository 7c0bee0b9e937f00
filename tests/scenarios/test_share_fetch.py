"""ShareFetch and ShareAcknowledge on a real broker, request by request."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Producer

from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from penstock.protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from penstock.protocol.messages.read_share_group_state_summary import (
    Partition as SummaryPartition,
)
from penstock.protocol.messages.read_share_group_state_summary import (
    ReadShareGroupStateSummaryRequest,
    ReadStateSummaryData,
)
from penstock.shares.states import AcknowledgeType
from penstock.testing.nodes import RunningNode, start_node
from share_member import Member, acquired, initialize
from waiting import wait_until
from wire import Wire, batch, create_topic, end_offset, produce, read_all, records, values

GROUP_RESOURCE = 32
SET = 0
ACCEPT, RELEASE, REJECT, RENEW = (
    AcknowledgeType.ACCEPT,
    AcknowledgeType.RELEASE,
    AcknowledgeType.REJECT,
    AcknowledgeType.RENEW,
)


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    properties = {
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        "group.share.min.record.lock.duration.ms": "1000",
        "group.share.max.share.sessions": "20",
    }
    with start_node(tmp_path_factory.mktemp("shares") / "node", properties=properties) as node:
        yield node


class Queue:
    """A topic with one partition, and a group of its own."""

    def __init__(self, node: RunningNode, name: str, *, start_offset: int = 0) -> None:
        self.node = node
        self.group = self.topic = name
        self.wires = [Wire(node)]
        self.wire = self.wires[0]
        self.topic_id = create_topic(self.wire, name)
        initialize(self.wire, name, self.topic_id, start_offset=start_offset)

    def produce(self, *texts: str, partition: int = 0) -> None:
        produce(self.wire, self.topic, batch(*texts), partition=partition)

    def member(self, wire: Wire | None = None) -> Member:
        if wire is None:
            wire = Wire(self.node)
            self.wires.append(wire)
        return Member(wire, self.group, self.topic_id)

    def close(self) -> None:
        for wire in self.wires:
            wire.close()

    def persisted_start(self) -> int:
        part = SummaryPartition(partition=0, leader_epoch=-1)
        request = ReadShareGroupStateSummaryRequest(
            group_id=self.group, topics=[ReadStateSummaryData(topic_id=self.topic_id, partitions=[part])]
        )
        (topic,) = self.wire.ask(request).results
        return int(topic.partitions[0].start_offset)

    def set(self, **configs: str) -> None:
        self.configure({"share." + name.replace("_", "."): value for name, value in configs.items()})

    def configure(self, configs: dict[str, str]) -> None:
        response = self.wire.ask(
            IncrementalAlterConfigsRequest(
                resources=[
                    AlterConfigsResource(
                        resource_type=GROUP_RESOURCE,
                        resource_name=self.group,
                        configs=[
                            AlterableConfig(name=name, config_operation=SET, value=value)
                            for name, value in configs.items()
                        ],
                    )
                ]
            )
        )
        assert [result.error_code for result in response.responses] == [ErrorCode.NONE]


@pytest.fixture
def queue(node: RunningNode, unique_topic: Callable[[str], str]) -> Iterator[Queue]:
    queue = Queue(node, unique_topic("queue"))
    yield queue
    queue.close()


def test_records_go_to_one_member_and_are_final_once_accepted(queue: Queue) -> None:
    queue.produce("a", "b", "c")
    ada, ben = queue.member(), queue.member()
    result = ada.fetch(0, max_wait_ms=10_000)[0]
    assert acquired(result) == [(0, 2, 1)]
    assert values(result.records) == [b"a", b"b", b"c"]
    assert ben.acquire() == []
    assert ben.acknowledge([(0, 2, ACCEPT)]) is ErrorCode.INVALID_RECORD_STATE
    assert ada.acknowledge([(0, 0, ACCEPT), (1, 2, [ACCEPT, RELEASE])]) is ErrorCode.NONE
    assert ben.acquire() == [(2, 2, 2)]
    assert ada.acknowledge([(2, 2, ACCEPT)]) is ErrorCode.INVALID_RECORD_STATE
    assert ben.fetch(acks={0: [(2, 2, REJECT)]})[0].acknowledge_error_code == ErrorCode.NONE
    queue.produce("d")
    assert ada.acquire(max_wait_ms=10_000) == [(3, 3, 1)]


def test_waiting_fetches_take_turns(queue: Queue) -> None:
    ada, ben = queue.member(), queue.member()
    for member in (ada, ben):
        member.fetch(0)  # opens the session
        member.send(max_wait_ms=20_000, max_records=1)
    queue.produce("a")
    queue.produce("b")
    (first,), (second,) = acquired(ada.receive()[0]), acquired(ben.receive()[0])
    assert {first, second} == {(0, 0, 1), (1, 1, 1)}
    ada.send(max_wait_ms=20_000)
    assert ben.acknowledge([(second[0], second[1], RELEASE)]) is ErrorCode.NONE
    assert acquired(ada.receive()[0]) == [(*second[:2], 2)]


def test_a_lost_connection_releases_its_records(queue: Queue) -> None:
    queue.produce("a", "b")
    ada, ben = queue.member(), queue.member()
    assert ada.acquire(max_wait_ms=10_000) == [(0, 1, 1)]
    ben.fetch(0)
    ben.send(max_wait_ms=20_000)
    ada.wire.close()
    assert acquired(ben.receive()[0]) == [(0, 1, 2)]
    ben.leave()
    carl = queue.member()
    assert carl.acquire(max_wait_ms=10_000) == [(0, 1, 3)]


def test_a_lock_ends_unless_it_is_renewed(queue: Queue) -> None:
    queue.set(record_lock_duration_ms="1000")
    queue.produce("a")
    queue.produce("b")
    ada, ben = queue.member(), queue.member()
    assert ada.acquire(max_wait_ms=10_000, batch_size=1) == [(0, 0, 1), (1, 1, 1)]
    renewal = {"max_bytes": 0, "min_bytes": 0, "max_records": 0, "is_renew_ack": True}
    ben.fetch(0)
    ben.send(max_wait_ms=20_000)
    wait_until(lambda: ada.fetch(acks={0: [(1, 1, RENEW)]}, **renewal) and ben_has_something(ben))
    assert acquired(ben.receive()[0]) == [(0, 0, 2)]
    assert ada.error(acks={0: [(1, 1, RENEW)]}, **{**renewal, "max_records": 1}) is ErrorCode.INVALID_REQUEST
    result = ada.fetch(acks={0: [(1, 1, ACCEPT)]})[0]
    assert result.acknowledge_error_code == ErrorCode.NONE


def ben_has_something(ben: Member) -> bool:
    ben.wire.socket.setblocking(False)
    try:
        return bool(ben.wire.socket.recv(1, 2))  # MSG_PEEK
    except BlockingIOError:
        return False
    finally:
        ben.wire.socket.setblocking(True)


def test_after_the_last_delivery_a_record_is_archived(queue: Queue) -> None:
    queue.set(delivery_count_limit="2")
    queue.produce("poison")
    queue.produce("fine")
    ada = queue.member()
    for count in (1, 2):
        assert ada.acquire(max_wait_ms=10_000, max_records=1) == [(0, 0, count)]
        assert ada.acknowledge([(0, 0, RELEASE)]) is ErrorCode.NONE
    assert ada.acquire(max_wait_ms=10_000) == [(1, 1, 1)]


def test_sessions_are_numbered_and_limited(queue: Queue, node: RunningNode) -> None:
    ada = queue.member()
    assert ada.error(epoch=1) is ErrorCode.SHARE_SESSION_NOT_FOUND
    assert ada.error(epoch=0, acks={0: [(0, 0, ACCEPT)]}) is ErrorCode.INVALID_REQUEST
    assert ada.acknowledge([], epoch=0) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    ada.fetch(0)
    assert ada.error(epoch=5) is ErrorCode.INVALID_SHARE_SESSION_EPOCH
    assert Member(ada.wire, queue.group, queue.topic_id, "x" * 37).error(0) is ErrorCode.INVALID_REQUEST
    with Wire(node) as wire:
        errors = {queue.member(wire).error(0) for _ in range(21)}
        assert errors == {ErrorCode.NONE, ErrorCode.SHARE_SESSION_LIMIT_REACHED}


@pytest.mark.parametrize(
    "acks",
    [
        [(1, 0, ACCEPT)],
        [(1, 1, ACCEPT), (0, 0, ACCEPT)],
        [(0, 1, [ACCEPT, ACCEPT, ACCEPT])],
        [(0, 1, [])],
        [(0, 0, RENEW)],
        [(0, 7, ACCEPT)],
    ],
    ids=str,
)
def test_malformed_acknowledgements_are_refused(queue: Queue, acks: list[tuple[int, int, AcknowledgeType]]) -> None:
    queue.produce("a", "b")
    ada = queue.member()
    assert ada.acquire(max_wait_ms=10_000) == [(0, 1, 1)]
    assert ada.acknowledge(acks) is ErrorCode.INVALID_REQUEST
    assert ada.acknowledge([(0, 1, ACCEPT)]) is ErrorCode.NONE


def test_state_survives_a_restart(queue: Queue, node: RunningNode, unique_topic: Callable[[str], str]) -> None:
    late = Queue(node, unique_topic("late"), start_offset=-1)  # the group begins at the end
    late.produce("before")
    carl = late.member()
    carl.fetch(0)
    wait_until(lambda: late.persisted_start() == 1)
    late.produce("after")
    queue.produce("a", "b", "c", "d")
    ada = queue.member()
    assert ada.acquire(max_wait_ms=10_000) == [(0, 3, 1)]
    assert ada.acknowledge([(1, 1, ACCEPT), (2, 2, RELEASE)]) is ErrorCode.NONE
    node.kill()
    node.start()
    ben = queue.member()
    assert ben.acquire(max_wait_ms=20_000) == [(0, 0, 1), (2, 2, 2), (3, 3, 1)]
    # Where a group begins is chosen once: nothing is skipped.
    dora = late.member()
    assert dora.acquire(max_wait_ms=20_000) == [(1, 1, 1)]
    late.close()


def test_records_of_aborted_transactions_are_not_delivered(queue: Queue) -> None:
    queue.set(isolation_level="read_committed")
    producer = Producer({"bootstrap.servers": queue.node.bootstrap, "transactional.id": queue.topic})
    producer.init_transactions()
    for ends in (producer.abort_transaction, producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        producer.produce(queue.topic, ends.__name__, partition=0)
        producer.flush()
        ends()
    ada = queue.member()
    seen: list[bytes | None] = []

    def has_read_all() -> bool:
        for result in ada.fetch(*(() if ada.epoch else (0,)), max_wait_ms=1000).values():
            offsets = {each for first, last, _ in acquired(result) for each in range(first, last + 1)}
            seen.extend(
                record.value
                for record in records(result.records)
                if record.offset in offsets and record.value not in (b"", None)
            )
            ada.acknowledge([(first, last, ACCEPT) for first, last, _ in acquired(result)])
        return end_offset(queue.wire, queue.topic) == 6 and bool(seen)

    wait_until(has_read_all)
    assert [value for value in seen if value and b"transaction" in value] == [b"commit_transaction"]


def test_records_that_left_the_page_cache(queue: Queue) -> None:
    text = "x" * 100_000
    for number in range(60):
        queue.produce(f"{number}{text}")
    path = os.path.join(queue.node.partition_directory(queue.topic), "00000000000000000000.log")
    with open(path, "rb") as file:
        os.fsync(file.fileno())
        os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
    ada, ben = queue.member(), queue.member()
    first, second = (member.acquire(max_wait_ms=10_000, max_records=1, min_bytes=1) for member in (ada, ben))
    assert (first, second) == ([(0, 0, 1)], [(1, 1, 1)])


def test_deleted_records_and_topics(queue: Queue) -> None:
    queue.produce("a", "b", "c")
    queue.produce("d")
    ada = queue.member()
    assert ada.acquire(max_wait_ms=10_000, max_records=1) == [(0, 2, 1)]
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=queue.topic, partitions=[DeleteRecordsPartition(partition_index=0, offset=2)])],
        timeout_ms=10_000,
    )
    (topic,) = queue.wire.ask(request).topics
    assert topic.partitions[0].error_code == ErrorCode.NONE
    assert ada.acknowledge([(0, 2, RELEASE)]) is ErrorCode.NONE
    assert ada.acquire(max_wait_ms=10_000, max_records=1) == [(2, 2, 2)]
    ada.acquire(max_wait_ms=10_000)
    ada.send(max_wait_ms=20_000)
    queue.wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(topic_id=queue.topic_id)], timeout_ms=10_000))
    assert ada.receive()[0].error_code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def test_records_that_nobody_can_process_go_to_the_dead_letter_queue(queue: Queue) -> None:
    letters = f"dlq.{queue.topic}"
    create_topic(queue.wire, letters, configs={"errors.deadletterqueue.group.enable": "true"})
    queue.set(delivery_count_limit="2")
    queue.configure({"errors.deadletterqueue.topic.name": letters, "errors.deadletterqueue.copy.record.enable": "true"})
    queue.produce("fine", "rejected", "too often")
    ada = queue.member()
    assert ada.acquire(max_wait_ms=10_000) == [(0, 2, 1)]
    assert ada.acknowledge([(0, 2, [ACCEPT, REJECT, RELEASE])]) is ErrorCode.NONE
    assert ada.acquire(max_wait_ms=10_000) == [(2, 2, 2)]
    assert ada.acknowledge([(2, 2, RELEASE)]) is ErrorCode.NONE
    wait_until(lambda: end_offset(queue.wire, letters) == 2)
    copies = read_all(queue.wire, letters)
    assert [(copy.value, dict(copy.headers)) for copy in copies] == [
        (
            value,
            {
                "__dlq.errors.topic": queue.topic.encode(),
                "__dlq.errors.partition": b"0",
                "__dlq.errors.offset": offset,
                "__dlq.errors.group": queue.group.encode(),
                "__dlq.errors.delivery.count": count,
                "__dlq.errors.message": message,
            },
        )
        for value, offset, count, message in [
            (b"rejected", b"1", b"1", b"Offset rejected by client."),
            (b"too often", b"2", b"2", b"Offset delivery count exceeded the threshold."),
        ]
    ]
    wait_until(lambda: start_offset(queue) == 3)


def start_offset(queue: Queue) -> int:
    """The persisted one. It moves with the next write, so there is one."""
    queue.produce("next")
    ada = queue.member()
    for first, last, _ in ada.acquire(max_wait_ms=10_000):
        ada.acknowledge([(first, last, RELEASE)])
    ada.leave()
    ada.wire.close()
    return queue.persisted_start()
