"""Replication throttles: limit how fast lagging replicas catch up, so that a reassignment leaves bandwidth for clients.

`leader.replication.throttled.rate` limits what this broker sends, `follower.replication.throttled.rate` what it
fetches. Each is one allowance for all partitions in the topics' `...throttled.replicas`. A follower that is in sync, or
about to be, is never throttled, and its fetches are not counted, because producers wait for it.
"""

from __future__ import annotations

from collections.abc import Callable

from penstock.broker.partitions.replica import Replica
from penstock.settings.definition import LONG_MAX

ALL = "*"
BURST_S = 1.0


class Allowance:
    """A token bucket. Bytes are taken after the transfer; a negative balance delays the next transfer."""

    __slots__ = ("_bytes_per_second", "_left", "_now", "_since")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._bytes_per_second: float = LONG_MAX
        self._left = 0.0
        self._since = now()

    def set_rate(self, bytes_per_second: int) -> None:
        if bytes_per_second != self._bytes_per_second:
            self._bytes_per_second = bytes_per_second
            self._left = bytes_per_second * BURST_S
            self._since = self._now()

    @property
    def is_unlimited(self) -> bool:
        return self._bytes_per_second >= LONG_MAX

    def take(self, size: int) -> None:
        if not self.is_unlimited:
            self._refill()
            self._left -= size

    @property
    def seconds_in_debt(self) -> float:
        """Time until bytes may be taken again."""
        if self.is_unlimited:
            return 0.0
        self._refill()
        return max(0.0, -self._left / max(self._bytes_per_second, 1))

    def _refill(self) -> None:
        now = self._now()
        self._left = min(self._bytes_per_second * BURST_S, self._left + (now - self._since) * self._bytes_per_second)
        self._since = now


class ReplicationThrottle:
    """The throttle for one direction: leading or following."""

    def __init__(
        self, broker_id: int, now: Callable[[], float], throttled: Callable[[Replica], tuple[str, ...]]
    ) -> None:
        self.allowance = Allowance(now)
        self._broker_id = broker_id
        self._throttled = throttled

    @property
    def is_unlimited(self) -> bool:
        return self.allowance.is_unlimited

    def concerns(self, replica: Replica) -> bool:
        if self.is_unlimited:
            return False
        named = self._throttled(replica)
        return bool(named) and (ALL in named or f"{replica.topic_partition.partition}:{self._broker_id}" in named)

    def holds_back(self, replica: Replica) -> bool:
        return self.concerns(replica) and self.allowance.seconds_in_debt > 0

    def note(self, replica: Replica, size: int) -> None:
        if self.concerns(replica):
            self.allowance.take(size)


class ReplicationThrottles:
    def __init__(self, broker_id: int, now: Callable[[], float]) -> None:
        self.leading = ReplicationThrottle(
            broker_id, now, lambda replica: replica.log.settings.leader_replication_throttled_replicas
        )
        self.following = ReplicationThrottle(
            broker_id, now, lambda replica: replica.log.settings.follower_replication_throttled_replicas
        )

    def set_rates(self, leading: int, following: int) -> None:
        self.leading.allowance.set_rate(leading)
        self.following.allowance.set_rate(following)
