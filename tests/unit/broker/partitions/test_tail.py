"""The batches that followers are about to fetch."""

from __future__ import annotations

import pytest

from penstock.broker.partitions import tail as module
from penstock.broker.partitions.tail import Tail, Tails

MANY = 1 << 20


def filled() -> tuple[Tails, Tail]:
    tails = Tails()
    tail = Tail(tails)
    tail.append(10, 12, b"ten, eleven ")
    tail.append(12, 13, b"twelve ")
    tail.append(13, 15, b"thirteen, fourteen")
    return tails, tail


def test_it_is_read_from_the_start_of_any_batch_to_its_end() -> None:
    _, tail = filled()
    assert tail.read(10, 15, MANY) == b"ten, eleven twelve thirteen, fourteen"
    assert tail.read(12, 15, MANY) == b"twelve thirteen, fourteen"
    assert tail.read(13, 15, MANY) == b"thirteen, fourteen"


@pytest.mark.parametrize(("offset", "end"), [(9, 15), (11, 15), (15, 15), (10, 13), (10, 16)])
def test_nothing_is_read_that_is_not_whole(offset: int, end: int) -> None:
    _, tail = filled()
    assert tail.read(offset, end, MANY) is None


@pytest.mark.parametrize(("offset", "size"), [(10, 37), (12, 25)])
def test_a_reader_that_takes_less_reads_the_file(offset: int, size: int) -> None:
    _, tail = filled()
    assert tail.read(offset, 15, size) is not None
    assert tail.read(offset, 15, size - 1) is None


def test_committed_batches_are_forgotten() -> None:
    tails, tail = filled()
    tail.committed(11)
    assert tail.read(10, 15, MANY) is not None  # a part of the first batch is not committed
    tail.committed(13)
    assert tail.read(12, 15, MANY) is None
    assert tail.read(13, 15, MANY) == b"thirteen, fourteen"
    assert tails.size == len(b"thirteen, fourteen")
    tail.committed(15)
    assert tail.read(13, 15, MANY) is None
    assert tails.size == 0


def test_batches_with_a_gap_before_them_start_over() -> None:
    tails, tail = filled()
    tail.append(16, 17, b"sixteen")
    assert tail.read(10, 17, MANY) is None
    assert tail.read(16, 17, MANY) == b"sixteen"
    assert tails.size == 7


def test_its_memory_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TAIL_BYTES_MAX", 10)
    monkeypatch.setattr(module, "TAILS_BYTES_MAX", 15)
    tails = Tails()
    one, other = Tail(tails), Tail(tails)
    one.append(0, 1, b"x" * 6)
    one.append(1, 2, b"y" * 6)
    assert one.read(0, 2, MANY) is None
    assert one.read(1, 2, MANY) == b"y" * 6
    other.append(0, 1, b"z" * 10)
    assert other.read(0, 1, MANY) is None
    assert tails.size == 6
    one.clear()
    other.append(0, 1, b"z" * 11)
    assert other.read(0, 1, MANY) is None
    assert tails.size == 0
