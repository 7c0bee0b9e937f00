"""Fetch sessions of followers, with the follower's position in each partition.

A follower's session differs from a consumer's. It lives as long as the follower and may contain thousands of
partitions, of which only a few have news at a time. So a session watches its replicas, and the cost of a request
depends on the changes, not on the number of followed partitions. A partition is *due* when there may be news about it:
the request names it, or its log end, high watermark, log start or leader changed. For a follower that is not in sync,
or no longer, every fetch counts, even if it does not name the partition, because any fetch may show that the follower
can join the ISR. (If the ISR is too small for appends, nothing would ever make the follower name the partition.)

After an election the new leader cannot commit anything until its followers fetch from it. Their fetches for other
partitions may already be waiting here. They are answered at once, and for `EXPECTATION_S` the waits are kept short, so
that a follower can name its new partitions as soon as it learns of the election.
"""

from __future__ import annotations

import asyncio
import math
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from penstock.broker.partitions.fetch_sessions import FINAL_EPOCH, INITIAL_EPOCH, NO_SESSION, PartitionKey, TopicKey
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.wakeups import Wakeups
from penstock.io.files import Buffer
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.protocol.messages.fetch import FetchRequest, PartitionData

if TYPE_CHECKING:
    from penstock.broker.partitions.follower_fetch import FollowerFetch

TOPIC_IDS_SINCE = 13
SESSIONS_MAX = 16  # per follower, which needs one for each of its fetchers; the least recently used is evicted
LAST_EPOCH = 0x7FFFFFFF
SHORT_WAIT_S = 0.02
EXPECTATION_S = 2.0
COMMITS_TOLD_EVERY_S = 0.05
TIMER_SLACK_S = 0.001  # timers may fire this early

FetchPosition = tuple[PartitionKey, int, int, int, int, int]
"""A partition in a request: current leader epoch, fetch offset, last fetched epoch, log start offset, max bytes."""


def asked_of(request: FetchRequest, *, by_id: bool) -> Iterator[FetchPosition]:
    for topic in request.topics:
        key: TopicKey = topic.topic_id if by_id else topic.topic
        for partition in topic.partitions:
            yield (
                (key, partition.partition),
                partition.current_leader_epoch,
                partition.fetch_offset,
                partition.last_fetched_epoch,
                partition.log_start_offset,
                partition.partition_max_bytes,
            )


class Found(NamedTuple):
    """The answer to a follower about a partition if there is neither an error nor a diverging epoch."""

    high_watermark: int
    log_start_offset: int
    records: Buffer


class Position:
    """A follower's position in one partition, from its last request; watches the replica it fetches from."""

    __slots__ = (
        "epoch",
        "index",
        "isr",
        "last_fetched_epoch",
        "log_start",
        "max_bytes",
        "offset",
        "replica",
        "sent_from",
        "sent_high_watermark",
        "sent_log_start",
        "session",
        "topic",
    )  # fmt: skip

    def __init__(self, session: FollowerSession, topic: TopicKey, index: int) -> None:
        self.session = session
        self.topic = topic
        self.index = index
        # What the follower asked for last.
        self.epoch = -1
        self.offset = -1
        self.last_fetched_epoch = -1
        self.log_start = -1
        self.max_bytes = 0
        self.replica: Replica | None = None
        self.isr: frozenset[int] | None = None  # the last that this position knows
        self.sent_high_watermark = -1
        self.sent_log_start = -1
        self.sent_from = -1  # start offset of the data sent last

    def watch(self, replica: Replica) -> None:
        if self.replica is not replica:
            self.forget()
            self.replica = replica
            replica.watchers[self] = None

    def forget(self) -> None:
        if self.replica is not None:
            self.replica.watchers.pop(self, None)
            self.replica = None

    def has_news(self, data: PartitionData | Found) -> bool:
        return data.high_watermark != self.sent_high_watermark or data.log_start_offset != self.sent_log_start

    @property
    def is_doubtful(self) -> bool:
        """Whether the follower requests the same data again: it may have found that data corrupt."""
        return self.offset == self.sent_from

    def appended(self, size: int) -> None:
        session = self.session
        session.due[self] = None
        session.has_news = True
        waiting = session.waiting
        if waiting is not None and waiting.data_arrived(size):
            session.wakeups.hold(waiting)

    def committed(self) -> None:
        session = self.session
        if not session.tells_commits_at_once:
            session.committed[self] = None
        else:
            session.due[self] = None
            session.has_news = True
            if session.waiting is not None:
                session.wakeups.add(session.waiting)

    def changed(self) -> None:
        session = self.session
        session.due[self] = None
        session.has_news = True
        if session.waiting is not None:
            session.wakeups.add(session.waiting)

    def in_sync_changed(self, isr: frozenset[int]) -> None:
        session = self.session
        self.isr = isr
        if session.broker_id in isr:
            session.joining.pop(self, None)
        else:
            session.joining[self] = None


@owned_by_loop()
@dataclass(slots=True, eq=False)
class FollowerSession:
    broker_id: int
    broker_epoch: int
    by_id: bool
    loop: asyncio.AbstractEventLoop
    wakeups: Wakeups
    # Answer waiting fetches as soon as the high watermark moves: consumers that read from followers wait for it.
    # Otherwise followers learn it with the next data, or when their wait ends.
    tells_commits_at_once: bool
    id: int = field(default=NO_SESSION, init=False)
    epoch: int = field(default=1, init=False)
    positions: dict[PartitionKey, Position] = field(default_factory=dict, init=False)
    due: dict[Position, None] = field(default_factory=dict, init=False)
    # Positions of which only the high watermark may be news, and when followers last heard of such.
    committed: dict[Position, None] = field(default_factory=dict, init=False)
    _commits_told: float = field(default=-math.inf, init=False)
    joining: dict[Position, None] = field(default_factory=dict, init=False)
    # Positions that were sent data: unless the follower names a new offset, it needs the same data again.
    unconfirmed: dict[Position, None] = field(default_factory=dict, init=False)
    waiting: FollowerFetch | None = field(default=None, init=False)
    _timer: asyncio.Handle | None = field(default=None, init=False)
    _timer_at: float = field(default=math.inf, init=False)
    # Whether a position may be due for more than a high watermark that no fetch waits for.
    has_news: bool = field(default=True, init=False)

    def update(self, request: FetchRequest, asked: Iterable[FetchPosition]) -> list[Position]:
        """Apply a request. Returns the positions that it names, and those for which every fetch counts."""
        for forgotten in request.forgotten_topics_data:
            topic: TopicKey = forgotten.topic_id if self.by_id else forgotten.topic
            for index in forgotten.partitions:
                position = self.positions.pop((topic, index), None)
                if position is not None:
                    self._forget(position)
        named: dict[Position, None] = {}
        for key, epoch, offset, last_fetched_epoch, log_start, max_bytes in asked:
            position = self.positions.get(key)
            if position is None:
                position = self.positions[key] = Position(self, *key)
            if epoch != position.epoch:
                position.epoch = epoch
                position.sent_high_watermark = -1  # a follower ignores what it was sent in another epoch
            position.offset = offset
            position.last_fetched_epoch = last_fetched_epoch
            position.log_start = log_start
            position.max_bytes = max_bytes
            named[position] = None
        if not self.unconfirmed.keys() <= named.keys():
            self.has_news = True
        self.due.update(self.unconfirmed)
        self.unconfirmed.clear()
        named.update(self.joining)
        return list(named)

    def tell_commits(self, now: float) -> None:
        """Make positions due of which only the high watermark has moved. While records flow, that is done now and then:
        nearly always, records of those partitions follow, and the high watermark goes with them."""
        self._commits_told = now
        self.due.update(self.committed)
        self.committed.clear()

    def tell_old_commits(self, now: float) -> None:
        if now - self._commits_told >= COMMITS_TOLD_EVERY_S:
            self.tell_commits(now)

    def wait(self, fetch: FollowerFetch) -> None:
        """Let a fetch wait for news until its deadline. The fetches of a session share one timer, nearly always set
        already."""
        former, self.waiting = self.waiting, fetch
        if former is not None and former is not fetch:
            former.expire()  # the follower has connected again
        if fetch.deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.loop.call_at(fetch.deadline, self._time_passed)
            self._timer_at = fetch.deadline

    def _time_passed(self) -> None:
        self._timer = None
        self._timer_at = math.inf
        waiting = self.waiting
        if waiting is None:
            return
        if waiting.deadline <= self.loop.time() + TIMER_SLACK_S:
            waiting.expire()
        else:
            self.wait(waiting)

    def _forget(self, position: Position) -> None:
        position.forget()
        for group in (self.due, self.committed, self.joining, self.unconfirmed):
            group.pop(position, None)

    def close(self) -> None:
        if self._timer is not None and self.waiting is None:
            self._timer.cancel()
            self._timer = None
            self._timer_at = math.inf
        for position in self.positions.values():
            position.forget()
        self.positions.clear()
        self.due.clear()
        self.committed.clear()
        self.joining.clear()


class FollowerSessions:
    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        wakeups: Wakeups,
        new_id: Callable[[], int],
        *,
        tells_commits_at_once: bool,
    ) -> None:
        self._loop = loop
        self._wakeups = wakeups
        self._new_id = new_id
        self._tells_commits_at_once = tells_commits_at_once
        self._sessions: dict[int, FollowerSession] = {}
        self._by_broker: dict[int, OrderedDict[int, FollowerSession]] = {}
        # By follower: the partitions that this broker has begun to lead and awaits a fetch for, each with its deadline.
        self._expected: dict[int, dict[Replica, float]] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, version: int, broker_id: int, broker_epoch: int) -> FollowerSession:
        """The session of a request; raises KafkaError if it is unknown or its epoch is wrong."""
        by_id = version >= TOPIC_IDS_SINCE
        if request.session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._close(self._sessions.get(request.session_id))
            session = FollowerSession(
                broker_id, broker_epoch, by_id, self._loop, self._wakeups, self._tells_commits_at_once
            )
            if request.session_epoch == INITIAL_EPOCH:
                self._keep(session)
            return session
        found = self._sessions.get(request.session_id)
        if found is None or found.broker_id != broker_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if found.epoch != request.session_epoch:
            raise KafkaError(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
        if found.by_id != by_id:
            raise KafkaError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        found.epoch = 1 if found.epoch == LAST_EPOCH else found.epoch + 1
        found.broker_epoch = broker_epoch
        self._by_broker[broker_id].move_to_end(found.id)
        return found

    def _keep(self, session: FollowerSession) -> None:
        session.id = self._new_id()
        while session.id == NO_SESSION or session.id in self._sessions:
            session.id = self._new_id()
        self._sessions[session.id] = session
        of_broker = self._by_broker.setdefault(session.broker_id, OrderedDict())
        for former in list(of_broker.values()):
            if former.broker_epoch != session.broker_epoch:
                self._close(former)  # of an earlier process of that broker
        of_broker[session.id] = session
        if len(of_broker) > SESSIONS_MAX:
            self._close(next(iter(of_broker.values())))

    def _close(self, session: FollowerSession | None) -> None:
        if session is not None:
            session.close()
            del self._sessions[session.id]
            del self._by_broker[session.broker_id][session.id]

    # -- after an election ------------------------------------------------------------------------------------------

    def expect(self, replica: Replica) -> None:
        """This broker begins to lead a partition: its followers should fetch from it without delay."""
        leader = replica.leader
        assert leader is not None
        until = self._loop.time() + EXPECTATION_S
        for broker_id in leader.followers:
            self._expected.setdefault(broker_id, {})[replica] = until
            for session in self._by_broker.get(broker_id, {}).values():
                if session.waiting is not None:
                    session.waiting.cut_short()

    def expects(self, broker_id: int) -> bool:
        return bool(self._expected.get(broker_id))

    def came(self, broker_id: int, replica: Replica) -> None:
        expected = self._expected.get(broker_id)
        if expected:
            expected.pop(replica, None)

    def wait_max(self, broker_id: int) -> float:
        """How long a fetch of this follower may wait, in seconds."""
        expected = self._expected.get(broker_id)
        if not expected:
            return math.inf
        now = self._loop.time()
        for replica, until in list(expected.items()):
            if until < now or replica.leader is None:
                del expected[replica]
        return SHORT_WAIT_S if expected else math.inf
