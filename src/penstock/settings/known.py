"""Settings Kafka has and this broker does not use, so that a file that has them gets a true answer, not "unknown"."""

from __future__ import annotations

from typing import Final

_NAMES: Final = """
alter.config.policy.class.name
alter.log.dirs.replication.quota.window.num alter.log.dirs.replication.quota.window.size.seconds
authorizer.class.name background.threads client.quota.callback.class config.providers
connection.failed.authentication.delay.ms connections.max.reauth.ms
controller.performance.always.log.threshold.ms controller.performance.sample.period.ms
controller.quota.window.num controller.quota.window.size.seconds controller.socket.timeout.ms
create.topic.policy.class.name delete.records.purgatory.purge.interval.requests early.start.listeners
fetch.purgatory.purge.interval.requests follower.fetch.last.tiered.offset.enable
group.consumer.assignor.offload.enable
group.coordinator.append.linger.ms group.coordinator.background.threads group.coordinator.cached.buffer.max.bytes
group.coordinator.threads internal.metadata.delete.delay.millis internal.metadata.max.batch.size.in.bytes
kafka.metrics.polling.interval.secs kafka.metrics.reporters
log.initial.task.delay.ms max.connection.creation.rate metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms num.io.threads num.network.threads
num.recovery.threads.per.data.dir num.replica.fetchers principal.builder.class
producer.purgatory.purge.interval.requests quota.window.num quota.window.size.seconds
replication.quota.window.num
replication.quota.window.size.seconds security.inter.broker.protocol security.providers
share.fetch.purgatory.purge.interval.requests socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms telemetry.max.bytes
unstable.api.versions.enable unstable.feature.versions.enable
"""

KNOWN_TO_KAFKA: Final = frozenset(_NAMES.split())

# Whole families that are not used.
KNOWN_PREFIXES: Final = (
    "config.providers.",
    "delegation.token.",
    "errors.deadletterqueue.",
    "group.share.",
    "group.streams.",
    "listener.name.",
    "remote.",
    "rlmm.config.",
    "rsm.config.",
    "sasl.",
    "share.coordinator.",
    "ssl.",
)


def known_to_kafka(name: str) -> bool:
    return name in KNOWN_TO_KAFKA or name.startswith(KNOWN_PREFIXES)
