"""The services of the API handlers: each family of APIs gets only the parts of the node that it uses, at most eight."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from penstock.broker.apis.schema_validation import SchemaValidation
from penstock.broker.coordinators.coordinators import Coordinators
from penstock.broker.coordinators.verification import TransactionVerification
from penstock.broker.metadata.departed import DepartedBrokers
from penstock.broker.metadata.forwarding import Forwarding
from penstock.broker.metadata.lifecycle import BrokerLifecycle
from penstock.broker.metadata.producer_ids import ProducerIds
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metadata.topic_creation import TopicCreation
from penstock.broker.net.endpoints import Endpoints
from penstock.broker.net.listeners import Listeners
from penstock.broker.net.router import Route
from penstock.broker.partitions.fetch_sessions import FetchSessions
from penstock.broker.partitions.follower_fetch import FollowerFetches
from penstock.broker.partitions.handover import Handover
from penstock.broker.partitions.leader_hints import LeaderHints
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.partitions.searches import Searches
from penstock.broker.partitions.wakeups import Wakeups
from penstock.broker.shares.share_partitions import SharePartitions
from penstock.broker.storage.storage import Storage
from penstock.broker.telemetry import ClientTelemetry
from penstock.io.clock import Clock
from penstock.io.files import FileSystem
from penstock.metadata.image import Metadata
from penstock.settings.live import LiveSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceServices:
    loop: asyncio.AbstractEventLoop
    clock: Clock
    replicas: Replicas
    hints: LeaderHints
    wakeups: Wakeups
    handover: Handover
    verification: TransactionVerification
    schemas: SchemaValidation


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchServices:
    loop: asyncio.AbstractEventLoop
    settings: LiveSettings
    metadata: Metadata
    replicas: Replicas
    hints: LeaderHints
    sessions: FetchSessions
    followers: FollowerFetches


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareServices:
    """For APIs that deliver records to share groups."""

    loop: asyncio.AbstractEventLoop
    settings: LiveSettings
    metadata: Metadata
    replicas: Replicas
    hints: LeaderHints
    coordinators: Coordinators
    shares: SharePartitions


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServices:
    """For APIs that read or change logs."""

    loop: asyncio.AbstractEventLoop
    files: FileSystem
    metadata: Metadata
    replicas: Replicas
    hints: LeaderHints
    searches: Searches
    storage: Storage


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterServices:
    """For APIs that tell clients about the cluster."""

    cluster_id: str
    settings: LiveSettings
    metadata: Metadata
    endpoints: Endpoints
    departed: DepartedBrokers
    coordinators: Coordinators
    topic_creation: TopicCreation


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupServices:
    metadata: Metadata
    coordinators: Coordinators
    lifecycle: BrokerLifecycle
    topic_creation: TopicCreation


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionServices:
    clock: Clock
    metadata: Metadata
    replicas: Replicas
    coordinators: Coordinators
    producer_ids: ProducerIds


@dataclass(frozen=True, slots=True, kw_only=True)
class AdminServices:
    """For APIs that brokers forward to the controller, and that any node can answer."""

    clock: Clock
    settings: LiveSettings
    quorum: MetadataQuorum
    forwarding: Forwarding
    routes: Mapping[int, Route]
    """The routes of the listener that received the request."""
    address: tuple[str, int] | None
    """The cluster id and the node id that a client of this listener must mean; None where any client is served."""
    telemetry: ClientTelemetry | None
    """None on controllers."""
    listeners: Listeners


@dataclass(frozen=True, slots=True, kw_only=True)
class TelemetryServices:
    telemetry: ClientTelemetry
