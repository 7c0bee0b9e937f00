"""Options of the source: what they mean, and what is said of those that make no sense."""

from __future__ import annotations

import pytest

from penstock.model.ids import TopicPartition
from penstock.spark.source.errors import BadOption, ForeignCheckpoint
from penstock.spark.source.offsets import EARLIEST, LATEST, from_spark
from penstock.spark.source.options import OPTIONS, batch_options, source_options, stream_options

NEEDED = {"kafka.bootstrap.servers": "h:9092", "subscribe": "orders"}


def test_words_mean_what_they_mean_in_sparks_own_source() -> None:
    stream, batch = stream_options(NEEDED), batch_options(NEEDED)
    assert (stream.start.point, batch.start.point, batch.end.point) == (LATEST, EARLIEST, LATEST)
    assert stream.fail_on_data_loss and not stream.include_headers and stream.kafka.isolation == 0
    assert stream.limits.offsets_max is stream.limits.offsets_min is None and stream.limits.delay_max == 900
    options = stream_options(
        {
            "KAFKA.bootstrap.servers": "a:1,b:2",
            "SUBSCRIBE": " orders, payments,,orders ",
            "startingoffsets": ' {"orders":{"0":23,"1":-1},"payments":{"0":-2}} ',
            "maxOffsetsPerTrigger": "100",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "2m",
            "failOnDataLoss": "FALSE",
            "includeHeaders": "true",
            "kafka.isolation.level": "read_committed",
            "kafka.group.id": "g",
            "kafka.max.partition.fetch.bytes": "1000",
            "kafka.security.protocol": "PLAINTEXT",
            "kafka.session.timeout.ms": "10",
            "kafkaConsumer.pollTimeoutMs": "1500",
            "fetchOffset.numRetries": "5",
            "fetchOffset.retryIntervalMs": "0",
            "partition.metadata.cache.ttl.ms": "250",
            "minPartitions": "4",
            "maxRecordsPerPartition": "7",
        }
    )
    assert options.subscription.topics == ("orders", "payments")
    assert options.start.point == {
        TopicPartition("orders", 0): 23,
        TopicPartition("orders", 1): LATEST,
        TopicPartition("payments", 0): EARLIEST,
    }
    assert (options.limits.offsets_max, options.limits.offsets_min, options.limits.delay_max) == (100, 10, 120.0)
    assert (options.fail_on_data_loss, options.include_headers) == (False, True)
    kafka = options.kafka
    assert (kafka.isolation, kafka.group_id, kafka.batch_bytes, kafka.metadata_age) == (1, "g", 1000, 0.25)
    assert (options.read_patience, options.offset_retries, options.offset_retry_interval) == (1.5, 5, 0.0)
    assert (options.partitions_min, options.records_max) == (4, 7)


def test_security_settings_become_a_reference() -> None:
    given = {
        "subscribe": "a",
        "kafka.bootstrap.servers": "one:9093",
        "kafka.penstock.config": "/etc/penstock/client.properties",
        "kafka.security.protocol": "SASL_SSL",
        "kafka.ssl.truststore.type": "PEM",
        "kafka.ssl.truststore.location": "/etc/ca.pem",
    }
    assert source_options(given).kafka.bootstrap == (
        "one:9093@/etc/penstock/client.properties?security.protocol=SASL_SSL&ssl.truststore.location=/etc/ca.pem"
        "&ssl.truststore.type=PEM"
    )
    profile = {"subscribe": "a", "kafka.penstock.config": "prod"}
    assert source_options(profile).kafka.bootstrap == "@prod"


def test_times_come_before_offsets_and_one_time_before_many() -> None:
    given = NEEDED | {"startingOffsets": "earliest", "startingOffsetsByTimestamp": '{"orders": {"0": 1000}}'}
    start = source_options(given).start
    assert start.by_time and start.times([TopicPartition("orders", 0)]) == {1000: [TopicPartition("orders", 0)]}
    start = source_options(given | {"startingTimestamp": "2000"}).start
    assert start.by_time and start.point == 2000


def test_what_is_read_is_said_in_one_of_three_ways() -> None:
    assigned = source_options({"kafka.bootstrap.servers": "h", "assign": '{"orders": [0, 2], "p": [1]}'}).subscription
    assert assigned.names == ["orders", "p"] and TopicPartition("orders", 2) in assigned.partitions
    pattern = source_options({"kafka.bootstrap.servers": "h", "subscribePattern": "or.*s|x"}).subscription
    assert pattern.takes_topic("orders") and pattern.takes_topic("x") and not pattern.takes_topic("xorders")


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "exactly one of subscribe, subscribePattern, assign: none is given"),
        ({"subscribe": "a", "assign": "{}"}, "subscribe and assign are given"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribePattern": "("}, "not a regular expression"),
        ({"assign": '{"a": 1}'}, "assign='{\"a\": 1}' is not like"),
        ({"assign": "{}"}, "names no partition"),
        ({"subscribe": "a", "startingOffset": "earliest"}, "Did you mean 'startingOffsets'?"),
        ({"subscribe": "a", "bootstrap.servers": "h"}, "Did you mean 'kafka.bootstrap.servers'?"),
        ({"subscribe": "a", "zzz": "h"}, "'zzz' is not an option of the source."),
        ({"subscribe": "a", "startingOffsets": "first"}, "startingOffsets='first' is neither"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": -3}}'}, "where -1 is latest and -2 earliest"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"x": 1}}'}, "is not like"),
        ({"subscribe": "a", "startingOffsets": '{"a": {"0": true}}'}, "is not like"),
        ({"subscribe": "a", "startingTimestamp": "today"}, "startingTimestamp='today' is not a number"),
        ({"subscribe": "a", "startingOffsetsByTimestamp": '{"a": {"0": -1}}'}, "in milliseconds since 1970"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "skip"}, "is not one of error, latest"),
        ({"subscribe": "a", "untilOffsets": "latest"}, "untilOffsets='latest' is not like"),
        ({"subscribe": "a", "untilOffsets": '{"a": {"0": -1}}'}, "untilOffsets has no words for earliest and latest"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "0"}, "maxOffsetsPerTrigger='0' is not a number from 1 on"),
        ({"subscribe": "a", "maxOffsetsPerTrigger": "5", "minOffsetsPerTrigger": "6"}, "is more than"),
        ({"subscribe": "a", "maxTriggerDelay": "soon"}, "maxTriggerDelay='soon' is not a time like"),
        ({"subscribe": "a", "minPartitions": "-1"}, "minPartitions='-1'"),
        ({"subscribe": "a", "maxRecordsPerPartition": "x"}, "maxRecordsPerPartition='x'"),
        ({"subscribe": "a", "failOnDataLoss": "maybe"}, "failOnDataLoss='maybe' is not one of true, false"),
        ({"subscribe": "a", "partition.metadata.cache.ttl.ms": "0"}, "partition.metadata.cache.ttl.ms='0'"),
        ({"subscribe": "a", "kafka.security.protocol": "TLS"}, "kafka.security.protocol is not one of PLAINTEXT"),
        (
            {"subscribe": "a", "kafka.sasl.jaas.config": "hunter2"},
            "sasl.jaas.config is a secret, and Spark shows options",
        ),
        ({"subscribe": "a", "kafka.sasl.kerberos.service.name": "x"}, "the client has no such setting"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "earliest"}, "is said by startingOffsets"),
        ({"subscribe": "a", "kafka.key.deserializer": "X"}, "keys are bytes"),
        ({"subscribe": "a", "kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit cannot be set"),
        ({"subscribe": "a", "kafka.isolation.levl": "x"}, "Did you mean 'kafka.isolation.level'?"),
        ({"subscribe": "a", "kafka.isolation.level": "all"}, "is not one of read_uncommitted, read_committed"),
        ({"subscribe": "a", "kafka.request.timeout.ms": "x"}, "kafka.request.timeout.ms='x'"),
        ({"subscribe": "a", "kafka.bootstrap.servers": "h:x"}, "kafka.bootstrap.servers='h:x'"),
        ({"subscribe": "a", "kafka.bootstrap.servers": ""}, "no bootstrap server"),
    ],
)
def test_what_makes_no_sense_is_one_line_that_names_the_option(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption) as caught:
        source_options({"kafka.bootstrap.servers": "h:9092"} | given)
    assert said in str(caught.value) and "\n" not in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_bootstrap_address_is_needed() -> None:
    with pytest.raises(BadOption, match=r"kafka\.bootstrap\.servers is missing"):
        source_options({"subscribe": "a"})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"startingOffsets": "latest"}, "cannot be latest"),
        ({"startingOffsets": '{"orders": {"0": -1}}'}, "cannot be latest"),
        ({"endingOffsets": "earliest"}, "cannot be earliest"),
        ({"endingOffsets": '{"orders": {"0": -2}}'}, "cannot be earliest"),
        ({"untilOffsets": '{"orders": {"0": 5}}'}, "untilOffsets is for streams"),
        (
            {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"0": 4}}'},
            "orders-0: endingOffsets says 4, before startingOffsets's 5",
        ),
        (
            {"startingOffsets": '{"orders": {"0": 5}}', "endingOffsets": '{"orders": {"1": 4}}'},
            "endingOffsets says nothing of orders-0",
        ),
    ],
)
def test_what_a_batch_cannot_begin_or_end_with(given: dict[str, str], said: str) -> None:
    with pytest.raises(BadOption) as caught:
        batch_options(NEEDED | given)
    assert said in str(caught.value)


@pytest.mark.parametrize("name", ["endingOffsets", "endingOffsetsByTimestamp", "endingTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    values = {"endingOffsets": "latest", "endingTimestamp": "5", "endingOffsetsByTimestamp": '{"orders": {"0": 5}}'}
    with pytest.raises(BadOption, match=f"{name} has no meaning in a streaming query"):
        stream_options(NEEDED | {name: values[name]})


def test_limits_of_triggers_are_passed_over_in_a_batch(caplog: pytest.LogCaptureFixture) -> None:
    batch_options(NEEDED | {"maxOffsetsPerTrigger": "5"})
    assert "maxOffsetsPerTrigger has no meaning in a batch query" in caplog.text


def test_every_option_is_known_by_one_name() -> None:
    assert len({name.lower() for name in OPTIONS}) == len(OPTIONS)


def test_a_bound_names_all_partitions_and_no_others() -> None:
    start = source_options(NEEDED | {"startingOffsets": '{"orders": {"0": 5, "7": 1}}'}).start
    with pytest.raises(BadOption, match=r"says nothing of orders-1; name every partition, with -1 for latest"):
        start.check_names([TopicPartition("orders", 0), TopicPartition("orders", 1)])
    with pytest.raises(BadOption, match=r"names orders-7, which is not read"):
        start.check_names([TopicPartition("orders", 0)])


@pytest.mark.parametrize(
    "found",
    [5, None, [], "x", {"a": 1}, {"a": {"0": -1}}, {"a": {"x": 1}}, {"a": {"0": "1"}}, {"topic ids": {"a": "x"}}],
)
def test_a_checkpoint_of_another_source_is_told_apart(found: object) -> None:
    with pytest.raises(ForeignCheckpoint, match="checkpointLocation"):
        from_spark(found)
