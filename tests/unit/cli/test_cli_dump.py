"""`penstock log dump`: files made here byte by byte, and those of a real broker."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from penstock.io.files import RealFileSystem
from penstock.log.producer_snapshot import encode_snapshot
from penstock.log.transaction_index import AbortedTransaction, TransactionIndex
from penstock.records.builder import build_batch
from penstock.records.control import build_transaction_marker
from penstock.replication.producers import ProducedBatch, ProducerEntry
from penstock.testing.nodes import RunningNode

if TYPE_CHECKING:
    from conftest import CommandLine

NAME = "00000000000000000007"
SEGMENT = (
    build_batch([(1000, b"k", b"v", (("h", b"x"),)), (2000, None, b"\xff", ())], base_offset=7, leader_epoch=3)
    + build_batch([(3000, b"t", None, ())], base_offset=9, producer_id=5, producer_epoch=1, base_sequence=0, codec=4,
                  transactional=True)
    + build_transaction_marker(
        producer_id=5, producer_epoch=1, committed=False, coordinator_epoch=2, timestamp=4000, base_offset=10
    )
)  # fmt: skip


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "orders-0" / f"{NAME}.log"
    path.parent.mkdir()
    path.write_bytes(SEGMENT)
    return path


@pytest.fixture
def entries(cli: CommandLine) -> Callable[..., list[dict[str, Any]]]:
    def dump(path: Path, *options: str, status: int = 0) -> list[dict[str, Any]]:
        result = cli("log", "dump", str(path), "--json", *options)
        assert result.status == status
        return [json.loads(line) for line in result.out.splitlines()]

    return dump


Entries = Callable[..., list[dict[str, Any]]]


def test_batches_and_records(segment: Path, entries: Entries) -> None:
    batches = entries(segment)
    assert [(batch["base_offset"], batch["last_offset"], batch["count"]) for batch in batches] == [
        (7, 8, 2),
        (9, 9, 1),
        (10, 10, 1),
    ]
    assert [batch["codec"] for batch in batches] == ["none", "zstd", "none"]
    assert (batches[0]["leader_epoch"], batches[1]["producer_id"], batches[1]["transactional"]) == (3, 5, True)
    records = [entry for entry in entries(segment, "--records") if entry["type"] == "record"]
    assert records == [
        {"type": "record", "offset": 7, "timestamp": 1000, "key": "k", "value": "v", "headers": [["h", "x"]]},
        {"type": "record", "offset": 8, "timestamp": 2000, "key": None, "value": {"hex": "ff"}, "headers": []},
        {"type": "record", "offset": 9, "timestamp": 3000, "key": "t", "value": None, "headers": []},
        {"type": "record", "offset": 10, "timestamp": 4000, "control": "ABORT", "value": {"coordinator_epoch": 2}},
    ]


def test_a_limit_counts_what_was_asked_for(segment: Path, entries: Entries) -> None:
    shown = entries(segment, "--records", "--limit", "3")
    assert [entry["type"] for entry in shown] == ["batch", "record", "record", "batch", "record"]
    assert [entry["type"] for entry in entries(segment, "--limit", "2")] == ["batch", "batch"]


def test_text_for_people(segment: Path, cli: CommandLine) -> None:
    lines = cli("log", "dump", str(segment), "--records").out.splitlines()
    assert lines[0].startswith("offsets 7-8  2 records  at 0  ")
    assert "1970-01-01T00:00:02.000Z  epoch 3  uncompressed" in lines[0]
    assert lines[1] == '    offset 7  1970-01-01T00:00:01.000Z  key "k"  value "v"  headers [["h", "x"]]'
    assert "producer 5/1 sequences 0-0  transactional" in lines[3]
    assert lines[-1].endswith('ABORT {"coordinator_epoch": 2}')
    assert cli("log", "dump", str(segment), "-n", "1").out.splitlines() == lines[:1]


def test_damage_is_found(segment: Path, entries: Entries, cli: CommandLine) -> None:
    damaged = bytearray(SEGMENT)
    damaged[70] ^= 1
    segment.write_bytes(damaged[:-10])
    found = entries(segment, status=1)
    assert [entry["type"] for entry in found] == ["batch", "problem", "batch", "problem"]
    assert "CRC" in found[1]["message"]
    assert "no whole batch" in found[3]["message"]
    assert cli("log", "dump", str(segment)).err == "penstock: 2 problems found\n"
    segment.write_bytes(b"\0" * 100)
    assert [entry["type"] for entry in entries(segment, status=1)] == ["problem"]
    segment.write_bytes(b"")
    assert entries(segment) == []


def test_indexes(segment: Path, entries: Entries) -> None:
    first = 12 + struct.unpack_from(">i", SEGMENT, 8)[0]
    index = segment.with_suffix(".index")
    # Kafka allocates an index ahead of its use: the zeros at the end are no entries.
    index.write_bytes(struct.pack(">ii", 2, first) + bytes(80))
    assert entries(index) == [{"type": "index", "offset": 9, "position": first}]
    index.write_bytes(struct.pack(">iiii", 1, first, 3, 99_999))
    problems = [entry["message"] for entry in entries(index, status=1) if entry["type"] == "problem"]
    assert len(problems) == 2
    assert "ends with 9" in problems[0]
    assert "behind the segment's end" in problems[1]

    timeindex = segment.with_suffix(".timeindex")
    timeindex.write_bytes(struct.pack(">qiqi", 2000, 1, 3000, 2) + bytes(24))
    assert entries(timeindex) == [
        {"type": "timeindex", "timestamp": 2000, "offset": 8},
        {"type": "timeindex", "timestamp": 3000, "offset": 9},
    ]

    txnindex = segment.with_suffix(".txnindex")
    TransactionIndex(RealFileSystem(), str(txnindex)).append(AbortedTransaction(5, 9, 10, 11))
    assert entries(txnindex) == [
        {"type": "txnindex", "producer_id": 5, "first_offset": 9, "last_offset": 10, "last_stable_offset": 11}
    ]


def test_producer_snapshot(segment: Path, entries: Entries) -> None:
    entry = ProducerEntry(5, 1)
    entry.batches.append(ProducedBatch(0, 0, 9, 9, 3000))
    entry.last_timestamp = 3000
    snapshot = segment.with_suffix(".snapshot")
    snapshot.write_bytes(encode_snapshot([entry]))
    (found,) = entries(snapshot)
    assert (found["producer_id"], found["last_sequence"], found["last_offset"]) == (5, 0, 9)
    snapshot.write_bytes(snapshot.read_bytes()[:-1] + b"\0")
    (problem,) = entries(snapshot, status=1)
    assert "CRC" in problem["message"]


def test_checkpoints(tmp_path: Path, entries: Entries) -> None:
    epochs = tmp_path / "leader-epoch-checkpoint"
    epochs.write_text("0\n2\n0 0\n3 17\n")
    assert [(entry["leader_epoch"], entry["start_offset"]) for entry in entries(epochs)] == [(0, 0), (3, 17)]
    offsets = tmp_path / "recovery-point-offset-checkpoint"
    offsets.write_text("0\n1\norders 0 42\n")
    assert entries(offsets) == [{"type": "checkpoint", "topic": "orders", "partition": 0, "offset": 42}]
    offsets.write_text("nonsense")
    assert [entry["type"] for entry in entries(offsets, status=1)] == ["problem"]


def test_what_is_no_log_file(tmp_path: Path, cli: CommandLine) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    for path in (tmp_path / "notes.txt", tmp_path / "missing.log"):
        result = cli("log", "dump", str(path))
        assert result.status == 1
        assert result.err.startswith(f"penstock: {path}: ")
        assert result.err.count("\n") == 1


def test_the_files_of_a_broker(
    broker: RunningNode, cli: CommandLine, unique_topic: Callable[[str], str], entries: Entries
) -> None:
    topic = unique_topic("dumped")
    cli("topics", "create", topic, "-p", "1", "-b", broker.bootstrap)
    cli("produce", topic, "-b", broker.bootstrap, stdin=b"one\ntwo\n")
    dumped = entries(Path(broker.partition_directory(topic)), "--records")
    assert [entry["value"] for entry in dumped if entry["type"] == "record"] == ["one", "two"]
    assert "partition.metadata" in [entry["file"] for entry in dumped if entry["type"] == "file"]

    metadata = entries(Path(broker.data_directory) / "__cluster_metadata-0", "--records")
    kinds = {entry.get("metadata") or entry.get("control") for entry in metadata if entry["type"] == "record"}
    assert {"TopicRecord", "PartitionRecord", "RegisterBrokerRecord", "FeatureLevelRecord"} <= kinds
    (record,) = (
        entry["value"]
        for entry in metadata
        if entry.get("metadata") == "TopicRecord" and entry["value"]["name"] == topic
    )
    (described,) = json.loads(cli("topics", "describe", topic, "--json", "-b", broker.bootstrap).out)
    assert record["topic_id"] == described["topic_id"]
    for name in ("meta.properties", "recovery-point-offset-checkpoint"):
        if os.path.exists(os.path.join(broker.data_directory, name)):
            entries(Path(broker.data_directory) / name)


def test_a_reader_that_has_enough_is_no_error(segment: Path) -> None:
    segment.write_bytes(SEGMENT * 2000)
    script = f"({sys.executable} -m penstock log dump {segment}; echo status $? >&2) | head -n 1"
    result = subprocess.run(script, shell=True, capture_output=True, text=True, check=True)
    assert result.stdout.startswith("offsets 7-8")
    assert result.stderr == "status 0\n"
