from __future__ import annotations

import json
import random

import pytest

from log_harness import NOW, TOPIC_ID, append, headers, offsets, topic
from penstock.log.checkpoints import read_offset_checkpoint
from penstock.log.directory import LogDirectory, parse_partition_directory
from penstock.log.log import Log
from penstock.model.ids import TopicPartition
from penstock.simulator.twins.disk import SimulatedDisk

ONE, TWO = TopicPartition("orders", 0), TopicPartition("a-b.c", 12)
COMPACTED = topic(cleanup_policy=frozenset({"compact"}))


@pytest.fixture
def disk() -> SimulatedDisk:
    return SimulatedDisk()


def open_partition(directory: LogDirectory, partition: TopicPartition) -> Log:
    return directory.open(partition, topic(), now_ms=NOW, topic_id=TOPIC_ID)


def content(disk: SimulatedDisk, path: str) -> bytes:
    file = disk.open(path, read_only=True)
    data = file.pread(1 << 20, 0)
    file.close()
    return data


@pytest.mark.parametrize(
    ("name", "partition"),
    [
        ("orders-0", ("orders", 0)),
        ("a-b.c-12", ("a-b.c", 12)),
        ("orders-delete-3", ("orders-delete", 3)),
        ("orders-0.0123abcd-delete", None),
        ("orders-0.0123abcd-stray", None),
        ("orders-0.0123abcd-future", None),
        ("meta.properties", None),
        ("orders", None),
        ("-1", None),
    ],
)
def test_names_of_partition_directories(name: str, partition: tuple[str, int] | None) -> None:
    assert parse_partition_directory(name) == partition


def test_a_clean_stop_and_start(disk: SimulatedDisk) -> None:
    directory = LogDirectory(disk, "/srv/data")
    assert not directory.clean_shutdown
    for partition in (ONE, TWO):
        log = open_partition(directory, partition)
        for _ in range(5):
            append(log)
    directory.logs[TWO].advance_log_start(2)
    directory.close({ONE: 5, TWO: 4}, broker_epoch=77)
    assert json.loads(content(disk, "/srv/data/.kafka_cleanshutdown")) == {"version": 0, "brokerEpoch": 77}
    assert content(disk, "/srv/data/recovery-point-offset-checkpoint") == b"0\n2\norders 0 5\na-b.c 12 5\n"
    assert content(disk, "/srv/data/log-start-offset-checkpoint") == b"0\n1\na-b.c 12 2\n"
    assert content(disk, "/srv/data/replication-offset-checkpoint") == b"0\n2\norders 0 5\na-b.c 12 4\n"
    assert disk.unsynced() == []
    assert disk.open_paths() == []

    directory = LogDirectory(disk, "/srv/data")
    assert directory.clean_shutdown
    assert directory.previous_broker_epoch == 77
    assert not disk.exists("/srv/data/.kafka_cleanshutdown")
    assert directory.high_watermarks == {ONE: 5, TWO: 4}
    assert sorted(directory.partitions()) == sorted([ONE, TWO])
    for partition in directory.partitions():
        log = open_partition(directory, partition)
        assert (log.recovered_bytes, log.log_end_offset) == (0, 5)
    assert directory.logs[TWO].log_start_offset == 2


def test_the_clean_shutdown_marker_counts_once(disk: SimulatedDisk) -> None:
    directory = LogDirectory(disk, "/data")
    append(open_partition(directory, ONE))
    directory.close()
    LogDirectory(disk, "/data")
    disk.crash()
    directory = LogDirectory(disk, "/data")
    assert not directory.clean_shutdown
    log = open_partition(directory, ONE)
    assert log.log_end_offset == 1


def test_checkpoints_written_now_and_then(disk: SimulatedDisk) -> None:
    directory = LogDirectory(disk, "/data")
    log = open_partition(directory, ONE)
    append(log, 10)
    log.flushed(log.flush())
    append(log, 10)
    directory.write_checkpoint(directory.checkpoint({ONE: 20}))
    disk.crash()
    directory = LogDirectory(disk, "/data")
    log = open_partition(directory, ONE)
    assert (log.recovery_point, log.log_end_offset) == (10, 20)
    assert directory.high_watermarks == {ONE: 20}


@pytest.mark.parametrize("is_late", [False, True], ids=["", "a checkpoint taken before the cut is written after it"])
def test_what_follows_a_cut_was_not_committed(disk: SimulatedDisk, is_late: bool) -> None:
    """Records that were committed are cut off if their leader is elected uncleanly."""
    directory = LogDirectory(disk, "/data")
    log = open_partition(directory, ONE)
    append(log, 5)
    append(log, 5)
    log.flushed(log.flush())
    directory.write_checkpoint(directory.checkpoint({ONE: 10}))
    taken = directory.checkpoint({ONE: 10})
    log.truncate_to(5)
    append(log, 3)
    log.flushed(log.flush())
    if is_late:
        directory.write_checkpoint(taken)
    disk.power_loss(random.Random(0))

    assert LogDirectory(disk, "/data").high_watermarks == {ONE: 5}


@pytest.mark.parametrize("is_late", [False, True], ids=["checkpoint", "late checkpoint"])
def test_a_log_that_starts_over_earlier_has_its_beginning_after_a_power_loss(
    disk: SimulatedDisk, is_late: bool
) -> None:
    """A follower that has lost its first segment begins with the second, until it learns that its leader begins
    earlier. The checkpoint of that moment would hide the records that it copies then."""
    directory = LogDirectory(disk, "/data")
    log = open_partition(directory, ONE)
    log.truncate_fully_and_start_at(31)
    log.may_lack_beginning = True
    directory.write_checkpoint(directory.checkpoint({}))
    taken = directory.checkpoint({})
    log.may_lack_beginning = False
    log.truncate_fully_and_start_at(0)
    append(log, 5)
    log.flushed(log.flush())
    if is_late:
        directory.write_checkpoint(taken)
    disk.power_loss(random.Random(0))

    log = open_partition(LogDirectory(disk, "/data"), ONE)
    assert (log.log_start_offset, log.log_end_offset) == (0, 5)


def test_a_log_that_started_over_within_a_batch_knows_its_start_from_a_checkpoint_only(disk: SimulatedDisk) -> None:
    """A follower starts over where its leader's log starts, and then gets the whole batch that begins before it."""
    directory = LogDirectory(disk, "/data")
    log = open_partition(directory, ONE)
    log.truncate_fully_and_start_at(127)
    assert log.durable_log_start == 0
    assert not directory.has_start(log)
    checkpoint = directory.checkpoint({})
    directory.write_checkpoint(checkpoint)
    directory.checkpoint_written(checkpoint)
    assert log.durable_log_start == 127
    assert directory.has_start(log)
    log.truncate_fully_and_start_at(126)
    append(log, 5)
    log.advance_log_start(127)
    log.flushed(log.flush())
    disk.power_loss(random.Random(0))

    assert open_partition(LogDirectory(disk, "/data"), ONE).log_start_offset == 127


def test_a_malformed_checkpoint_costs_a_recovery(disk: SimulatedDisk) -> None:
    directory = LogDirectory(disk, "/data")
    append(open_partition(directory, ONE), 10)
    directory.close()
    file = disk.open("/data/recovery-point-offset-checkpoint")
    file.truncate(3)
    file.close()
    directory = LogDirectory(disk, "/data")
    assert not directory.clean_shutdown
    log = open_partition(directory, ONE)
    assert log.recovered_bytes == log.size
    assert log.log_end_offset == 10


def test_deleting_a_partition(disk: SimulatedDisk) -> None:
    directory = LogDirectory(disk, "/data")
    log = open_partition(directory, ONE)
    append(log, 10)
    log.advance_log_start(10)
    directory.write_checkpoint(directory.checkpoint({ONE: 10}))
    late = directory.checkpoint({ONE: 10})
    path = directory.delete(ONE, "0123abcd")
    assert path == "/data/orders-0.0123abcd-delete"
    assert directory.leftovers() == [path]
    assert disk.open_paths() == []
    directory.write_checkpoint(late)  # was under way on another thread
    log = open_partition(directory, ONE)
    append(log, 3)
    disk.crash()
    directory = LogDirectory(disk, "/data")
    log = open_partition(directory, ONE)
    # The start offset of the old topic would have made this log look as if it had lost everything.
    assert (log.log_start_offset, log.log_end_offset) == (0, 3)
    disk.remove_tree(path)
    assert directory.leftovers() == []


def test_a_deleted_partitions_recovery_point_is_not_its_namesakes(disk: SimulatedDisk) -> None:
    directory = LogDirectory(disk, "/data")
    log = open_partition(directory, ONE)
    append(log, 10)
    log.flushed(log.flush())
    directory.write_checkpoint(directory.checkpoint({}))
    directory.delete(ONE, "0123abcd")
    log = open_partition(directory, ONE)
    for _ in range(12):
        append(log)
    disk.crash()
    disk.corrupt(log.segments[0].path, 70)
    assert open_partition(LogDirectory(disk, "/data"), ONE).log_end_offset == 0


@pytest.mark.parametrize("late", [False, True])
def test_a_log_of_several_segments_is_known(disk: SimulatedDisk, late: bool) -> None:
    """A gap between its segments is a loss then, even before the first checkpoint."""
    directory = LogDirectory(disk, "/data")
    checkpoint = directory.checkpoint({})
    log = directory.open(ONE, COMPACTED, now_ms=NOW, topic_id=TOPIC_ID)
    while len(log.segments) < 3:
        append(log)
    if late:
        directory.write_checkpoint(checkpoint)  # was taken before the log was there
    second = log.segments[1]
    disk.crash()
    disk.remove(second.path)
    log = LogDirectory(disk, "/data").open(ONE, COMPACTED, now_ms=NOW)
    assert log.log_end_offset == second.base_offset


def test_gaps_of_a_log_that_was_brought_here_stay_normal(disk: SimulatedDisk) -> None:
    """As Kafka's compaction leaves them; also if the power fails before the first checkpoint."""
    directory = LogDirectory(disk, "/brought")
    log = directory.open(ONE, COMPACTED, now_ms=NOW, topic_id=TOPIC_ID)
    while len(log.segments) < 3:
        append(log)
    disk.crash()
    disk.remove(log.segments[1].path)
    disk.make_directories("/data")
    disk.sync_directory("/")
    disk.rename("/brought/orders-0", "/data/orders-0")
    _, second, third = log.segments
    kept = [*range(second.base_offset), *range(third.base_offset, log.log_end_offset)]
    for _ in range(3):
        log = LogDirectory(disk, "/data").open(ONE, COMPACTED, now_ms=NOW)
        assert offsets(log) == kept
        log.roll(NOW)
        disk.power_loss(random.Random(1))


def test_a_long_topic_name_still_makes_a_valid_name(disk: SimulatedDisk) -> None:
    directory = LogDirectory(disk, "/data")
    partition = TopicPartition("t" * 249, 3)
    open_partition(directory, partition)
    name = directory.delete(partition, "f" * 32).rsplit("/", 1)[1]
    assert len(name) == 255
    assert name.endswith("-3." + "f" * 32 + "-delete")


def test_strays_are_kept(disk: SimulatedDisk) -> None:
    directory = LogDirectory(disk, "/data")
    append(open_partition(directory, ONE))
    path = directory.set_aside_stray(ONE, "abcd")
    assert path == "/data/orders-0.abcd-stray"
    assert disk.exists(f"{path}/00000000000000000000.log")
    assert directory.partitions() == []
    assert directory.leftovers() == []


def test_the_metadata_log_is_not_a_partition_like_others(disk: SimulatedDisk) -> None:
    directory = LogDirectory(disk, "/data")
    disk.make_directories("/data/__cluster_metadata-0")
    assert directory.partitions() == []


def test_the_directory_itself_is_durable(disk: SimulatedDisk) -> None:
    LogDirectory(disk, "/srv/penstock/data")
    assert disk.unsynced() == []


# -- cutting


@pytest.mark.parametrize("seed", range(20))
def test_after_a_cut_nothing_new_is_believed_unchecked(seed: int) -> None:
    """The checkpoint says how far bytes were synced; what takes the place of what was cut was not."""
    chance = random.Random(seed)
    disk = SimulatedDisk()
    directory = LogDirectory(disk, "/data")
    log = directory.open(ONE, topic(segment_bytes=2000), now_ms=NOW)
    for _ in range(40):
        append(log, size=100)
    log.flushed(log.flush())
    stale = directory.checkpoint({})
    directory.write_checkpoint(stale)
    cut = chance.randrange(1, 40)
    log.truncate_to(cut)
    assert read_offset_checkpoint(disk, "/data/recovery-point-offset-checkpoint")[ONE] <= cut
    if seed % 2:
        directory.write_checkpoint(stale)  # by a thread that was slow
    for _ in range(40):
        append(log, size=100, epoch=1)
    disk.power_loss(chance)
    log = LogDirectory(disk, "/data").open(ONE, topic(segment_bytes=2000), now_ms=NOW)
    found = headers(log)
    assert [header.base_offset for header in found] == list(range(log.log_end_offset))
    assert log.log_end_offset >= cut
    assert [header.leader_epoch for header in found] == [0] * cut + [1] * (log.log_end_offset - cut)
    assert not any(segment.is_suspect for segment in log.segments)
