"""The replication of a broker: fetchers, follower sessions, throttles and ISR proposals."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from penstock.broker.metadata.brokers import Brokers
from penstock.broker.metadata.controller_channel import ControllerChannel
from penstock.broker.metadata.registration import Registration
from penstock.broker.partitions.fetcher import Fetchers
from penstock.broker.partitions.flusher import Flusher
from penstock.broker.partitions.follower_sessions import FollowerSessions
from penstock.broker.partitions.isr import InSyncProposals
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.replicas import Replicas
from penstock.broker.partitions.throttle import ReplicationThrottles
from penstock.broker.partitions.wakeups import Wakeups
from penstock.metadata.partition import Partition
from penstock.settings.live import LiveSettings


class Replication:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        registration: Registration,
        controller: ControllerChannel,
        brokers: Brokers,
        replicas: Replicas,
        flusher: Flusher,
        wakeups: Wakeups,
        new_session_id: Callable[[], int],
        store_log_starts: Callable[[], Awaitable[None]],
        hang_up: Callable[[], None],
    ) -> None:
        """`store_log_starts` makes log start offsets durable; `hang_up` disconnects clients, which may reconnect."""
        self._settings = settings
        self._broker_id = registration.broker_id
        self.throttles = ReplicationThrottles(registration.broker_id, loop.time)
        self.followers = FollowerSessions(
            loop, wakeups, new_session_id, tells_commits_at_once=settings.static.replica_selector_class is not None
        )
        self.fetchers = Fetchers(
            settings=settings,
            loop=loop,
            registration=registration,
            brokers=brokers,
            flusher=flusher,
            wakeups=wakeups,
            throttle=self.throttles.following,
            store_log_starts=store_log_starts,
        )
        self.proposals = InSyncProposals(
            loop=loop,
            registration=registration,
            controller=controller,
            replicas=replicas,
            wakeups=wakeups,
            lag_max_ms=lambda: settings.now.replica_lag_time_max_ms,
            hang_up=hang_up,
        )

    def settings_changed(self) -> None:
        settings = self._settings.now
        self.throttles.set_rates(
            settings.leader_replication_throttled_rate, settings.follower_replication_throttled_rate
        )

    def take_part(self, replica: Replica, partition: Partition) -> None:
        """Lead or follow the partition, as the metadata says."""
        former = replica.leader
        if partition.leader == self._broker_id:
            self.fetchers.forget(replica)
            replica.lead(partition)
            if former is None or replica.leader is not former:
                self.followers.expect(replica)
        elif replica.follow(partition):
            self.fetchers.follow(replica)

    def close(self) -> None:
        self.fetchers.close()
        self.proposals.close()
