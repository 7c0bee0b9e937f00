"""The world of the story about shares: a partition, its leaders, a share coordinator, and a network between them.

The share partition, its persister and the share coordinator are the real ones. Leaders and coordinators are replaced;
a former leader does not notice for a while. Requests to the coordinator are late, and they or their answers are lost. A
coordinator that crashes loses what was not committed yet.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any, Final, cast

from penstock.broker.coordinators.share_states import INITIALIZE, ShareStates, StateApi
from penstock.broker.shares.persister import PersistedState, Persister
from penstock.coordinator.decision import CoordinatorRecord
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages import initialize_share_group_state
from penstock.settings.shares import ShareSettings
from penstock.share_state.key import SharePartitionKey
from penstock.share_state.shard import ShareStateShard
from penstock.shares.share_partition import SharePartition
from penstock.shares.states import DeadLetter, DeliverySettings, Span, Write

KEY: Final = SharePartitionKey("workers", bytes(15) + b"\x07", 0)
LOCK_MS: Final = 1000
UNANSWERED_MS: Final = 800


class Timeline:
    """Events in the order of their time."""

    def __init__(self) -> None:
        self.now_ms = 0
        self._events: list[tuple[int, int, Callable[[], None]]] = []
        self._count = 0

    def after(self, ms: int, event: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (self.now_ms + ms, self._count, event))

    def run(self, until_ms: int) -> None:
        while self._events and self._events[0][0] <= until_ms:
            self.now_ms, _, event = heappop(self._events)
            event()
        self.now_ms = until_ms


class _Topics:
    def topic_name(self, topic_id: Uuid) -> str | None:
        return "jobs"

    def partition_count(self, name: str) -> int:
        return 1


class Log:
    """The log of the partition: batches, some of which are missing after compaction."""

    def __init__(self) -> None:
        self.batches: list[Span] = []
        self.start = 0
        self.end = 0

    def append(self, size: int) -> None:
        self.batches.append(Span(self.end, self.end + size - 1))
        self.end += size

    def remove(self, index: int) -> Span:
        return self.batches.pop(index)

    def exists(self, offset: int) -> bool:
        return offset >= self.start and any(first <= offset <= last for first, last in self.batches)

    def read(self, offset: int, count: int) -> list[Span]:
        return [span for span in self.batches if span.last >= max(offset, self.start)][:count]


class CoordinatorTwin:
    """A share coordinator whose log has a committed part and a tail that a crash loses."""

    def __init__(self, timeline: Timeline, chance: random.Random, events: Counter[str]) -> None:
        self.timeline = timeline
        self.chance = chance
        self.events = events
        self.is_faulty = True
        self.settings = ShareSettings(share_coordinator_snapshot_update_records_per_snapshot=5)
        self.log: list[CoordinatorRecord] = []
        self.committed = 0
        self.generation = 0
        self.shard = ShareStateShard(self.settings, _Topics())
        part = initialize_share_group_state.Partition(partition=0, state_epoch=1, start_offset=0)
        self._execute(INITIALIZE, part, lambda result: None)
        self.committed = len(self.log)

    def ask(self, api: StateApi, key: SharePartitionKey, part: Any, done: Callable[[Any], None]) -> None:
        """Like `ShareStates.ask`, without its patience."""
        lost = self.chance.random() if self.is_faulty else 1.0
        answered = False

        def answer(result: Any) -> None:
            nonlocal answered
            if not answered:
                answered = True
                done(result)

        def refuse() -> None:
            if not answered:
                self.events["lost answers"] += 1
                answer(api.result(partition=0, error_code=ErrorCode.NETWORK_EXCEPTION))

        self.timeline.after(UNANSWERED_MS, refuse)
        if lost >= 0.05:
            reply = answer if lost >= 0.1 else lambda result: None
            self.timeline.after(self.chance.randint(1, 30), lambda: self._execute(api, part, reply))

    def _execute(self, api: StateApi, part: Any, answer: Callable[[Any], None]) -> None:
        decision = api.operation(self.shard, KEY, part, cast(Any, None), self.timeline.now_ms)
        for record in decision.records:
            self.shard.replay(record.key, record.value, len(self.log))
            self.log.append(record)
        end, generation = len(self.log), self.generation
        (reply,) = decision.replies

        def commit() -> None:
            if self.generation == generation:
                self.committed = max(self.committed, end)
                answer(reply.response)

        self.timeline.after(self.chance.randint(0, 40), commit)

    def crash(self) -> None:
        """Another coordinator loads what is committed."""
        self.generation += 1
        del self.log[self.committed :]
        self.shard = self.loaded()

    def loaded(self) -> ShareStateShard:
        shard = ShareStateShard(self.settings, _Topics())
        for offset, record in enumerate(self.log):
            shard.replay(record.key, record.value, offset)
        return shard


class Leader:
    """A leader of the partition in one epoch."""

    def __init__(
        self,
        epoch: int,
        timeline: Timeline,
        coordinator: CoordinatorTwin,
        settings: DeliverySettings,
        on_loaded: Callable[[Leader, PersistedState], None],
        events: Counter[str],
    ) -> None:
        self.epoch = epoch
        self.core: SharePartition | None = None
        self.is_fenced = False
        self._timeline = timeline
        self._settings = settings
        self._on_loaded = on_loaded
        self._events = events
        self.unconfirmed: Counter[int] = Counter()  # writes of each offset that were not answered, or failed
        self._persister = Persister(cast(ShareStates, coordinator), KEY, epoch)
        self._persister.read(self._read)

    def _read(self, state: PersistedState | KafkaError) -> None:
        if not isinstance(state, KafkaError):
            self.core = SharePartition(lambda: self._settings, state.start_offset, state.batches)
            self._on_loaded(self, state)
            for letter in self.core.dead_letters():
                self._bury(letter)
        elif state.code is ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self.is_fenced = True
        else:
            self._persister.read(self._read)

    def persist(self, write: Write | None, done: Callable[[ErrorCode], None] = lambda code: None) -> None:
        core = self.core
        assert core is not None
        if write is None:
            done(ErrorCode.NONE)
            return

        offsets = [offset for batch in write.batches for offset in range(batch.first, batch.last + 1)]
        self.unconfirmed.update(offsets)

        def persisted(code: ErrorCode) -> None:
            if code is ErrorCode.NONE:
                self.unconfirmed.subtract(offsets)
                core.committed(write)
            else:
                self._events["failed writes"] += 1
                self.is_fenced = self.is_fenced or code is ErrorCode.NOT_LEADER_OR_FOLLOWER
                if not self.is_fenced:
                    self.persist(core.failed(write, self._timeline.now_ms))
            for letter in write.dead_letters if code is ErrorCode.NONE else ():
                self._bury(letter)
            done(code)

        self._persister.write(write, persisted)

    def _bury(self, letter: DeadLetter) -> None:
        core = self.core
        assert core is not None
        self._events["dead letters"] += 1
        self._timeline.after(20, lambda: self.persist(core.dead_lettered(letter)))

    def tick(self) -> None:
        if self.core is not None:
            write = self.core.expire(self._timeline.now_ms)
            if write is not None:
                self._events["locks ended"] += 1
                self.persist(write)
