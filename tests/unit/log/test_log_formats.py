"""The small files of a log, byte for byte."""

from __future__ import annotations

import pytest
from crc32c import crc32c

from penstock.log.checkpoints import (
    MalformedCheckpoint,
    read_epoch_checkpoint,
    read_offset_checkpoint,
    write_epoch_checkpoint,
    write_offset_checkpoint,
)
from penstock.log.handles import OwnAccess
from penstock.log.index import OffsetIndex, TimeIndex
from penstock.log.meta_properties import (
    MalformedMetaProperties,
    MetaProperties,
    read_meta_properties,
    write_meta_properties,
)
from penstock.log.partition_metadata import encode_partition_metadata, read_partition_metadata
from penstock.log.producer_snapshot import CorruptSnapshot, ProducerSnapshots, decode_snapshot, encode_snapshot
from penstock.log.transaction_index import AbortedTransaction, CorruptTransactionIndex, TransactionIndex
from penstock.model.ids import TopicPartition
from penstock.replication.producers import ProducedBatch, ProducerEntry
from penstock.simulator.twins.disk import SimulatedDisk

UUID = bytes(range(16))


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def content(disk: SimulatedDisk, path: str) -> bytes:
    file = disk.open(path, read_only=True)
    data = file.pread(1 << 20, 0)
    file.close()
    return data


def put(disk: SimulatedDisk, path: str, data: bytes) -> None:
    file = disk.open(path, create=True)
    file.truncate(0)
    file.pwrite(data, 0)
    file.close()


# -- checkpoints


def test_offset_checkpoint(disk: SimulatedDisk) -> None:
    offsets = {TopicPartition("orders", 0): 17, TopicPartition("a-b_c.d", 12): 1 << 40}
    write_offset_checkpoint(disk, "/points", offsets)
    assert content(disk, "/points") == b"0\n2\norders 0 17\na-b_c.d 12 1099511627776\n"
    assert read_offset_checkpoint(disk, "/points") == offsets
    assert disk.unsynced() == []
    assert read_offset_checkpoint(disk, "/missing") == {}


def test_epoch_checkpoint(disk: SimulatedDisk) -> None:
    write_epoch_checkpoint(disk, "/epochs", [(0, 0), (3, 1000)])
    assert content(disk, "/epochs") == b"0\n2\n0 0\n3 1000\n"
    assert read_epoch_checkpoint(disk, "/epochs") == [(0, 0), (3, 1000)]
    write_epoch_checkpoint(disk, "/epochs", [])
    assert content(disk, "/epochs") == b"0\n0\n"


@pytest.mark.parametrize(
    "data", [b"", b"0", b"0\nx\n", b"1\n0\n", b"0\n2\n1 2\n", b"0\n1\n1 2 3 4\n", b"0\n1\n\xff\n", b"0\n1\n-1 0\n"]
)
def test_malformed_checkpoints(disk: SimulatedDisk, data: bytes) -> None:
    put(disk, "/file", data)
    with pytest.raises(MalformedCheckpoint):
        read_epoch_checkpoint(disk, "/file")


# -- partition.metadata, meta.properties


def test_partition_metadata(disk: SimulatedDisk) -> None:
    disk.make_directories("/t-0")
    assert read_partition_metadata(disk, "/t-0") is None
    put(disk, "/t-0/partition.metadata", encode_partition_metadata(UUID))
    assert content(disk, "/t-0/partition.metadata") == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw\n"
    assert read_partition_metadata(disk, "/t-0") == UUID
    for torn in (b"", b"version: 0\n", b"version: 0\ntopic_id: AAEC\n", b"\0\0\0\0"):
        put(disk, "/t-0/partition.metadata", torn)
        assert read_partition_metadata(disk, "/t-0") is None


def test_meta_properties(disk: SimulatedDisk) -> None:
    disk.make_directories("/data")
    assert read_meta_properties(disk, "/data") is None
    meta = MetaProperties("MkU3OEVBNTcwNTJENDM2Qg", 3, UUID)
    write_meta_properties(disk, "/data", meta)
    lines = content(disk, "/data/meta.properties").decode().splitlines()
    assert {
        "version=1",
        "cluster.id=MkU3OEVBNTcwNTJENDM2Qg",
        "node.id=3",
        "directory.id=AAECAwQFBgcICQoLDA0ODw",
    } <= set(lines)
    assert read_meta_properties(disk, "/data") == meta
    for bad in (b"version=0\nbroker.id=1\n", b"version=1\nnode.id=1\n", b"version=1\ncluster.id=x\nnode.id=y\n"):
        put(disk, "/data/meta.properties", bad)
        with pytest.raises(MalformedMetaProperties):
            read_meta_properties(disk, "/data")


# -- indexes


def test_offset_index(disk: SimulatedDisk) -> None:
    index = OffsetIndex(disk, "/0.index", 1000, 0)
    access = OwnAccess(disk)
    assert index.floor(5000, access) == 0
    index.append(1009, 4100)
    index.append(1020, 8300)
    assert index.write()
    assert content(disk, "/0.index").hex(" ", 4) == "00000009 00001004 00000014 0000206c"
    index.append(1030, 12500)  # in the tail
    assert len(index) == 3
    for found in (index, OffsetIndex(disk, "/0.index", 1000, 16)):
        assert [found.floor(offset, access) for offset in (1000, 1008, 1009, 1019, 1020)] == [0, 0, 4100, 4100, 8300]
    assert index.floor(1030, access) == 12500
    assert [index.floor_of_position(position, access) for position in (0, 4100, 12499, 12500)] == [0, 4100, 8300, 12500]
    assert index.last_position(access) == 12500
    index.truncate_to(1020, access)
    assert list(index.entries()) == [(1009, 4100)]
    index.reset()
    assert content(disk, "/0.index") == b""


def test_time_index(disk: SimulatedDisk) -> None:
    index = TimeIndex(disk, "/0.timeindex", 1000, 0)
    access = OwnAccess(disk)
    assert index.last(access) == (-1, 1000)
    index.append(0x0102030405, 1005)
    index.append(0x0102030405, 1006)  # no newer: no entry
    index.append(0x0102030406, 1010)
    assert index.write()
    assert content(disk, "/0.timeindex").hex(" ", 4) == "00000001 02030405 00000005 00000001 02030406 0000000a"
    assert index.last(access) == (0x0102030406, 1010)
    assert [index.floor(0x0102030405 + n, access) for n in (0, 1, 2)] == [1000, 1005, 1010]
    index.truncate_to(1010, access)
    assert list(index.entries()) == [(0x0102030405, 1005)]


def test_a_long_index_is_searched_in_the_file(disk: SimulatedDisk) -> None:
    index = OffsetIndex(disk, "/0.index", 0, 0)
    for number in range(1, 3000):
        index.append(number * 10, number * 100)
        if index.tail_is_full:
            assert index.write()
    access = OwnAccess(disk)
    for number in (1, 2, 255, 256, 257, 1024, 2047, 2900, 2999):
        assert index.floor(number * 10 - 1, access) == (number - 1) * 100
        assert index.floor(number * 10, access) == number * 100
        assert index.floor_of_position(number * 100 + 99, access) == number * 100


def test_an_index_that_cannot_be_written_stays_in_memory(disk: SimulatedDisk) -> None:
    index = OffsetIndex(disk, "/0.index", 0, 0)
    index.append(5, 50)
    disk.fail("write", "*.index")
    assert not index.write()
    index.append(6, 60)
    assert index.floor(6, OwnAccess(disk)) == 60
    disk.heal()
    assert index.write()
    assert list(OffsetIndex(disk, "/0.index", 0, 16).entries()) == [(5, 50), (6, 60)]


# -- transaction index


def test_transaction_index(disk: SimulatedDisk) -> None:
    index = TransactionIndex(disk, "/0.txnindex")
    assert not disk.exists("/0.txnindex")
    assert index.entries() == []
    one, two = AbortedTransaction(7, 10, 20, 15), AbortedTransaction(8, 15, 30, 31)
    index.append(one)
    index.append(two)
    assert content(disk, "/0.txnindex")[:34].hex() == "0000" + "".join(f"{n:016x}" for n in (7, 10, 20, 15))
    index = TransactionIndex(disk, "/0.txnindex")
    assert index.entries() == [one, two]
    found: list[AbortedTransaction] = []
    assert index.collect(0, 12, found)  # its last stable offset says that no more can overlap
    assert found == [one]
    found = []
    assert not index.collect(21, 40, found)
    assert found == [two]
    index.truncate_to(30)
    assert TransactionIndex(disk, "/0.txnindex").entries() == [one]
    index.truncate_to(0)
    assert content(disk, "/0.txnindex") == b""


def test_damaged_transaction_index(disk: SimulatedDisk) -> None:
    index = TransactionIndex(disk, "/0.txnindex")
    index.append(AbortedTransaction(7, 10, 20, 15))
    disk.corrupt("/0.txnindex", 0)
    with pytest.raises(CorruptTransactionIndex):
        index.entries()
    put(disk, "/0.txnindex", b"\0" * 10)
    with pytest.raises(CorruptTransactionIndex):
        index.entries()


# -- producer snapshots


def producer() -> ProducerEntry:
    entry = ProducerEntry(0x0A0B, 2)
    entry.batches = [ProducedBatch(3, 4, 90, 91, 500), ProducedBatch(5, 7, 100, 102, 600)]
    entry.last_timestamp = 600
    entry.coordinator_epoch = 9
    entry.transaction_first_offset = 90
    return entry


def test_producer_snapshot() -> None:
    data = encode_snapshot([producer()])
    body = bytes.fromhex(
        "00000001"  # one entry
        "0000000000000a0b" "0002" "00000007" "0000000000000066" "00000002" "0000000000000258" "00000009"
        "000000000000005a"
    )  # fmt: skip
    assert data == b"\x00\x01" + crc32c(body).to_bytes(4, "big") + body
    (entry,) = decode_snapshot(data)
    assert (entry.producer_id, entry.epoch, entry.coordinator_epoch, entry.last_timestamp) == (0x0A0B, 2, 9, 600)
    assert entry.batches == [ProducedBatch(5, 7, 100, 102, 600)]
    assert entry.transaction_first_offset == 90


def test_a_producer_known_only_by_a_marker() -> None:
    entry = ProducerEntry(1, 0)
    entry.last_timestamp = 5
    (found,) = decode_snapshot(encode_snapshot([entry]))
    assert found.batches == []
    assert found.transaction_first_offset == -1


def test_the_sequence_of_a_batch_that_wraps() -> None:
    entry = ProducerEntry(1, 0)
    entry.batches = [ProducedBatch(0x7FFFFFFF, 1, 10, 12, -1)]
    (found,) = decode_snapshot(encode_snapshot([entry]))
    assert found.batches == entry.batches


def test_damaged_snapshots_are_noticed() -> None:
    data = encode_snapshot([producer()])
    for size in range(len(data)):
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(data[:size])
    for position in range(len(data)):
        bad = bytearray(data)
        bad[position] ^= 0x40
        with pytest.raises(CorruptSnapshot):
            decode_snapshot(bytes(bad))


def test_which_snapshots_are_kept(disk: SimulatedDisk) -> None:
    disk.make_directories("/t-0")
    snapshots = ProducerSnapshots(disk, "/t-0", ())
    assert snapshots.latest == -1
    assert snapshots.newest_until(100) is None
    for offset in (10, 20, 30, 40):
        assert snapshots.write(offset, [producer()])
    snapshots.prune(35)
    assert snapshots.offsets == [20, 30, 40]
    assert disk.list("/t-0") == [f"{offset:020d}.snapshot" for offset in (20, 30, 40)]
    disk.corrupt("/t-0/00000000000000000030.snapshot", 20)
    found = snapshots.newest_until(39)
    assert found is not None
    assert found[0] == 20
    assert snapshots.offsets == [20, 40]
    snapshots.remove_above(20)
    assert snapshots.offsets == [20]
