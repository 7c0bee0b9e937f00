"""An append is applied whole or not at all, whatever fails, and wherever.

Behind the write of its bytes an append has more to do: index entries, leader epoch, producers, aborted transactions.
Readers of committed data and idempotent producers rely on all of it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from typing import Any

import pytest

from log_harness import DIRECTORY, NOW, append, content, headers, offsets, open_log, reopen, topic
from penstock.log.index import OffsetIndex
from penstock.log.log import Log
from penstock.model.errors import ErrorCode, KafkaError
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.records.control import build_transaction_marker
from penstock.replication.producers import ProducerStates
from penstock.simulator.twins.disk import SimulatedDisk
from verified_appends import append_verified

ONE, OTHER, PLAIN = 1, 2, 3
TRANSACTIONS = "*.txnindex"


@pytest.fixture
def log(disk: SimulatedDisk) -> Log:
    return open_log(disk, topic(segment_bytes=1 << 20))


def write(log: Log, producer_id: int, sequence: int = 0, *, transactional: bool = True) -> None:
    append(log, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=transactional)


def marker(producer_id: int, *, committed: bool = False, base_offset: int = 0, leader_epoch: int = 0) -> bytearray:
    return build_transaction_marker(
        producer_id=producer_id,
        producer_epoch=0,
        committed=committed,
        coordinator_epoch=0,
        timestamp=NOW,
        base_offset=base_offset,
        leader_epoch=leader_epoch,
    )


def end_transaction(log: Log, producer_id: int, *, committed: bool = False) -> None:
    data = marker(producer_id, committed=committed)
    append_verified(log, data, 0, NOW)


def refused(action: Callable[..., Any], *arguments: Any) -> None:
    with pytest.raises(KafkaError) as error:
        action(*arguments)
    assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR


def restarted(log: Log, disk: SimulatedDisk, how: str) -> Log:
    if how == "running":
        return log
    if how == "clean":
        return reopen(log, disk)
    disk.crash()
    return open_log(disk, log.settings)


# -- the leader


@pytest.mark.parametrize("how", ["running", "clean", "killed"])
@pytest.mark.parametrize(("operation", "path"), [("create", TRANSACTIONS), ("write", TRANSACTIONS), ("write", "*.log")])
def test_an_abort_that_cannot_be_written_down_can_be_repeated(
    log: Log, disk: SimulatedDisk, operation: str, path: str, how: str
) -> None:
    write(log, ONE)
    write(log, OTHER)
    disk.fail(operation, path, error=errno.ENOSPC)
    for _ in range(2):
        refused(end_transaction, log, ONE)
    assert (log.log_end_offset, log.last_stable_offset(2)) == (2, 0)
    assert log.aborted_transactions(0, 2) == []
    disk.heal()
    log = restarted(log, disk, how)
    assert (log.log_end_offset, log.last_stable_offset(2)) == (2, 0)
    assert log.aborted_transactions(0, 2) == []
    end_transaction(log, ONE)
    end_transaction(log, OTHER, committed=True)
    for again in (how, "clean", "killed"):
        assert log.last_stable_offset(4) == 4
        assert log.aborted_transactions(0, 4) == [(ONE, 0, 2, 1)], again
        log = restarted(log, disk, again)


def test_an_abort_on_a_disk_that_is_full_by_blocks(log: Log, disk: SimulatedDisk) -> None:
    """The marker fits into the last block of the log; a file for the transaction does not fit anywhere."""
    write(log, ONE)
    disk.fill(block_size=4096)
    write(log, PLAIN, transactional=False)
    refused(end_transaction, log, ONE)
    assert (log.log_end_offset, log.last_stable_offset(2), log.aborted_transactions(0, 2)) == (2, 0, [])
    disk.heal()
    end_transaction(log, ONE)
    assert (log.last_stable_offset(3), log.aborted_transactions(0, 3)) == (3, [(ONE, 0, 2, 3)])


def test_a_transaction_that_was_committed_after_all_has_no_entry(log: Log, disk: SimulatedDisk) -> None:
    """What was prepared for a marker that was not written does not count, even if it cannot be cut off either."""
    write(log, ONE)
    end_transaction(log, ONE)
    write(log, ONE, 1)
    disk.fail("write", "*.log", error=errno.ENOSPC)
    disk.fail("truncate", TRANSACTIONS)
    refused(end_transaction, log, ONE)
    disk.heal()
    log.truncate_to(2)
    write(log, ONE, 1)
    end_transaction(log, ONE, committed=True)
    for how in ("running", "clean", "killed"):
        log = restarted(log, disk, how)
        assert log.aborted_transactions(0, 4) == [(ONE, 0, 1, 2)], how
    assert len(content(disk, "00000000000000000000.txnindex")) == 34


def test_a_marker_that_needs_a_new_segment_has_its_entry_there(disk: SimulatedDisk) -> None:
    log = open_log(disk, topic(segment_bytes=300))
    write(log, ONE)
    append(log, size=80)
    disk.fail("create", TRANSACTIONS, error=errno.ENOSPC)
    refused(end_transaction, log, ONE)
    disk.heal()
    end_transaction(log, ONE)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert [len(segment.transactions) for segment in log.segments] == [0, 1]
    for how in ("running", "clean", "killed"):
        log = restarted(log, disk, how)
        assert log.aborted_transactions(0, 3) == [(ONE, 0, 2, 3)], how


def test_what_is_prepared_for_an_abort_is_noted_before_its_marker_is_in_the_log(log: Log, disk: SimulatedDisk) -> None:
    """A flush, in its thread, that covers the marker also syncs the entry."""
    write(log, ONE)
    log.flushed(log.flush())
    original, flushed = log._write, []

    def write_and_flush(*arguments: Any) -> None:
        original(*arguments)
        flushed.append(log.flush())

    log._write = write_and_flush  # type: ignore[method-assign, assignment]
    end_transaction(log, ONE)
    assert flushed == [2]
    assert len(disk.durable(f"{DIRECTORY}/00000000000000000000.txnindex") or b"") == 34


# -- the follower


def replicated(term: int = 0) -> bytes:
    """Eight batches of a leader's epoch: a transaction that is aborted, one that is committed, one that stays open, and
    idempotent batches before, between and behind."""
    made: list[bytearray] = []

    def batch(producer_id: int, sequence: int, *, transactional: bool = False) -> None:
        made.append(
            build_batch(
                [(NOW, b"key", b"value", ())],
                base_offset=8 * term + len(made),
                leader_epoch=term,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequence,
                transactional=transactional,
            )
        )

    batch(PLAIN, 3 * term)
    batch(ONE, 2 * term, transactional=True)
    batch(OTHER, term, transactional=True)
    made.append(marker(ONE, base_offset=8 * term + 3, leader_epoch=term))
    batch(PLAIN, 3 * term + 1)
    made.append(marker(OTHER, base_offset=8 * term + 5, leader_epoch=term, committed=True))
    batch(ONE, 2 * term + 1, transactional=True)
    batch(PLAIN, 3 * term + 2)
    return b"".join(made)


def rest_of(data: bytes, offset: int) -> bytes:
    position = 0
    while read_header(data, position).base_offset < offset:
        position += read_header(data, position).size
    return data[position:]


@pytest.mark.parametrize("how", ["running", "clean", "killed"])
@pytest.mark.parametrize("operation", ["create", "write"])
def test_a_follower_applies_what_follows_a_marker(log: Log, disk: SimulatedDisk, operation: str, how: str) -> None:
    data = replicated()
    disk.fail(operation, TRANSACTIONS, error=errno.ENOSPC)
    for _ in range(2):
        refused(log.append_preassigned, rest_of(data, log.log_end_offset), NOW)
    assert log.log_end_offset == 3
    assert log.last_stable_offset(3) == 1
    disk.heal()
    log = restarted(log, disk, how)
    log.append_preassigned(rest_of(data, log.log_end_offset), NOW)
    for again in ("running", "clean", "killed"):
        log = restarted(log, disk, again)
        assert offsets(log) == [*range(8)]
        assert log.last_stable_offset(8) == 6
        assert log.aborted_transactions(0, 8) == [(ONE, 1, 3, 2)]
        known = {entry.producer_id: entry.last_sequence for entry in log.producers.entries}
        assert known == {PLAIN: 2, ONE: 1, OTHER: 0}, again


def test_a_marker_that_cannot_be_read_is_not_written(log: Log, disk: SimulatedDisk) -> None:
    data = replicated()
    bad = build_batch(
        [(NOW, b"\0", b"", ())], base_offset=8, leader_epoch=0, producer_id=ONE, producer_epoch=0, control=True
    )
    with pytest.raises(KafkaError) as error:
        log.append_preassigned(data + bad, NOW)
    assert error.value.code == ErrorCode.CORRUPT_MESSAGE
    assert log.log_end_offset == 0


# -- whatever else


class Broken(Exception):
    """A mistake of ours, or no memory."""


@pytest.mark.parametrize(
    ("place", "method"),
    [
        (ProducerStates, "append"),
        (ProducerStates, "append_marker"),
        (Log, "assign_epoch"),
        (Log, "_set_active"),
        (OffsetIndex, "append"),
    ],
)
@pytest.mark.parametrize("as_follower", [False, True])
@pytest.mark.parametrize("can_cut", [False, True])
def test_what_fails_behind_the_write_is_taken_back(
    monkeypatch: pytest.MonkeyPatch,
    disk: SimulatedDisk,
    place: type,
    method: str,
    as_follower: bool,
    can_cut: bool,
) -> None:
    log = open_log(disk, topic(segment_bytes=600, index_interval_bytes=0))
    original = getattr(place, method)
    countdown = 0

    def failing(*arguments: Any, **options: Any) -> Any:
        nonlocal countdown
        result = original(*arguments, **options)
        countdown -= 1
        if countdown == 0:
            if not can_cut:
                disk.fail("truncate", error=errno.EIO, times=1)
            raise Broken
        return result

    monkeypatch.setattr(place, method, failing)
    data = replicated() + replicated(1)
    broken = 0
    while log.log_end_offset < 16:
        countdown = 2 if broken else 1
        before = log.log_end_offset, log.last_stable_offset(log.log_end_offset)
        try:
            if as_follower:
                log.append_preassigned(rest_of(data, log.log_end_offset), NOW)
            else:
                batch = bytearray(rest_of(data, log.log_end_offset))
                batch = batch[: read_header(batch).size]
                append_verified(log, batch, log.log_end_offset // 8, NOW)
        except KafkaError as error:  # the producers were rebuilt: the coordinator is to be asked again
            assert error.code is ErrorCode.INVALID_TXN_STATE
        except Broken:
            broken += 1
            assert log.log_end_offset >= before[0]
            assert log.last_stable_offset(log.log_end_offset) <= max(before[1], log.log_end_offset)
            assert offsets(log) == [*range(log.log_end_offset)]
            if broken > 20:
                countdown = 0
                break
    monkeypatch.undo()
    disk.heal()
    if log.log_end_offset < 16:
        log.append_preassigned(rest_of(data, log.log_end_offset), NOW)
    assert broken
    for how in ("running", "clean", "killed"):
        log = restarted(log, disk, how)
        assert offsets(log) == [*range(16)]
        assert [header.leader_epoch for header in headers(log)] == [0] * 8 + [1] * 8
        assert [log.epochs.epoch_for_offset(offset) for offset in range(16)] == [0] * 8 + [1] * 8
        assert log.last_stable_offset(16) == 14
        assert [tuple(each)[:3] for each in log.aborted_transactions(0, 16)] == [(ONE, 1, 3), (ONE, 6, 11)]
        known = {entry.producer_id: entry.last_sequence for entry in log.producers.entries}
        assert known == {PLAIN: 5, ONE: 3, OTHER: 1}, how
        for offset in range(16):
            assert log.read(offset, 1, 16).first_offset == offset


@pytest.mark.parametrize("how", ["running", "clean", "killed"])
def test_no_segment_is_begun_behind_a_write_that_cannot_be_cut_off(disk: SimulatedDisk, how: str) -> None:
    """At the next start the size of a closed file says what is in it, and here a whole batch is."""
    log = open_log(disk, topic(segment_bytes=500))
    append(log)
    size = log.size
    run = [build_batch([(NOW, b"key", b"v" * 20, ())]) for _ in range(2)]
    disk.fill(leave=len(run[0]) + 10)
    disk.fail("truncate", "*.log")
    refused(log.append_run, [(memoryview(batch), read_header(batch)) for batch in run], 0, NOW)
    refused(log.roll, NOW)
    refused(append, log, 1)
    assert (log.log_end_offset, log.size, len(log.segments)) == (1, size, 1)
    disk.heal()
    log.roll(NOW)
    append(log, size=1)
    log = restarted(log, disk, how)
    assert offsets(log) == [0, 1]
    assert log.segments[0].size == size


def test_a_cut_that_cannot_be_synced_is_never_believed(disk: SimulatedDisk) -> None:
    """What was cut could come back among what takes its place; the next sync proves nothing."""
    log = open_log(disk, topic(segment_bytes=1 << 20))
    for _ in range(3):
        append(log)
    log.flushed(log.flush())
    disk.fail("sync", "*.log", times=1)
    refused(log.truncate_to, 2)
    for _ in range(3):
        refused(append, log)
        refused(log.close)
    log = restarted(log, disk, "killed")
    log.truncate_to(2)
    append(log)
    assert offsets(log) == [0, 1, 2]


@pytest.mark.parametrize("operation", ["remove", "truncate"])
@pytest.mark.parametrize("how", ["running", "clean", "killed"])
def test_a_cut_that_fails_is_finished_before_anything_is_appended(
    disk: SimulatedDisk, operation: str, how: str
) -> None:
    """Or what was cut would come back among what takes its place."""
    log = open_log(disk, topic(segment_bytes=300))
    for sequence in range(8):
        write(log, PLAIN, sequence, transactional=False)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    disk.fail(operation, "*03.*" if operation == "remove" else "*.log")
    refused(log.truncate_to, 2)
    assert (log.log_end_offset, offsets(log)) == (2, [0, 1])
    for _ in range(2):
        refused(append, log)
        refused(log.append_preassigned, bytes(build_batch([(NOW, b"", b"", ())], base_offset=2, leader_epoch=0)), NOW)
        refused(log.roll, NOW)
        refused(log.close)
    disk.heal()
    append(log, 5, epoch=1)
    for again in (how, "killed"):
        log = restarted(log, disk, again)
        assert [(header.base_offset, header.leader_epoch) for header in headers(log)] == [(0, 0), (1, 0), (2, 1)]
        assert log.log_end_offset == 7
        assert [entry.last_sequence for entry in log.producers.entries] == [1]


@pytest.mark.parametrize("operation", ["remove", "create"])
def test_starting_over_is_finished_before_anything_is_appended(disk: SimulatedDisk, operation: str) -> None:
    log = open_log(disk, topic(segment_bytes=300))
    for _ in range(8):
        append(log)
    disk.fail(operation, "*.log")
    refused(log.truncate_fully_and_start_at, 100)
    assert (log.log_start_offset, log.log_end_offset) == (100, 100)
    refused(append, log)
    disk.heal()
    append(log)
    for how in ("running", "clean", "killed"):
        log = restarted(log, disk, how)
        assert offsets(log) == [100]


def test_a_snapshot_that_cannot_be_removed_is_not_forgotten(disk: SimulatedDisk) -> None:
    """It would tell of batches that were cut."""
    log = open_log(disk, topic(segment_bytes=300))
    for sequence in range(8):
        write(log, PLAIN, sequence, transactional=False)
    disk.fail("remove", "*.snapshot")
    refused(log.truncate_to, 2)
    disk.heal()
    log = reopen(log, disk)
    assert [entry.last_sequence for entry in log.producers.entries] == [1]
    assert [name for name in disk.list(DIRECTORY) if name.endswith("6.snapshot")] == []


def test_snapshots_that_cannot_be_pruned_do_not_stop_the_log(disk: SimulatedDisk) -> None:
    log = open_log(disk, topic(segment_bytes=300))
    disk.fail("remove", "*.snapshot")
    for _ in range(12):
        append(log)
        log.flushed(log.flush())
    disk.heal()
    log.roll(NOW)
    assert len([name for name in disk.list(DIRECTORY) if name.endswith(".snapshot")]) <= 3


def test_a_flush_counts_only_what_no_cut_has_touched(log: Log, disk: SimulatedDisk) -> None:
    """The log is cut twice while it is flushed: what was written between the cuts is not on the disk."""
    for _ in range(10):
        append(log)

    def meanwhile(path: str) -> None:
        if path.endswith(".log"):
            return
        disk.before_sync = None  # the log file has been synced, others have not
        log.truncate_to(3)
        for _ in range(7):
            append(log, epoch=1)
        log.truncate_to(8)
        append(log, epoch=2)

    disk.before_sync = meanwhile
    log.flushed(log.flush())
    assert log.log_end_offset == 9
    assert log.recovery_point == 3
