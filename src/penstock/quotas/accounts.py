"""The accounts of clients that have a quota, and what they have used of it.

Memory is bounded: an account that is like a new one (nothing happened within the window, or the token bucket is full)
is forgotten, at the latest when the next account is opened a window later. `ACCOUNTS_MAX` limits those that a flood of
new client ids can open within a window; beyond it, the oldest account is forgotten. Long names are kept as their
beginning and a digest. Most accounts are never throttled, so they keep no throttle times.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from penstock.quotas.levels import Limit
from penstock.quotas.rate import INT_MAX, Rate, Window
from penstock.quotas.token_bucket import TokenBucket

ACCOUNTS_MAX: Final = 100_000
NAME_MAX: Final = 255  # characters; a client id may have 32,767

AccountKey = tuple[str | None, str | None]


class Usage(NamedTuple):
    """What one account has used, for metrics."""

    user: str | None
    client_id: str | None
    limit: float
    value: float
    """The rate per second, or the tokens that are left."""
    throttle_ms: float
    """The average throttle time of the requests that were throttled lately; 0 if none was."""


class Account(Protocol):
    limit: float
    throttles: Throttles | None

    def value(self, now_ms: int) -> float: ...

    def is_idle(self, now_ms: int) -> bool: ...


AnyAccount = TypeVar("AnyAccount", bound=Account)


class Throttles:
    """The throttle times of one account lately."""

    __slots__ = ("_count", "_total")

    def __init__(self, window: Window) -> None:
        self._total = Rate(window)
        self._count = Rate(window)

    def add(self, throttle_ms: int, now_ms: int) -> None:
        self._total.record(throttle_ms, now_ms)
        self._count.record(1, now_ms)

    def average_ms(self, now_ms: int) -> float:
        count = self._count.total(now_ms)
        return self._total.total(now_ms) / count if count else 0.0

    def is_idle(self, now_ms: int) -> bool:
        return self._count.is_idle(now_ms)


class Accounts(Generic[AnyAccount]):
    """The accounts of one quota key, and counters over all of them."""

    def __init__(self, window: Window) -> None:
        self.window = window
        self.throttled_requests = 0
        self.throttled_ms = 0
        self._accounts: dict[AccountKey, AnyAccount] = {}
        self._swept_ms = 0

    def __len__(self) -> int:
        return len(self._accounts)

    def _new(self) -> AnyAccount:
        raise NotImplementedError

    def account(self, limit: Limit, now_ms: int) -> AnyAccount:
        user, client_id, value = _short(limit.user), _short(limit.client_id), limit.value
        account = self._accounts.get((user, client_id))
        if account is None:
            self._make_room(now_ms)
            account = self._accounts[user, client_id] = self._new()
        account.limit = value
        return account

    def throttled(self, limit: Limit, throttle_ms: int, now_ms: int) -> None:
        """Count a request that was throttled."""
        self.throttled_requests += 1
        self.throttled_ms += throttle_ms
        account = self.account(limit, now_ms)
        if account.throttles is None:
            account.throttles = Throttles(self.window)
        account.throttles.add(throttle_ms, now_ms)

    def forget_idle(self, now_ms: int) -> None:
        self._swept_ms = now_ms
        self._accounts = {key: account for key, account in self._accounts.items() if not account.is_idle(now_ms)}

    def usages(self, now_ms: int) -> Iterator[Usage]:
        """What the accounts have used; forgets the idle ones first."""
        self.forget_idle(now_ms)
        for (user, client_id), account in list(self._accounts.items()):
            throttle_ms = 0.0 if account.throttles is None else account.throttles.average_ms(now_ms)
            yield Usage(user, client_id, account.limit, account.value(now_ms), throttle_ms)

    def _make_room(self, now_ms: int) -> None:
        if now_ms - self._swept_ms >= self.window.span_ms:
            self.forget_idle(now_ms)
        while len(self._accounts) >= ACCOUNTS_MAX:
            del self._accounts[next(iter(self._accounts))]


def _short(name: str | None) -> str | None:
    if name is None or len(name) <= NAME_MAX:
        return name
    digest = hashlib.sha256(name.encode(errors="surrogatepass")).hexdigest()
    return f"{name[: NAME_MAX - len(digest)]}{digest}"


class RateAccount:
    __slots__ = ("limit", "rate", "throttles")

    def __init__(self, window: Window) -> None:
        self.limit = 0.0
        self.rate = Rate(window)
        self.throttles: Throttles | None = None

    def value(self, now_ms: int) -> float:
        return self.rate.per_second(now_ms)

    def is_idle(self, now_ms: int) -> bool:
        return self.rate.is_idle(now_ms) and (self.throttles is None or self.throttles.is_idle(now_ms))


class RateQuota(Accounts[RateAccount]):
    """A limit on a rate: bytes, connections, or the share of time."""

    def __init__(self, window: Window, *, throttle_ms_max: int = INT_MAX) -> None:
        super().__init__(window)
        self._throttle_ms_max = throttle_ms_max

    def _new(self) -> RateAccount:
        return RateAccount(self.window)

    def record(self, limit: Limit, value: float, now_ms: int) -> int:
        """Count this much; returns how long the client must be throttled, in milliseconds."""
        rate = self.account(limit, now_ms).rate
        rate.record(value, now_ms)
        return min(self._throttle_ms_max, rate.throttle_ms(limit.value, now_ms))

    def unrecord(self, limit: Limit, value: float, now_ms: int) -> None:
        """Take back what was recorded just now, and did not happen after all."""
        self.account(limit, now_ms).rate.record(-value, now_ms)

    def window_value(self, limit: Limit) -> float:
        """The most that may happen at once, if nothing happened before, without being throttled."""
        return limit.value * self.window.full_ms / 1000


class MutationAccount:
    __slots__ = ("bucket", "limit", "throttles")

    def __init__(self, window: Window) -> None:
        self.limit = 0.0
        self.bucket = TokenBucket(window)
        self.throttles: Throttles | None = None

    def value(self, now_ms: int) -> float:
        return self.bucket.tokens(self.limit, now_ms)

    def is_idle(self, now_ms: int) -> bool:
        return self.bucket.is_idle(self.limit, now_ms) and (self.throttles is None or self.throttles.is_idle(now_ms))


class MutationQuota(Accounts[MutationAccount]):
    """A limit on partitions that are created and deleted."""

    def _new(self) -> MutationAccount:
        return MutationAccount(self.window)

    def take(self, limit: Limit, permits: float, now_ms: int, *, is_strict: bool) -> int:
        """Count this many; returns the throttle time in milliseconds.

        Strict: a client whose account is overdrawn is refused, and nothing is counted. Permissive: everything is
        counted, and the client is throttled afterwards.
        """
        bucket = self.account(limit, now_ms).bucket
        if is_strict:
            if bucket.tokens(limit.value, now_ms) < 0:
                return max(1, bucket.throttle_ms(limit.value, now_ms))
            bucket.take(permits, limit.value, now_ms)
            return 0
        bucket.take(permits, limit.value, now_ms)
        return bucket.throttle_ms(limit.value, now_ms)
