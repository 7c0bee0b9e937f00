"""Formatting: what makes directories a node's own.

A node formats itself on its first start. Each log directory gets a `meta.properties`; the directory of the metadata log
also gets the checkpoint a new cluster begins with: the feature levels, and this node as the first voter. That directory
comes first, and in it `meta.properties` comes last, so that a crash at any point leaves a node that is either
formatted or will be.

Directories that are added later are formatted on the next start. The other way round is refused: if the directory of
the metadata log is empty and others are not, the cluster's metadata is lost, and an empty cluster in its place would
take the others' logs for strays.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from penstock.io.files import FileSystem, write_file_atomically
from penstock.log.meta_properties import (
    MalformedMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from penstock.metadata.features import NEW_CLUSTER_FEATURES
from penstock.metadata.snapshot import BOOTSTRAP_SNAPSHOT, QuorumConfiguration, encode_snapshot
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import METADATA_TOPIC, Uuid, uuid_text
from penstock.protocol.messages.metadata_records import FeatureLevelRecord
from penstock.raft.voters import ReplicaKey, Voter, VoterEndpoint, VoterSet
from penstock.settings.node import NodeSettings


@dataclass(frozen=True, slots=True)
class NodeIdentity:
    """What the directories of a node say it is."""

    cluster_id: str
    node_id: int
    # The id of each log directory, by its path; the metadata directory is among them.
    directories: Mapping[str, Uuid]


def format_or_load(
    files: FileSystem,
    settings: NodeSettings,
    new_id: Callable[[], Uuid],
    now_ms: int,
    cluster_id: str | None = None,
) -> NodeIdentity:
    """The identity in this node's directories, after formatting those that have none.

    `cluster_id`: the one to use for a new node, and to insist on for others; None to take what comes.
    """
    metadata_directory = settings.metadata_directory
    paths = list(dict.fromkeys([metadata_directory, *settings.log_directories]))
    try:
        found = {path: read_meta_properties(files, path) for path in paths}
    except MalformedMetaProperties as error:
        raise _refusal(str(error)) from error
    formatted = {path: meta for path, meta in found.items() if meta is not None}
    _check(formatted, settings.node_id, cluster_id)
    if formatted and metadata_directory not in formatted:
        raise _refusal(
            f"{metadata_directory} holds the metadata log and is empty, but {', '.join(formatted)} is not: restore it, "
            "or remove the others too to begin anew"
        )
    known = next((meta.cluster_id for meta in formatted.values()), None)
    chosen = known or cluster_id or uuid_text(new_id())
    for path in paths:
        if path not in formatted:
            make_directories_durably(files, path)
            meta = MetaProperties(chosen, settings.node_id, new_id())
            if path == metadata_directory:
                _write_bootstrap(files, settings, meta, now_ms)
            write_meta_properties(files, path, meta)
            formatted[path] = meta
        else:
            # Its name may come from a start that was killed just before it was durable.
            files.sync_directory(path)
    directories = {path: formatted[path].directory_id for path in paths}
    return NodeIdentity(chosen, settings.node_id, directories)


def make_directories_durably(files: FileSystem, path: str) -> None:
    """Every name on the way survives a power loss.

    Those that exist are synced too: they may come from a start that was killed before it got to that.
    """
    files.make_directories(path)
    while path not in ("", ".", "/"):
        parent = os.path.dirname(path)
        try:
            files.sync_directory(parent or ".")
        except PermissionError:
            return  # what is not ours to read we did not make either
        path = parent


def metadata_log_directory(settings: NodeSettings) -> str:
    return os.path.join(settings.metadata_directory, f"{METADATA_TOPIC}-0")


def _write_bootstrap(files: FileSystem, settings: NodeSettings, meta: MetaProperties, now_ms: int) -> None:
    directory = metadata_log_directory(settings)
    make_directories_durably(files, directory)
    records = [FeatureLevelRecord(name=name, feature_level=level) for name, level in NEW_CLUSTER_FEATURES.items()]
    batches = encode_snapshot(
        records,
        metadata_version=max(NEW_CLUSTER_FEATURES.values()),
        quorum=first_quorum(settings, meta.directory_id),
        epoch=BOOTSTRAP_SNAPSHOT.epoch,
        last_contained_timestamp_ms=now_ms,
        now_ms=now_ms,
    )
    write_file_atomically(files, os.path.join(directory, BOOTSTRAP_SNAPSHOT.file_name), b"".join(batches))


def first_quorum(settings: NodeSettings, directory_id: Uuid) -> QuorumConfiguration:
    """Fixed voters are in every node's properties (kraft.version 0); otherwise the first voter is this node."""
    if settings.quorum_voters:
        return QuorumConfiguration(0, None)
    endpoints = tuple(
        VoterEndpoint(endpoint.name, endpoint.host or "localhost", endpoint.port)
        for endpoint in settings.controller_endpoints
    )
    return QuorumConfiguration(1, VoterSet.of([Voter(ReplicaKey(settings.node_id, directory_id), endpoints)]))


def _check(formatted: Mapping[str, MetaProperties], node_id: int, cluster_id: str | None) -> None:
    for path, meta in formatted.items():
        if meta.node_id != node_id:
            raise _refusal(f"{path} belongs to node {meta.node_id}, and this is node {node_id}")
    clusters = {meta.cluster_id for meta in formatted.values()} | ({cluster_id} if cluster_id else set())
    if len(clusters) > 1:
        raise _refusal(f"the log directories belong to different clusters: {', '.join(sorted(clusters))}")


def _refusal(message: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_CONFIG, message)
