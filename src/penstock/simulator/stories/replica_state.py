"""Checks that a replica's state in memory is what its batches say.

- `StateMatchesLog`: the producers of a replica (epoch, last sequence, open transaction) and its aborted transactions
  are those found by reading its log from the beginning. A leader that knows less would append a batch twice, or show
  aborted records; one that knows more would refuse what it never had.
"""

from __future__ import annotations

from penstock.broker.partitions.replica import Replica
from penstock.log.log import Log
from penstock.records.batch import iterate_headers
from penstock.records.control import read_transaction_marker
from penstock.replication.producers import ProducerStates
from penstock.simulator.story import Violation

Producers = dict[int, tuple[int, int, int]]
Aborted = list[tuple[int, int, int]]
READ_BYTES = 1 << 20


def check_state(name: str, replica: Replica) -> None:
    """Only if the whole log is there, and no truncation must be finished before the next append."""
    log = replica.log
    if log.log_start_offset > 0 or log.is_unsettled:
        return
    known = producers_of(log.producers), aborted_in(log)
    said = read_state(log)
    is_compacted = "compact" in log.settings.cleanup_policy
    if not (_covers(known, said) if is_compacted else known == said):
        where = f"{replica.topic_partition.topic}-{replica.topic_partition.partition} at {name}"
        raise Violation("StateMatchesLog", f"{where}, up to {log.log_end_offset}: {known} is known, {said} is said")


def _covers(known: tuple[Producers, Aborted], said: tuple[Producers, Aborted]) -> bool:
    """Compaction removes the records of aborted transactions, and old markers: the log then has less than is known."""
    return said[0].items() <= known[0].items() and set(said[1]) <= set(known[1])


def producers_of(states: ProducerStates) -> Producers:
    return {
        entry.producer_id: (entry.epoch, entry.last_sequence, entry.transaction_first_offset)
        for entry in states.entries
    }


def aborted_in(log: Log) -> Aborted:
    """For each transaction the producer, its first offset and that of its marker."""
    return sorted(each[:3] for each in log.aborted_transactions(0, log.log_end_offset))


def read_state(log: Log) -> tuple[Producers, Aborted]:
    states = ProducerStates()
    aborted: Aborted = []
    offset, end = 0, log.log_end_offset
    while offset < end:
        data = log.read(offset, READ_BYTES, end).data
        for position, header in iterate_headers(data):
            offset = header.next_offset
            if header.producer_id < 0:
                continue
            if not header.is_control:
                states.append(header, header.base_offset, 0)
                continue
            marker = read_transaction_marker(data, position, header)
            assert marker is not None
            completed = states.append_marker(
                header,
                header.base_offset,
                0,
                aborted=not marker.committed,
                coordinator_epoch=marker.coordinator_epoch,
            )
            if completed is not None and completed.aborted:
                aborted.append(completed[:3])
        if not data:
            break
    return producers_of(states), sorted(aborted)
