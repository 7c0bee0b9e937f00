"""Long fetches leave by `sendfile`: readers get the bytes of the log, however slowly they read."""

from __future__ import annotations

import shutil
import socket
import struct
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from narrowing import present
from penstock.model.errors import ErrorCode
from penstock.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until
from wire import Wire, batch, create_topic, fetch, fetch_request, produce

BATCHES = 300
TOPIC = "large"
MIB = 1 << 20


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningNode]:
    """A topic of 5 MB in segments of 2 MB; the last one is written to."""
    properties = {"log.segment.delete.delay.ms": "0", "log.retention.check.interval.ms": "100"}
    with start_node(tmp_path_factory.mktemp("files"), properties=properties) as node:
        with Wire(node) as wire:
            create_topic(wire, TOPIC, configs={"segment.bytes": str(2 * MIB)})
            fill(wire, TOPIC)
        yield node


def fill(wire: Wire, topic: str) -> None:
    for number in range(BATCHES):
        produce(wire, topic, batch(f"{number:05}" * 3300, "second"))


def log_bytes(node: RunningNode, topic: str = TOPIC) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(Path(node.partition_directory(topic)).glob("*.log")))


@pytest.mark.parametrize("session_epoch", [-1, 0], ids=["plain", "session"])
def test_a_reader_gets_the_bytes_of_the_log(node: RunningNode, session_epoch: int) -> None:
    with Wire(node) as wire:
        received, offset = b"", 0
        while offset < 2 * BATCHES:
            found = fetch(wire, TOPIC, offset, session_epoch=session_epoch)
            assert found.error_code == ErrorCode.NONE
            assert len(found.records) <= MIB
            received += bytes(found.records)
            offset = last_offset(found.records) + 1
        assert received == log_bytes(node)


def last_offset(records: memoryview) -> int:
    position = last = 0
    while position < len(records):
        base, length = struct.unpack_from(">qi", records, position)
        (delta,) = struct.unpack_from(">i", records, position + 23)
        last = base + delta
        position += 12 + length
    return int(last)


def test_a_short_batch_before_a_long_one_is_read(node: RunningNode) -> None:
    """What fits into the limit is too short for a range."""
    with Wire(node) as wire:
        create_topic(wire, "uneven")
        for length in (1000, 300_000, 1000, 70_000, 300_000):
            produce(wire, "uneven", batch("x" * length))
        for offset, found in ((0, 1), (1, 1), (2, 2), (4, 1)):
            answer = fetch(wire, "uneven", offset, partition_max_bytes=200_000)
            assert last_offset(answer.records) == offset + found - 1


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_kernel_sends_them(node: RunningNode, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    command = ["strace", "-f", "-y", "-e", "trace=sendfile", "-o", str(trace), "-p", str(node.pid)]
    strace = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    complaints = present(strace.stderr)
    try:
        first = complaints.readline()
        if "attached" not in first:
            pytest.skip(f"strace cannot attach: {first.strip()}")
        with Wire(node) as wire:
            for offset in (0, 2 * BATCHES - 20):  # of a closed segment, and of the active one
                fetch(wire, TOPIC, offset)
        wait_until(lambda: trace.read_text().count(".log") >= 2, "sendfile is called twice")
    finally:
        strace.terminate()
        strace.wait(10)
        complaints.close()


def ask_for(wire: Wire, topic: str, offset: int) -> None:
    wire.send(fetch_request(topic, offset), 12)


def test_a_slow_reader_gets_replies_in_order(node: RunningNode) -> None:
    with Wire(node) as wire:
        alone = [bytes(fetch(wire, TOPIC, offset).records) for offset in range(0, 400, 40)]
    with Wire(node) as wire:
        wire.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 200_000)
        for offset in range(0, 400, 40):
            ask_for(wire, TOPIC, offset)
        together = [bytes(wire.receive().responses[0].partitions[0].records) for _ in alone]
    assert together == alone


def test_a_reader_that_closes_its_half_gets_its_replies(node: RunningNode) -> None:
    with Wire(node) as wire:
        expected = bytes(fetch(wire, TOPIC, 0).records)
    with Wire(node) as wire:
        ask_for(wire, TOPIC, 0)
        wire.socket.shutdown(socket.SHUT_WR)
        assert bytes(wire.receive().responses[0].partitions[0].records) == expected
        assert wire.is_closed()


def test_a_reader_that_goes_in_the_middle_leaves_nothing_behind(node: RunningNode) -> None:
    before = open_files(node)
    for _ in range(20):
        with Wire(node) as wire:
            for offset in range(0, 400, 40):
                ask_for(wire, TOPIC, offset)
            wire.receive_frame()
    wait_until(lambda: open_files(node) <= before, "descriptors are closed")


def open_files(node: RunningNode) -> int:
    return len(list(Path(f"/proc/{node.pid}/fd").iterdir()))


def test_records_deleted_meanwhile_still_arrive(node: RunningNode) -> None:
    with Wire(node) as slow, Wire(node) as wire:
        create_topic(wire, "deleted", configs={"segment.bytes": str(MIB)})
        fill(wire, "deleted")
        expected = log_bytes(node, "deleted")[: 8 * MIB]
        offsets = range(0, 2 * 60, 2)
        for offset in offsets:  # more than sockets hold
            ask_for(slow, "deleted", offset)
        partition = DeleteRecordsPartition(partition_index=0, offset=2 * BATCHES)
        asked = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name="deleted", partitions=[partition])], timeout_ms=10_000
        )
        assert wire.ask(asked).topics[0].partitions[0].error_code == ErrorCode.NONE
        directory = Path(node.partition_directory("deleted"))
        wait_until(lambda: len(list(directory.glob("*.log"))) == 1, "the segments are gone")
        for _ in offsets:
            found = slow.receive().responses[0].partitions[0]
            if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
                continue  # it was read after the deletion
            assert bytes(found.records) in expected
