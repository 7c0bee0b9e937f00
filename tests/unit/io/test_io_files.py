"""What every file system behind the seam has to do; the real one and the simulated one answer alike."""

from __future__ import annotations

import errno
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.io.files import FileSystem, RealFileSystem, read_file, write_file_atomically
from penstock.simulator.twins.disk import SimulatedDisk
from penstock.simulator.twins.mount import Mount


class Place:
    """A file system and an empty directory in it."""

    def __init__(self, files: FileSystem, directory: str) -> None:
        self.files = files
        self.directory = directory

    def __call__(self, name: str) -> str:
        return f"{self.directory}/{name}"

    def write(self, name: str, data: bytes = b"") -> None:
        file = self.files.open(self(name), create=True)
        file.pwrite(data, 0)
        file.close()

    def read(self, name: str) -> bytes:
        return read_file(self.files, self(name))


@pytest.fixture(params=["real", "simulated", "mounted"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "real":
        return Place(RealFileSystem(), str(tmp_path))
    disk = SimulatedDisk()
    disk.make_directories("/data")
    return Place(disk if request.param == "simulated" else Mount(disk), "/data")


def test_reads_what_was_written_at_any_position(place: Place) -> None:
    file = place.files.open(place("a"), create=True)
    file.pwrite(b"hello world", 0)
    file.pwrite(memoryview(b"HELLO"), 0)
    file.pwrite(bytearray(b"!"), 11)
    assert file.pread(100, 0) == b"HELLO world!"
    assert file.pread(5, 6) == b"world"
    assert file.pread(5, 12) == b""
    assert file.pread(5, 1000) == b""
    assert file.pread(0, 0) == b""
    assert file.size() == place.files.size(place("a")) == 12
    file.close()


def test_reading_ahead_changes_nothing(place: Place) -> None:
    file = place.files.open(place("a"), create=True)
    file.pwrite(b"hello", 0)
    file.read_ahead(3, 0)
    file.read_ahead(100, 3)  # beyond the end
    file.read_ahead(100, 1000)
    assert file.pread(100, 0) == b"hello"
    assert file.size() == 5
    file.close()


def test_a_gap_reads_as_zeros(place: Place) -> None:
    file = place.files.open(place("a"), create=True)
    file.pwrite(b"end", 1000)
    assert file.size() == 1003
    assert file.pread(1003, 0) == bytes(1000) + b"end"
    file.close()


def test_cached_reads_agree_with_reads(place: Place) -> None:
    file = place.files.open(place("a"), create=True)
    file.pwrite(bytes(range(256)) * 64, 0)
    for position, size in [(0, 10), (5000, 20_000), (16_384, 5), (99_999, 1), (16_380, 4)]:
        cached = file.pread_cached(size, position)
        assert cached is None or bytes(cached) == file.pread(size, position)
    file.close()


@pytest.mark.parametrize("count", [0, 1, 3, 1024, 1025, 3000])
def test_any_number_of_buffers_is_written_in_order(place: Place, count: int) -> None:
    buffers = [b"%d," % number for number in range(count)]
    file = place.files.open(place("a"), create=True)
    file.pwrite(b"\xff" * 7, 0)
    file.pwritev([memoryview(buffer) for buffer in buffers], 7)
    assert file.pread(100_000, 7) == b"".join(buffers)
    file.close()


def test_truncate_shortens_and_lengthens(place: Place) -> None:
    file = place.files.open(place("a"), create=True)
    file.pwrite(b"0123456789", 0)
    file.truncate(4)
    assert (file.size(), file.pread(100, 0)) == (4, b"0123")
    file.truncate(8)
    assert file.pread(100, 0) == b"0123" + bytes(4)
    file.sync()
    file.close()


def test_opening_keeps_the_contents_and_missing_files_are_missing(place: Place) -> None:
    with pytest.raises(FileNotFoundError):
        place.files.open(place("a"))
    with pytest.raises(FileNotFoundError):
        place.files.open(place("a"), read_only=True)
    with pytest.raises(FileNotFoundError):
        place.files.open(place("nowhere/a"), create=True)
    assert not place.files.exists(place("a"))
    place.write("a", b"x")
    again = place.files.open(place("a"), create=True)
    assert again.size() == 1
    again.close()
    assert place.files.exists(place("a"))
    assert not place.files.exists(place("a/b"))
    assert not place.files.is_directory(place("a"))


def test_a_read_only_file_cannot_be_written(place: Place) -> None:
    place.write("a", b"x")
    file = place.files.open(place("a"), read_only=True)
    assert file.pread(1, 0) == b"x"
    with pytest.raises(OSError) as error:
        file.pwrite(b"y", 0)
    assert error.value.errno == errno.EBADF
    with pytest.raises(OSError):
        file.truncate(0)
    file.close()


def test_a_closed_file_is_closed(place: Place) -> None:
    file = place.files.open(place("a"), create=True)
    file.close()
    file.close()
    calls: list[Callable[[], object]] = [
        lambda: file.pread(1, 0),
        lambda: file.pread_cached(1, 0),
        lambda: file.read_ahead(1, 0),
        lambda: file.pwrite(b"x", 0),
        lambda: file.pwritev([b"x"], 0),
        lambda: file.truncate(0),
        file.size,
        file.sync,
    ]
    for call in calls:
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == errno.EBADF


def test_nonsense_positions_are_refused(place: Place) -> None:
    file = place.files.open(place("a"), create=True)
    for call in (lambda: file.pread(1, -1), lambda: file.pwrite(b"x", -1), lambda: file.truncate(-1)):
        with pytest.raises(OSError) as error:
            call()
        assert error.value.errno == errno.EINVAL
    file.close()


def test_directories_are_made_listed_and_removed(place: Place) -> None:
    place.files.make_directories(place("d/e/f"))
    place.files.make_directories(place("d/e/f"))
    place.write("d/z")
    place.write("d/a", b"123")
    assert place.files.list(place("d")) == ["a", "e", "z"]
    assert place.files.is_directory(place("d/e"))
    assert place.files.exists(place("d/e/f"))
    with pytest.raises(FileExistsError):
        place.files.make_directories(place("d/a"))
    with pytest.raises(NotADirectoryError):
        place.files.list(place("d/a"))
    with pytest.raises(FileNotFoundError):
        place.files.list(place("missing"))
    with pytest.raises(IsADirectoryError):
        place.files.open(place("d"))
    with pytest.raises(NotADirectoryError):
        place.files.remove_tree(place("d/a"))
    place.files.remove_tree(place("d"))
    place.files.remove_tree(place("d"))
    assert place.files.list(place("")) == []


def test_remove_takes_files_only_and_forgives_what_is_gone(place: Place) -> None:
    place.write("a")
    place.files.make_directories(place("d"))
    place.files.remove(place("a"))
    place.files.remove(place("a"))
    assert not place.files.exists(place("a"))
    with pytest.raises(OSError):
        place.files.remove(place("d"))


def test_an_open_file_outlives_its_name(place: Place) -> None:
    place.write("a", b"first")
    file = place.files.open(place("a"))
    place.files.remove(place("a"))
    place.write("a", b"second")
    assert file.pread(10, 0) == b"first"
    file.pwrite(b"FIRST", 0)
    file.close()
    assert place.read("a") == b"second"


def test_rename_replaces_a_file(place: Place) -> None:
    place.write("a", b"new")
    place.write("b", b"old")
    file = place.files.open(place("a"))
    place.files.rename(place("a"), place("b"))
    assert place.files.list(place("")) == ["b"]
    assert place.read("b") == b"new"
    file.pwrite(b"NEW", 0)
    file.close()
    assert place.read("b") == b"NEW"
    place.files.rename(place("b"), place("b"))
    assert place.read("b") == b"NEW"


def test_rename_moves_directories_with_what_is_in_them(place: Place) -> None:
    place.files.make_directories(place("t-0"))
    place.files.make_directories(place("full"))
    place.write("t-0/log", b"x")
    place.write("full/file")
    place.write("plain")
    file = place.files.open(place("t-0/log"))
    place.files.rename(place("t-0"), place("t-0-delete"))
    file.pwrite(b"y", 1)
    file.close()
    assert place.read("t-0-delete/log") == b"xy"
    with pytest.raises(FileNotFoundError):
        place.files.rename(place("t-0"), place("x"))
    with pytest.raises(NotADirectoryError):
        place.files.rename(place("t-0-delete"), place("plain"))
    with pytest.raises(IsADirectoryError):
        place.files.rename(place("plain"), place("full"))
    with pytest.raises(OSError) as error:
        place.files.rename(place("t-0-delete"), place("full"))
    assert error.value.errno == errno.ENOTEMPTY
    with pytest.raises(OSError) as error:
        place.files.rename(place("t-0-delete"), place("t-0-delete/inside"))
    assert error.value.errno == errno.EINVAL


def test_syncing_directories(place: Place) -> None:
    place.write("a")
    place.files.sync_directory(place.directory)
    with pytest.raises(FileNotFoundError):
        place.files.sync_directory(place("missing"))
    with pytest.raises(NotADirectoryError):
        place.files.sync_directory(place("a"))


def test_space_and_times_are_plausible(place: Place) -> None:
    place.write("a", b"x")
    assert 0 < place.files.free_bytes(place.directory) <= place.files.total_bytes(place.directory)
    assert place.files.modified_ms(place("a")) > 1_600_000_000_000


def test_atomic_writing_replaces_and_leaves_nothing_behind(place: Place) -> None:
    write_file_atomically(place.files, place("meta"), b"one")
    place.write("meta.tmp", b"left behind by a crash, and longer than what comes now")
    write_file_atomically(place.files, place("meta"), b"two")
    assert place.read("meta") == b"two"
    assert place.files.list(place("")) == ["meta"]


def test_both_agree_on_random_histories(tmp_path: Path) -> None:
    chance = random.Random(1)
    disk = SimulatedDisk()
    disk.make_directories("/data")
    real = Place(RealFileSystem(), str(tmp_path))
    simulated = Place(disk, "/data")
    names = ["a", "b", "c"]
    for _ in range(400):
        name, other = chance.choice(names), chance.choice(names)
        position, data = chance.randrange(3000), chance.randbytes(chance.randrange(1500))
        action = chance.randrange(5)
        for place in (real, simulated):
            if action < 2:
                file = place.files.open(place(name), create=True)
                file.pwrite(data, position)
                file.close()
            elif action == 2:
                file = place.files.open(place(name), create=True)
                file.truncate(position)
                file.close()
            elif action == 3:
                place.files.remove(place(name))
            elif place.files.exists(place(name)):
                place.files.rename(place(name), place(other))
        assert real.files.list(real("")) == simulated.files.list("/data")
        for present in real.files.list(real("")):
            assert real.read(present) == simulated.read(present)


def test_a_real_write_that_stays_short_is_finished_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Short writes are legal; the kernel gives them near limits that a test cannot set without privileges."""
    file = RealFileSystem().open(str(tmp_path / "a"), create=True)
    pwrite, pwritev = os.pwrite, os.pwritev
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: pwrite(fd, memoryview(data)[:3], position))
    monkeypatch.setattr(os, "pwritev", lambda fd, buffers, position: pwritev(fd, [buffers[0][:1]], position))
    file.pwrite(b"0123456789", 0)
    file.pwritev([b"abc", b"defg"], 10)
    assert file.pread(100, 0) == b"0123456789abcdefg"
    monkeypatch.setattr(os, "pwrite", lambda fd, data, position: 0)
    with pytest.raises(OSError):
        file.pwrite(b"x", 0)
    file.close()
