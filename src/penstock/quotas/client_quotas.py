"""All quotas of clients as one node applies them: the levels from the metadata, and the accounts of the clients."""

from __future__ import annotations

from penstock.quotas import entity as e
from penstock.quotas.accounts import MutationQuota, RateQuota
from penstock.quotas.levels import AddressLevels, Levels, Limit, values_of
from penstock.quotas.rate import Window


class ClientLimits:
    """The limits of one client; None where it has none."""

    __slots__ = ("fetch", "is_limited", "produce", "request")

    def __init__(self, produce: Limit | None, fetch: Limit | None, request: Limit | None) -> None:
        self.produce = produce
        self.fetch = fetch
        self.request = request
        self.is_limited = produce is not None or fetch is not None or request is not None


class ClientQuotas:
    def __init__(self, window: Window, mutation_window: Window) -> None:
        self.produce = RateQuota(window)
        self.fetch = RateQuota(window)
        # One sample is the longest time to be throttled for: a heartbeat must get through.
        self.request = RateQuota(window, throttle_ms_max=window.size_ms)
        self.mutation = MutationQuota(mutation_window)
        self.connection = RateQuota(window, throttle_ms_max=window.size_ms)
        self.quotas: e.Quotas = {}
        self.is_on = False
        """Whether any client has a quota on what it produces or fetches, or on the time of its requests."""
        self.limits_mutations = False
        self.limits_connections = False
        self.set({})

    def set(self, quotas: e.Quotas) -> None:
        """The quotas have changed; what clients have used stays."""
        self.quotas = quotas
        self._produce = Levels(values_of(quotas, e.PRODUCER_BYTE_RATE))
        self._fetch = Levels(values_of(quotas, e.CONSUMER_BYTE_RATE))
        self._request = Levels(values_of(quotas, e.REQUEST_PERCENTAGE))
        self._mutation = Levels(values_of(quotas, e.CONTROLLER_MUTATION_RATE))
        self._connection = AddressLevels(values_of(quotas, e.CONNECTION_CREATION_RATE))
        self.is_on = bool(self._produce or self._fetch or self._request)
        self.limits_mutations = bool(self._mutation)
        self.limits_connections = bool(self._connection)

    def limits_of(self, user: str, client_id: str) -> ClientLimits:
        return ClientLimits(
            self._produce.limit_of(user, client_id),
            self._fetch.limit_of(user, client_id),
            self._request.limit_of(user, client_id),
        )

    def mutation_limit(self, user: str, client_id: str) -> Limit | None:
        return self._mutation.limit_of(user, client_id)

    def connection_throttle_ms(self, host: str, now_ms: int) -> int:
        """Count a new connection; how long to hold one that is over the quota before it is closed, or 0.

        A connection that is not accepted does not count.
        """
        limit = self._connection.limit_of(host)
        if limit is None:
            return 0
        throttle_ms = self.connection.record(limit, 1, now_ms)
        if throttle_ms:
            self.connection.unrecord(limit, 1, now_ms)
            self.connection.throttled(limit, throttle_ms, now_ms)
        return throttle_ms
