"""Metrics that clients push to this broker (KIP-714).

The subscriptions are settings in the metadata and are read again only after one of them has changed. Payloads are
decompressed and read on a thread: they are up to `telemetry.max.bytes` long, and clients choose what is in them.
"""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Mapping

from penstock.broker.net.request import Request
from penstock.io.clock import Clock
from penstock.metadata.image import ConfigResource, Metadata, ResourceType
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)
from penstock.protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse
from penstock.records.compression import decompress
from penstock.settings.live import LiveSettings
from penstock.telemetry.instances import ClientInstances, Instance, Origin
from penstock.telemetry.otlp import InvalidMetrics, Point, read_metrics
from penstock.telemetry.samples import ClientSamples
from penstock.telemetry.subscriptions import Subscription


@owned_by_loop()
class ClientTelemetry:
    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        settings: LiveSettings,
        metadata: Metadata,
        instances: ClientInstances,
    ) -> None:
        self.instances = instances
        self.samples = ClientSamples()
        self.pushes = 0
        self.invalid_pushes = 0
        self._loop = loop
        self._clock = clock
        self._settings = settings
        self._metadata = metadata
        self._configs: Mapping[ConfigResource, Mapping[str, str]] | None = None
        self._subscribed: dict[str, Mapping[str, str]] = {}

    @property
    def is_wanted(self) -> bool:
        """Whether there is a subscription. Without one clients are not told of these APIs: librdkafka prints a line
        when it uses them, and asks every five minutes."""
        self._read_subscriptions()
        return bool(self._subscribed)

    def get(self, request: Request, message: GetTelemetrySubscriptionsRequest) -> GetTelemetrySubscriptionsResponse:
        self._read_subscriptions()
        return self.instances.get(
            message, _origin_of(request), self.now_ms(), max_bytes=self._settings.now.telemetry_max_bytes
        )

    def push(self, request: Request, message: PushTelemetryRequest) -> PushTelemetryResponse | None:
        self._read_subscriptions()
        max_bytes = self._settings.now.telemetry_max_bytes
        instance = self.instances.push(message, _origin_of(request), self.now_ms(), max_bytes=max_bytes)
        if not isinstance(instance, Instance):
            return PushTelemetryResponse(error_code=instance)
        if not message.metrics:
            return PushTelemetryResponse()
        self._read(request, instance, message.compression_type, bytes(message.metrics), max_bytes)
        return None

    def now_ms(self) -> int:
        """Of a clock that never goes back."""
        return self._clock.boottime_ms()

    def _read_subscriptions(self) -> None:
        configs = self._metadata.image.configs
        if configs is self._configs:
            return
        self._configs = configs
        stored = {
            resource.name: values
            for resource, values in configs.items()
            if resource.type == ResourceType.CLIENT_METRICS
        }
        if stored != self._subscribed:
            self._subscribed = stored
            subscriptions = (Subscription.of(values) for values in stored.values())
            self.instances.subscribe(each for each in subscriptions if each is not None)

    def _read(self, request: Request, instance: Instance, codec: int, payload: bytes, max_bytes: int) -> None:
        answer = request.park()
        work = self._loop.run_in_executor(None, _points_of, codec, payload, max_bytes)

        def done(future: asyncio.Future[list[Point] | ErrorCode]) -> None:
            if future.cancelled():
                return
            points = future.result()
            if isinstance(points, ErrorCode):
                self.invalid_pushes += 1
                instance.last_error = points
                answer(PushTelemetryResponse(error_code=points))
                return
            self.pushes += 1
            self.samples.push(
                instance.client,
                points,
                self.now_ms(),
                keep_ms=instance.keep_ms,
                series_max=self._settings.now.penstock_telemetry_max_series,
            )
            answer(PushTelemetryResponse())

        work.add_done_callback(done)


def _points_of(codec: int, payload: bytes, max_bytes: int) -> list[Point] | ErrorCode:
    """On a thread. As in Kafka, the limit holds for the decompressed bytes, too."""
    try:
        return read_metrics(decompress(codec, payload, max_bytes))
    except (KafkaError, InvalidMetrics):
        return ErrorCode.INVALID_RECORD


def _origin_of(request: Request) -> Origin:
    connection = request.connection
    name, _, version = connection.client_software.partition(" ")
    known = weakref.ref(connection)  # a closed connection is not kept for the instances that used it

    def is_connected() -> bool:
        connection = known()
        return connection is not None and not connection.is_closed

    port = "" if connection.peer_port is None else str(connection.peer_port)
    return Origin(request.client_id, name, version, request.client_host, port, is_connected)
