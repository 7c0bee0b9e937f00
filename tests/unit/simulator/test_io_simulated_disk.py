"""The simulated disk itself: what survives which crash, and the faults it can simulate."""

from __future__ import annotations

import errno
import random
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.io.files import read_file, write_file_atomically
from penstock.simulator.twins.clock import SimulatedClock, SimulatedRandomness
from penstock.simulator.twins.disk import Event, SimulatedDisk, SimulatedFile
from penstock.simulator.twins.mount import Mount, ProcessKilled
from penstock.simulator.twins.torn_writes import Change, after_power_loss, apply
from property_examples import examples

GARBAGE = {0x00, 0xFF, 0xA5}


def written(disk: SimulatedDisk, path: str, data: bytes, *, sync: bool = False) -> SimulatedFile:
    file = disk.open(path, create=True)
    file.pwrite(data, 0)
    if sync:
        file.sync()
    return file


def outcomes(disk_of: object, path: str, count: int = 200) -> set[bytes | None]:
    """The contents `path` has after many power losses, None if it is gone; `disk_of` makes the disk anew each time."""
    assert callable(disk_of)
    seen: set[bytes | None] = set()
    for seed in range(count):
        disk = disk_of()
        disk.power_loss(random.Random(seed))
        seen.add(read_file(disk, path) if disk.exists(path) else None)
    return seen


# Contents

changes_of_a_file = st.lists(
    st.one_of(
        st.tuples(st.integers(0, 2000), st.binary(min_size=0, max_size=1200)),
        st.tuples(st.integers(0, 3000), st.none()),
    ),
    max_size=8,
)


@settings(max_examples=examples(150), deadline=None)
@given(durable=st.binary(max_size=2000), changes=changes_of_a_file, seed=st.integers(0, 1 << 30))
def test_no_byte_is_invented(durable: bytes, changes: list[Change], seed: int) -> None:
    states = [bytearray(durable)]
    for change in changes:
        state = bytearray(states[-1])
        apply(state, change)
        states.append(state)

    survived = after_power_loss(bytearray(durable), changes, random.Random(seed))

    sizes = [len(state) for state in states]
    assert min(sizes) <= len(survived) <= max(sizes)
    for position, byte in enumerate(survived):
        possible = {state[position] for state in states if position < len(state)}
        if any(position >= size for size in sizes):
            possible |= GARBAGE  # at some moment the file ended before this byte
        assert byte in possible, (position, byte)


@settings(max_examples=examples(60), deadline=None)
@given(
    synced=st.binary(min_size=1, max_size=3000),
    tail=st.lists(st.binary(min_size=1, max_size=900), max_size=6),
    seed=st.integers(0, 1 << 30),
)
def test_what_was_synced_survives_appends_that_were_not(synced: bytes, tail: list[bytes], seed: int) -> None:
    disk = SimulatedDisk()
    file = written(disk, "log", synced, sync=True)
    disk.sync_directory("/")
    for data in tail:
        file.pwrite(data, file.size())
    disk.power_loss(random.Random(seed))
    assert read_file(disk, "log")[: len(synced)] == synced


def test_unsynced_appends_are_lost_kept_torn_and_reordered() -> None:
    """Every kind of outcome does come up; a model that is too kind would test nothing."""
    first, second, third = b"1" * 1024, b"2" * 1024, b"3" * 1024

    def disk() -> SimulatedDisk:
        disk = SimulatedDisk()
        file = written(disk, "log", b"0" * 512, sync=True)
        disk.sync_directory("/")
        for data in (first, second, third):
            file.pwrite(data, file.size())
        return disk

    seen = outcomes(disk, "log", 400)
    base = b"0" * 512
    assert base in seen
    assert base + first + second + third in seen
    assert any(content is not None and 512 < len(content) < 512 + 1024 for content in seen), "no torn write"
    assert any(content is not None and b"3" in content and b"2" not in content for content in seen), "no reordering"
    assert any(content is not None and content[512:].startswith(bytes(512)) for content in seen), "no size before data"
    assert any(content is not None and b"\xa5" in content for content in seen), "no garbage"


def test_a_truncation_that_was_not_synced_may_come_undone() -> None:
    def disk() -> SimulatedDisk:
        disk = SimulatedDisk()
        file = written(disk, "log", b"old batch", sync=True)
        disk.sync_directory("/")
        file.truncate(3)
        file.pwrite(b"new", 3)
        return disk

    seen = outcomes(disk, "log")
    assert {b"old batch", b"old", b"oldnew"} <= seen
    assert b"old ba" in seen, "the new size with the old bytes"


def test_the_same_seed_gives_the_same_disk() -> None:
    def contents(seed: int) -> list[bytes]:
        disk = SimulatedDisk()
        for number in range(20):
            file = written(disk, f"{number}", b"%d" % number * 700, sync=number % 3 == 0)
            file.pwrite(b"x" * 999, 100)
        disk.rename("1", "one")
        disk.power_loss(random.Random(seed))
        return [name.encode() + read_file(disk, name) for name in disk.list("/")]

    assert contents(5) == contents(5)
    assert contents(5) != contents(6)


def test_a_crash_loses_nothing_but_the_handles() -> None:
    disk = SimulatedDisk()
    file = written(disk, "log", b"never synced")
    disk.rename("log", "renamed")
    disk.crash()
    assert read_file(disk, "renamed") == b"never synced"
    with pytest.raises(OSError) as error:
        file.pwrite(b"from the grave", 0)
    assert error.value.errno == errno.EBADF
    file.close()
    assert disk.open_paths() == []
    disk.power_loss(random.Random(0))
    assert not disk.exists("renamed") or len(read_file(disk, "renamed")) <= 12, "a crash makes nothing durable"


def test_after_a_failed_sync_the_pages_count_as_clean_and_are_lost() -> None:
    disk = SimulatedDisk()
    file = written(disk, "log", b"good", sync=True)
    disk.sync_directory("/")
    file.pwrite(b"lost", 4)
    disk.fail("sync", "log", times=1)
    with pytest.raises(OSError) as error:
        file.sync()
    assert error.value.errno == errno.EIO
    assert file.pread(100, 0) == b"goodlost", "the page cache still has it"
    file.pwrite(b"more", 8)
    file.sync()
    disk.power_loss(random.Random(0))
    assert read_file(disk, "log") == b"good\0\0\0\0more"


# Names


def test_a_new_file_needs_its_directory_synced() -> None:
    def disk(*, directory: bool) -> SimulatedDisk:
        disk = SimulatedDisk()
        written(disk, "a", b"x", sync=True)
        if directory:
            disk.sync_directory("/")
        return disk

    assert outcomes(lambda: disk(directory=False), "a") == {b"x", None}
    assert outcomes(lambda: disk(directory=True), "a") == {b"x"}


def test_a_new_directory_needs_its_parent_synced() -> None:
    def disk() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directories("d/e")
        written(disk, "d/e/a", b"x", sync=True)
        disk.sync_directory("d/e")
        disk.sync_directory("d")
        return disk

    assert outcomes(disk, "d/e/a") == {b"x", None}


def test_a_rename_happens_whole_or_not_at_all() -> None:
    def disk() -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directories("d")
        written(disk, "d/old", b"old", sync=True)
        written(disk, "d/new", b"new", sync=True)
        disk.sync_directory("/")
        disk.sync_directory("d")
        disk.rename("d/new", "d/old")
        return disk

    seen = set()
    for seed in range(100):
        after = disk()
        after.power_loss(random.Random(seed))
        seen.add((tuple(after.list("d")), read_file(after, "d/old")))
    assert seen == {(("new", "old"), b"old"), (("old",), b"new")}


def test_a_file_never_has_two_names() -> None:
    for seed in range(100):
        disk = SimulatedDisk()
        written(disk, "a", b"x", sync=True)
        disk.rename("a", "b")
        disk.rename("b", "c")
        written(disk, "a", b"y", sync=True)
        disk.rename("a", "b")
        disk.power_loss(random.Random(seed))
        contents = [read_file(disk, name) for name in disk.list("/")]
        assert len(contents) == len(set(contents))


def test_a_removal_may_come_undone_until_the_directory_is_synced() -> None:
    def disk(*, directory: bool) -> SimulatedDisk:
        disk = SimulatedDisk()
        disk.make_directories("d")
        written(disk, "d/a", b"x", sync=True)
        disk.sync_directory("d")
        disk.sync_directory("/")
        disk.remove_tree("d")
        if directory:
            disk.sync_directory("/")
        return disk

    assert outcomes(lambda: disk(directory=False), "d/a") == {b"x", None}
    assert outcomes(lambda: disk(directory=True), "d/a") == {None}


def test_renaming_before_syncing_can_leave_an_empty_file() -> None:
    """The classic mistake, which the disk has to be able to punish."""

    def disk() -> SimulatedDisk:
        disk = SimulatedDisk()
        written(disk, "meta", b"old", sync=True)
        disk.sync_directory("/")
        written(disk, "meta.tmp", b"new")
        disk.rename("meta.tmp", "meta")
        disk.sync_directory("/")
        return disk

    assert {b"", b"new"} <= outcomes(disk, "meta")


def test_atomic_writes_survive_at_every_point() -> None:
    for operations in range(12):
        for seed in range(20):
            disk = SimulatedDisk()
            write_file_atomically(disk, "meta", b"old")
            try:
                write_file_atomically(Mount(disk, operations=operations), "meta", b"new")
                finished = True
            except ProcessKilled:
                finished = False
            disk.power_loss(random.Random(seed))
            assert read_file(disk, "meta") in ({b"new"} if finished else {b"old", b"new"})
    assert finished


def test_unsynced_names_what_is_at_risk() -> None:
    disk = SimulatedDisk()
    file = written(disk, "a", b"x", sync=True)
    assert disk.unsynced() == ["/a"]
    disk.sync_directory("/")
    assert disk.unsynced() == []
    file.pwrite(b"y", 0)
    assert disk.unsynced() == ["/a"]


# Faults


def test_durable_is_what_a_power_loss_leaves_whatever_happens() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/d")
    assert disk.durable("/d/a") is None
    file = written(disk, "/d/a", b"old", sync=True)
    assert disk.durable("/d/a") is None, "its name is not synced"
    disk.sync_directory("/d")
    disk.sync_directory("/")
    file.pwrite(b"new", 0)
    assert disk.durable("/d/a") == b"old"
    file.sync()
    disk.rename("/d/a", "/d/b")
    assert disk.durable("/d/a") == b"new"
    assert disk.durable("/d/b") is None
    assert disk.durable("/d") is None


def test_a_full_disk_takes_what_fits_and_recovers() -> None:
    disk = SimulatedDisk()
    file = written(disk, "a", b"12345")
    other = written(disk, "b", b"0" * 100)
    disk.fill(leave=3)
    assert disk.free_bytes("/") == 3
    with pytest.raises(OSError) as error:
        file.pwrite(b"678901", 5)
    assert error.value.errno == errno.ENOSPC
    assert file.pread(100, 0) == b"12345678"
    file.pwrite(b"54321", 0)
    with pytest.raises(OSError):
        file.pwrite(b"x", 8)
    disk.remove("b")
    with pytest.raises(OSError):
        file.pwrite(b"x", 8)
    other.close()
    file.pwrite(b"x", 8)
    assert disk.free_bytes("/") == 99
    file.truncate(0)
    assert disk.free_bytes("/") == 108


def test_a_disk_that_is_full_by_blocks() -> None:
    """What fits into the last block of a file goes in; another file gets its name, and not a byte."""
    disk = SimulatedDisk()
    file = written(disk, "a", b"12345")
    disk.fill(leave=99, block_size=100)
    assert disk.free_bytes("/") == 99
    file.pwrite(b"0" * 95, 5)
    other = disk.open("b", create=True)
    for full, position in ((file, 100), (other, 0)):
        with pytest.raises(OSError) as error:
            full.pwrite(b"x", position)
        assert error.value.errno == errno.ENOSPC
        assert full.size() == position
    disk.fill(leave=100, block_size=100)
    other.pwrite(b"x", 0)
    with pytest.raises(OSError):
        file.pwrite(b"0" * 200, 50)
    assert file.size() == 100
    file.truncate(0)
    assert disk.free_bytes("/") == 100


def test_chosen_operations_fail_on_chosen_paths() -> None:
    disk = SimulatedDisk()
    disk.make_directories("d")
    file = written(disk, "d/a.log", b"x")
    other = written(disk, "d/a.index", b"x")
    operations: list[tuple[str, Callable[[], object]]] = [
        ("read", lambda: file.pread(1, 0)),
        ("read", lambda: file.pread_cached(1, 0)),
        ("write", lambda: file.pwrite(b"y", 0)),
        ("truncate", lambda: file.truncate(0)),
        ("sync", file.sync),
        ("open", lambda: disk.open("d/a.log")),
        ("rename", lambda: disk.rename("d/a.log", "d/b")),
        ("remove", lambda: disk.remove("d/a.log")),
    ]
    for operation, call in operations:
        disk.fail(operation, "d/*.log", error=errno.EIO)
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == errno.EIO
        other.pwrite(b"z", 0)
        other.sync()
        disk.heal()
    assert file.pread(10, 0) == b"x"
    disk.fail("create")
    with pytest.raises(OSError):
        disk.open("new", create=True)
    disk.fail("sync_directory", "d", times=2)
    for _ in range(2):
        with pytest.raises(OSError):
            disk.sync_directory("d")
    disk.sync_directory("d")


def test_bits_rot() -> None:
    disk = SimulatedDisk()
    file = written(disk, "a", b"abc", sync=True)
    disk.sync_directory("/")
    disk.corrupt("a", 1, mask=0x20)
    assert file.pread(3, 0) == b"aBc"
    disk.power_loss(random.Random(0))
    assert read_file(disk, "a") == b"aBc"


def test_rot_befalls_one_bit_of_what_matches() -> None:
    disk = SimulatedDisk()
    disk.make_directories("/d")
    contents = {path: bytes(100) for path in ("/d/1.log", "/d/2.log", "/d/1.index")}
    for path, content in contents.items():
        written(disk, path, content, sync=True)
    written(disk, "/d/empty.log", b"")
    chance = random.Random(1)
    hit = [disk.rot(chance, "/d/*.log") for _ in range(20)]
    assert {path for path, _ in filter(None, hit)} == {"/d/1.log", "/d/2.log"}
    assert read_file(disk, "/d/1.index") == bytes(100)
    disk = SimulatedDisk()
    written(disk, "/a", bytes(100))
    found = disk.rot(chance, "*")
    assert found is not None
    path, position = found
    assert path == "/a"
    (wrong,) = [(at, byte) for at, byte in enumerate(read_file(disk, path)) if byte]
    assert wrong[0] == position and wrong[1].bit_count() == 1
    assert disk.rot(chance, "/b*") is None


def test_cold_reads_say_so() -> None:
    disk = SimulatedDisk()
    file = written(disk, "a", b"abcdef")
    disk.cold = lambda path, position, size: position < 3
    assert file.pread_cached(2, 0) is None
    assert file.pread(2, 0) == b"ab"
    assert file.pread_cached(2, 3) == b"de"


def test_the_trace_tells_the_order() -> None:
    trace: list[Event] = []
    disk = SimulatedDisk(trace=trace)
    disk.before_sync = lambda path: trace.append(("waiting", path))
    write_file_atomically(disk, "meta", b"123")
    trace.append(("reply",))
    disk.remove("meta")
    assert trace == [
        ("create", "meta.tmp"),
        ("write", "meta.tmp", 0, 3),
        ("waiting", "meta.tmp"),
        ("sync", "meta.tmp"),
        ("rename", "meta.tmp", "meta"),
        ("sync_directory", "."),
        ("reply",),
        ("remove", "meta"),
    ]


def test_a_mount_dies_with_its_process() -> None:
    disk = SimulatedDisk()
    mount = Mount(disk)
    other = Mount(disk)
    file = mount.open("a", create=True)
    file.pwrite(b"x", 0)
    mount.kill()
    assert disk.open_paths() == []
    other.open("b", create=True)
    assert not mount.alive
    with pytest.raises(ProcessKilled):
        file.pwrite(b"y", 0)
    with pytest.raises(ProcessKilled):
        mount.exists("a")
    file.close()
    disk.crash()
    with pytest.raises(ProcessKilled):
        other.remove("b")
    assert disk.list("/") == ["a", "b"]


def test_a_mount_counts_changes_only() -> None:
    disk = SimulatedDisk()
    mount = Mount(disk, operations=2)
    file = mount.open("a", create=True)
    file.pwrite(b"x", 0)
    assert file.pread(1, 0) == b"x"
    assert mount.list("/") == ["a"]
    with pytest.raises(ProcessKilled):
        file.sync()
    with pytest.raises(ProcessKilled):
        file.pread(1, 0)


# Clock and randomness


def test_clocks_stand_run_and_jump() -> None:
    still = SimulatedClock(1000)
    assert still.now_ms() == still.now_ms() == 1000
    still.jump(-300)
    assert still.now_ms() == 700

    elapsed = 50.0
    running = SimulatedClock(1000, elapsed=lambda: elapsed)
    assert running.now_ms() == 1000
    elapsed += 1.5
    running.jump(10)
    assert running.now_ms() == 2510


def test_randomness_is_repeatable() -> None:
    assert SimulatedRandomness("a").bytes(16) == SimulatedRandomness("a").bytes(16)
    assert SimulatedRandomness("a").bytes(16) != SimulatedRandomness("b").bytes(16)
