"""The lifecycle of this broker in the cluster: registration, unfencing, heartbeats and controlled shutdown.

    register         with the controller, fenced; the offset of the registration is the broker's epoch
    catch up         replay the metadata up to the registration, open the assigned logs, report their directories
    unfenced         requested in heartbeats; then clients are served
    heartbeats       every `broker.heartbeat.interval.ms`, on their own connection, and at once when that is lost, so
                     that the controller can soon tell a dead broker from one that reconnects
    shutting down    announced in heartbeats; the controller moves leaderships to other brokers, and lets this one stop
                     when that is done and all others have confirmed it in their heartbeats

A controller that does not know the registration (the broker was unregistered, or another process took its id) answers
STALE_BROKER_EPOCH: the broker registers again, as the same incarnation. If another one is alive under its id, it stops.

A heartbeat reports a failed log directory only after the directory of each replica in it has been reported: the
controller moves only replicas that it knows to be in the failed directory.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, Protocol

from penstock.broker.metadata.controller_channel import ControllerChannel, Done
from penstock.broker.metadata.registration import Registration
from penstock.broker.net.peers import PeerFailed
from penstock.io.clock import Clock
from penstock.metadata.cluster import features_message
from penstock.metadata.features import METADATA_4_3_IV0, SUPPORTED_FEATURES, refused_because
from penstock.metadata.image import Metadata
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import Uuid
from penstock.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Listener,
)
from penstock.settings.live import LiveSettings

logger = logging.getLogger("penstock.lifecycle")

CHANNEL: Final = "heartbeat"
RETRY_S: Final = 0.1
# While it waits to be unfenced, or for permission to stop, a broker sends heartbeats more often.
IMPATIENT_S: Final = 0.05
# How long a broker waits for permission to stop, and for a controller that does not answer.
SHUTDOWN_S: Final = 10.0
SILENCE_S: Final = 4.0
# How long a broker that was refused waits for the metadata that has the reason.
METADATA_S: Final = 10.0

# Errors that a retry may avoid.
TRANSIENT: Final = (
    ErrorCode.DUPLICATE_BROKER_REGISTRATION,
    ErrorCode.NOT_CONTROLLER,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.KAFKA_STORAGE_ERROR,
)


class Directories(Protocol):
    """The log directories of this broker."""

    @property
    def online_ids(self) -> list[Uuid]: ...

    def cordoned_ids(self, setting: Collection[str]) -> list[Uuid]: ...


class DirectoryReports(Protocol):
    """Reports of replica directories that the controller has not confirmed yet."""

    @property
    def has_pending(self) -> bool: ...

    def is_pending(self, directory_id: Uuid) -> bool: ...

    async def all_acknowledged(self) -> None: ...


class BrokerLifecycle:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        cluster_id: str,
        incarnation_id: Uuid,
        registration: Registration,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        metadata: Metadata,
        has_all_of: Callable[[float], bool],
        channel: ControllerChannel,
        directories: Directories,
        reports: DirectoryReports,
        on_registered_again: Callable[[], None],
        fail: Callable[[str], None],
    ) -> None:
        """`has_all_of`: whether the metadata has everything that was committed at a moment, by the loop's clock.

        `channel`: one that has no other user.
        """
        self._settings = settings
        self._cluster_id = cluster_id
        self._incarnation_id = incarnation_id
        self._registration = registration
        self._loop = loop
        self._clock = clock
        self._metadata = metadata
        self._has_all_of = has_all_of
        self._channel = channel
        self._channel.on_connection_lost = self._beat_now
        self._directories = directories
        self._reports = reports
        self._on_registered_again = on_registered_again
        self._fail = fail
        self._listeners: list[Listener] = []
        self._previous_broker_epoch = -1
        self._unfenced: asyncio.Future[None] = self._loop.create_future()
        self._may_go: asyncio.Future[None] = self._loop.create_future()
        self._caught_up: asyncio.Future[None] = self._loop.create_future()
        self._timer: asyncio.TimerHandle | None = None
        self._registering: asyncio.Task[None] | None = None
        self._is_beating = False
        self._beat_again = False
        self._heard_at = 0.0
        self._beaten_at = 0.0
        self._alive_until = 0.0
        # When the controller was heard again after the lease had ended; until the metadata is as recent as that.
        self._regained_at: float | None = None
        self._wants_to_go = False
        # Until the controller knows the directories of this broker's replicas.
        self._wants_to_stay_fenced = True
        # Log directories that failed since the registration, and whether the controller knows.
        self._failed_directories: dict[Uuid, bool] = {}
        self._reporting: list[Uuid] = []
        self._reported_cordoned: list[Uuid] | None = None
        self._is_closed = False

    # -- start ------------------------------------------------------------------------------------------------------

    async def register(self, listeners: list[Listener], previous_broker_epoch: int) -> None:
        """Returns when the metadata up to the registration is replayed here. KafkaError if the cluster refuses."""
        self._listeners = listeners
        self._previous_broker_epoch = previous_broker_epoch
        deadline = self._loop.time() + self._settings.now.initial_broker_registration_timeout_ms / 1000
        refused_by = self._loop.time() + METADATA_S
        said = ""
        while True:
            error = await self._register_once(deadline)
            if error is None:
                break
            message = error.message
            if error.code is ErrorCode.UNSUPPORTED_VERSION:
                # The answer does not say which feature; the metadata does, once it is here.
                unserved = refused_because(self._metadata.image.features)
                message = "; ".join(unserved) or "the cluster has finalized a feature that this broker does not serve"
                is_final = bool(unserved) or self._loop.time() > refused_by
            else:
                is_final = error.code not in TRANSIENT
            if is_final or self._loop.time() > deadline:
                raise KafkaError(error.code, f"cannot register with the cluster: {message}{_advice(error.code)}")
            if message != said:
                logger.info("registering again until it succeeds: %s", message)
                said = message
            await asyncio.sleep(RETRY_S)
        self.committed()
        await self._caught_up

    async def _register_once(self, deadline: float) -> KafkaError | None:
        request = BrokerRegistrationRequest(
            broker_id=self._registration.broker_id,
            cluster_id=self._cluster_id,
            incarnation_id=self._incarnation_id,
            listeners=self._listeners,
            features=features_message(SUPPORTED_FEATURES),
            rack=self._settings.now.broker_rack or None,
            log_dirs=self._directories.online_ids,
            previous_broker_epoch=self._previous_broker_epoch,
        )
        future: asyncio.Future[BrokerRegistrationResponse | PeerFailed] = self._loop.create_future()
        self._channel.send(request, _into(future), timeout=max(0.1, deadline - self._loop.time()))
        outcome = await future
        if isinstance(outcome, PeerFailed):
            return KafkaError(ErrorCode.REQUEST_TIMED_OUT, outcome.message)
        if outcome.error_code:
            return KafkaError(ErrorCode(outcome.error_code))
        self._registration.broker_epoch = outcome.broker_epoch
        logger.info("registered with epoch %d", outcome.broker_epoch)
        return None

    async def unfence(self) -> None:
        """Returns when the broker is unfenced; from then on it sends heartbeats regularly.

        First the controller must know the directories of the replicas. Otherwise it might elect a replica that was just
        recreated empty, because of data on a disk that has been replaced.
        """
        if self._reports.has_pending:
            self._beat_now()
            await self._reports.all_acknowledged()
        self._wants_to_stay_fenced = False
        self._beat_now()
        await self._unfenced

    def committed(self) -> None:
        """The metadata changed."""
        image, registration = self._metadata.image, self._registration
        if not self._caught_up.done() and 0 <= registration.broker_epoch <= image.offset:
            self._caught_up.set_result(None)
        if not self._unfenced.done():
            registered = image.brokers.get(registration.broker_id)
            if registered is not None and registered.epoch == registration.broker_epoch and not registered.fenced:
                logger.info("unfenced")
                self._unfenced.set_result(None)
        if any(
            broker.in_controlled_shutdown and not broker.fenced and broker.broker_id != registration.broker_id
            for broker in image.brokers.values()
        ):
            self._beat_now()  # a broker that shuts down may stop once all others are known to know

    def controller_changed(self) -> None:
        self._channel.controller_changed()

    # -- heartbeats -------------------------------------------------------------------------------------------------

    def _lease_time(self) -> float:
        """The controller's clock advances while this machine is suspended, so the lease must expire by such a clock."""
        return self._clock.boottime_ms() / 1000

    @property
    def is_surely_alive(self) -> bool:
        """Whether no controller can consider this broker dead: it still leads the partitions it believes to lead.

        A broker that was silent for long may have been replaced and be welcome again: it is not sure until it has the
        metadata that tells so.
        """
        if self._lease_time() >= self._alive_until:
            return False
        if self._regained_at is not None and self._has_all_of(self._regained_at):
            self._regained_at = None
        return self._regained_at is None

    def _beat_now(self) -> None:
        if not self._caught_up.done():
            return
        if self._is_beating:
            self._beat_again = True
            return
        self._beat()

    def _beat(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._is_closed:
            return
        self._is_beating = True
        # Replicas in a failed directory must be reported before its failure, or the controller would not move them.
        self._reporting = [
            directory_id
            for directory_id, is_known in self._failed_directories.items()
            if not is_known and not self._reports.is_pending(directory_id)
        ]
        self._reported_cordoned = cordoned = self._cordoned()
        request = BrokerHeartbeatRequest(
            broker_id=self._registration.broker_id,
            broker_epoch=self._registration.broker_epoch,
            current_metadata_offset=self._metadata.image.offset,
            want_fence=self._wants_to_stay_fenced,
            want_shut_down=self._wants_to_go,
            offline_log_dirs=self._reporting,
            cordoned_log_dirs=cordoned,
        )
        self._beaten_at = self._lease_time()
        timeout = self._settings.now.broker_session_timeout_ms / 2000
        self._channel.send(request, self._answered, timeout=timeout)

    def _answered(self, outcome: BrokerHeartbeatResponse | PeerFailed) -> None:
        self._is_beating = False
        if self._is_closed:
            return
        if isinstance(outcome, PeerFailed):
            logger.warning("the controller does not answer heartbeats: %s", outcome.message)
            self._beat_in(IMPATIENT_S)
            return
        self._heard_at = self._loop.time()
        if outcome.error_code in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            self._register_again()
        elif outcome.error_code:
            logger.warning("the controller refuses heartbeats: %s", ErrorCode(outcome.error_code).name)
            self._beat_in(RETRY_S)
        else:
            self._heard(outcome)

    def _cordoned(self) -> list[Uuid] | None:
        """The cordoned directories; None while the metadata version cannot represent them."""
        if self._metadata.image.metadata_version < METADATA_4_3_IV0:
            return None
        return self._directories.cordoned_ids(self._settings.now.cordoned_log_dirs)

    def settings_changed(self) -> None:
        """Other directories may be cordoned now."""
        if self._caught_up.done() and self._cordoned() != self._reported_cordoned:
            self._beat_now()

    def directory_failed(self, directory_id: Uuid, path: str) -> None:
        """A log directory is offline: the controller must move its replicas, or this broker has to stop."""
        if self._is_closed:
            return
        self._failed_directories[directory_id] = False
        seconds = self._settings.now.log_dir_failure_timeout_ms / 1000
        self._loop.call_later(seconds, self._failure_must_be_known, directory_id, path)
        self._beat_now()

    def _failure_must_be_known(self, directory_id: Uuid, path: str) -> None:
        if not self._is_closed and not self._failed_directories[directory_id]:
            self._fail(f"cannot report to the controller within log.dir.failure.timeout.ms that {path} is offline")

    def _heard(self, answer: BrokerHeartbeatResponse) -> None:
        self._failed_directories.update(dict.fromkeys(self._reporting, True))
        if not answer.is_fenced:
            settings = self._settings.now
            lease_ms = min(settings.broker_session_timeout_ms, settings.penstock_broker_refused_ms)
            # A broker that has just started leads nothing by metadata that is older than its registration.
            if 0.0 < self._alive_until <= self._beaten_at:
                self._regained_at = self._loop.time()
            self._alive_until = self._beaten_at + lease_ms / 1000
        if self._wants_to_go and answer.should_shut_down:
            _resolve(self._may_go)
            self._beat_in(self._interval_s)
        elif self._wants_to_go or answer.is_fenced or not all(self._failed_directories.values()):
            self._beat_in(IMPATIENT_S)
        else:
            self._beat_in(self._interval_s)

    @property
    def _interval_s(self) -> float:
        return self._settings.now.broker_heartbeat_interval_ms / 1000

    def _beat_in(self, seconds: float) -> None:
        if self._beat_again:
            self._beat_again = False
            seconds = 0.0
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(seconds, self._beat)

    def _register_again(self) -> None:
        if self._wants_to_go:
            _resolve(self._may_go)
            return
        logger.warning("the controller does not know this registration any more: registering again")
        self._is_beating = True
        self._registering = self._loop.create_task(self._again())

    async def _again(self) -> None:
        error = await self._register_once(self._loop.time() + self._settings.now.broker_session_timeout_ms / 1000)
        self._is_beating = False
        if self._is_closed:
            return
        if error is not None and error.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            self._fail(f"another broker is registered with the id {self._registration.broker_id}")
        elif error is not None and error.code not in TRANSIENT:
            self._fail(f"the cluster refuses this broker: {error.message}")
        else:
            self._on_registered_again()
            self._beat_in(RETRY_S)

    # -- stop -------------------------------------------------------------------------------------------------------

    async def take_leave(self) -> None:
        """Controlled shutdown: returns when other brokers lead what this broker led, or after a timeout."""
        if not self._unfenced.done() or self._is_closed:
            return
        self._wants_to_go = True
        self._beat_now()
        begun = self._heard_at = self._loop.time()
        while not self._may_go.done():
            seconds = min(begun + SHUTDOWN_S, self._heard_at + SILENCE_S) - self._loop.time()
            if seconds <= 0:
                logger.warning("the controller does not let this broker go: stopping all the same")
                return
            await asyncio.wait([self._may_go], timeout=seconds)

    def close(self) -> None:
        self._is_closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._channel.close()


def _into(future: asyncio.Future[BrokerRegistrationResponse | PeerFailed]) -> Done:
    def done(outcome: BrokerRegistrationResponse | PeerFailed) -> None:
        if not future.done():
            future.set_result(outcome)

    return done


def _resolve(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def _advice(code: ErrorCode) -> str:
    if code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        return " The controllers need the principal of this broker in super.users."
    if code is ErrorCode.UNSUPPORTED_VERSION:
        return ". Lower the feature (kafka-features.sh downgrade), or start a version that serves it"
    return ""
