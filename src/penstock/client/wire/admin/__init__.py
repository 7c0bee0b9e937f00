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
        admin.log_dirs.describe()
        admin.acls.create([Acl(principal="User:alice", operation="READ", resource_type="TOPIC", resource="orders")])
        admin.users.set_password("alice", "...")
        admin.tokens.create(renewers=["User:spark"])
        admin.log_dirs.move(1, {TopicPartition("orders", 0): "/data/disk-2"})
        admin.quotas.alter({"user": "alice"}, {"producer_byte_rate": 1_000_000})
        admin.client_metrics.set("all", ["*"], interval_ms=60_000)
        admin.features.upgrade("4.4", dry_run=True)

Results are plain frozen dataclasses. A refusal of a broker is a `KafkaError`; a request that cannot be sent or answered
is a `ClientError`.
"""

from __future__ import annotations

from collections.abc import Mapping

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
from penstock.client.wire.closing import Closing
from penstock.client.wire.cluster import Cluster
from penstock.client.wire.connection import DEFAULT_TIMEOUT_S

__all__ = ["Acl", "AclFilter", "Admin", "ResourceType"]


class Admin(Closing):
    def __init__(
        self, bootstrap: str, *, timeout: float = DEFAULT_TIMEOUT_S, options: Mapping[str, str] | None = None
    ) -> None:
        """`options`: security settings by Kafka's names (`security.protocol`, `sasl.mechanism`, ...); or `bootstrap`
        refers to them: `Admin("@prod")`."""
        self._cluster = Cluster(bootstrap, timeout=timeout, options=options)
        self.topics = Topics(self._cluster)
        self.configs = Configs(self._cluster)
        self.acls = Acls(self._cluster)
        self.reassignments = Reassignments(self._cluster)
        self.groups = Groups(self._cluster)
        self.share_groups = ShareGroups(self._cluster, self.groups)
        self.transactions = Transactions(self._cluster)
        self.cluster = ClusterGroup(self._cluster)
        self.log_dirs = LogDirs(self._cluster)
        self.users = Users(self._cluster)
        self.tokens = Tokens(self._cluster)
        self.quotas = Quotas(self._cluster)
        self.client_metrics = ClientMetrics(self._cluster)
        self.features = Features(self._cluster)

    def close(self) -> None:
        self._cluster.close()
