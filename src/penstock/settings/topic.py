"""The settings of a topic, which `CreateTopics` and the alter-configs requests set under Kafka's names.

Each has a default in the broker's settings (`log.retention.ms` for `retention.ms`, and so on: of the synonyms below,
the first that is set wins), which in turn has the default given here.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from penstock.model.errors import ErrorCode, KafkaError
from penstock.settings.definition import (
    INT_MAX,
    LONG_MAX,
    Setting,
    at_least,
    attribute_of,
    between,
    between_or,
    boolean,
    distinct,
    double,
    integer,
    long,
    one_of,
    parse_overrides,
    settings_of,
    string,
    strings,
    throttled_replicas,
)

_MINUTE_MS = 60_000
_HOUR_MS = 60 * _MINUTE_MS
_DAY_MS = 24 * _HOUR_MS


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    cleanup_policy: frozenset[str] = strings(
        ("delete",),
        "What happens to old records: delete removes whole segments by time and size, compact keeps the last value of "
        "each key. You can set both.",
        distinct("compact", "delete"),
        synonyms=["log.cleanup.policy"],
        as_set=True,
    )
    compression_type: str = string(
        "producer",
        "The codec of stored records. producer keeps the producer's codec; any other value recompresses.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
        synonyms=["compression.type"],
    )
    compression_gzip_level: int = integer(
        -1,
        "The compression level if compression.type is gzip; -1 is the library's default.",
        between_or(1, 9, -1),
        synonyms=["compression.gzip.level"],
    )
    compression_lz4_level: int = integer(
        9, "The compression level if compression.type is lz4.", between(1, 17), synonyms=["compression.lz4.level"]
    )
    compression_zstd_level: int = integer(
        3,
        "The compression level if compression.type is zstd.",
        between(-131072, 22),
        synonyms=["compression.zstd.level"],
    )
    confluent_key_schema_validation: bool = boolean(
        False,
        "Whether a produced key must carry the id of a schema of the subject TOPIC-key; see "
        "confluent.schema.registry.url of the broker. A setting of Confluent's.",
    )
    confluent_value_schema_validation: bool = boolean(
        False,
        "Whether a produced value must carry the id of a schema of the subject TOPIC-value. A setting of Confluent's.",
    )
    delete_retention_ms: int = long(
        _DAY_MS,
        "How long a compacted topic keeps tombstones and transaction markers after their first cleaning, so that a "
        "consumer that starts at the beginning sees every deletion.",
        at_least(0),
        synonyms=["log.cleaner.delete.retention.ms"],
    )
    errors_deadletterqueue_group_enable: bool = boolean(
        False, "Whether share groups may use this topic as a dead letter queue."
    )
    file_delete_delay_ms: int = long(
        60_000,
        "How long the files of a deleted segment stay on disk.",
        at_least(0),
        synonyms=["log.segment.delete.delay.ms"],
    )
    flush_messages: int = long(
        LONG_MAX,
        "Sync the log after this many records. With 1, every acknowledgement waits for the disk (syncs are shared).",
        at_least(1),
        synonyms=["log.flush.interval.messages"],
    )
    flush_ms: int = long(
        LONG_MAX,
        "Sync the log when its oldest unsynced record is this old.",
        at_least(0),
        synonyms=["log.flush.interval.ms", "log.flush.scheduler.interval.ms"],
    )
    follower_replication_throttled_replicas: tuple[str, ...] = strings(
        (),
        "The replicas (partition:broker, or * for all) that are throttled when they fetch as followers.",
        throttled_replicas,
    )
    index_interval_bytes: int = integer(
        4096,
        "An entry is added to the offset index after more than this many appended bytes.",
        at_least(0),
        synonyms=["log.index.interval.bytes"],
    )
    leader_replication_throttled_replicas: tuple[str, ...] = strings(
        (),
        "The replicas (partition:broker, or * for all) that are throttled when they serve as leaders.",
        throttled_replicas,
    )
    local_retention_bytes: int = long(
        -2,
        "With tiered storage: how many bytes a partition keeps locally; -2 means retention.bytes.",
        at_least(-2),
        synonyms=["log.local.retention.bytes"],
    )
    local_retention_ms: int = long(
        -2,
        "With tiered storage: how long a partition keeps a segment locally; -2 means retention.ms.",
        at_least(-2),
        synonyms=["log.local.retention.ms"],
    )
    max_compaction_lag_ms: int = long(
        LONG_MAX,
        "The maximum time before a record of a compacted topic becomes eligible for compaction.",
        at_least(1),
        synonyms=["log.cleaner.max.compaction.lag.ms"],
    )
    max_message_bytes: int = integer(
        1_048_588,
        "The maximum size of a record batch (after compression).",
        at_least(0),
        synonyms=["message.max.bytes"],
    )
    message_timestamp_after_max_ms: int = long(
        _HOUR_MS,
        "How far ahead of the broker's clock a record's timestamp may be (CreateTime only).",
        at_least(0),
        synonyms=["log.message.timestamp.after.max.ms"],
    )
    message_timestamp_before_max_ms: int = long(
        LONG_MAX,
        "How far behind the broker's clock a record's timestamp may be (CreateTime only).",
        at_least(0),
        synonyms=["log.message.timestamp.before.max.ms"],
    )
    message_timestamp_type: str = string(
        "CreateTime",
        "Whether a record has the timestamp of its producer, or the time at which the broker appended it.",
        one_of("CreateTime", "LogAppendTime"),
        synonyms=["log.message.timestamp.type"],
    )
    min_cleanable_dirty_ratio: float = double(
        0.5,
        "A compacted log is cleaned when at least this fraction of it has not been cleaned yet.",
        between(0, 1),
        synonyms=["log.cleaner.min.cleanable.ratio"],
    )
    min_compaction_lag_ms: int = long(
        0,
        "How long a record of a compacted topic is protected from compaction.",
        at_least(0),
        synonyms=["log.cleaner.min.compaction.lag.ms"],
    )
    min_insync_replicas: int = integer(
        1,
        "The minimum number of replicas that must have a record before it is acknowledged to a producer with acks=all.",
        at_least(1),
        synonyms=["min.insync.replicas"],
    )
    preallocate: bool = boolean(
        False, "Whether the file of a new segment is allocated at its full size.", synonyms=["log.preallocate"]
    )
    remote_copy_lag_bytes: int = long(
        0,
        "With tiered storage: how many bytes may wait to be copied; -1 means local.retention.bytes.",
        at_least(-1),
        synonyms=["log.remote.copy.lag.bytes"],
    )
    remote_copy_lag_ms: int = long(
        0,
        "With tiered storage: how long a segment may wait to be copied; -1 means local.retention.ms.",
        at_least(-1),
        synonyms=["log.remote.copy.lag.ms"],
    )
    remote_log_copy_disable: bool = boolean(False, "With tiered storage: stop copying. Copied data stays readable.")
    remote_log_delete_on_disable: bool = boolean(
        False, "With tiered storage: delete remote data when remote.storage.enable is turned off."
    )
    remote_storage_enable: bool = boolean(
        False, "Tiered storage for this topic. It is not available, so true is refused."
    )
    retention_bytes: int = long(
        -1,
        "The maximum size of a partition before old segments are deleted; -1 for no limit.",
        synonyms=["log.retention.bytes"],
    )
    retention_ms: int = long(
        7 * _DAY_MS,
        "How long a segment is kept after its newest record; -1 for no limit.",
        at_least(-1),
        synonyms=["log.retention.ms", ("log.retention.minutes", _MINUTE_MS), ("log.retention.hours", _HOUR_MS)],
    )
    segment_bytes: int = integer(
        1 << 30,
        "The size at which a segment is closed and a new one is started.",
        at_least(1 << 20),
        synonyms=["log.segment.bytes"],
    )
    segment_index_bytes: int = integer(
        10 << 20,
        "The maximum size of an offset index. A full index closes its segment.",
        at_least(4),
        synonyms=["log.index.size.max.bytes"],
    )
    segment_jitter_ms: int = long(
        0,
        "The maximum random reduction of segment.ms, so that partitions do not all roll at once.",
        at_least(0),
        synonyms=["log.roll.jitter.ms", ("log.roll.jitter.hours", _HOUR_MS)],
    )
    segment_ms: int = long(
        7 * _DAY_MS,
        "The age at which a segment is closed even if it is not full.",
        at_least(1),
        synonyms=["log.roll.ms", ("log.roll.hours", _HOUR_MS)],
    )
    unclean_leader_election_enable: bool = boolean(
        False,
        "Whether a replica that may lack records can become leader if no other replica is left.",
        synonyms=["unclean.leader.election.enable"],
    )
    internal_segment_bytes: int = integer(
        0, "segment.bytes without its lower bound, for tests.", between(1, INT_MAX), internal=True
    )

    @classmethod
    def from_overrides(
        cls, overrides: Mapping[str, str], broker_defaults: TopicSettings | None = None
    ) -> TopicSettings:
        """The settings of a topic with these overrides; KafkaError(INVALID_CONFIG) if they are invalid."""
        values = parse_overrides(overrides, TOPIC_SETTINGS, "topic")
        return dataclasses.replace(broker_defaults or _DEFAULTS, **values).checked()

    def checked(self) -> TopicSettings:
        """Return these settings if the rules that span several settings hold; raise KafkaError otherwise."""
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})",
            )
        if self.remote_storage_enable:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "Tiered Storage functionality is disabled in the broker. "
                "Topic cannot be configured with remote log storage.",
            )
        if self.internal_segment_bytes and self.segment_bytes != self.internal_segment_bytes:
            return dataclasses.replace(self, segment_bytes=self.internal_segment_bytes)
        return self

    @property
    def checks_schemas(self) -> bool:
        return self.confluent_value_schema_validation or self.confluent_key_schema_validation

    def value_of(self, name: str) -> Any:
        """The value of a setting by its Kafka name."""
        return getattr(self, attribute_of(name))


TOPIC_SETTINGS: dict[str, Setting] = settings_of(TopicSettings)

_DEFAULTS = TopicSettings()
