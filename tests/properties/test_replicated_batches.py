"""A follower's log is its leader's: the same files (batches, indexes, producers, epochs), whatever the pieces it was
fetched in, also where those end in the middle of a batch."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.log.log import Log
from penstock.model.ids import TopicPartition
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.records.control import build_transaction_marker
from penstock.settings.topic import TopicSettings
from penstock.simulator.twins.disk import SimulatedDisk
from property_examples import examples
from verified_appends import append_verified

DIRECTORY = "/data/t-0"
NOW = 1_000_000


def open_log(disk: SimulatedDisk, topic: TopicSettings) -> Log:
    return Log.open(
        disk,
        DIRECTORY,
        TopicPartition("t", 0),
        topic,
        clean_shutdown=False,
        recovery_point=0,
        log_start_offset=0,
        now_ms=NOW,
        topic_id=bytes(range(16)),
    )


def write_history(log: Log, chance: random.Random) -> None:
    """Batches with and without producers, transactions that end either way, timestamps up and down, new leaders."""
    epoch = 0
    sequences = {1: 0, 2: 0}
    in_transaction: set[int] = set()
    for _ in range(chance.randrange(5, 60)):
        epoch += chance.random() < 0.1
        timestamp = NOW + chance.randrange(-500, 2000)
        producer_id = chance.choice((-1, -1, 1, 2))
        if producer_id in in_transaction and chance.random() < 0.5:
            in_transaction.discard(producer_id)
            data = build_transaction_marker(
                producer_id=producer_id,
                producer_epoch=0,
                committed=chance.random() < 0.5,
                coordinator_epoch=0,
                timestamp=timestamp,
            )
        else:
            count = chance.randrange(1, 4)
            records = [(timestamp, b"key", b"v" * chance.randrange(200), ()) for _ in range(count)]
            if producer_id < 0:
                data = build_batch(records)
            else:
                in_transaction.add(producer_id)
                data = build_batch(
                    records,
                    producer_id=producer_id,
                    producer_epoch=0,
                    base_sequence=sequences[producer_id],
                    transactional=True,
                )
                sequences[producer_id] += count
        append_verified(log, data, epoch, NOW)


@given(
    st.randoms(use_true_random=False),
    st.integers(100, 3000),
    st.sampled_from((300, 1000, 1 << 20)),
    st.sampled_from((1000, 1 << 40)),
)
@settings(max_examples=examples(60), deadline=None)
def test_a_follower_has_the_files_of_its_leader(
    chance: random.Random, fetch_bytes: int, segment_bytes: int, segment_ms: int
) -> None:
    topic = TopicSettings(segment_bytes=segment_bytes + 700, segment_ms=segment_ms, index_interval_bytes=100)
    disks = SimulatedDisk(), SimulatedDisk()
    for disk in disks:
        disk.make_directories("/data")
    leader, follower = (open_log(disk, topic) for disk in disks)
    write_history(leader, chance)
    while follower.log_end_offset < leader.log_end_offset:
        data = leader.read(follower.log_end_offset, fetch_bytes, leader.log_end_offset).data
        if chance.random() < 0.5:
            data = data[: chance.randrange(read_header(data).size, len(data) + 1)]  # as Apache Kafka's leaders cut
        follower.append_preassigned(data, NOW, max_leader_epoch=leader.epochs.latest)
    assert follower.epochs.entries == leader.epochs.entries
    end = leader.log_end_offset
    assert follower.last_stable_offset(end) == leader.last_stable_offset(end)
    assert follower.aborted_transactions(0, end) == leader.aborted_transactions(0, end)
    for log in (leader, follower):
        log.close()
    assert disks[0].list(DIRECTORY) == disks[1].list(DIRECTORY)
    for name in disks[0].list(DIRECTORY):
        files = [disk.open(f"{DIRECTORY}/{name}", read_only=True) for disk in disks]
        assert files[0].pread(1 << 20, 0) == files[1].pread(1 << 20, 0), name
