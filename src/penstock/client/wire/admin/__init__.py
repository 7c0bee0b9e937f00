"""Administration of any Kafka-compatible cluster, one class per subject.

    with Admin("127.0.0.1:9092") as admin:
        admin.topics.create("orders", partitions=3)
        admin.topics.describe(["orders"])
        admin.configs.alter(ResourceType.TOPIC, "orders", {"retention.ms": "3600000"})
        admin.reassignments.begin({TopicPartition("orders", 0): [2, 3, 4]})
        admin.groups.lag("billing")
        admin.groups.reset("billing", "earliest", dry_run=True)
        admin.share_groups.offsets("workers")
        admin.transactions.find_hanging()
        admin.cluster.describe()
        admin.voters.add(103, directory_id, {"CONTROLLER": ("delta", 9093)})
        admin.log_dirs.describe()
        admin.acls.create([Acl(principal="User:alice", operation="READ", resource_type="TOPIC", resource="orders")])
        admin.users.set_password("alice", "...")
        admin.tokens.create(renewers=["User:spark"])
        admin.log_dirs.move(1, {TopicPartition("orders", 0): "/data/disk-2"})
        admin.quotas.alter({"user": "alice"}, {"producer_byte_rate": 1_000_000})
        admin.client_metrics.set("all", ["*"], interval_ms=60_000)
        admin.features.upgrade("4.4", dry_run=True)

Results are plain frozen dataclasses. A refusal of a broker is a `KafkaError`; a request that cannot be sent or answered
is a `ClientError`. A subject, with its messages, is imported when it is used: a command uses one or two.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING

from penstock.client.wire.closing import Closing
from penstock.client.wire.cluster import Cluster
from penstock.client.wire.connection import DEFAULT_TIMEOUT_S

if TYPE_CHECKING:
    from penstock.client.wire.admin.acls import Acl, AclFilter, Acls
    from penstock.client.wire.admin.client_metrics import ClientMetrics
    from penstock.client.wire.admin.cluster import ClusterGroup
    from penstock.client.wire.admin.configs import Configs, ResourceType
    from penstock.client.wire.admin.features import Features
    from penstock.client.wire.admin.groups import Groups
    from penstock.client.wire.admin.log_dirs import LogDirs
    from penstock.client.wire.admin.quotas import Quotas
    from penstock.client.wire.admin.reassignments import Reassignments
    from penstock.client.wire.admin.share_groups import ShareGroups
    from penstock.client.wire.admin.tokens import Tokens
    from penstock.client.wire.admin.topics import Topics
    from penstock.client.wire.admin.transactions import Transactions
    from penstock.client.wire.admin.users import Users
    from penstock.client.wire.admin.voters import Voters

__all__ = ["Acl", "AclFilter", "Admin", "ResourceType"]


def __getattr__(name: str) -> object:
    if name in ("Acl", "AclFilter"):
        from penstock.client.wire.admin import acls

        return getattr(acls, name)
    if name == "ResourceType":
        from penstock.client.wire.admin.configs import ResourceType

        return ResourceType
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class Admin(Closing):
    def __init__(
        self, bootstrap: str, *, timeout: float = DEFAULT_TIMEOUT_S, options: Mapping[str, str] | None = None
    ) -> None:
        """`options`: security settings by Kafka's names (`security.protocol`, `sasl.mechanism`, ...); or `bootstrap`
        refers to them: `Admin("@prod")`."""
        self._cluster = Cluster(bootstrap, timeout=timeout, options=options)

    @cached_property
    def topics(self) -> Topics:
        from penstock.client.wire.admin.topics import Topics

        return Topics(self._cluster)

    @cached_property
    def configs(self) -> Configs:
        from penstock.client.wire.admin.configs import Configs

        return Configs(self._cluster)

    @cached_property
    def acls(self) -> Acls:
        from penstock.client.wire.admin.acls import Acls

        return Acls(self._cluster)

    @cached_property
    def reassignments(self) -> Reassignments:
        from penstock.client.wire.admin.reassignments import Reassignments

        return Reassignments(self._cluster)

    @cached_property
    def groups(self) -> Groups:
        from penstock.client.wire.admin.groups import Groups

        return Groups(self._cluster)

    @cached_property
    def share_groups(self) -> ShareGroups:
        from penstock.client.wire.admin.share_groups import ShareGroups

        return ShareGroups(self._cluster, self.groups)

    @cached_property
    def transactions(self) -> Transactions:
        from penstock.client.wire.admin.transactions import Transactions

        return Transactions(self._cluster)

    @cached_property
    def cluster(self) -> ClusterGroup:
        from penstock.client.wire.admin.cluster import ClusterGroup

        return ClusterGroup(self._cluster)

    @cached_property
    def voters(self) -> Voters:
        from penstock.client.wire.admin.voters import Voters

        return Voters(self._cluster)

    @cached_property
    def log_dirs(self) -> LogDirs:
        from penstock.client.wire.admin.log_dirs import LogDirs

        return LogDirs(self._cluster)

    @cached_property
    def users(self) -> Users:
        from penstock.client.wire.admin.users import Users

        return Users(self._cluster)

    @cached_property
    def tokens(self) -> Tokens:
        from penstock.client.wire.admin.tokens import Tokens

        return Tokens(self._cluster)

    @cached_property
    def quotas(self) -> Quotas:
        from penstock.client.wire.admin.quotas import Quotas

        return Quotas(self._cluster)

    @cached_property
    def client_metrics(self) -> ClientMetrics:
        from penstock.client.wire.admin.client_metrics import ClientMetrics

        return ClientMetrics(self._cluster)

    @cached_property
    def features(self) -> Features:
        from penstock.client.wire.admin.features import Features

        return Features(self._cluster)

    def close(self) -> None:
        self._cluster.close()
