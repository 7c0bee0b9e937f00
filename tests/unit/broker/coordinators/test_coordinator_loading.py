"""Loading a coordinator's partition: the short cut for offsets, records that say nothing, bytes that are damaged."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from coordinator_harness import World, run, sleep, turn
from coordinator_harness import record as numbered
from penstock.broker.coordinators.loading import DECOMPRESSED_HERE_BYTES_MAX
from penstock.broker.coordinators.offset_replay import OffsetReplay
from penstock.broker.coordinators.serde import GROUP_RECORDS
from penstock.broker.slices import Slices, Work
from penstock.coordinator.decision import CoordinatorRecord
from penstock.groups.offset_store import OffsetStore
from penstock.groups.records import offset_record, offset_tombstone
from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.codec import MalformedMessage
from penstock.protocol.messages.group_records import OffsetCommitKey, OffsetCommitValue
from penstock.records.batch import read_header
from penstock.records.builder import build_batch
from penstock.records.compression import Codec


def append(world: World, key: bytes | None, value: bytes | None) -> None:
    batch = build_batch([(0, key, value, ())])
    world.replica.append(memoryview(batch), read_header(batch), 0)


def bytes_of(name: str, number: int) -> tuple[bytes, bytes | None]:
    return GROUP_RECORDS.encode(
        offset_record(name, "t", 0, offset=number, leader_epoch=0, metadata="", commit_timestamp=0)
    )


def test_records_of_a_later_version_are_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        key, value = bytes_of("a", 1)
        assert value is not None
        append(world, b"\x00\x63anything", b"\x00\x00anything")
        append(world, key, value)
        append(world, key, b"\x00\x63" + value[2:])
        world.lead()
        with caplog.at_level(logging.WARNING):
            await turn(world.loop)
        assert world.shard.numbers == {"a": 1}
        assert ["type 0063" in caplog.text, "version 0063" in caplog.text] == [True, True]

    run(story, alone=True)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, b"\x00\x04"),
        (b"\x00", b"\x00\x04"),
        (b"\x00\x01\x00\x7fshort", b"\x00\x04"),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00"),
        (b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00\x00", b"\x00\x04garbage"),
    ],
)
def test_a_record_that_cannot_be_read_leaves_no_coordinator(key: bytes | None, value: bytes) -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        append(world, *bytes_of("a", 1))
        append(world, key, value)
        world.lead()
        world.look("early", "a")
        await turn(world.loop)
        world.look("late", "a")
        await sleep(world.loop, 100)
        world.look("later", "a")
        assert world.take() == [
            ("early", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            ("late", ErrorCode.NOT_COORDINATOR),
            ("later", ErrorCode.NOT_COORDINATOR),
        ]
        assert len(world.shards) == 2
        world.follow()
        world.lead()
        await turn(world.loop)
        assert len(world.shards) == 3

    run(story, alone=True)


@pytest.mark.parametrize("padding", [0, 30_000])
def test_large_batches_are_decompressed_on_a_thread(padding: int) -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        records = [(0, *GROUP_RECORDS.encode(numbered(name, 1, padding)), ()) for name in "abc"]
        assert (3 * padding > DECOMPRESSED_HERE_BYTES_MAX) == (padding > 0)
        batch = build_batch(records, codec=Codec.ZSTD)
        world.replica.append(memoryview(batch), read_header(batch), 0)
        append(world, *bytes_of("b", 2))
        world.loop.executor_delay = lambda: 1.0
        world.lead()
        await sleep(world.loop, 0.5)
        world.look("early", "a")
        await sleep(world.loop, 1)
        for name in "ab":
            world.look("late", name)
        early = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if padding else 1
        assert world.take() == [("early", early), ("late", 1), ("late", 2)]

    run(story, alone=True)


def test_damaged_bytes_are_read_again_when_they_may_have_been_repaired() -> None:
    async def story(world: World) -> None:
        world.lead()
        await turn(world.loop)
        world.put("writer", "a", 1)
        await turn(world.loop)
        found = world.replica.log.read(0, 1 << 20, 1)
        assert found is not None
        wanted: list[None] = []
        world.replica.log.on_corruption = lambda: wanted.append(None)
        damaged = bytearray(found.data)
        damaged[-1] ^= 0xFF
        read = world.replica.log.read_cached
        world.replica.log.read_cached = lambda *_, **__: found._replace(data=bytes(damaged))  # type: ignore[method-assign]
        world.lead()
        await turn(world.loop)
        world.look("reader", "a")
        assert world.take()[-1] == ("reader", ErrorCode.NOT_COORDINATOR)
        assert wanted == [None]
        world.replica.log.read_cached = read  # type: ignore[method-assign]
        await sleep(world.loop, 2)
        world.look("reader", "a")
        assert world.take() == [("reader", 1)]

    run(story, alone=True)


def test_work_shares_one_slice() -> None:
    """However much there is, between two slices of any of it everybody else has a turn."""

    async def story(world: World) -> None:
        loop, turns = world.loop, list[str]()

        def long(name: str, slices: int) -> Work:
            left = slices

            def work(until: float) -> bool:
                nonlocal left
                left -= 1
                turns.append(name)
                loop.advance(until - loop.time() + 0.001)
                return left > 0

            return work

        def somebody_else() -> None:
            turns.append("-")
            if len(turns) < 100:
                loop.call_soon(somebody_else)

        slices = Slices(loop)
        for name in ("a", "b"):
            slices.add(long(name, 2))
        for name in ("c", "d"):
            slices.once(lambda name=name: turns.append(name))  # type: ignore[misc]
        loop.call_soon(somebody_else)
        await sleep(loop, 1)
        assert "".join(turns).strip("-") == "a-a-b-b-cd"

    run(story, alone=True)


def test_work_that_fails_does_not_take_the_rest_with_it() -> None:
    async def story(world: World) -> None:
        done: list[str] = []
        failures: list[Any] = []
        world.loop.set_exception_handler(lambda loop, context: failures.append(context["exception"]))

        def fail() -> None:
            raise ZeroDivisionError

        slices = Slices(world.loop)
        slices.once(fail)
        slices.once(lambda: done.append("rest"))
        await turn(world.loop)
        assert done == ["rest"]
        assert [type(failure) for failure in failures] == [ZeroDivisionError]

    run(story, alone=True)


# -- the short cut --------------------------------------------------------------------------------------------------


_INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
_OFFSETS = st.builds(
    offset_record,
    st.sampled_from(["a", "b", "größer"]),
    st.sampled_from(["t", "u"]),
    st.integers(0, 2),
    offset=_INT64,
    leader_epoch=st.integers(-1, 5),
    metadata=st.sampled_from(["", "short", "ü" * 10, "x" * 126, "x" * 127, "x" * 200]),
    commit_timestamp=_INT64,
    expire_timestamp=st.sampled_from([-1, -1, 5]),
    topic_id=st.sampled_from([ZERO_UUID, b"0123456789abcdef", b"0123456789abcdeg"]),
)
_TOMBSTONES = st.builds(offset_tombstone, st.sampled_from("ab"), st.sampled_from("tu"), st.integers(0, 2))


@given(st.lists(st.one_of(_OFFSETS, _OFFSETS, _TOMBSTONES), max_size=30))
def test_the_short_cut_comes_to_the_same(records: list[CoordinatorRecord]) -> None:
    stores = OffsetStore(), OffsetStore()
    short = OffsetReplay(stores[1])
    for record in records:
        key, value = GROUP_RECORDS.encode(record)
        known = GROUP_RECORDS.decode(key, value)
        assert known is not None and isinstance(known.key, OffsetCommitKey)
        assert known.value is None or isinstance(known.value, OffsetCommitValue)
        for store in stores if not short(key, value) else stores[:1]:
            store.replay(known.key.group, known.key.topic, known.key.partition, known.value, -1)
    assert stores[0].durable() == stores[1].durable()
    assert {type(entry) for entry in _entries(stores[1])} == {type(entry) for entry in _entries(stores[0])}


def _entries(store: OffsetStore) -> list[object]:
    return [
        offset
        for group_id in store.groups()
        for partitions in store.of_group(group_id).values()
        for offset in partitions.values()
    ]


def test_the_short_cut_is_taken_by_what_coordinators_write() -> None:
    record = offset_record(
        "g", "t", 7, offset=1, leader_epoch=0, metadata="m", commit_timestamp=2, topic_id=b"0123456789abcdef"
    )
    key, value = GROUP_RECORDS.encode(record)
    store = OffsetStore()
    assert OffsetReplay(store)(key, value)
    found = store.get("g", "t", 7)
    assert found is not None and (found.offset, found.metadata) == (1, "m")


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_garbage_is_refused_and_nothing_else_happens(key: bytes, value: bytes) -> None:
    for prefixed_key, prefixed_value in ((key, value), (b"\x00\x01" + key, b"\x00\x04" + value)):
        try:
            OffsetReplay(OffsetStore())(prefixed_key, prefixed_value)
            GROUP_RECORDS.decode(prefixed_key, prefixed_value)
        except (MalformedMessage, UnicodeDecodeError):
            pass
