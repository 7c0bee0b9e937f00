"""The client instances that ask for subscriptions and push metrics: when they may, and what they did wrong.

Everything about an instance can be computed again: if it is forgotten (there are too many, or it was silent for three
intervals, or its connection closed), the next request makes it anew. A change of the subscriptions does the same. The
client notices by its subscription id, which no longer fits, and asks again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from crc32c import crc32c

from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID, Uuid, uuid_text
from penstock.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.protocol.messages.push_telemetry import PushTelemetryRequest
from penstock.records.compression import Codec
from penstock.telemetry.subscriptions import Client, Subscription, Wanted

INSTANCES_MAX: Final = 16_384
EXPIRY_MS_MIN: Final = 60_000
SWEEP_MS: Final = 10_000
"""At most this often all instances are looked at."""

RESERVED_IDS: Final = frozenset({ZERO_UUID, bytes(15) + b"\x01"})
ACCEPTED_CODECS: Final = (Codec.ZSTD, Codec.LZ4, Codec.GZIP, Codec.SNAPPY)

_NEVER: Final = -(1 << 62)
# A client that got one of these needs a new subscription at once.
_ASKS_AGAIN: Final = (ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)


class Origin(NamedTuple):
    """Where a request comes from."""

    client_id: str | None
    software_name: str
    software_version: str
    address: str
    port: str
    is_connected: Callable[[], bool]


@dataclass(slots=True)
class Instance:
    client: Client
    wanted: Wanted
    subscription_id: int
    is_connected: Callable[[], bool]
    expires_ms: int = 0
    last_get_ms: int = _NEVER
    last_push_ms: int = _NEVER
    is_terminating: bool = False
    last_error: ErrorCode = ErrorCode.NONE

    @property
    def keep_ms(self) -> int:
        """How long a silent client is remembered, and its metrics with it."""
        return max(EXPIRY_MS_MIN, 3 * self.wanted.interval_ms)

    def may_get(self, now_ms: int) -> bool:
        if now_ms - max(self.last_get_ms, self.last_push_ms) < self.wanted.interval_ms:
            return self.last_error in _ASKS_AGAIN
        self.last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """The first push after a get may come early: clients spread them over the interval."""
        if self.last_get_ms <= self.last_push_ms and now_ms - self.last_push_ms < self.wanted.interval_ms:
            return False
        self.last_push_ms = now_ms
        return True


class ClientInstances:
    """All times are of one clock that never goes back."""

    def __init__(self, new_id: Callable[[], Uuid]) -> None:
        self.throttled = 0
        self.unknown_subscriptions = 0
        self._new_id = new_id
        self._subscriptions: tuple[Subscription, ...] = ()
        # The instance that was silent for longest comes first.
        self._instances: dict[Uuid, Instance] = {}
        self._sweep_at_ms = 0

    def __len__(self) -> int:
        return len(self._instances)

    def subscribe(self, subscriptions: Iterable[Subscription]) -> None:
        """The subscriptions of the cluster have changed: every client is decided about anew."""
        self._subscriptions = tuple(subscriptions)
        self._instances.clear()

    def get(
        self, request: GetTelemetrySubscriptionsRequest, origin: Origin, now_ms: int, *, max_bytes: int
    ) -> GetTelemetrySubscriptionsResponse:
        instance_id = request.client_instance_id
        if instance_id == ZERO_UUID:
            instance_id = self._new_id()
        instance = self._instance(instance_id, origin, now_ms)
        if not instance.may_get(now_ms):
            self.throttled += 1
            return GetTelemetrySubscriptionsResponse(error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)
        instance.last_error = ErrorCode.NONE
        return GetTelemetrySubscriptionsResponse(
            client_instance_id=instance_id,
            subscription_id=instance.subscription_id,
            accepted_compression_types=[int(codec) for codec in ACCEPTED_CODECS],
            push_interval_ms=instance.wanted.interval_ms,
            telemetry_max_bytes=max_bytes,
            delta_temporality=False,
            requested_metrics=list(instance.wanted.metrics),
        )

    def push(
        self, request: PushTelemetryRequest, origin: Origin, now_ms: int, *, max_bytes: int
    ) -> Instance | ErrorCode:
        """Return the instance if its metrics are to be read, or an error."""
        if request.client_instance_id in RESERVED_IDS:
            return ErrorCode.INVALID_REQUEST
        instance = self._instance(request.client_instance_id, origin, now_ms)
        instance.last_error = self._refusal(instance, request, now_ms, max_bytes)
        instance.is_terminating = request.terminating
        return instance if instance.last_error is ErrorCode.NONE else instance.last_error

    def _refusal(self, instance: Instance, request: PushTelemetryRequest, now_ms: int, max_bytes: int) -> ErrorCode:
        if instance.is_terminating:
            return ErrorCode.INVALID_REQUEST  # it said that it would send nothing more
        if not instance.may_push(now_ms) and not request.terminating:
            self.throttled += 1
            return ErrorCode.THROTTLING_QUOTA_EXCEEDED
        if request.subscription_id != instance.subscription_id:
            self.unknown_subscriptions += 1
            return ErrorCode.UNKNOWN_SUBSCRIPTION_ID
        if not Codec.NONE <= request.compression_type <= Codec.ZSTD:
            return ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        if len(request.metrics) > max_bytes:
            return ErrorCode.TELEMETRY_TOO_LARGE
        return ErrorCode.NONE

    def _instance(self, instance_id: Uuid, origin: Origin, now_ms: int) -> Instance:
        self._sweep(now_ms)
        instance = self._instances.pop(instance_id, None)
        if instance is None or not instance.is_connected():
            instance = self._new_instance(instance_id, origin)
        instance.is_connected = origin.is_connected
        instance.expires_ms = now_ms + instance.keep_ms
        if len(self._instances) >= INSTANCES_MAX:
            del self._instances[next(iter(self._instances))]
        self._instances[instance_id] = instance
        return instance

    def _new_instance(self, instance_id: Uuid, origin: Origin) -> Instance:
        client = Client(uuid_text(instance_id), *origin[:5])
        wanted = Wanted.of(client, self._subscriptions)
        return Instance(client, wanted, _subscription_id(wanted, instance_id), origin.is_connected)

    def _sweep(self, now_ms: int) -> None:
        if now_ms >= self._sweep_at_ms:
            self._sweep_at_ms = now_ms + SWEEP_MS
            for instance_id in [each for each, known in self._instances.items() if known.expires_ms <= now_ms]:
                del self._instances[instance_id]


def _subscription_id(wanted: Wanted, instance_id: Uuid) -> int:
    """The same for the same wishes, at every broker: a client that moves to another one need not ask again."""
    words = [int.from_bytes(instance_id[at : at + 4], "big") for at in range(0, 16, 4)]
    number = crc32c(f"{wanted.metrics}{wanted.interval_ms}".encode()) ^ words[0] ^ words[1] ^ words[2] ^ words[3]
    return number - (1 << 32) if number >= 1 << 31 else number
