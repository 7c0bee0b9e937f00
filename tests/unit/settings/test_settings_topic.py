from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode, KafkaError
from penstock.settings.definition import Type
from penstock.settings.topic import TOPIC_SETTINGS, TopicSettings


def refusal(overrides: dict[str, str]) -> str:
    with pytest.raises(KafkaError) as caught:
        TopicSettings.from_overrides(overrides)
    assert caught.value.code is ErrorCode.INVALID_CONFIG
    return caught.value.message


def test_defaults_are_kafkas() -> None:
    settings = TopicSettings.from_overrides({})
    assert settings == TopicSettings()
    assert settings.retention_ms == 604_800_000
    assert settings.segment_bytes == 1_073_741_824
    assert settings.max_message_bytes == 1_048_588
    assert settings.cleanup_policy == {"delete"}
    assert settings.message_timestamp_after_max_ms == 3_600_000


def test_overrides_are_parsed_over_the_brokers_defaults() -> None:
    defaults = TopicSettings(retention_ms=5, max_message_bytes=7)
    settings = TopicSettings.from_overrides({"retention.ms": " -1 ", "cleanup.policy": "compact , delete"}, defaults)
    assert settings.retention_ms == -1
    assert settings.max_message_bytes == 7
    assert settings.cleanup_policy == {"compact", "delete"}


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ({"retention.ms": "soon"}, "Invalid value soon for configuration retention.ms: Not a number of type LONG"),
        ({"retention.ms": "1_000"}, "Not a number of type LONG"),
        ({"retention.ms": "9" * 40}, "Not a number of type LONG"),
        ({"segment.bytes": "2147483648"}, "Not a number of type INT"),
        ({"segment.bytes": "1"}, "Value must be at least 1048576"),
        ({"cleanup.policy": "forget"}, "String must be one of: compact, delete"),
        ({"cleanup.policy": "delete,delete"}, "must not be duplicated"),
        ({"compression.type": "lzma"}, "String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer"),
        ({"compression.gzip.level": "0"}, "between 1 and 9 or equal to -1"),
        ({"min.cleanable.dirty.ratio": "1.5"}, "no more than 1"),
        ({"min.cleanable.dirty.ratio": "nan"}, "at least 0"),
        ({"preallocate": "yes"}, "Expected value to be either true or false"),
        ({"retension.ms": "1"}, "Unknown topic config name: retension.ms (did you mean retention.ms?)"),
        ({"zzz": "1"}, "Unknown topic config name: zzz"),
        ({"min.compaction.lag.ms": "2", "max.compaction.lag.ms": "1"}, "conflict topic config setting"),
        ({"remote.storage.enable": "true"}, "Tiered Storage functionality is disabled"),
        ({"leader.replication.throttled.replicas": "1-2"}, "must be the literal '*' or a list of replicas"),
    ],
)
def test_bad_overrides_are_refused_in_kafkas_words(overrides: dict[str, str], message: str) -> None:
    assert message in refusal(overrides)


def test_every_setting_formats_to_what_it_parses() -> None:
    for name, definition in TOPIC_SETTINGS.items():
        text = definition.format(definition.default)
        assert text is not None
        assert definition.documentation
        if not definition.internal:
            assert definition.parse(text) == definition.default, name


def test_the_internal_segment_size_has_no_lower_bound() -> None:
    assert TopicSettings.from_overrides({"internal.segment.bytes": "1000"}).segment_bytes == 1000


def test_kafkas_topic_settings_are_all_there() -> None:
    ours = [name for name, each in TOPIC_SETTINGS.items() if not each.internal and not name.startswith("confluent.")]
    assert len(ours) == 36
    assert TOPIC_SETTINGS["cleanup.policy"].type is Type.LIST
