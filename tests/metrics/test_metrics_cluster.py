"""The numbers of a real cluster, while real clients work with it: those that must be right are."""

from __future__ import annotations

import re
import socket
import time
import urllib.request
from collections.abc import Iterator
from itertools import islice

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from clients.librdkafka import close
from narrowing import present
from penstock import ShareConsumer
from penstock.client.wire.admin import Admin, ResourceType
from penstock.client.wire.admin.topics import PartitionDescription
from penstock.doctor.metrics_pages import Page, read_page
from penstock.protocol.messages.list_transactions import ListTransactionsRequest
from penstock.testing.clusters import RunningCluster, start_cluster
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until
from wire import Wire, batch, produce_request

DEADLINE_S = 60
LATENCY = "kafka_network_requestmetrics_totaltime_seconds"
MESSAGES_IN = "kafka_server_brokertopicmetrics_messagesin_total"
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"
BYTES_OUT = "kafka_server_brokertopicmetrics_bytesout_total"
MESSAGES_OUT = "penstock_topic_messages_out_total"
UNDER_REPLICATED = "kafka_server_replicamanager_underreplicatedpartitions"
OFFLINE = "kafka_controller_kafkacontroller_offlinepartitionscount"
PARKED = "kafka_server_delayedoperationpurgatory_purgatorysize"
PROPERTIES = {
    "penstock.metrics.listener": "127.0.0.1:0",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
}


def url_of(node: RunningNode) -> str:
    """Port 0 is any that is free; the log says which it became, each time anew."""
    urls: list[str] = re.findall(r"metrics at (http://\S+)", node.log_text())
    return urls[-1]


def page_of(node: RunningNode) -> Page:
    return read_page(url_of(node))


def over_all(cluster: RunningCluster, name: str, **labels: str) -> float:
    return sum(page_of(broker).total(name, **labels) for broker in cluster.brokers if broker.running)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningCluster]:
    directory = tmp_path_factory.mktemp("metrics")
    with start_cluster(directory, brokers=3, controllers=1, properties=PROPERTIES) as running:
        yield running


def write(cluster: RunningCluster, topic: str, count: int) -> None:
    failures: list[object] = []
    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "on_delivery": lambda error, _: failures.extend([error] if error else []),
        }
    )
    for number in range(count):
        producer.produce(topic, b"x" * 100, key=str(number))
    assert producer.flush(DEADLINE_S) == 0
    assert not failures


def test_counts_are_what_clients_did(cluster: RunningCluster) -> None:
    cluster.create_topic("orders", partitions=4, replicas=2)
    write(cluster, "orders", 500)
    assert over_all(cluster, MESSAGES_IN, topic="orders") == 500
    sizes = over_all(cluster, "kafka_log_log_size", topic="orders")
    assert over_all(cluster, BYTES_IN, topic="orders") == sizes / 2  # each byte has two copies
    ends = over_all(cluster, "kafka_log_log_logendoffset", topic="orders")
    assert ends == 1000

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["orders"])
    read = 0
    deadline = time.monotonic() + DEADLINE_S
    while read < 500:
        read += len(consumer.consume(500, 0.2))
        assert time.monotonic() < deadline
    assert over_all(cluster, MESSAGES_OUT, topic="orders") == 500
    assert over_all(cluster, BYTES_OUT, topic="orders") == sizes / 2

    # It has committed less than it read, and nothing in one partition.
    consumer.commit(offsets=[TopicPartition("orders", index, 10 + index) for index in range(3)], asynchronous=False)
    wait_until(lambda: over_all(cluster, PARKED, delayedOperation="FetchConsumer") > 0)
    with Admin(cluster.bootstrap) as admin:
        told = {
            (each.topic, each.partition): each.lag for each in admin.groups.lag("billing") if each.committed is not None
        }
    pages = [page_of(broker) for broker in cluster.brokers]
    measured = {
        (labels["topic"], int(labels["partition"])): value
        for page in pages
        for labels, value in page.of("kafka_consumergroup_lag", consumergroup="billing")
    }
    assert len(told) == 3
    assert measured == told
    assert sum(page.total("kafka_consumergroup_members", consumergroup="billing") for page in pages) == 1
    assert sum(page.total("penstock_consumergroup_generation", consumergroup="billing") for page in pages) == 1
    assert (
        sum(page.total("penstock_coordinator_partitions", coordinator="group", state="active") for page in pages) == 3
    )
    close(consumer)


def test_lag_and_deliveries_of_a_share_group(cluster: RunningCluster) -> None:
    cluster.create_topic("jobs", partitions=3, replicas=2)
    with Admin(cluster.bootstrap) as admin:
        admin.share_groups.reset("workers", "earliest", topics=["jobs"])
    write(cluster, "jobs", 300)
    with ShareConsumer(cluster.bootstrap, "jobs", group="workers", explicit=True, max_records=10) as consumer:
        records = islice(consumer, 20)
        for _ in range(4):
            consumer.accept(next(records))
        for _ in range(3):
            consumer.release(next(records))
        consumer.reject(next(records))
        consumer.flush()
        assert deliveries(cluster, "workers") == {
            "accepted": 4,
            "released": 3,
            "rejected": 1,
            "lock_timeout": 0,
            "delivery_limit": 0,
        }
        assert over_all(cluster, "penstock_sharegroup_acquired_records", sharegroup="workers") > 0
        assert over_all(cluster, "kafka_consumergroup_members", consumergroup="workers") == 1
    # What it had is released; the group has no coordinator now, and its lag is known all the same.
    with Admin(cluster.bootstrap) as admin:
        told = {(each.topic, each.partition): each.lag for each in admin.share_groups.offsets("workers")}
        starts = {(each.topic, each.partition): each.start for each in admin.share_groups.offsets("workers")}
    assert sum(present(lag) for lag in told.values()) == 295
    assert by_partition(cluster, "penstock_sharegroup_lag") == told
    assert by_partition(cluster, "penstock_sharegroup_start_offset") == starts


def test_records_that_no_worker_accepts(cluster: RunningCluster) -> None:
    cluster.create_topic("poison", partitions=1, replicas=2)
    with Admin(cluster.bootstrap) as admin:
        admin.share_groups.reset("sick", "earliest", topics=["poison"])
        admin.configs.alter(ResourceType.GROUP, "sick", {"share.delivery.count.limit": "2"})
    write(cluster, "poison", 1)
    with ShareConsumer(cluster.bootstrap, "poison", group="sick", explicit=True) as consumer:
        records = iter(consumer)
        consumer.release(next(records))
        assert next(records).delivery_count == 2
        assert over_all(cluster, "penstock_sharegroup_last_attempt_records", sharegroup="sick") == 1
    wait_until(lambda: deliveries(cluster, "sick")["delivery_limit"] == 1)
    assert over_all(cluster, "penstock_sharegroup_lag", sharegroup="sick") == 0


def deliveries(cluster: RunningCluster, group: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for broker in cluster.brokers:
        for labels, value in page_of(broker).of("penstock_sharegroup_deliveries_total", sharegroup=group):
            found[labels["outcome"]] = found.get(labels["outcome"], 0) + value
    return found


def by_partition(cluster: RunningCluster, name: str) -> dict[tuple[str, int], float]:
    return {
        (labels["topic"], int(labels["partition"])): value
        for broker in cluster.brokers
        for labels, value in page_of(broker).of(name, sharegroup="workers")
    }


def test_requests_are_counted_once_whatever_way_they_take(cluster: RunningCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.topics.create("plain", assignment=[[1]])
        admin.topics.create("copied", assignment=[[1, 2]])
    cluster.wait_for_isr("copied")
    broker = cluster.broker(1)

    def counted(request: str) -> float:
        return page_of(broker).total(f"{LATENCY}_count", request=request)

    with Wire(broker) as wire:
        for _ in range(5):
            wire.ask(ListTransactionsRequest())
        assert counted("ListTransactions") == 5
        # One at a time; many in one read, which are appended together; with an answer that waits; with none.
        before = counted("Produce")
        wire.ask(produce_request("plain", batch("a"), acks=1), 9)
        wire.socket.sendall(b"".join(wire.encode(produce_request("plain", batch("b"), acks=1), 9) for _ in range(20)))
        for _ in range(20):
            wire.receive()
        wire.ask(produce_request("copied", batch("c"), acks=-1), 9)
        wire.send(produce_request("plain", batch("d"), acks=0), 9, answered=False)
        wire.ask(produce_request("no-such-topic", batch("e"), acks=1), 9)
        assert counted("Produce") - before == 24
        page = page_of(broker)
        assert page.total(MESSAGES_IN, topic="plain") == 22
        assert page.total("kafka_server_socketservermetrics_connection_count") >= 1
        assert page.value("kafka_server_replicamanager_leadercount") == sum(
            each.leader == 1 for topic in admin_topics(cluster) for each in topic
        )


def admin_topics(cluster: RunningCluster) -> list[list[PartitionDescription]]:
    with Admin(cluster.bootstrap) as admin:
        return [list(topic.partitions) for topic in admin.topics.list(internal=True)]


def test_open_transactions(cluster: RunningCluster) -> None:
    cluster.create_topic("ledger", partitions=1, replicas=1)
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "transactional.id": "open-for-long"})
    producer.init_transactions(DEADLINE_S)
    producer.begin_transaction()
    producer.produce("ledger", b"entry")
    producer.flush(DEADLINE_S)
    assert over_all(cluster, "penstock_transactions", state="Ongoing") == 1
    wait_until(lambda: over_all(cluster, "penstock_transaction_oldest_open_seconds") > 0)
    producer.abort_transaction(DEADLINE_S)
    wait_until(lambda: over_all(cluster, "penstock_transactions", state="Ongoing") == 0)


def test_the_quorum(cluster: RunningCluster) -> None:
    (controller,) = cluster.controllers
    page = page_of(controller)
    assert page.value("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert page.value("kafka_controller_kafkacontroller_activebrokercount") == 3
    assert page.value("kafka_server_raftmetrics_currentstate", state="leader") == 1
    assert {labels["replica"] for labels, _ in page.of("penstock_raft_replica_lag")} == {"1", "2", "3"}
    assert MESSAGES_IN not in page.names
    for broker in cluster.brokers:
        seen = page_of(broker)
        assert seen.value("kafka_server_raftmetrics_currentleader") == controller.node_id
        assert seen.value("kafka_server_raftmetrics_currentstate", state="observer") == 1
        assert seen.value("process_start_time_seconds") == pytest.approx(time.time(), abs=600)
        assert (seen.value("process_resident_memory_bytes") or 0) > 1 << 20
        assert (seen.value("penstock_loop_lag_seconds_count") or 0) > 0


def test_a_broker_that_dies_shows(cluster: RunningCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.topics.create("kept", assignment=[[1, 3], [3, 1]])
        admin.topics.create("single", assignment=[[3]])
    cluster.wait_for_isr("kept")
    (controller,) = cluster.controllers
    assert over_all(cluster, UNDER_REPLICATED) == 0
    assert page_of(controller).value(OFFLINE) == 0
    cluster.broker(3).kill()

    def under_replicated() -> int:
        with Admin(cluster.broker(1).bootstrap) as admin:
            described = admin.cluster.describe()
        return len([each for each in described.under_replicated if each not in described.offline])

    wait_until(lambda: page_of(controller).value(OFFLINE) == 1)
    wait_until(lambda: 2 <= over_all(cluster, UNDER_REPLICATED) == under_replicated())
    assert page_of(cluster.broker(1)).total("kafka_server_replicamanager_isrshrinks_total") >= 2
    assert page_of(controller).value("kafka_controller_kafkacontroller_fencedbrokercount") == 1
    cluster.broker(3).start()
    wait_until(lambda: over_all(cluster, UNDER_REPLICATED) == 0 and page_of(controller).value(OFFLINE) == 0)
    assert page_of(cluster.broker(1)).total("kafka_server_replicamanager_isrexpands_total") >= 2


# -- the endpoint itself ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    properties = PROPERTIES | {"penstock.metrics.max.series": "2"}
    with start_node(tmp_path_factory.mktemp("endpoint") / "node", properties=properties) as running:
        yield running


def ask(node: RunningNode, request: bytes) -> bytes:
    port = int(url_of(node).split(":")[2].split("/")[0])
    with socket.create_connection(("127.0.0.1", port), DEADLINE_S) as connection:
        connection.sendall(request)
        answer = b""
        while part := connection.recv(65536):
            answer += part
        return answer


@pytest.mark.parametrize(
    ("request_bytes", "status"),
    [
        (b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", b"200 OK"),
        (b"GET /metrics?name=x HTTP/1.0\r\n\r\n", b"200 OK"),
        (b"HEAD /metrics HTTP/1.1\r\n\r\n", b"200 OK"),
        (b"GET / HTTP/1.1\r\n\r\n", b"404 Not Found"),
        (b"POST /metrics HTTP/1.1\r\n\r\n", b"405 Method Not Allowed"),
        (b"\x00\x00\x00\x10 a Kafka client\r\n\r\n", b"400 Bad Request"),
        (b"GET /" + b"x" * 10_000, b"431 Request Header Fields Too Large"),
    ],
)
def test_what_it_answers(node: RunningNode, request_bytes: bytes, status: bytes) -> None:
    head, _, body = ask(node, request_bytes).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 " + status + b"\r\n")
    assert body or request_bytes.startswith(b"HEAD")
    if not request_bytes.startswith(b"HEAD"):
        assert f"Content-Length: {len(body)}\r\n".encode() in head + b"\r\n"


def test_silent_clients_take_nobody_the_room(node: RunningNode) -> None:
    port = int(url_of(node).split(":")[2].split("/")[0])
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(40)]
    try:
        assert any(connection.recv(12) == b"HTTP/1.1 503" for connection in silent[32:33])
        with Wire(node) as wire:
            wire.ask(ListTransactionsRequest())  # the broker does not mind
    finally:
        for connection in silent:
            connection.close()
    wait_until(lambda: ask(node, b"GET /metrics HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 200"))


def test_beyond_the_limit_series_are_left_out(node: RunningNode) -> None:
    with Admin(node.bootstrap) as admin:
        admin.topics.create("wide", partitions=5)
    page = page_of(node)
    assert len(list(page.of("kafka_log_log_size"))) == 2
    assert (
        page.value("penstock_metrics_series_left_out")
        == (page.value("kafka_server_replicamanager_partitioncount") or 0) - 2
    )
    assert page.total("penstock_build_info", node_id="1", roles="broker+controller") == 1


def test_a_port_that_is_taken_stops_the_start_with_a_reason(
    node: RunningNode, tmp_path_factory: pytest.TempPathFactory
) -> None:
    taken = url_of(node).removeprefix("http://").removesuffix("/metrics")
    properties = {"penstock.metrics.listener": taken}
    with (
        pytest.raises(Exception, match=r"cannot listen on .* \(penstock.metrics.listener\)"),
        start_node(tmp_path_factory.mktemp("second") / "node", properties=properties),
    ):
        pass


def test_without_the_setting_there_is_no_endpoint(broker: RunningNode) -> None:
    assert "metrics at" not in broker.log_text()


def test_many_who_ask_at_once_share_an_answer(node: RunningNode) -> None:
    before = page_of(node).value("penstock_metrics_scrapes_total") or 0
    port = int(url_of(node).split(":")[2].split("/")[0])
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(20)]
    for each in sockets:
        each.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
    for each in sockets:
        assert each.recv(15) == b"HTTP/1.1 200 OK"
        each.close()
    with urllib.request.urlopen(url_of(node)) as answer:
        after = Page(answer.read().decode()).value("penstock_metrics_scrapes_total") or 0
    assert 2 <= after - before <= 21


def test_what_clients_report_of_themselves(cluster: RunningCluster) -> None:
    """Metrics pushed by librdkafka (KIP-714), of clients that a subscription selects."""
    cluster.create_topic("telemetry", partitions=1, replicas=1)
    with Admin(cluster.bootstrap) as admin:
        admin.client_metrics.set("watched", ["*"], interval_ms=200, match={"client_id": "watched-.*"})
        producers = [
            Producer({"bootstrap.servers": cluster.bootstrap, "client.id": name}) for name in ("watched-1", "other")
        ]

        def reported(client_id: str, *suffixes: str) -> list[str]:
            for producer in producers:
                producer.produce("telemetry", b"x")
                producer.flush(DEADLINE_S)
            pages = [page_of(broker) for broker in cluster.brokers]
            names = {
                name
                for page in pages
                for name in page.names
                if name.startswith("penstock_client_producer_") and any(page.of(name, client_id=client_id))
            }
            return [suffix for suffix in suffixes if any(name.endswith(suffix) for name in names)]

        wanted = ["connection_creation_total", "node_request_latency_avg"]
        wait_until(lambda: reported("watched-1", *wanted) == wanted, "what the watched client did is shown")
        assert reported("other", "") == []
        assert over_all(cluster, "penstock_client_metrics_pushes_total") > 0
        assert over_all(cluster, "penstock_client_metrics_invalid_pushes_total") == 0
        assert over_all(cluster, "kafka_server_client_metrics_instance_count") >= 2
        assert [each.name for each in admin.client_metrics.list()] == ["watched"]
        admin.client_metrics.remove("watched")
        wait_until(lambda: admin.client_metrics.list() == [], "the subscription is gone")
