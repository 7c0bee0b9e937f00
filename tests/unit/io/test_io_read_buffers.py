"""Buffers for reading are used again, but never while somebody still looks at what is in them."""

from __future__ import annotations

from pathlib import Path

from penstock.io.files import ReadBuffers, RealFileSystem


def buffers() -> ReadBuffers:
    return ReadBuffers(smallest=10, size=100, count_max=2)


def test_a_buffer_that_nobody_looks_at_is_used_again() -> None:
    pool = buffers()
    first = pool.take(50)
    address = id(first.obj)
    del first
    assert id(pool.take(100).obj) == address


def test_a_buffer_that_is_looked_at_is_left_alone() -> None:
    pool = buffers()
    taken = [pool.take(100) for _ in range(5)]
    assert len({id(view.obj) for view in taken}) == 5
    part = taken[0][10:20]
    kept = id(taken[0].obj)
    del taken[0]
    assert id(pool.take(100).obj) != kept, "a slice of it is still there"
    del part
    assert id(pool.take(100).obj) == kept


def test_what_is_smaller_or_larger_is_made_for_the_occasion() -> None:
    pool = buffers()
    assert [len(pool.take(size)) for size in (0, 9, 101)] == [0, 9, 101]


def test_two_reads_do_not_disturb_each_other(tmp_path: Path) -> None:
    file = RealFileSystem().open(str(tmp_path / "data"), create=True)
    block = 128 * 1024
    file.pwritev([bytes([number]) * block for number in range(4)], 0)
    views = [file.pread_cached(block, number * block) for number in range(4)]
    assert [bytes(view or b"") for view in views] == [bytes([number]) * block for number in range(4)]
    file.close()
