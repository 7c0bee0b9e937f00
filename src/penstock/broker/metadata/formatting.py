"""Formats the directories of a node: gives them an identity before their first use.

A node formats itself on its first start; the controllers of a larger quorum can be formatted together
(`format_quorum`). Each log directory gets a `meta.properties`. The directory of the metadata log also gets the
checkpoint that a new cluster starts with: the feature levels, and this node as the first voter. That directory
is formatted first, and its `meta.properties` is written last, so that after a crash at any point the node is either
formatted or will be formatted by the next start.

Directories that are added later are formatted on the next start. The reverse is refused: if the directory of the
metadata log is empty and others are not, the cluster's metadata is lost, and a new, empty cluster would treat the logs
in the other directories as stray.

A directory other than the metadata log's that cannot be read or formatted, or that belongs to another node or cluster,
is offline: the node runs without it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from penstock.io.files import FileSystem, write_file_atomically
from penstock.log.meta_properties import (
    MalformedMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from penstock.metadata.features import METADATA_VERSION, NEW_CLUSTER_FEATURES
from penstock.metadata.snapshot import BOOTSTRAP_SNAPSHOT, QuorumConfiguration, encode_snapshot
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid, uuid_text
from penstock.model.topics import METADATA_TOPIC
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import FeatureLevelRecord
from penstock.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from penstock.settings.node import NodeSettings


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """The identity of a node, as its directories store it."""

    cluster_id: str
    node_id: int
    # The id of each usable log directory, by its path; the metadata directory is among them.
    directories: Mapping[str, Uuid]
    # The reason why each other directory is unusable, by its path.
    offline: Mapping[str, str] = field(default_factory=dict)


def format_or_load(
    files: FileSystem,
    settings: NodeSettings,
    new_id: Callable[[], Uuid],
    now_ms: int,
    cluster_id: str | None = None,
    unusable: Mapping[str, str] | None = None,
    first_records: Sequence[Message] = (),
    features: Mapping[str, int] = NEW_CLUSTER_FEATURES,
) -> NodeIdentity:
    """Load the identity from this node's directories, after formatting those that have none.

    `cluster_id`: used for a new node, required to match on others; None accepts any. `unusable`: directories that are
    offline already, with the reason. `first_records`: what a new cluster has from its beginning, such as SCRAM users.
    `features`: the levels that a new cluster begins with.
    """
    metadata_directory = settings.metadata_directory
    paths = list(dict.fromkeys([metadata_directory, *settings.log_directories]))
    offline = dict(unusable or {})
    found: dict[str, MetaProperties | None] = {}
    for path in paths:
        if path not in offline:
            try:
                found[path] = read_meta_properties(files, path)
            except (OSError, MalformedMetaProperties) as error:
                if path == metadata_directory:
                    raise _refusal(str(error)) from error
                offline[path] = str(error)
    formatted = {path: meta for path, meta in found.items() if meta is not None}
    _leave_out_strangers(formatted, offline, metadata_directory)
    _check(formatted, settings.node_id, cluster_id)
    if formatted and metadata_directory not in formatted:
        raise _refusal(
            f"{metadata_directory} holds the metadata log and is empty, but {', '.join(formatted)} is not: restore it, "
            "or remove the others too to begin anew"
        )
    known = next((meta.cluster_id for meta in formatted.values()), None)
    chosen = known or cluster_id or uuid_text(new_id())
    for path in paths:
        if path in offline:
            continue
        try:
            if path not in formatted:
                meta = MetaProperties(chosen, settings.node_id, new_id())
                formatted[path] = _format(files, settings, path, meta, now_ms, first_records, features)
            else:
                # A start that was killed may have created the name and not synced it.
                files.sync_directory(path)
        except OSError as error:
            if path == metadata_directory:
                raise
            offline[path] = str(error)
    directories = {path: formatted[path].directory_id for path in paths if path not in offline}
    return NodeIdentity(chosen, settings.node_id, directories, offline)


def _format(
    files: FileSystem,
    settings: NodeSettings,
    path: str,
    meta: MetaProperties,
    now_ms: int,
    first_records: Sequence[Message],
    features: Mapping[str, int],
) -> MetaProperties:
    make_directories_durably(files, path)
    if path == settings.metadata_directory:
        _write_bootstrap(files, settings, first_quorum(settings, meta.directory_id), now_ms, first_records, features)
    write_meta_properties(files, path, meta)
    return meta


def _leave_out_strangers(
    formatted: dict[str, MetaProperties], offline: dict[str, str], metadata_directory: str
) -> None:
    """Take directories of another node or cluster than the metadata directory's offline: probably a misplaced disk."""
    own = formatted.get(metadata_directory)
    for path, meta in list(formatted.items()):
        if own is not None and (meta.node_id, meta.cluster_id) != (own.node_id, own.cluster_id):
            offline[path] = f"{path} belongs to node {meta.node_id} of cluster {meta.cluster_id}"
            del formatted[path]


def make_directories_durably(files: FileSystem, path: str) -> None:
    """Create a directory so that every name on its path survives a power loss.

    Existing directories are synced too: a start that was killed may have created and not synced them.
    """
    files.make_directories(path)
    while path not in ("", ".", "/"):
        parent = os.path.dirname(path)
        try:
            files.sync_directory(parent or ".")
        except PermissionError:
            return  # a directory that we may not read was not created by us
        path = parent


def metadata_log_directory(settings: NodeSettings) -> str:
    return os.path.join(settings.metadata_directory, f"{METADATA_TOPIC}-0")


def needs_cluster_id(files: FileSystem, settings: NodeSettings) -> bool:
    """Whether this node is new and joins a cluster, so that it must not invent a cluster id."""
    if not joins_others(settings) and settings.is_controller:
        return False
    return read_meta_properties(files, settings.metadata_directory) is None


def joins_others(settings: NodeSettings) -> bool:
    """Whether this node joins a quorum: a controller whose quorum is at other nodes is not the first of it."""
    if settings.quorum_voters or not settings.is_controller:
        return False
    servers = settings.quorum_bootstrap_servers
    own = [
        endpoint
        for endpoint in settings.controller_endpoints
        if any(endpoint.port == port and (endpoint.wildcard or endpoint.host == host) for host, port in servers)
    ]
    return len(servers) > 1 or (len(servers) == 1 and not own)


def format_quorum(
    nodes: Sequence[tuple[FileSystem, NodeSettings]],
    new_id: Callable[[], Uuid],
    now_ms: int,
    cluster_id: str | None = None,
) -> str:
    """Format the first controllers of a new cluster together, with all of them as voters (kraft.version 1).

    Their directories must be new. Returns the cluster id, for the brokers.
    """
    chosen = cluster_id or uuid_text(new_id())
    metas = [MetaProperties(chosen, settings.node_id, new_id()) for _, settings in nodes]
    voters = VoterSet.of(
        Voter(ReplicaKey(settings.node_id, meta.directory_id), quorum_endpoints(settings))
        for (_, settings), meta in zip(nodes, metas, strict=True)
    )
    for (files, settings), meta in zip(nodes, metas, strict=True):
        path = settings.metadata_directory
        if read_meta_properties(files, path) is not None:
            raise _refusal(f"{path} is formatted already")
        make_directories_durably(files, path)
        _write_bootstrap(files, settings, QuorumConfiguration(1, voters), now_ms)
        write_meta_properties(files, path, meta)
    return chosen


def quorum_endpoints(settings: NodeSettings) -> tuple[VoterEndpoint, ...]:
    return tuple(
        VoterEndpoint(endpoint.name, "localhost" if endpoint.wildcard else endpoint.host, endpoint.port)
        for endpoint in settings.advertised_controller_endpoints
    )


def _write_bootstrap(
    files: FileSystem,
    settings: NodeSettings,
    quorum: QuorumConfiguration,
    now_ms: int,
    first_records: Sequence[Message] = (),
    features: Mapping[str, int] = NEW_CLUSTER_FEATURES,
) -> None:
    directory = metadata_log_directory(settings)
    make_directories_durably(files, directory)
    records: list[Message] = [
        FeatureLevelRecord(name=name, feature_level=level) for name, level in features.items() if level
    ]
    records += first_records
    batches = encode_snapshot(
        records,
        metadata_version=features[METADATA_VERSION],
        quorum=quorum,
        epoch=BOOTSTRAP_SNAPSHOT.epoch,
        last_contained_timestamp_ms=now_ms,
        now_ms=now_ms,
    )
    write_file_atomically(files, os.path.join(directory, BOOTSTRAP_SNAPSHOT.file_name), b"".join(batches))


def first_quorum(settings: NodeSettings, directory_id: Uuid) -> QuorumConfiguration:
    """The quorum as a node knows it before its first contact: the fixed voters from its properties (kraft.version 0),
    nothing for a node that joins others, and otherwise this node as the first voter."""
    if settings.quorum_voters or not settings.is_controller:
        return QuorumConfiguration(0, None)
    if joins_others(settings):
        return QuorumConfiguration(1, None)
    voter = Voter(ReplicaKey(settings.node_id, directory_id), quorum_endpoints(settings))
    return QuorumConfiguration(1, VoterSet.of([voter]))


def _check(formatted: Mapping[str, MetaProperties], node_id: int, cluster_id: str | None) -> None:
    for path, meta in formatted.items():
        if meta.node_id != node_id:
            raise _refusal(f"{path} belongs to node {meta.node_id}, and this is node {node_id}")
    clusters = {meta.cluster_id for meta in formatted.values()} | ({cluster_id} if cluster_id else set())
    if len(clusters) > 1:
        raise _refusal(f"the log directories belong to different clusters: {', '.join(sorted(clusters))}")


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
