"""Reads a cluster for the planners, over the wire."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from penstock.client.errors import ClientError
from penstock.client.wire.admin import Admin, ResourceType
from penstock.client.wire.admin.voters import QuorumMember
from penstock.migrate import markers
from penstock.migrate.state import Broker, ClusterState, Kind, Quorum, Replicas, Voter
from penstock.model.errors import KafkaError
from penstock.model.ids import TopicPartition

_OWN_SETTINGS = "penstock."


def observe(admin: Admin) -> ClusterState:
    """The brokers and the replicas of all partitions, those of internal topics too."""
    described = admin.cluster.describe()
    brokers = {
        each.broker_id: Broker(
            each.broker_id, each.host, each.port, kind_of(admin, each.broker_id), each.rack, each.fenced
        )
        for each in described.brokers
    }
    return ClusterState(described.cluster_id or "", brokers, replicas_of(admin))


def kind_of(admin: Admin, broker_id: int) -> Kind:
    """A broker of Penstock has settings of its own."""
    try:
        entries = admin.configs.describe(ResourceType.BROKER, str(broker_id))
    except (KafkaError, ClientError):
        return Kind.UNKNOWN
    return Kind.PENSTOCK if any(each.name.startswith(_OWN_SETTINGS) for each in entries) else Kind.KAFKA


def replicas_of(admin: Admin) -> dict[TopicPartition, Replicas]:
    moving = {(each.topic, each.partition): each for each in admin.reassignments.list()}
    topics = admin.topics.list(internal=True)
    notes = notes_of(admin, [topic.name for topic in topics])
    found: dict[TopicPartition, Replicas] = {}
    for topic in topics:
        for partition in topic.partitions:
            move = moving.get((topic.name, partition.partition))
            found[TopicPartition(topic.name, partition.partition)] = Replicas(
                replicas=partition.replicas,
                isr=partition.isr,
                leader=partition.leader,
                adding=() if move is None else move.adding,
                removing=() if move is None else move.removing,
                originals=notes[topic.name].originals.get(partition.partition),
            )
    return found


class Notes(NamedTuple):
    """The notes of a move in the settings of a topic."""

    originals: markers.Marks
    copies: markers.Marks


def notes_of(admin: Admin, topics: Sequence[str]) -> dict[str, Notes]:
    settings = admin.configs.of_topics(topics, (markers.LEADER_REPLICAS, markers.FOLLOWER_REPLICAS)) if topics else {}
    return {
        topic: Notes(
            markers.parse(values.get(markers.LEADER_REPLICAS)), markers.parse(values.get(markers.FOLLOWER_REPLICAS))
        )
        for topic, values in settings.items()
    }


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

    A node that does not vote looks for the leader there and nowhere else.
    """
    wanted = {f"{host}:{port}" for host, port in addresses}
    lost = []
    for broker_id in broker_ids:
        entries = admin.configs.describe(ResourceType.BROKER, str(broker_id))
        servers = next((each.value for each in entries if each.name == "controller.quorum.bootstrap.servers"), None)
        if not wanted & {each.strip() for each in (servers or "").split(",")}:
            lost.append(broker_id)
    return lost
