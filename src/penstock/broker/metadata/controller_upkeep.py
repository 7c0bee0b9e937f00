"""Background work of the active controller: it watches brokers, balances leaders and keeps the log moving.

All of it stops when another node takes over. The new controller starts from the metadata: every broker that is not
fenced has a full session timeout to send a heartbeat.

A broker that is found dead is fenced earlier (`suspects`): one whose heartbeat connection ended, or one that died with
the previous controller, as a node with both roles does. In-sync replicas then take over its partitions. An unclean
election waits for the end of the session, because the broker may come back. If this process itself was stopped for a
while, it could not receive heartbeats, so all sessions start again.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from penstock.broker.metadata.neighbourhood import Neighbourhood
from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metadata.registration import Registration
from penstock.broker.metadata.suspects import Suspects
from penstock.broker.net.connection import Connection
from penstock.broker.net.peers import Peers
from penstock.controller.controller import Controller
from penstock.controller.result import Result
from penstock.io.clock import Clock
from penstock.model.errors import ErrorCode, KafkaError
from penstock.protocol.messages.metadata_records import NoOpRecord
from penstock.settings.live import LiveSettings

logger = logging.getLogger("penstock.controller")

# A timer that fires this late means that this process was stopped, not the brokers.
ASLEEP_MS: Final = 1000
# Live brokers connect to a new controller within this time, mostly much earlier.
CALL_AFTER_S: Final = 1.0


class ControllerUpkeep:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        quorum: MetadataQuorum,
        peers: Peers,
        neighbourhood: Neighbourhood,
        registration: Registration,
        clock: Clock,
    ) -> None:
        """`registration`: that of the broker in this process."""
        self._settings = settings
        self._loop = loop
        self._clock = clock
        self._quorum = quorum
        self._registration = registration
        self._is_active = False
        self._timers: dict[str, asyncio.Handle] = {}
        self._sessions_at_ms = 0
        # The connection of each broker's last heartbeat.
        self._contacts: dict[int, tuple[Connection, int]] = {}
        self._offset = -1
        self._suspects = Suspects(
            node_id=registration.broker_id,
            listener=settings.static.inter_broker_listener,
            loop=loop,
            controller=quorum.controller,
            peers=peers,
            neighbourhood=neighbourhood,
            on_found=self._watch_sessions,
        )

    def now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    def controller_changed(self) -> None:
        """This node may have become the active controller, or may no longer be it."""
        active = self._quorum.is_active
        if active and not self._is_active:
            self._is_active = True
            self._begin()
        elif self._is_active and not active:
            self.close()

    def close(self) -> None:
        self._is_active = False
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._contacts.clear()
        self._suspects.close()

    def _begin(self) -> None:
        self._watch_sessions()
        self._suspects.look(CALL_AFTER_S)
        settings = self._settings.now
        if settings.auto_leader_rebalance_enable:
            self._later("balance", settings.leader_imbalance_check_interval_seconds, self._balance)
        self._later("unclean", settings.unclean_leader_election_interval_ms / 1000, self._elect_unclean)
        if settings.delegation_token_secret_key is not None:
            self._later("tokens", settings.delegation_token_expiry_check_interval_ms / 1000, self._sweep_tokens)
        if settings.metadata_max_idle_interval_ms and len(self._quorum.voters) > 1:
            self._offset = self._quorum.log_end_offset
            self._later("idle", settings.metadata_max_idle_interval_ms / 1000, self._keep_moving)

    def _later(self, name: str, seconds: float, act: object) -> None:
        former = self._timers.pop(name, None)
        if former is not None:
            former.cancel()
        assert callable(act)
        self._timers[name] = self._loop.call_later(seconds, act)

    # -- brokers ----------------------------------------------------------------------------------------------------

    def session_alive(self, broker_id: int) -> bool:
        if broker_id == self._registration.broker_id and self._registration.broker_epoch < 0:
            # The broker of this process has not registered yet: the metadata describes a process that has ended.
            return False
        return self._quorum.controller.heartbeats.session_alive(broker_id, self.now_ms())

    def heard_of(self, broker_id: int, broker_epoch: int, connection: Connection | None) -> None:
        """A heartbeat was handled. `connection` is None if the broker is in this process."""
        if not self._is_active:
            return
        if connection is not None:
            self._contacts[broker_id] = connection, broker_epoch
        if "sessions" not in self._timers:
            self._watch_sessions()

    def connection_closed(self, connection: Connection) -> None:
        for broker_id, (contact, broker_epoch) in list(self._contacts.items()):
            if contact is connection:
                del self._contacts[broker_id]
                if self._is_active:
                    heartbeats = self._quorum.controller.heartbeats
                    heartbeats.contact_lost(broker_id, broker_epoch)
                    self._suspects.look()

    def _watch_sessions(self) -> None:
        """Set a timer for the next deadline. If the deadline has moved by then, the timer is set again."""
        deadline = self._quorum.controller.heartbeats.next_deadline_ms
        timer = self._timers.get("sessions")
        if deadline is None or (timer is not None and self._sessions_at_ms <= deadline):
            return
        if timer is not None:
            timer.cancel()
        self._sessions_at_ms = deadline
        self._timers["sessions"] = self._loop.call_at(deadline / 1000, self._end_sessions, deadline)

    def _end_sessions(self, expected_ms: int) -> None:
        self._timers.pop("sessions", None)
        heartbeats = self._quorum.controller.heartbeats
        now_ms = max(self.now_ms(), expected_ms)
        if now_ms - expected_ms > ASLEEP_MS:
            logger.warning("this node did nothing for %d ms: brokers get a new session", now_ms - expected_ms)
            heartbeats.activate(self._quorum.controller.image.brokers, now_ms)
            self._suspects.look(CALL_AFTER_S)
        for session in heartbeats.overdue(now_ms):
            logger.warning("broker %d is not heard of any more and is fenced", session.broker_id)
            self._fence(session.broker_id, session.broker_epoch)
        if heartbeats.give_up_awaited(now_ms):
            self._elect_unclean()
        self._watch_sessions()

    def _fence(self, broker_id: int, broker_epoch: int) -> None:
        def fenced(outcome: KafkaError | None) -> None:
            if isinstance(outcome, KafkaError) and outcome.code not in (
                ErrorCode.NOT_CONTROLLER,
                ErrorCode.STALE_BROKER_EPOCH,
            ):
                logger.error("broker %d cannot be fenced: %s", broker_id, outcome.message)

        self._quorum.submit(lambda controller: controller.fence_broker(broker_id, broker_epoch), fenced)

    # -- periodic work ----------------------------------------------------------------------------------------------

    def _balance(self) -> None:
        def done(outcome: bool | KafkaError) -> None:
            if self._is_active:
                seconds = self._settings.now.leader_imbalance_check_interval_seconds
                self._later("balance", 0 if outcome is True else seconds, self._balance)

        self._quorum.submit(Controller.balance_leaders, done)

    def _elect_unclean(self) -> None:
        def done(outcome: bool | KafkaError) -> None:
            if self._is_active:
                seconds = self._settings.now.unclean_leader_election_interval_ms / 1000
                self._later("unclean", 0 if outcome is True else seconds, self._elect_unclean)

        self._quorum.submit(Controller.elect_unclean_leaders, done)

    def _sweep_tokens(self) -> None:
        """Remove the delegation tokens that have expired. They cannot be used to log in, whether or not they are
        removed."""
        now_ms = self._clock.now_ms()
        self._quorum.submit(lambda controller: controller.sweep_delegation_tokens(now_ms), lambda _: None)
        seconds = self._settings.now.delegation_token_expiry_check_interval_ms / 1000
        self._later("tokens", seconds, self._sweep_tokens)

    def _keep_moving(self) -> None:
        """Append to an idle log; otherwise a working quorum would look the same as a broken one."""
        quorum = self._quorum
        if quorum.log_end_offset == self._offset:
            quorum.submit(lambda _: Result([NoOpRecord()], None), lambda _: None)
        self._offset = quorum.log_end_offset
        self._later("idle", self._settings.now.metadata_max_idle_interval_ms / 1000, self._keep_moving)
