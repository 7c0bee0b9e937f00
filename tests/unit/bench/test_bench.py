"""The measuring tools measure: tiny loads, sane numbers, and errors that are not counted as work."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from bench.blaster import BlastSettings, blast, percentile
from bench.clients import ClientSettings, consume, produce, warmup_messages
from bench.fill import fill
from bench.frames import (
    BadReply,
    batch_of_size,
    check_fetch_reply,
    check_produce_reply,
    fetch_error_positions,
    fetch_reply_overhead,
    fetch_ring,
    produce_error_position,
    produce_reply_size,
    produce_ring,
    single_record_batch,
)
from bench.loads import ALL_LOADS, REQUEST_LOADS, RequestLoad, chosen
from bench.processes import cpu_seconds, listening_pid, resident_bytes
from bench.results import Row, Target
from bench.subjects import EPOLL_FLOOR, FLOOR, PENSTOCK, Kafka, floors
from bench.table import markdown

from penstock.protocol.codec import join
from penstock.protocol.frames import read_request_header, response_parts
from penstock.protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from penstock.protocol.messages.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from penstock.protocol.primitives import Part
from penstock.records.batch import check_crc, read_header

if TYPE_CHECKING:
    from penstock.testing.nodes import RunningNode

TOPIC = "bench-0000"


@pytest.mark.parametrize("size", [200, 16 * 1024, 1024 * 1024])
def test_a_batch_has_the_size_asked_for(size: int) -> None:
    batch = batch_of_size(size)
    header = read_header(batch)
    assert len(batch) == size == header.size
    check_crc(batch, 0, header)


def test_a_ring_holds_whole_requests_numbered_in_order() -> None:
    ring = produce_ring(TOPIC, 3, single_record_batch(100), 4)
    assert len(ring.frames) == 2 * 4 * ring.frame_size
    ids = []
    for start in range(0, len(ring.frames), ring.frame_size):
        header, _ = read_request_header(memoryview(ring.frames)[start : start + ring.frame_size], 4)
        ids.append(header.correlation_id)
    assert ids == [0, 1, 2, 3, 0, 1, 2, 3]


def produce_reply(error_code: int) -> bytes:
    response = ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=TOPIC, partition_responses=[PartitionProduceResponse(index=0, error_code=error_code)]
            )
        ]
    )
    parts: list[Part] = []
    response_parts(0, 9, 7, response, parts)
    return join(parts)


def fetch_reply(error_code: int, records: bytes) -> bytes:
    partition = PartitionData(partition_index=0, error_code=error_code, high_watermark=10, records=records)
    response = FetchResponse(responses=[FetchableTopicResponse(topic=TOPIC, partitions=[partition])])
    parts: list[Part] = []
    response_parts(1, 12, 7, response, parts)
    return join(parts)


def test_error_codes_of_replies_stand_where_we_look_for_them() -> None:
    reply = produce_reply(6)
    position = produce_error_position(TOPIC)
    assert len(reply) == produce_reply_size(TOPIC)
    assert reply[position : position + 2] == b"\x00\x06"
    with pytest.raises(BadReply, match="NOT_LEADER_OR_FOLLOWER"):
        check_produce_reply(memoryview(reply)[9:], TOPIC)
    check_produce_reply(memoryview(produce_reply(0))[9:], TOPIC)

    batch = single_record_batch(100)
    reply = fetch_reply(1, batch)
    whole, partition = fetch_error_positions(TOPIC)
    assert len(reply) == fetch_reply_overhead(TOPIC, len(batch)) + len(batch)
    assert (reply[whole : whole + 2], reply[partition : partition + 2]) == (b"\x00\x00", b"\x00\x01")
    with pytest.raises(BadReply, match="OFFSET_OUT_OF_RANGE"):
        check_fetch_reply(memoryview(reply)[9:], TOPIC, 0, len(batch))
    check_fetch_reply(memoryview(fetch_reply(0, batch))[9:], TOPIC, 0, len(batch))
    with pytest.raises(BadReply, match="whole batches"):
        check_fetch_reply(memoryview(fetch_reply(0, batch[:-1]))[9:], TOPIC, 0, len(batch))


TINY = {
    "produce-100B": 4,
    "produce-pipelined": 2,
    "produce-1MiB": 2,
    "fetch-1MiB-tail": 2,
    "fetch-1MiB-disk": 2,
    "fetch-16KiB": 2,
}


@pytest.mark.parametrize("load", [load for load in REQUEST_LOADS if load.name in TINY], ids=lambda load: load.name)
def test_floors_and_load_generator_move_the_bytes(load: RequestLoad, tmp_path: os.PathLike[str]) -> None:
    settings = {**load.floor_settings(TOPIC)}
    if load.api == "fetch":
        settings["slices"] = 2
    with floors(os.fspath(tmp_path), settings, (FLOOR, EPOLL_FLOOR)) as servers:
        for server in servers.values():
            result = blast(
                BlastSettings(
                    port=server.port,
                    server_pid=server.pid,
                    kafka=False,
                    api=load.api,
                    topic=TOPIC,
                    connections=TINY[load.name],
                    depth=load.depth,
                    value_size=load.value_size,
                    batch_size=load.batch_size,
                    offsets=[0, 1] if load.api == "fetch" else [],
                    fetch_size=load.fetch_size,
                    warmup_s=0.01,
                    seconds=0.05,
                    max_bytes=64 * 1024 * 1024,
                )
            )
            assert result.requests > 0
            assert result.bytes_per_second > result.requests_per_second * load.request_bytes
            assert result.server_cpu_us is not None and result.server_cpu_us > 0
            assert 0 < result.p50_us <= result.p99_us <= result.p999_us


def test_figures_from_proc_are_about_this_process() -> None:
    before = cpu_seconds(os.getpid())
    deadline = time.process_time() + 0.05
    while time.process_time() < deadline:
        pass
    assert 0.03 < cpu_seconds(os.getpid()) - before < 5
    assert 5_000_000 < resident_bytes(os.getpid()) < 2_000_000_000
    assert listening_pid(1) is None
    with pytest.raises(ProcessLookupError):
        cpu_seconds(2**22 + 1)


def test_a_row_compares_medians_and_judges_by_its_target() -> None:
    row = Row("x", "a load", "requests/s", Target("floor ratio", 0.5))
    for ours, floor in ((60, 100), (10, 100), (55, 90)):
        row.add(PENSTOCK, ours, 12.0)
        row.add(FLOOR, floor, 6.0)
    assert row.floor_ratio == 0.55
    assert row.floor_ratio_range == (0.1, 55 / 90)
    assert row.met is True
    assert Row("x", "late", "ms", Target("below", 5), samples={PENSTOCK: [6.0]}).met is False
    assert Row("x", "slow", "messages/s", Target("at least", 1e6), samples={PENSTOCK: [2e6]}).met is True
    assert Row("x", "unmeasured", "s", Target("below", 5)).met is None
    faster = Row("x", "against a peer", "ms", samples={PENSTOCK: [2.0], "peer": [6.0]})
    assert faster.peer_ratio == 3.0
    text = markdown([row, faster], "Kafka")
    assert "| a load | 55/s, 0 MB/s |" in text and "3.00" in text


def test_loads_are_chosen_by_name_or_group() -> None:
    assert chosen([]) == ALL_LOADS
    assert chosen(["restart", "produce-100B"]) == ["produce-100B", "restart-16KiB", "restart-200B"]
    with pytest.raises(ValueError, match="no load 'reproduce'"):
        chosen(["reproduce"])


def test_percentiles_are_of_the_samples() -> None:
    assert percentile([], 0.5) == 0.0
    assert percentile([1, 2, 3, 4], 0.5) == 3
    assert percentile([1, 2, 3, 4], 0.999) == 4


def test_fetch_requests_ask_for_one_slice_each() -> None:
    ring = fetch_ring(TOPIC, 0, [0, 16, 32], 1024)
    assert ring.count == 3 and ring.payload_offset == ring.frame_size


def test_a_broker_is_measured_over_its_wire(broker: RunningNode, unique_topic: Callable[[str], str]) -> None:
    kafka = Kafka(PENSTOCK, broker.host, broker.port, broker.pid, broker.data_directory)
    batch = batch_of_size(16 * 1024)
    with kafka.topic(unique_topic("bench"), 2) as topic:
        written = blast(
            BlastSettings(
                port=kafka.port,
                server_pid=kafka.pid,
                api="produce",
                topic=topic,
                connections=2,
                depth=4,
                value_size=100,
                warmup_s=0.01,
                seconds=0.05,
            )
        )
        assert written.requests > 0
    with kafka.topic(unique_topic("bench"), 1) as topic:
        fill(kafka, topic, batch, 64)
        records = read_header(batch).count
        read = blast(
            BlastSettings(
                port=kafka.port,
                server_pid=kafka.pid,
                api="fetch",
                topic=topic,
                connections=2,
                offsets=[0, 32 * records],
                fetch_size=32 * len(batch),
                warmup_s=0.01,
                seconds=0.05,
            )
        )
        assert read.requests > 0
        with pytest.raises(BadReply):
            blast(
                BlastSettings(
                    port=kafka.port, api="fetch", topic=topic, connections=1, offsets=[1 << 40], fetch_size=1024
                )
            )


def test_librdkafka_reads_what_it_wrote(broker: RunningNode, unique_topic: Callable[[str], str]) -> None:
    kafka = Kafka(PENSTOCK, broker.host, broker.port, broker.pid, broker.data_directory)
    with kafka.topic(unique_topic("bench"), 1) as topic:
        settings = ClientSettings(
            bootstrap=kafka.bootstrap,
            server_pid=kafka.pid,
            action="produce",
            topic=topic,
            partitions=1,
            value_size=100,
            seconds=10,
            max_messages=20_000,
        )
        written = produce(settings)
        assert written.messages == 20_000
        read = consume(replace(settings, action="consume", max_messages=written.messages + warmup_messages(1)))
        assert 0 < read.messages <= 30_000
