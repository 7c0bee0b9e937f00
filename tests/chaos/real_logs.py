"""The simulator's laws, asked of the logs that real brokers left on real disks."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path

from chaos.storm_work import Transacting
from penstock.records.batch import BatchHeader, check_crc, iterate_headers
from penstock.records.control import read_transaction_marker
from penstock.records.record import iterate_records
from penstock.simulator.requests import MAX_RECORDS_SIZE
from penstock.simulator.stories.cluster_checkers import Promises
from penstock.simulator.stories.cluster_story import ClusterStory
from penstock.simulator.stories.replica_content import values_of
from penstock.simulator.story import Violation


def log_of(directory: Path) -> bytes:
    """All segments one after the other; where they are divided is each replica's own affair."""
    return b"".join((directory / name).read_bytes() for name in sorted(os.listdir(directory)) if name.endswith(".log"))


def replicas_are_equal(replicas: Mapping[str, bytes], what: str) -> bytes:
    """`ReplicasAreEqual`; the content that all have."""
    first = next(iter(replicas.values()))
    if any(data != first for data in replicas.values()):
        raise Violation("ReplicasAreEqual", f"{what}: { ({name: len(data) for name, data in replicas.items()}) }")
    return first


def log_matching(data: bytes, what: str) -> None:
    """`LogMatching`: whole batches, offsets without a hole, leader epochs that never go back."""
    offset, epoch, end = 0, -1, 0
    for position, header in iterate_headers(data):
        check_crc(data, position, header)
        if header.base_offset != offset or header.leader_epoch < epoch:
            raise Violation(
                "LogMatching",
                f"{what}: a batch at {header.base_offset} of epoch {header.leader_epoch} follows {offset} of {epoch}",
            )
        offset, epoch, end = header.next_offset, header.leader_epoch, position + header.size
    if end != len(data):
        raise Violation("LogMatching", f"{what}: {len(data) - end} bytes at the end are no batch")


def durability_and_order(promises: Promises, data: bytes) -> None:
    """`Durability` and `ExactlyOnce`, by the code that judges simulated replicas."""
    ClusterStory.check_content(promises, "every broker", dict(values_of(data)), 0)


def committed_values(data: bytes, what: str) -> list[bytes]:
    """What a reader of committed records sees; `NoHangingTransaction` if one is open at the end."""
    open_now: dict[int, list[bytes]] = defaultdict(list)
    ended: list[tuple[int, list[bytes]]] = []
    for position, header in iterate_headers(data):
        if header.is_control:
            marker = read_transaction_marker(data, position, header)
            assert marker is not None
            values = open_now.pop(header.producer_id, [])
            if marker.committed:
                ended.append((header.base_offset, values))
        elif header.is_transactional:
            open_now[header.producer_id] += list(_values(data, position, header))
    left = {producer: values for producer, values in open_now.items() if values}
    if left:
        raise Violation("NoHangingTransaction", f"{what}: {left}")
    return [value for _, values in ended for value in values]


def _values(data: bytes, position: int, header: BatchHeader) -> Iterator[bytes]:
    for record in iterate_records(data, position, header, max_size=MAX_RECORDS_SIZE):
        yield record.value or b""


def transactions_are_whole(by_partition: list[list[bytes]], producers: list[Transacting]) -> None:
    """`AllOrNothing`, `NoAbortedRecord`, and `ExactlyOnce` of transactions."""
    for partition, values in enumerate(by_partition):
        if len(values) != len(set(values)):
            raise Violation("ExactlyOnce", f"partition {partition} has a committed record twice")
    for producer in producers:
        prefix = b"%s:" % producer.name.encode()
        found = [
            {int(value.removeprefix(prefix)) for value in values if value.startswith(prefix)} for values in by_partition
        ]
        if any(each != found[0] for each in found):
            somewhere, everywhere = found[0].union(*found), found[0].intersection(*found)
            raise Violation("AllOrNothing", f"{producer.name}: {sorted(somewhere - everywhere)}")
        if found[0] & producer.aborted:
            raise Violation("NoAbortedRecord", f"{producer.name}: {sorted(found[0] & producer.aborted)}")
        if producer.committed - found[0]:
            raise Violation("Durability", f"{producer.name}: {sorted(producer.committed - found[0])} are gone")
        unasked = found[0] - producer.committed - producer.unknown
        if unasked:
            raise Violation("DecidedFirst", f"{producer.name}: committed without a request: {sorted(unasked)}")
