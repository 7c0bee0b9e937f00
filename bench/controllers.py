"""`python -m bench.controllers`: a quorum with many partitions in its metadata, and how long it is without a leader.

Three controllers are real processes; the brokers are registrations and heartbeats sent from here, since what is
measured needs their metadata and none of their data. Topics are created until there are enough partitions. Then the
active controller is killed, and the clock runs until another one creates a topic.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import tempfile
import threading
import time
from collections.abc import Iterator
from statistics import median

from rich.console import Console

from bench.processes import resident_bytes
from bench.subjects import keep_bytecode
from penstock.client.errors import ClientError, raise_for
from penstock.client.wire.connection import Connection
from penstock.local.cluster import plan_cluster
from penstock.local.node import LocalNode
from penstock.local.ports import free_ports
from penstock.local.supervisor import stop_in_order
from penstock.metadata.features import SUPPORTED_FEATURES
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.topics import METADATA_TOPIC
from penstock.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from penstock.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from penstock.protocol.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumRequestPartitionData,
    DescribeQuorumRequestTopicData,
    DescribeQuorumResponse,
)

PARTITIONS_A_TOPIC = 500
HEARTBEAT_S = 1.0
RECOVERY_S = 60.0
# A controller that has just started has its log to replay; the next one to die should leave two that are ready.
SETTLE_S = 3.0
FAR = (1 << 62) - 1


class Quorum:
    """The controllers, as a broker sees them."""

    def __init__(self, nodes: list[LocalNode], cluster_id: str) -> None:
        self.nodes = nodes
        self.cluster_id = cluster_id

    def leader(self) -> LocalNode:
        topic = DescribeQuorumRequestTopicData(
            topic_name=METADATA_TOPIC, partitions=[DescribeQuorumRequestPartitionData(partition_index=0)]
        )
        deadline = time.perf_counter() + RECOVERY_S
        while time.perf_counter() < deadline:
            for node in self.nodes:
                with contextlib.suppress(ClientError), Connection(node.host, node.port, timeout=5.0) as connection:
                    answer = connection.request(DescribeQuorumRequest(topics=[topic]), DescribeQuorumResponse)
                    if not answer.error_code and not answer.topics[0].partitions[0].error_code:
                        leader = answer.topics[0].partitions[0].leader_id
                        found = [each for each in self.nodes if each.node_id == leader and each.running]
                        if found:
                            return found[0]
            time.sleep(0.005)
        raise TimeoutError("the quorum has no leader")

    def create(self, name: str, partitions: int, replicas: int) -> None:
        """Through the active controller, tried until it works."""
        topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=replicas)
        deadline = time.perf_counter() + RECOVERY_S
        last: Exception | None = None
        while time.perf_counter() < deadline:
            for node in self.nodes:
                if not node.running:
                    continue
                try:
                    with Connection(node.host, node.port, timeout=30.0) as connection:
                        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000)
                        (result,) = connection.request(request, CreateTopicsResponse).topics
                        raise_for(result.error_code, result.error_message, name)
                        return
                except KafkaError as error:
                    if error.code == ErrorCode.TOPIC_ALREADY_EXISTS:
                        return
                    last = error
                except ClientError as error:
                    last = error
            time.sleep(0.005)
        raise TimeoutError(f"{name} was not created: {last}")


class Brokers(threading.Thread):
    """Registrations of brokers that do not exist, kept alive."""

    def __init__(self, quorum: Quorum, count: int) -> None:
        super().__init__(daemon=True)
        self._quorum = quorum
        self._count = count
        self._epochs: dict[int, int] = {}
        self._connections: dict[int, Connection] = {}
        self._stopping = threading.Event()
        # Where all of them listen, and no controller answers: a new controller calls on those it has not heard of.
        self._listener = socket.create_server(("127.0.0.1", 0))

    def register(self) -> None:
        leader = self._quorum.leader()
        for broker_id in range(1, self._count + 1):
            connection = self._connections[broker_id] = Connection(leader.host, leader.port, timeout=30.0)
            request = BrokerRegistrationRequest(
                broker_id=broker_id,
                cluster_id=self._quorum.cluster_id,
                incarnation_id=os.urandom(16),
                listeners=[Listener(name="PLAINTEXT", host="127.0.0.1", port=self._listener.getsockname()[1])],
                features=[
                    Feature(name=name, min_supported_version=levels.minimum, max_supported_version=levels.maximum)
                    for name, levels in SUPPORTED_FEATURES.items()
                ],
                log_dirs=[os.urandom(16)],
            )
            answer = connection.request(request, BrokerRegistrationResponse)
            raise_for(answer.error_code, None, f"broker {broker_id}")
            self._epochs[broker_id] = answer.broker_epoch
        deadline = time.perf_counter() + RECOVERY_S
        while not all(self._heartbeat(broker_id) for broker_id in self._epochs):
            if time.perf_counter() > deadline:
                raise TimeoutError("the brokers stay fenced")

    def run(self) -> None:
        while not self._stopping.wait(HEARTBEAT_S):
            for broker_id in self._epochs:
                try:
                    self._heartbeat(broker_id)
                except (ClientError, KafkaError):
                    with contextlib.suppress(ClientError, TimeoutError):
                        leader = self._quorum.leader()
                        self._connections[broker_id].close()
                        self._connections[broker_id] = Connection(leader.host, leader.port, timeout=30.0)

    def stop(self) -> None:
        self._stopping.set()
        self.join()
        for connection in self._connections.values():
            connection.close()
        self._listener.close()

    def _heartbeat(self, broker_id: int) -> bool:
        """Whether it is unfenced."""
        request = BrokerHeartbeatRequest(
            broker_id=broker_id, broker_epoch=self._epochs[broker_id], current_metadata_offset=FAR
        )
        answer = self._connections[broker_id].request(request, BrokerHeartbeatResponse)
        raise_for(answer.error_code, None, f"broker {broker_id}")
        return not answer.is_fenced


@contextlib.contextmanager
def start_quorum(directory: str) -> Iterator[Quorum]:
    planned = plan_cluster(directory, host="127.0.0.1", ports=free_ports(2))
    try:
        for node in planned.controllers:
            node.start()
        for node in planned.controllers:
            node.wait_ready(RECOVERY_S)
        yield Quorum(list(planned.controllers), planned.controllers[0].properties["penstock.cluster.id"])
    finally:
        stop_in_order(planned.controllers, 10.0)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.controllers", description=__doc__)
    parser.add_argument("--partitions", type=int, default=100_000, metavar="N", help="in all (default: 100,000)")
    parser.add_argument("--brokers", type=int, default=100, metavar="N", help="registered (default: 100)")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="controllers killed (default: 5)")
    arguments = parser.parse_args()
    console = Console()
    with tempfile.TemporaryDirectory(prefix="penstock-controllers-") as directory:
        keep_bytecode(os.path.join(directory, "bytecode"))
        with start_quorum(os.path.join(directory, "quorum")) as quorum:
            brokers = Brokers(quorum, arguments.brokers)
            brokers.register()
            brokers.start()
            try:
                began = time.perf_counter()
                for number in range(arguments.partitions // PARTITIONS_A_TOPIC):
                    quorum.create(f"topic-{number}", PARTITIONS_A_TOPIC, 3)
                seconds = time.perf_counter() - began
                console.print(f"{arguments.partitions:,} partitions created in {seconds:.1f} s")
                pauses = [_failover(quorum, number) for number in range(arguments.rounds)]
                console.print(
                    f"active controller killed: median {median(pauses):.2f} s until a topic is created "
                    f"({min(pauses):.2f} to {max(pauses):.2f}), {len(pauses)} times"
                )
                leader = quorum.leader().process
                assert leader is not None
                console.print(f"memory of the active controller: {resident_bytes(leader.pid) / 1e6:.0f} MB")
            finally:
                brokers.stop()


def _failover(quorum: Quorum, number: int) -> float:
    leader = quorum.leader()
    began = time.perf_counter()
    leader.kill()
    quorum.create(f"after-{number}", 1, 3)
    seconds = time.perf_counter() - began
    leader.start()
    leader.wait_ready(RECOVERY_S)
    time.sleep(SETTLE_S)
    return seconds


if __name__ == "__main__":
    main()
