"""The node as a process: stopped, killed, started twice, on a full disk, watched by strace."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from narrowing import present
from penstock.model.errors import ErrorCode
from penstock.testing.nodes import RunningNode, start_node
from waiting import wait_until
from wire import (
    TOPIC_RESOURCE,
    Closed,
    Wire,
    alter_configs,
    batch,
    create_topic,
    end_offset,
    fetch,
    fetch_request,
    produce,
    produce_request,
    producer_id,
    read_all,
    values,
)

FIRST_SEGMENT = "00000000000000000000.log"


# -- stop and start


def test_a_clean_stop_leaves_a_mark_and_the_next_start_reads_no_log(tmp_path: Path) -> None:
    with start_node(tmp_path) as node:
        with Wire(node) as wire:
            create_topic(wire, "t")
            for number in range(10):
                produce(wire, "t", batch(f"{number}"))
        assert node.stop() == 0
        mark = f"{node.data_directory}/.kafka_cleanshutdown"
        assert os.path.exists(mark)
        # Damage that any look at the records would find: a reader finds it, not the start.
        path = f"{node.partition_directory('t')}/{FIRST_SEGMENT}"
        flip(path, 200)
        node.start()
        assert not os.path.exists(mark)
        assert "corrupt" not in node.log_text()
        with Wire(node) as wire:
            assert fetch(wire, "t", 0).error_code == ErrorCode.NONE  # what is good before it
            assert fetch(wire, "t", 2).error_code == ErrorCode.CORRUPT_MESSAGE
            assert "corrupt" in node.log_text()
            assert end_offset(wire, "t") == 10


def flip(path: str, position: int) -> None:
    with open(path, "r+b") as file:
        file.seek(position)
        byte = file.read(1)[0]
        file.seek(position)
        file.write(bytes((byte ^ 0x10,)))


def test_a_stop_waits_for_nobody_who_waits(tmp_path: Path) -> None:
    """A consumer in a long poll, one that reads nothing, and requests in flight do not hold a stop up."""
    with start_node(tmp_path) as node:
        with Wire(node) as wire, Wire(node) as waiting, Wire(node) as deaf:
            create_topic(wire, "t")
            produce(wire, "t", batch("x" * 900_000))
            waiting.send(fetch_request("t", 1, max_wait_ms=60_000, min_bytes=1), 12)
            for _ in range(50):
                deaf.send(fetch_request("t", partition_max_bytes=1 << 20), 12)
            produce(wire, "t", batch("y"), partition=0)
            start = time.monotonic()
            assert node.stop() == 0
            assert time.monotonic() - start < 15
        node.start()
        with Wire(node) as wire:
            assert end_offset(wire, "t") == 2


def test_a_second_process_on_the_same_directory_is_refused_in_one_line(tmp_path: Path) -> None:
    with start_node(tmp_path) as node:
        second = subprocess.run(
            [sys.executable, "-m", "penstock", "server", node.properties_path],
            capture_output=True,
            text=True,
            timeout=30,
            check=False,
        )
        assert second.returncode not in (0, None)
        lines = (second.stdout + second.stderr).strip().splitlines()
        assert len(lines) == 1, lines
        assert node.data_directory in lines[0]
        with Wire(node) as wire:  # and the first one does not notice
            create_topic(wire, "t")


def test_a_torn_tail_is_cut(tmp_path: Path) -> None:
    torn = {"a": 1, "b": 30, "c": 61, "d": 70}
    with start_node(tmp_path) as node:
        with Wire(node) as wire:
            producer = producer_id(wire)
            for topic in torn:
                create_topic(wire, topic)
                for sequence in range(3):
                    produce(wire, topic, numbered(producer, sequence))
        node.kill()
        paths = {topic: f"{node.partition_directory(topic)}/{FIRST_SEGMENT}" for topic in torn}
        whole = {topic: os.path.getsize(path) for topic, path in paths.items()}
        for topic, size in torn.items():
            with open(paths[topic], "ab") as log:  # part of a batch that was being written
                log.write(bytes(batch("never" * 10, base_offset=3))[:size])
        node.start()
        with Wire(node) as wire:
            for topic in torn:
                assert os.path.getsize(paths[topic]) == whole[topic]
                assert [record.value for record in read_all(wire, topic)] == [b"0", b"1", b"2"]
                assert produce(wire, topic, numbered(producer, 2)).base_offset == 2
                assert produce(wire, topic, batch("3")).base_offset == 3


def numbered(producer: int, sequence: int) -> bytearray:
    return batch(f"{sequence}", producer_id=producer, producer_epoch=0, base_sequence=sequence)


def test_deleted_records_and_topics_do_not_come_back(tmp_path: Path) -> None:
    from penstock.protocol.messages.delete_records import (
        DeleteRecordsPartition,
        DeleteRecordsRequest,
        DeleteRecordsTopic,
    )
    from penstock.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

    with start_node(tmp_path) as node:
        with Wire(node) as wire:
            create_topic(wire, "kept")
            create_topic(wire, "gone")
            for letter in "abcd":
                produce(wire, "kept", batch(letter))
            start = DeleteRecordsPartition(partition_index=0, offset=2)
            wire.ask(DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="kept", partitions=[start])]))
            wire.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="gone")]))
            checkpoint = f"{node.data_directory}/log-start-offset-checkpoint"
            wait_until(
                lambda: os.path.exists(checkpoint) and "kept 0 2" in Path(checkpoint).read_text(), "the checkpoint"
            )
        node.kill()
        node.start()
        with Wire(node) as wire:
            assert fetch(wire, "kept", 1).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
            assert [record.value for record in read_all(wire, "kept", offset=2)] == [b"c", b"d"]
            assert fetch(wire, "gone").error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


# -- syncs, as the system sees them


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_an_fdatasync_precedes_the_answer(tmp_path: Path) -> None:
    with start_node(tmp_path / "node") as node, Wire(node) as wire:
        create_topic(wire, "flushed", configs={"flush.messages": "1"})
        create_topic(wire, "plain")
        for topic in ("flushed", "plain"):
            produce(wire, topic, batch("warm"))
        trace = tmp_path / "trace"
        strace = subprocess.Popen(
            ["strace", "-f", "-y", "-e", "trace=fdatasync,fsync,pwrite64,pwritev,write,writev,sendto,sendmsg",
             "-o", str(trace), "-p", str(node.pid)],
            stderr=subprocess.PIPE, text=True,
        )  # fmt: skip
        complaints = present(strace.stderr)
        try:
            first = complaints.readline()
            if "attached" not in first:
                pytest.skip(f"strace cannot attach: {first.strip()}")
            assert produce(wire, "flushed", batch("watched"), acks=1).base_offset == 1
            after_flushed = wait_for_answers(trace, 1)
            assert produce(wire, "plain", batch("watched"), acks=1).base_offset == 1
            after_plain = wait_for_answers(trace, 2)[len(after_flushed) :]
        finally:
            strace.terminate()
            strace.wait(10)
            complaints.close()
    log = rf"{re.escape(node.partition_directory('flushed'))}/\d+\.log"
    calls = "\n".join(after_flushed)
    assert re.search(rf"pwrite.*{log}.*\n(?s:.*)fdatasync.*{log}(?s:.*)(write|send).*(TCP|socket)", calls), calls
    assert not [call for call in after_plain if "sync(" in call]


def wait_for_answers(trace: Path, count: int) -> list[str]:
    """The system calls up to the `count`-th write to a socket."""

    def seen() -> list[int]:
        lines = trace.read_text().splitlines()
        return [
            number for number, line in enumerate(lines) if re.search(r"(write|writev|send\w+)\(\d+<(TCP|socket)", line)
        ]

    wait_until(lambda: len(seen()) >= count, f"{count} answers in {trace.read_text()}")
    return trace.read_text().splitlines()[: seen()[count - 1] + 1]


# -- a full disk


def test_a_full_disk_is_said_and_over_when_there_is_room(small_disk: Path) -> None:
    properties = {"log.flush.offset.checkpoint.interval.ms": "200", "log.retention.check.interval.ms": "100"}
    with start_node(small_disk / "node", properties=properties) as node, Wire(node) as wire:
        for name, configs in (("t", {}), ("f", {"flush.messages": "1"})):
            create_topic(wire, name, configs={"segment.bytes": "1048576", "file.delete.delay.ms": "0", **configs})
        stored = 0
        while True:
            answer = produce(wire, "t", batch("x" * 500_000))
            if answer.error_code:
                break
            stored += 1
            assert stored < 100, "this disk is not small"
        assert answer.error_code == ErrorCode.KAFKA_STORAGE_ERROR
        fill = small_disk / "filler"
        with pytest.raises(OSError), open(fill, "wb", buffering=0) as filler:
            while True:
                filler.write(bytes(4096))
        for name in "tf":
            assert produce(wire, name, batch("y" * 5000)).error_code == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(read_all(wire, "t")) == stored
        time.sleep(0.5)  # a few checkpoints, with nowhere to put them
        assert node.running
        fill.unlink()
        assert produce(wire, "f", batch("z")).error_code == ErrorCode.NONE
        assert alter_configs(wire, TOPIC_RESOURCE, "t", {"retention.bytes": "1000000"}) is ErrorCode.NONE
        wait_until(lambda: not produce(wire, "t", batch("z" * 500_000)).error_code, "room by retention")
        assert node.stop() == 0
        node.start()
    assert "Traceback" not in node.log_text()


# -- connections


def test_connections_end_with_the_process_and_clients_come_back(tmp_path: Path) -> None:
    with start_node(tmp_path) as node:
        with Wire(node) as wire:
            create_topic(wire, "t")
            assert produce(wire, "t", batch("a")).base_offset == 0
            node.kill()
            with pytest.raises((Closed, BrokenPipeError, ConnectionResetError)):
                produce(wire, "t", batch("lost"))
        node.start()
        with Wire(node) as wire:
            assert values(fetch(wire, "t").records) == [b"a"]


def test_limits_count_what_is_open_now(tmp_path: Path) -> None:
    properties = {
        "max.connections": "6",
        "max.connections.per.ip": "4",
        "max.connections.per.ip.overrides": "127.0.0.3:2",
    }
    with start_node(tmp_path, properties=properties) as node:

        def works(wire: Wire) -> bool:
            try:
                wire.send(produce_request("absent", batch("x")), 12)
                wire.receive()
            except (Closed, BrokenPipeError, ConnectionResetError):
                return False
            return True

        open_ones = [Wire(node) for _ in range(4)]
        assert all(works(wire) for wire in open_ones)
        with Wire(node) as fifth:
            assert not works(fifth)
        open_ones.pop().close()
        wait_until(lambda: try_once(node, works), "a place that became free")
        for wire in open_ones:
            wire.close()


def try_once(node: RunningNode, works: Callable[[Wire], bool]) -> bool:
    with Wire(node) as wire:
        return works(wire)
