"""The share partitions that this broker serves, and the share sessions of their members.

A share partition is dropped when the broker no longer leads the partition in the same epoch, when the share coordinator
fences it, and when no member of its group has a session here any more.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial

from penstock.broker.coordinators.share_states import ShareStates
from penstock.broker.net.connection import Connection
from penstock.broker.partitions.replica import Replica
from penstock.broker.shares.dead_letter_queue import DeadLetterQueue
from penstock.broker.shares.group_settings import ImageShareSettings
from penstock.broker.shares.persister import Persister
from penstock.broker.shares.served_partition import ServedPartition
from penstock.io.clock import Clock
from penstock.metadata.image import Metadata
from penstock.model.ids import Uuid
from penstock.model.ownership import owned_by_loop
from penstock.settings.live import LiveSettings
from penstock.share_state.key import SharePartitionKey
from penstock.shares.sessions import PartitionKey, SessionKey, ShareSession, ShareSessions
from penstock.shares.states import Outcome


@owned_by_loop()
class SharePartitions:
    def __init__(
        self,
        states: ShareStates,
        *,
        settings: LiveSettings,
        metadata: Metadata,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        dead_letters: DeadLetterQueue,
    ) -> None:
        self.sessions = ShareSessions()
        self.settings_of = ImageShareSettings(metadata, settings)
        self._states = states
        self._live = settings
        self._loop = loop
        self._clock = clock
        self._dead_letters = dead_letters
        self._served: dict[SharePartitionKey, ServedPartition] = {}
        self._by_replica: dict[Replica, dict[SharePartitionKey, None]] = {}
        self._members: dict[str, int] = {}  # the sessions of each group
        self.outcomes: dict[tuple[str, str], Counter[Outcome]] = {}
        """How deliveries ended, by group and topic, since this broker started."""

    def __len__(self) -> int:
        return len(self._served)

    def __iter__(self) -> Iterator[ServedPartition]:
        return iter(self._served.values())

    def get(self, group_id: str, topic_id: Uuid, partition: int) -> ServedPartition | None:
        return self._served.get(SharePartitionKey(group_id, topic_id, partition))

    def serve(self, group_id: str, replica: Replica) -> ServedPartition:
        """The share partition of a group over a partition that this broker leads; begins to load it if necessary."""
        key = SharePartitionKey(group_id, replica.topic_id, replica.topic_partition.partition)
        served = self._served.get(key)
        if served is None:
            served = ServedPartition(
                key,
                replica,
                Persister(self._states, key, replica.leader_epoch),
                settings=partial(self.settings_of, group_id),
                loop=self._loop,
                clock=self._clock,
                dead_letters=self._dead_letters,
                count=partial(self._count, group_id, replica.topic_partition.topic),
                lost=self._drop,
            )
            self._served[key] = served
            self._by_replica.setdefault(replica, {})[key] = None
            served.load()
        return served

    def _count(self, group_id: str, topic: str, outcomes: Mapping[Outcome, int]) -> None:
        counted = self.outcomes.get((group_id, topic))
        if counted is None:
            if len(self.outcomes) >= OUTCOMES_MAX:  # groups come and go: those that came first are forgotten
                del self.outcomes[next(iter(self.outcomes))]
            counted = self.outcomes[group_id, topic] = Counter()
        counted.update(outcomes)

    # -- sessions -----------------------------------------------------------------------------------------------------

    def open_session(
        self,
        key: SessionKey,
        epoch: int,
        wanted: list[PartitionKey],
        forgotten: list[PartitionKey],
        *,
        has_acknowledgements: bool,
        connection: Connection,
    ) -> ShareSession:
        before = self.sessions.get(key)
        session = self.sessions.fetch(
            key,
            epoch,
            wanted,
            forgotten,
            has_acknowledgements=has_acknowledgements,
            connection=connection,
            limit=self._live.now.group_share_max_share_sessions,
        )
        if before is None:
            self._members[key.group_id] = self._members.get(key.group_id, 0) + 1
        if session is not before:
            connection.on_closed = self._disconnected
        return session

    def close_session(self, session: ShareSession) -> None:
        """The member leaves: release what it has acquired."""
        if self.sessions.get(session.key) is session:
            self.sessions.close(session)
            self._release(session)

    def _disconnected(self, connection: Connection) -> None:
        for session in self.sessions.disconnected(connection):
            self._release(session)

    def _release(self, session: ShareSession) -> None:
        group_id, member_id = session.key
        for served in self._session_partitions(group_id, session.partitions):
            served.release(member_id)
        self._members[group_id] -= 1
        if not self._members[group_id]:
            del self._members[group_id]
            self._drop_group_when_idle(group_id)

    def _session_partitions(self, group_id: str, partitions: Iterable[PartitionKey]) -> list[ServedPartition]:
        found = [self.get(group_id, topic_id, partition) for topic_id, partition in partitions]
        return [served for served in found if served is not None]

    # -- dropping -----------------------------------------------------------------------------------------------------

    def replica_changed(self, replica: Replica) -> None:
        """This broker may have stopped leading the partition, or leads it in another epoch."""
        for key in list(self._by_replica.get(replica, ())):
            served = self._served[key]
            if replica.leader is None or replica.leader_epoch != served.leader_epoch:
                self._drop(served)

    def _drop_group_when_idle(self, group_id: str) -> None:
        """Another process of the group reads the state again, which must contain everything."""
        for served in [served for key, served in self._served.items() if key.group_id == group_id]:
            if group_id in self._members:
                return
            if served.is_idle:
                self._drop(served)
            else:
                self._loop.call_later(IDLE_CHECK_S, self._drop_group_when_idle, group_id)
                return

    def _drop(self, served: ServedPartition) -> None:
        if self._served.get(served.key) is not served:
            return
        del self._served[served.key]
        of_replica = self._by_replica[served.replica]
        del of_replica[served.key]
        if not of_replica:
            del self._by_replica[served.replica]
        served.drop()

    def close(self) -> None:
        for served in list(self._served.values()):
            self._drop(served)


IDLE_CHECK_S = 1.0
OUTCOMES_MAX = 10_000
