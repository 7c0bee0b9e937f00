from __future__ import annotations

import random
from collections.abc import Sequence

from penstock.migrate.verify import Batch, last_values
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.records.control import build_transaction_marker

Written = tuple[str, str | None]


def plain(offset: int, *records: Written) -> Batch:
    return parsed(
        build_batch(
            [(0, key.encode(), None if value is None else value.encode(), ()) for key, value in records],
            base_offset=offset,
        )
    )


def parsed(data: bytearray) -> Batch:
    return read_header(data), bytes(data)


def test_the_last_value_of_each_key_counts_and_tombstones_are_none() -> None:
    log = [plain(0, ("a", "1"), ("b", "1")), plain(2, ("a", "2")), plain(3, ("b", None))]
    cleaned = [plain(2, ("a", "2"))]
    assert last_values(iter(log)) == last_values(iter(cleaned)) != {}
    assert last_values(iter(log)) != last_values(iter([plain(2, ("a", "3"))]))


def transactional(offset: int, producer_id: int, *records: Written) -> Batch:
    data = build_batch(
        [(0, key.encode(), None if value is None else value.encode(), ()) for key, value in records],
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        transactional=True,
    )
    return parsed(data)


def marker(offset: int, producer_id: int, committed: bool) -> Batch:
    return parsed(
        build_transaction_marker(
            committed=committed,
            producer_id=producer_id,
            producer_epoch=0,
            coordinator_epoch=0,
            timestamp=0,
            base_offset=offset,
        )
    )


def test_aborted_records_do_not_count_and_open_ones_are_apart() -> None:
    base = [plain(0, ("a", "1"))]
    aborted: Sequence[Batch] = [*base, transactional(1, 7, ("a", "2")), marker(2, 7, committed=False)]
    committed = [*base, transactional(1, 7, ("a", "2")), marker(2, 7, committed=True)]
    still_open = [*base, transactional(1, 7, ("a", "2"))]
    assert last_values(iter(aborted)) == last_values(iter(base))
    assert last_values(iter(committed)) == last_values(iter([plain(0, ("a", "2"))]))
    assert last_values(iter(still_open)) not in (last_values(iter(base)), last_values(iter(committed)))


def test_the_order_of_replicas_does_not_matter() -> None:
    keys = [f"k{number}" for number in range(50)]
    random.Random(1).shuffle(keys)
    log = [plain(number, (key, key)) for number, key in enumerate(keys)]
    assert last_values(iter(log)) == last_values(iter([plain(0, *((key, key) for key in sorted(keys)))]))
