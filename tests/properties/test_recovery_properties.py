"""The compiled scan of recovery finds what the loop in Python finds: the end, the fault, indexes, epochs, producers."""

from __future__ import annotations

import errno
import struct
from typing import Any

import numba
import pytest
from crc32c import crc32c
from hypothesis import given, settings
from hypothesis import strategies as st
from numba.core import caching

from penstock.log import recovery, recovery_kernel
from penstock.log.recovery import Scanned, compiled_runs, scan_segment
from penstock.log.segment import Segment
from penstock.records.builder import build_batch
from penstock.records.control import build_transaction_marker
from penstock.replication.epochs import LeaderEpochs
from penstock.replication.producers import ProducerStates
from penstock.simulator.twins.disk import SimulatedDisk
from property_examples import examples

PATH = "/data/events-0/00000000000000000000.log"
EVENTS = ["plain", "plain", "plain", "idempotent", "idempotent", "transactional", "marker", "epoch", "gap", "large"]


@st.composite
def logs(draw: st.DrawFn) -> bytes:
    """Runs of ordinary batches with others between them, and perhaps something wrong at the end."""
    data = bytearray()
    offset = epoch = 0
    for _ in range(draw(st.integers(1, 6))):
        event = draw(st.sampled_from(EVENTS))
        producer_id = draw(st.integers(0, 3))
        for number in range(draw(st.sampled_from([1, 2, 7, 80]))):
            more: dict[str, Any] = {}
            if event in ("idempotent", "transactional"):
                more = {
                    "producer_id": producer_id + number % 2,
                    "producer_epoch": number // 40,
                    "base_sequence": number,
                }
                more["transactional"] = event == "transactional"
            epoch += event == "epoch"
            offset += 2 * (event == "gap")
            size = 5000 if event == "large" else draw(st.sampled_from([0, 3, 60])) if number < 3 else 20
            records = [(1000 + offset % 7, b"key", b"v" * size, ())] * (1 + number % 3)
            if event == "marker":
                batch = build_transaction_marker(
                    committed=number % 2 == 0,
                    producer_id=producer_id,
                    producer_epoch=0,
                    coordinator_epoch=0,
                    timestamp=1000,
                )
                records = records[:1]
            else:
                batch = build_batch(records, **more)
            struct.pack_into(">q", batch, 0, offset)
            struct.pack_into(">i", batch, 12, draw(st.sampled_from([epoch, epoch - 1])) if event == "epoch" else epoch)
            data += batch
            offset += len(records)
    for _ in range(draw(st.integers(0, 2))):
        position = draw(st.integers(0, len(data) - 1))
        data[position] ^= draw(st.integers(1, 255))
    end = draw(st.sampled_from(["whole", "torn", "zeros", "noise"]))
    if end == "torn":
        del data[draw(st.integers(1, len(data))) :]
    elif end == "zeros":
        data += bytes(draw(st.integers(1, 200)))
    elif end == "noise":
        data += draw(st.binary(min_size=1, max_size=100))
    return bytes(data)


def scanned(data: bytes, *, with_state: bool) -> tuple[Scanned, Any]:
    disk = SimulatedDisk()
    disk.make_directories("/data/events-0")
    file = disk.open(PATH, create=True)
    file.pwrite(data, 0)
    segment = Segment(
        disk,
        "/data/events-0",
        0,
        size=len(data),
        index_size=0,
        time_index_size=0,
        transaction_index_size=0,
        index_interval=150,
        created_ms=0,
    )
    epochs = LeaderEpochs([]) if with_state else None
    producers = ProducerStates() if with_state else None
    result = scan_segment(segment, file, 0, 0, epochs, producers, 5000)
    found: list[Any] = [segment.noted(), list(segment.index.entries()), list(segment.time_index.entries())]
    found.append(list(segment.transactions.entries()))
    if epochs is not None and producers is not None:
        found += [list(epochs.entries), list(producers.ongoing.items())]
        for entry in producers.entries:
            found.append(tuple(getattr(entry, name) for name in type(entry).__slots__))
    return result, found


@given(logs(), st.booleans(), st.sampled_from([400, 1 << 20]))
@settings(max_examples=examples(150), deadline=None)
def test_both_scans_find_the_same(data: bytes, with_state: bool, chunk: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(recovery, "_CHUNK", max(chunk, 61))
        patch.setattr(recovery, "compiled_runs", lambda: None)
        slow = scanned(data, with_state=with_state)
        patch.setattr(recovery, "compiled_runs", compiled_runs)
        patch.setattr(recovery, "MANY_BATCHES", -1)
        patch.setattr(recovery, "_SAMPLE", -1)
        patch.setattr(recovery, "_REST", 2)
        assert scanned(data, with_state=with_state) == slow


def test_the_compiled_scan_is_used_and_passes_over_nearly_all(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the comparison above compares the loop with itself."""
    data = bytearray()
    for offset in range(3000):
        batch = build_batch([(1000, None, b"v", ())], producer_id=offset % 3, producer_epoch=0, base_sequence=offset)
        struct.pack_into(">qii", batch, 0, offset, len(batch) - 12, 0)
        data += batch
    passed = []
    runs = compiled_runs()
    assert runs is not None

    def counted(*arguments: Any, **more: Any) -> int:
        passed.append(type(runs).scan(runs, *arguments, **more))
        return passed[-1]

    monkeypatch.setattr(recovery, "MANY_BATCHES", -1)
    monkeypatch.setattr(recovery, "_SAMPLE", -1)
    monkeypatch.setattr(recovery, "compiled_runs", lambda: runs)
    monkeypatch.setattr(runs, "scan", counted)
    result, _ = scanned(bytes(data), with_state=True)
    assert result == Scanned(len(data), 3000, "")
    assert sum(passed) > 2900


@pytest.mark.parametrize("size", [100, 200, 333, 1000])
def test_the_compiled_scan_is_used_wherever_a_chunk_ends(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """A chunk of the file ends in a header, or in the records behind it, or between two batches."""
    padded = bytearray(build_batch([(1000, None, b"", ())]).ljust(size, b"\0"))
    struct.pack_into(">I", padded, 17, crc32c(padded[21:]))
    data = bytearray()
    for offset in range(2 * recovery._CHUNK // size):
        batch = padded[:]
        struct.pack_into(">qii", batch, 0, offset, size - 12, 0)
        data += batch
    loaded: list[recovery_kernel.Runs | None] = []

    def load() -> recovery_kernel.Runs | None:
        loaded.append(compiled_runs())
        return loaded[-1]

    monkeypatch.setattr(recovery, "compiled_runs", load)
    monkeypatch.setattr(recovery, "MANY_BATCHES", 1)
    result, _ = scanned(bytes(data), with_state=True)
    assert result == Scanned(len(data), len(data) // size, "")
    assert loaded


def test_a_node_that_may_write_no_cache_recovers_its_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under systemd with ProtectSystem and ProtectHome: neither the package nor the home directory is writable."""

    def refuse(locator: object) -> None:
        raise PermissionError(errno.EROFS, "Read-only file system")

    data = bytearray()
    for offset in range(3000):
        batch = build_batch([(1000, None, b"v", ())])
        struct.pack_into(">qii", batch, 0, offset, len(batch) - 12, 0)
        data += batch
    monkeypatch.setattr(caching._CacheLocator, "ensure_cache_path", refuse)
    monkeypatch.setattr(recovery_kernel.scan_run, "_compiled", None)
    monkeypatch.setattr(recovery, "MANY_BATCHES", -1)
    monkeypatch.setattr(recovery, "_SAMPLE", -1)
    result, _ = scanned(bytes(data), with_state=True)
    assert result == Scanned(len(data), 3000, "")


def test_recovery_does_without_a_kernel_that_cannot_be_compiled(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(numba, "njit", fail)
    monkeypatch.setattr(recovery_kernel.scan_run, "_compiled", None)
    assert compiled_runs() is None
    assert "No space left on device" in caplog.text
