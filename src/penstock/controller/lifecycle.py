"""The lifecycle of a broker: the state transitions that its heartbeats cause.

    current state          the broker wants                          next state
    ---------------------  ----------------------------------------  ---------------------
    FENCED                 to shut down                              SHUTDOWN_NOW
    FENCED                 to serve, and has caught up               UNFENCED
    UNFENCED               to be fenced                              FENCED
    UNFENCED               to be fenced and to shut down             SHUTDOWN_NOW
    UNFENCED               to shut down, leading nothing             SHUTDOWN_NOW
    UNFENCED               to shut down, leading something           CONTROLLED_SHUTDOWN
    CONTROLLED_SHUTDOWN    anything, once the others know            SHUTDOWN_NOW

Anything that is not in the table leaves the state unchanged. A broker has caught up when it has replayed its own
registration. SHUTDOWN_NOW fences the broker and tells it to stop. In CONTROLLED_SHUTDOWN it continues to answer, and to
follow, while others take over, so that clients always find a leader.
"""

from __future__ import annotations

from collections.abc import Collection
from enum import Enum

from penstock.controller.brokers import BrokerHandlers
from penstock.controller.heartbeats import Heartbeats
from penstock.controller.leaders import batch_of, when_directories_lost, when_gone
from penstock.controller.result import Result, Unfinished
from penstock.controller.view import ClusterView
from penstock.metadata.cluster import BrokerRegistration
from penstock.metadata.features import METADATA_4_3_IV0
from penstock.model.ids import Uuid
from penstock.protocol.declaration import Message
from penstock.protocol.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from penstock.protocol.messages.metadata_records import BrokerRegistrationChangeRecord

_IN_CONTROLLED_SHUTDOWN = 1


class State(Enum):
    FENCED = "fenced"
    UNFENCED = "unfenced"
    CONTROLLED_SHUTDOWN = "controlled shutdown"
    SHUTDOWN_NOW = "shutdown now"


def state_of(broker: BrokerRegistration) -> State:
    if broker.fenced:
        return State.FENCED
    return State.CONTROLLED_SHUTDOWN if broker.in_controlled_shutdown else State.UNFENCED


def next_state(
    state: State, *, want_fence: bool, want_shut_down: bool, caught_up: bool, leads: bool, others_know: bool
) -> State:
    """Look up the transition in the table above."""
    if state is State.FENCED:
        if want_shut_down:
            return State.SHUTDOWN_NOW
        return State.UNFENCED if caught_up and not want_fence else State.FENCED
    if state is State.UNFENCED:
        if want_shut_down and (want_fence or not leads):
            return State.SHUTDOWN_NOW
        if want_fence:
            return State.FENCED
        return State.CONTROLLED_SHUTDOWN if want_shut_down else State.UNFENCED
    return State.SHUTDOWN_NOW if others_know and not leads else State.CONTROLLED_SHUTDOWN


class LifecycleHandlers:
    """The handler of BrokerHeartbeat, over one image and the heartbeat state."""

    def __init__(self, view: ClusterView, brokers: BrokerHandlers, heartbeats: Heartbeats) -> None:
        self._view = view
        self._brokers = brokers
        self._heartbeats = heartbeats

    def broker_heartbeat(
        self, request: BrokerHeartbeatRequest, registered_at: int, now_ms: int
    ) -> Result[BrokerHeartbeatResponse]:
        """`registered_at`: an offset at which the broker's registration has been replayed."""
        broker_id, offset = request.broker_id, request.current_metadata_offset
        broker = self._brokers.registered(broker_id, request.broker_epoch)
        self._heartbeats.heartbeat(broker_id, request.broker_epoch, offset, now_ms)
        lost = {*request.offline_log_dirs} & {*broker.directories}
        nothing_left = bool(lost) and len(lost) == len(broker.directories)
        if lost and not nothing_left:
            return self._directories_lost(broker, lost)
        state = state_of(broker)
        caught_up = offset >= registered_at
        following = next_state(
            state,
            want_fence=request.want_fence or nothing_left,
            want_shut_down=request.want_shut_down,
            caught_up=caught_up,
            leads=self._view.index.leads(broker_id) > 0,
            others_know=state is State.CONTROLLED_SHUTDOWN and self._others_know(broker_id),
        )
        done: Result[None] = Result([], None)
        if following is State.CONTROLLED_SHUTDOWN:
            done = self._hand_over(broker)
        elif following is State.UNFENCED and (state is State.FENCED or broker_id in self._heartbeats.returning):
            done = self._bring_back(broker)
        elif following in (State.FENCED, State.SHUTDOWN_NOW):
            done = self._brokers.fence_broker(broker_id, broker.epoch)
        if isinstance(done, Unfinished):
            return Unfinished(done.records)
        response = BrokerHeartbeatResponse(
            is_caught_up=caught_up,
            is_fenced=following in (State.FENCED, State.SHUTDOWN_NOW),
            should_shut_down=following is State.SHUTDOWN_NOW,
        )
        return Result([*done.records, *self._cordoned(broker, request.cordoned_log_dirs)], response)

    def _others_know(self, broker_id: int) -> bool:
        brokers = self._view.image.brokers.values()
        return self._heartbeats.may_stop(broker_id, [broker.broker_id for broker in brokers if broker.active])

    def _bring_back(self, broker: BrokerRegistration) -> Result[None]:
        done = self._brokers.unfence_broker(broker.broker_id, broker.epoch)
        if isinstance(done, Unfinished):
            self._heartbeats.returning.add(broker.broker_id)
        else:
            self._heartbeats.returning.discard(broker.broker_id)
        return done

    def _hand_over(self, broker: BrokerRegistration) -> Result[None]:
        """Take leaderships and in-sync memberships from a broker that is about to stop."""
        records, is_last = batch_of(when_gone(self._view, broker.broker_id))
        if not broker.in_controlled_shutdown:
            # First, so that nothing is assigned to it any more.
            records.insert(
                0,
                BrokerRegistrationChangeRecord(
                    broker_id=broker.broker_id,
                    broker_epoch=broker.epoch,
                    in_controlled_shutdown=_IN_CONTROLLED_SHUTDOWN,
                ),
            )
        if records or not self._heartbeats.is_shutting_down(broker.broker_id):
            self._heartbeats.shutting_down(broker.broker_id, self._view.image.offset + len(records))
        return Result(records, None) if is_last else Unfinished(records)

    def _directories_lost(self, broker: BrokerRegistration, lost: Collection[Uuid]) -> Unfinished:
        """Remove replicas on a broken disk, though the broker lives. Then the heartbeat is processed again."""
        records, is_last = batch_of(when_directories_lost(self._view, broker.broker_id, lost))
        if is_last:
            remaining = [directory for directory in broker.directories if directory not in lost]
            records.append(
                BrokerRegistrationChangeRecord(
                    broker_id=broker.broker_id, broker_epoch=broker.epoch, log_dirs=remaining
                )
            )
        return Unfinished(records)

    def _cordoned(self, broker: BrokerRegistration, directories: Collection[Uuid] | None) -> list[Message]:
        """`directories` is None until the broker knows them; metadata before 4.3 has no record for it."""
        if directories is None or self._view.image.metadata_version < METADATA_4_3_IV0:
            return []
        if set(directories) == set(broker.cordoned_directories or ()):
            return []
        return [
            BrokerRegistrationChangeRecord(
                broker_id=broker.broker_id, broker_epoch=broker.epoch, cordoned_log_dirs=list(directories)
            )
        ]
