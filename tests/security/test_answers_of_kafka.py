"""The refusals of unauthorized requests are the same as Apache Kafka's, byte for byte.

Every row of the table of APIs (`acl_table`) is asked of a node of Apache Kafka's and of ours, by the same user, with
the same ACLs: once with each needed ACL missing, and once with all of them. Refusals must be the same bytes, but for
what differs between any two clusters (`MASKED`). Where the request is allowed, the answers have the same error codes.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from acl_table import BROKER_ROWS, CONTROLLER_ROWS, Grant, Row, codes
from apache_kafka import apache_kafka
from penstock.local.ports import free_ports
from penstock.model.ids import ZERO_UUID
from penstock.protocol.apis import API, ApiKey
from penstock.protocol.codec import decode, decode_from, encode
from penstock.protocol.declaration import Message
from penstock.protocol.frames import response_header_version
from penstock.protocol.messages import (
    consumer_group_heartbeat,
    create_acls,
    create_topics,
    delete_acls,
    describe_acls,
    find_coordinator,
    init_producer_id,
)
from penstock.protocol.messages.api_versions import ApiVersionsRequest
from penstock.protocol.messages.header import ResponseHeader
from penstock.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from penstock.protocol.messages.sasl_handshake import SaslHandshakeRequest
from penstock.security.acls import PatternType, Permission
from penstock.testing.nodes import start_node
from security.sasl_world import PLAIN_MODULE, options
from waiting import wait_until
from wire import Closed, Wire

PASSWORD = "the same for all"
JAAS = f'{PLAIN_MODULE} required username="root" password="{PASSWORD}" user_root="{PASSWORD}" user_alice="{PASSWORD}";'
PROPERTIES = {
    "listener.security.protocol.map": "CONTROLLER:SASL_PLAINTEXT,PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "controller.listener.names": "CONTROLLER",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "sasl.mechanism.controller.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": JAAS,
    "listener.name.controller.plain.sasl.jaas.config": JAAS,
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:root",
    "delegation.token.secret.key": "tokens secret",
    "transaction.two.phase.commit.enable": "true",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.num.partitions": "1",
}
MASKED = frozenset({"port", "cluster_id"})
# Where a request needs a right on the cluster, the text of Kafka prints the request, with connection and times.
NOT_AUTHORIZED = re.compile(
    r"Request .* (?:is not authorized|needs [A-Z_]+ permission)\.|Cluster authorization failed\.", re.DOTALL
)
EVERY_ACL: dict[str, Any] = {
    "resource_type_filter": 1,
    "resource_name_filter": None,
    "pattern_type_filter": 1,
    "principal_filter": None,
    "host_filter": None,
    "operation": 1,
    "permission_type": 1,
}


SILENT = "no answer"


class Observed(NamedTuple):
    """`shown`: the answer as text, where it may be compared byte for byte."""

    codes: frozenset[int]
    shown: str


class Subject:
    """A cluster under test, with connections of root and alice to its broker and its controller."""

    def __init__(self, stack: ExitStack, port: int, controller_port: int) -> None:
        self.versions: dict[int, tuple[int, int]] = {}
        self._wires = {
            (user, is_controller): stack.enter_context(self._logged_in(user, at))
            for user in ("root", "alice")
            for is_controller, at in ((False, port), (True, controller_port))
        }
        self._stack = stack
        self._ports = {False: port, True: controller_port}

    @contextmanager
    def _logged_in(self, user: str, port: int) -> Iterator[Wire]:
        with Wire(("127.0.0.1", port), timeout=20.0) as wire:
            served = wire.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3)
            for key in served.api_keys:
                self.versions.setdefault(key.api_key, (key.min_version, key.max_version))
            assert wire.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1).error_code == 0
            token = b"\0".join((b"", user.encode(), PASSWORD.encode()))
            answer = wire.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
            assert answer.error_code == 0, answer.error_message
            yield wire

    def ask(self, user: str, message: Message, version: int, *, at_controller: bool = False) -> tuple[Any, str]:
        """The answer, and what of it is the same in all clusters; a closed connection is an answer, too."""
        key = message.__schema__.key
        assert key is not None
        wire = self._wires[user, at_controller]
        try:
            wire.socket.sendall(wire.encode(message, version, answered=False))
            frame = wire.receive_frame()
        except (Closed, OSError) as error:  # a time-out, too
            new = self._stack.enter_context(self._logged_in(user, self._ports[at_controller]))
            self._wires[user, at_controller] = new
            return None, SILENT if isinstance(error, TimeoutError) else "closed"
        _, position = decode_from(ResponseHeader, frame, response_header_version(key, version), 0)
        answer = decode(API[key].response, frame, version, position)
        assert encode(answer, version) == frame[position:], "the codec loses something"
        mask(answer)
        return answer, str(answer)

    def version_of(self, key: int) -> int:
        return self.versions[key][1]

    # -- what rows need ----------------------------------------------------------------------------------------------

    def prepare(self) -> None:
        topic = create_topics.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
        self.eventually(create_topics.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), {36})
        for kind in (0, 1):
            self.eventually(find_coordinator.FindCoordinatorRequest(key_type=kind, coordinator_keys=["g"]))
        for row in BROKER_ROWS:
            if isinstance(row.request, consumer_group_heartbeat.ConsumerGroupHeartbeatRequest):
                self.eventually(row.request)
        self.eventually(init_producer_id.InitProducerIdRequest(transactional_id="x", transaction_timeout_ms=1000))

    def eventually(self, message: Message, good: set[int] | None = None) -> None:
        key = message.__schema__.key or 0
        version = min(self.version_of(key), API[key].max_version)

        def is_good() -> bool:
            answer, _ = self.ask("root", message, version)
            return answer is not None and codes(answer) <= (good or set())

        wait_until(is_good, str(message), seconds=60)

    def grant(self, grants: list[Grant]) -> None:
        """These are alice's only ACLs, at the broker and at the controller, on return."""
        wipe = delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(**EVERY_ACL)])
        assert not codes(self.ask("root", wipe, 3)[0])
        creations = [
            create_acls.AclCreation(
                resource_type=resource.kind,
                resource_name=resource.name,
                resource_pattern_type=PatternType.LITERAL,
                principal="User:alice",
                host="*",
                operation=operation,
                permission_type=Permission.ALLOW,
            )
            for operation, resource in grants
        ]
        if creations:
            assert not codes(self.ask("root", create_acls.CreateAclsRequest(creations=creations), 3)[0])
        wanted = {(resource.kind, resource.name, operation) for operation, resource in grants}

        def is_known(at_controller: bool) -> bool:
            asks = describe_acls.DescribeAclsRequest(**EVERY_ACL)
            found = self.ask("root", asks, 3, at_controller=at_controller)[0]
            return wanted == {
                (each.resource_type, each.resource_name, acl.operation) for each in found.resources for acl in each.acls
            }

        wait_until(lambda: is_known(False) and is_known(True), f"the ACLs are {wanted}", seconds=60)

    def answer(self, row: Row, version: int) -> Observed:
        answer, shown = self.ask("alice", row.request, version, at_controller=row.on_controller)
        return Observed(frozenset() if answer is None else frozenset(codes(answer)), shown)


def mask(message: Any) -> None:
    for name in message.__schema__.names:
        value = getattr(message, name)
        if name in MASKED:
            setattr(message, name, type(value)())
        elif name == "topic_id" and value != ZERO_UUID:
            setattr(message, name, b"the topic's id")
        elif isinstance(value, str) and NOT_AUTHORIZED.fullmatch(value):
            setattr(message, name, "not authorized")
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Message):
                mask(each)


def answers(subject: Subject, rows: list[Row], versions: dict[int, int]) -> dict[str, Observed]:
    found = {}
    for number, row in enumerate(rows):
        key = row.request.__schema__.key or 0
        if key not in versions or (row.version or 0) > versions[key]:
            continue
        version = versions[key] if row.version is None else row.version
        name = f"{number} {ApiKey(key).name} v{version}"
        for way in row.ways:
            for missing in way:
                subject.grant([grant for grant in way if grant != missing])
                found[f"{name} without {describe(missing)}"] = subject.answer(row, version)
            if row.on_controller:
                continue  # requests that make no sense, which end Kafka's controller if they are allowed
            subject.grant(way)
            found[f"{name} with {', '.join(map(describe, way))}"] = subject.answer(row, version)
    return found


def describe(grant: Grant) -> str:
    operation, resource = grant
    return f"{operation.name} of {resource.kind.name} {resource.name}"


def agree(theirs: Observed, ours: Observed) -> bool:
    """Whether both answers to an allowed request are alike. Some requests of nodes that are not there Kafka answers
    much later, or never."""
    return theirs.shown == SILENT or theirs.codes == ours.codes


@contextmanager
def ours(directory: Path) -> Iterator[tuple[int, int]]:
    port, controller_port = free_ports(2)
    properties = {
        **PROPERTIES,
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{port}",
        "controller.quorum.voters": f"1@127.0.0.1:{controller_port}",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
    }
    with start_node(directory, properties=properties, port=port, client_options=options("PLAIN", "root", PASSWORD)):
        yield port, controller_port


@contextmanager
def kafkas(directory: Path) -> Iterator[tuple[int, int]]:
    port, controller_port = free_ports(2)
    directory.mkdir()
    client_options = options("PLAIN", "root", PASSWORD)
    with apache_kafka(directory, PROPERTIES, ports=(port, controller_port), client_options=client_options):
        yield port, controller_port


@pytest.mark.soak  # two hundred requests, but a JVM
@pytest.mark.timeout(900)
def test_refusals_are_those_of_apache_kafka(tmp_path: Path) -> None:
    rows = [*BROKER_ROWS, *CONTROLLER_ROWS]
    with ExitStack() as stack:
        kafka = Subject(stack, *stack.enter_context(kafkas(tmp_path / "kafka")))
        penstock = Subject(stack, *stack.enter_context(ours(tmp_path / "ours")))
        common = {
            key: min(kafka.version_of(key), penstock.version_of(key))
            for key in kafka.versions.keys() & penstock.versions
        }
        subjects = [kafka, penstock]
        for subject in subjects:
            subject.prepare()
        theirs, ours_ = (answers(subject, rows, common) for subject in subjects)
    assert len(theirs) > 150, "most rows are compared"
    different = [
        f"{name}\n  Kafka:    {theirs[name]}\n  Penstock: {ours_[name]}"
        for name in theirs
        if (theirs[name] != ours_[name] if " without " in name else not agree(theirs[name], ours_[name]))
    ]
    assert not different, f"{len(different)} of {len(theirs)}\n" + "\n".join(different)
