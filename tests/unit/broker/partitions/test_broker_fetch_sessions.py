"""Fetch sessions: what a test over the wire would have to wait too long for."""

from __future__ import annotations

import itertools

import pytest

from penstock.broker.partitions.fetch_sessions import EVICTION_AGE_MS, FetchSessions
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic

VERSION = 12
LAST_EPOCH = 2**31 - 1


def sessions(slots: int = 10) -> FetchSessions:
    numbers = itertools.count(0)  # 0 means "no session", and must be passed over
    return FetchSessions(slots, lambda: next(numbers))


def full(session_id: int = 0, epoch: int = 0) -> FetchRequest:
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(topic="t", partitions=[FetchPartition(partition=0)])],
    )


def incremental(session_id: int, epoch: int) -> FetchRequest:
    return FetchRequest(session_id=session_id, session_epoch=epoch)


def test_the_epoch_wraps_to_one() -> None:
    cache = sessions()
    session = cache.open(full(), VERSION, 0).session
    assert session is not None
    session.epoch = LAST_EPOCH
    cache.open(incremental(session.id, LAST_EPOCH), VERSION, 0)
    assert session.epoch == 1
    cache.open(incremental(session.id, 1), VERSION, 0)
    with pytest.raises(KafkaError) as refusal:
        cache.open(incremental(session.id, 1), VERSION, 0)
    assert refusal.value.code is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_ids_are_never_zero_nor_taken() -> None:
    given = iter([0, 7, 7, 0, 8])
    cache = FetchSessions(10, lambda: next(given))
    assert [cache.open(full(), VERSION, 0).session_id for _ in range(2)] == [7, 8]


def test_a_full_cache_gives_up_only_what_has_rested() -> None:
    cache = sessions(slots=2)
    first = cache.open(full(), VERSION, 0).session_id
    second = cache.open(full(), VERSION, 10).session_id
    assert cache.open(full(), VERSION, EVICTION_AGE_MS - 1).session_id == 0  # goes on without
    cache.open(incremental(first, 1), VERSION, EVICTION_AGE_MS)
    third = cache.open(full(), VERSION, EVICTION_AGE_MS + 20).session_id
    assert third != 0
    assert len(cache) == 2
    cache.open(incremental(first, 2), VERSION, EVICTION_AGE_MS + 30)
    with pytest.raises(KafkaError) as refusal:
        cache.open(incremental(second, 1), VERSION, EVICTION_AGE_MS + 30)
    assert refusal.value.code is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_no_slots_no_sessions() -> None:
    assert sessions(slots=0).open(full(), VERSION, 0).session_id == 0
