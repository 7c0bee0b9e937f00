"""Reads a cluster for the planners, over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from penstock.client.errors import ClientError, TimedOut, Unreachable
from penstock.client.wire.admin import Admin, ResourceType
from penstock.client.wire.admin.cluster import BrokerDescription
from penstock.client.wire.admin.configs import ConfigSource
from penstock.client.wire.admin.topics import TopicDescription
from penstock.client.wire.admin.voters import QuorumMember
from penstock.migrate import markers
from penstock.migrate.markers import Notes
from penstock.migrate.patience import DELETED
from penstock.migrate.state import Broker, ClusterState, Kind, Quorum, Replicas, Voter
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition

_OWN_SETTINGS = "penstock."
_DYNAMIC = (ConfigSource.DYNAMIC_BROKER_CONFIG.name,)


def observe(admin: Admin) -> ClusterState:
    """The brokers and the replicas of all partitions, those of internal topics too."""
    described = admin.cluster.describe()
    brokers = {each.broker_id: _broker(admin, each) for each in described.brokers}
    topics = admin.topics.list(internal=True)
    notes = notes_of(admin, [topic.name for topic in topics])
    partitions = _replicas(topics, notes, admin)
    others = [
        name
        for name, found in notes.items()
        if found.of_others
        or any(partitions[place].originals is None for place in _noted(name, found) if place in partitions)
    ]
    return ClusterState(described.cluster_id or "", brokers, partitions, others)


def _broker(admin: Admin, each: BrokerDescription) -> Broker:
    """A broker of Penstock has settings of its own."""
    try:
        entries = admin.configs.describe(ResourceType.BROKER, str(each.broker_id))
    except (KafkaError, ClientError):
        return Broker(each.broker_id, each.host, each.port, Kind.UNKNOWN, each.rack, each.fenced)
    kind = Kind.PENSTOCK if any(entry.name.startswith(_OWN_SETTINGS) for entry in entries) else Kind.KAFKA
    throttle = {
        entry.name: entry.value or ""
        for entry in entries
        if entry.name in (markers.LEADER_RATE, markers.FOLLOWER_RATE) and entry.source in _DYNAMIC
    }
    return Broker(each.broker_id, each.host, each.port, kind, each.rack, each.fenced, throttle)


def replicas_of(admin: Admin, partition: TopicPartition) -> Replicas | None:
    """Those of one partition as they are now; None if it does not exist."""
    try:
        topics = admin.topics.describe([partition.topic])
        return _replicas(topics, notes_of(admin, [partition.topic]), admin).get(partition)
    except KafkaError as error:
        if error.code not in DELETED:
            raise
        return None


def _replicas(
    topics: Sequence[TopicDescription], notes: Mapping[str, Notes], admin: Admin
) -> dict[TopicPartition, Replicas]:
    moving = {(each.topic, each.partition): each for each in admin.reassignments.list()}
    found: dict[TopicPartition, Replicas] = {}
    for topic in topics:
        for partition in topic.partitions:
            move = moving.get((topic.name, partition.partition))
            noted = notes[topic.name]
            is_ours = noted.believed(partition.partition, partition.replicas)
            found[TopicPartition(topic.name, partition.partition)] = Replicas(
                replicas=partition.replicas,
                isr=partition.isr,
                leader=partition.leader,
                adding=() if move is None else move.adding,
                removing=() if move is None else move.removing,
                originals=noted.originals[partition.partition] if is_ours else None,
            )
    return found


def _noted(topic: str, notes: Notes) -> Iterable[TopicPartition]:
    return (TopicPartition(topic, index) for index in notes.originals)


def notes_of(admin: Admin, topics: Sequence[str]) -> dict[str, Notes]:
    settings = admin.configs.of_topics(topics, (markers.LEADER_REPLICAS, markers.FOLLOWER_REPLICAS)) if topics else {}
    return {topic: markers.notes_from(values) for topic, values in settings.items()}


def quorum_of(admin: Admin) -> Quorum:
    members = admin.voters.describe()

    def voters(found: Iterable[QuorumMember]) -> tuple[Voter, ...]:
        return tuple(Voter(each.node_id, each.directory_id, each.endpoints, each.log_end_offset) for each in found)

    return Quorum(members.leader_id, members.high_watermark, voters(members.voters), voters(members.observers))


def controller_endpoints(admin: Admin, node_id: int) -> dict[str, tuple[str, int]]:
    """The addresses of a controller that is a broker too, from its settings; none if it is not. A broker that does not
    answer is an error: it may in a while."""
    host = next((each.host for each in admin.cluster.describe().brokers if each.broker_id == node_id), None)
    if host is None:
        return {}
    settings = {each.name: each.value or "" for each in admin.configs.describe(ResourceType.BROKER, str(node_id))}
    names = [name.strip() for name in settings.get("controller.listener.names", "").split(",")]
    found: dict[str, tuple[str, int]] = {}
    for entry in f"{settings.get('advertised.listeners', '')},{settings.get('listeners', '')}".split(","):
        name, separator, address = entry.strip().partition("://")
        if separator and name in names and name not in found:
            own_host, _, port = address.rpartition(":")
            found[name] = (own_host if own_host not in ("", "0.0.0.0", "[::]") else host, int(port))
    return found


def finds_none_of(admin: Admin, broker_ids: Iterable[int], addresses: Iterable[tuple[str, int]]) -> list[int]:
    """The brokers whose controller.quorum.bootstrap.servers has none of these addresses.

    A node that does not vote looks for the leader there and nowhere else. KafkaError(BROKER_NOT_AVAILABLE) for a broker
    that does not answer: it may in a while.
    """
    wanted = {f"{host}:{port}" for host, port in addresses}
    lost = []
    for broker_id in broker_ids:
        try:
            entries = admin.configs.describe(ResourceType.BROKER, str(broker_id))
        except (KafkaError, Unreachable, TimedOut) as error:
            if isinstance(error, KafkaError) and error.code is not ErrorCode.BROKER_NOT_AVAILABLE:
                raise
            raise KafkaError(
                ErrorCode.BROKER_NOT_AVAILABLE,
                f"broker {broker_id} is registered, but does not answer, so no one knows whether it would find the new "
                f"controllers: start it, or remove it ('penstock migrate retire {broker_id}'): {error}",
            ) from error
        servers = next((each.value for each in entries if each.name == "controller.quorum.bootstrap.servers"), None)
        if not wanted & {each.strip() for each in (servers or "").split(",")}:
            lost.append(broker_id)
    return lost
