"""Clients that ask for subscriptions and push metrics: when they may, and what they get."""

from __future__ import annotations

import pytest

from penstock.model.errors import ErrorCode
from penstock.model.ids import ZERO_UUID
from penstock.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.protocol.messages.push_telemetry import PushTelemetryRequest
from penstock.telemetry import instances as module
from penstock.telemetry.instances import ClientInstances, Instance, Origin
from penstock.telemetry.subscriptions import Subscription

NONE, THROTTLED = ErrorCode.NONE, ErrorCode.THROTTLING_QUOTA_EXCEEDED
MAX_BYTES = 1000
ZSTD = 4


def subscription(metrics: str = "*", interval_ms: int = 1000, match: str = "") -> Subscription:
    configs = {"metrics": metrics, "interval.ms": str(interval_ms)} | ({"match": match} if match else {})
    found = Subscription.of(configs)
    assert found is not None
    return found


class World:
    """A broker, and one client of it."""

    def __init__(self, *subscriptions: Subscription) -> None:
        self.ids = iter(range(2, 1 << 20))
        self.instances = ClientInstances(lambda: next(self.ids).to_bytes(16, "big"))
        self.instances.subscribe(subscriptions)
        self.now_ms = 5_000
        self.is_connected = True
        self.id = ZERO_UUID
        self.subscription_id = 0

    def origin(self) -> Origin:
        return Origin("orders", "librdkafka", "2.11.0", "10.0.0.7", "4711", lambda: self.is_connected)

    def get(self) -> GetTelemetrySubscriptionsResponse:
        request = GetTelemetrySubscriptionsRequest(client_instance_id=self.id)
        answer = self.instances.get(request, self.origin(), self.now_ms, max_bytes=MAX_BYTES)
        if not answer.error_code:
            self.id, self.subscription_id = answer.client_instance_id, answer.subscription_id
        return answer

    def push(
        self, *, terminating: bool = False, compression: int = ZSTD, size: int = 10, subscription_id: int | None = None
    ) -> ErrorCode:
        request = PushTelemetryRequest(
            client_instance_id=self.id,
            subscription_id=self.subscription_id if subscription_id is None else subscription_id,
            terminating=terminating,
            compression_type=compression,
            metrics=bytes(size),
        )
        outcome = self.instances.push(request, self.origin(), self.now_ms, max_bytes=MAX_BYTES)
        return NONE if isinstance(outcome, Instance) else outcome


def test_without_a_subscription_a_client_comes_back_after_five_minutes() -> None:
    world = World()
    answer = world.get()
    assert (answer.error_code, answer.requested_metrics, answer.push_interval_ms) == (NONE, [], 300_000)
    assert answer.accepted_compression_types == [4, 3, 1, 2]
    assert (answer.telemetry_max_bytes, answer.delta_temporality) == (MAX_BYTES, False)
    world.now_ms += 299_999
    assert world.get().error_code == THROTTLED
    world.now_ms += 1
    assert world.get().error_code == NONE
    assert (len(world.instances), world.instances.throttled) == (1, 1)


@pytest.mark.parametrize(
    ("subscriptions", "metrics", "interval_ms"),
    [
        ([subscription("b,a", 2000), subscription("c,a", 1000)], ["a", "b", "c"], 1000),
        ([subscription("a"), subscription("*", 60_000)], ["*"], 1000),
        ([subscription("a", 400_000)], ["a"], 300_000),
        ([subscription("a", match="client_id=ord.*,client_software_name=librdkafka")], ["a"], 1000),
        ([subscription("a", match="client_id=ord")], [], 300_000),
        ([subscription("a", match="client_id=orders,client_source_port=1")], [], 300_000),
        ([subscription("a", match=r"client_source_address=10\.0\.0\.[0-9]+")], ["a"], 1000),
    ],
)
def test_all_subscriptions_that_select_a_client_count(
    subscriptions: list[Subscription], metrics: list[str], interval_ms: int
) -> None:
    answer = World(*subscriptions).get()
    assert (answer.requested_metrics, answer.push_interval_ms) == (metrics, interval_ms)


def test_a_client_pushes_once_an_interval_and_early_after_a_get() -> None:
    world = World(subscription())
    world.get()
    world.now_ms += 1
    assert world.push() == NONE
    world.now_ms += 999
    assert world.push() == THROTTLED
    assert world.get().error_code == THROTTLED
    world.now_ms += 1
    assert world.push() == NONE


def test_a_new_subscription_is_told_at_once() -> None:
    world = World(subscription("a"))
    world.get()
    world.instances.subscribe([subscription("b", 5000)])
    assert world.push() == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    answer = world.get()
    assert (answer.error_code, answer.requested_metrics) == (NONE, ["b"])
    assert world.push() == THROTTLED
    world.now_ms += 5000
    assert world.push() == NONE
    assert world.instances.unknown_subscriptions == 1


def test_what_is_refused() -> None:
    def refusal(**options: int) -> ErrorCode:
        world = World(subscription())
        world.get()
        return world.push(**options)  # type: ignore[arg-type]

    assert refusal(subscription_id=7) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert refusal(compression=5) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refusal(compression=-1) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert refusal(size=MAX_BYTES + 1) == ErrorCode.TELEMETRY_TOO_LARGE
    assert refusal(size=MAX_BYTES) == NONE
    world = World(subscription())
    for world.id in (ZERO_UUID, bytes(15) + b"\1"):
        assert world.push() == ErrorCode.INVALID_REQUEST
    assert not len(world.instances)


def test_a_refused_compression_lets_the_client_ask_again_at_once() -> None:
    world = World(subscription())
    world.get()
    assert world.push(compression=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert world.get().error_code == NONE


def test_the_last_push_may_come_at_any_time_and_is_the_last() -> None:
    world = World(subscription())
    world.get()
    assert world.push() == NONE
    assert world.push(terminating=True) == NONE
    world.now_ms += 1000
    assert world.push() == ErrorCode.INVALID_REQUEST


def test_a_client_that_connects_again_is_new() -> None:
    world = World(subscription())
    first = world.get()
    assert world.get().error_code == THROTTLED
    world.is_connected = False
    again = world.get()
    assert again.error_code == NONE
    assert (again.client_instance_id, again.subscription_id) == (first.client_instance_id, first.subscription_id)


def test_silent_and_surplus_clients_are_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "INSTANCES_MAX", 3)
    world = World(subscription())
    for _ in range(5):
        world.id = ZERO_UUID
        world.get()
    assert len(world.instances) == 3
    world.now_ms += 60_000
    world.id = ZERO_UUID
    world.get()
    assert len(world.instances) == 1
