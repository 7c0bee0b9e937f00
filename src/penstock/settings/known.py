"""Settings of Kafka that this broker does not use.

Most of them cause a notice: the node works without them. Those that protect a cluster, or store data elsewhere, are
refused: a node that ignored them would be less safe than its operator believes.
"""

from __future__ import annotations

import re
from typing import Final

from penstock.settings.definition import Scope, Setting, Type

_NAMES: Final = """
alter.config.policy.class.name
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
background.threads client.quota.callback.class
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
controller.socket.timeout.ms
create.topic.policy.class.name delete.records.purgatory.purge.interval.requests
fetch.purgatory.purge.interval.requests follower.fetch.last.tiered.offset.enable
group.consumer.assignor.offload.enable
group.coordinator.append.linger.ms group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
group.coordinator.threads group.share.assignor.offload.enable group.share.dlq.manager.class.name
group.share.persister.class.name internal.metadata.delete.delay.millis internal.metadata.max.batch.size.in.bytes
kafka.metrics.polling.interval.secs kafka.metrics.reporters
log.initial.task.delay.ms max.connection.creation.rate metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.fetchers principal.builder.class
producer.purgatory.purge.interval.requests replication.quota.window.num
replication.quota.window.size.seconds security.providers
share.coordinator.append.linger.ms share.coordinator.cached.buffer.max.bytes share.coordinator.threads
share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms
unstable.api.versions.enable unstable.feature.versions.enable
"""

KNOWN_TO_KAFKA: Final = frozenset(_NAMES.split())

# Prefixes of whole families that are not used.
KNOWN_PREFIXES: Final = (
    "delegation.token.",
    "listener.name.",
    "remote.",
    "rlmm.config.",
    "rsm.config.",
    "sasl.",
    "ssl.",
)


def known_to_kafka(name: str) -> bool:
    return name in KNOWN_TO_KAFKA or name.startswith(KNOWN_PREFIXES)


# The features these settings require, by the prefix of their names (also after `listener.name.NAME.`).
_PROTECTIONS: Final = {
    "principal.builder.class": "a principal builder in Java",
    "client.quota.callback.class": "a quota callback in Java",
    # Kafka had these before 4.0. They are quotas of the default client id now.
    "quota.producer.default": "a default quota, which is set with AlterClientQuotas",
    "quota.consumer.default": "a default quota, which is set with AlterClientQuotas",
    "create.topic.policy.class.name": "a policy in Java",
    "alter.config.policy.class.name": "a policy in Java",
    "remote.log.storage.system.enable": "tiered storage",
}
_ASKS_FOR_NOTHING: Final = frozenset(
    {
        ("remote.log.storage.system.enable", "false"),
        # Kafka's default, which does what is done here.
        ("principal.builder.class", "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"),
    }
)
_LISTENER_PREFIX: Final = re.compile(r"listener\.name\.[^.]+\.")


def missing_protection(name: str, value: str) -> str | None:
    """The feature that the setting requires, if this broker lacks it and must not ignore that."""
    name = _LISTENER_PREFIX.sub("", name, count=1)
    value = value.strip()
    if not value or (name, value) in _ASKS_FOR_NOTHING:
        return None
    return next((asked for prefix, asked in _PROTECTIONS.items() if name.startswith(prefix)), None)


_INT_NAMES: Final = """
background.threads group.coordinator.cached.buffer.max.bytes
max.connection.creation.rate num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.fetchers remote.fetch.max.wait.ms
remote.log.manager.copier.thread.pool.size remote.log.manager.expiration.thread.pool.size
remote.log.manager.follower.thread.pool.size remote.log.reader.threads share.coordinator.cached.buffer.max.bytes
"""
_LONG_NAMES: Final = """
remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
remote.log.manager.copy.max.bytes.per.second remote.log.manager.fetch.max.bytes.per.second
"""

# Settings that a running Kafka broker accepts. Here they are stored and returned, and change nothing.
UNUSED_DYNAMIC: Final = {
    name: Setting(name, kind, None, "A setting of Kafka that Penstock does not use.", scope=Scope.CLUSTER_WIDE)
    for kind, names in (
        (Type.INT, _INT_NAMES),
        (Type.LONG, _LONG_NAMES),
        (Type.BOOLEAN, "follower.fetch.last.tiered.offset.enable"),
        (Type.LIST, "metric.reporters"),
    )
    for name in names.split()
}


def unknown_setting(name: str) -> Setting:
    """An unknown name. Its value may be a password, so it is never returned."""
    return Setting(name, Type.UNKNOWN, None, "An unknown setting.", scope=Scope.CLUSTER_WIDE)
