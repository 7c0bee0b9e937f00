"""Broker sessions: the state that the active controller keeps between heartbeats.

None of it is durable: a controller that takes over gives every broker a full session, and the first heartbeats supply
the rest. Time comes from outside, in milliseconds of any monotonic clock.

**Sessions.** A broker without a heartbeat for `broker.session.timeout.ms` is overdue, and the watcher fences it. That
timeout is long, so that a busy machine is not mistaken for a dead one. Only a dead process proves a death. A lost
connection proves nothing: networks reset and refuse connections of live brokers. It only makes the broker a suspect;
for a controller that has just taken over, every broker that it has not heard from is a suspect. The watcher examines
suspects (nodes of one machine see each other's processes, see `io/neighbours`; a broker on another machine may refuse
connections, `penstock.broker.refused.ms`), and may end a session early:

    finding                                                       result
    ------------------------------------------------------------  ------------------------------------------------------
    the process is gone (`process_gone`): a proof                 fenced at once, and its successor may register at once
    connections refused for `refused_ms`, and nothing else        fenced, by clean elections only; a second process with
    (`refused`): a presumption                                    its id waits for the end of the session
    anything else                                                 nothing: the session decides

**Unclean elections** lose records for good, and a dead broker may return in a moment. So they are not held while a
replica is `awaited`: until the session would have ended, however early its broker was fenced, or registered again
before it was fenced.

**Controlled shutdown.** A broker may stop when the others know that it no longer leads: when every active broker has
replayed the metadata up to the last of the changes that moved its leaderships.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from penstock.metadata.cluster import BrokerRegistration


class BrokerSession(NamedTuple):
    broker_id: int
    broker_epoch: int


@dataclass(slots=True)
class _Contact:
    broker_epoch: int
    last_ms: int
    # Whether the connection of the broker's last heartbeat was lost, or none is known yet.
    is_suspect: bool = False
    # The time since which all attempts to connect were refused.
    refused_since_ms: int | None = None
    # When the broker was found or presumed dead, and which of the two.
    dead_ms: int | None = None
    is_proven: bool = False
    # Whether the end of the session was reported; from `last_ms` on, then.
    is_over: bool = False


class Heartbeats:
    def __init__(self, session_timeout_ms: int, refused_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._refused_ms = refused_ms
        self._contacts: dict[int, _Contact] = {}
        # Brokers that were fenced on a presumption, with the end of the sessions that they would have had.
        self._presumed_dead: dict[int, int] = {}
        # Brokers whose replicas are awaited, and until when.
        self._awaited: dict[int, int] = {}
        # The metadata offset that each broker has replayed, if known.
        self._replayed: dict[int, int] = {}
        # The offset that all others must have replayed before a broker in controlled shutdown may stop.
        self._shutdown_offsets: dict[int, int] = {}
        # Unfenced brokers that have not received all their leaderships yet.
        self.returning: set[int] = set()

    def activate(self, brokers: Mapping[int, BrokerRegistration], now_ms: int) -> None:
        """This controller has just become active: it does not know the state of its predecessor."""
        self._contacts = {
            broker.broker_id: _Contact(broker.epoch, now_ms, is_suspect=True)
            for broker in brokers.values()
            if not broker.fenced
        }
        self._presumed_dead = {}
        # It is unknown when the others were fenced.
        until_ms = now_ms + self._session_timeout_ms
        self._awaited = {broker.broker_id: until_ms for broker in brokers.values() if broker.fenced}
        self._replayed = {}
        self._shutdown_offsets = {}
        self.returning = set()

    # -- sessions ------------------------------------------------------------------------------------------------------

    def heartbeat(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        """The registered incarnation of a broker sent a heartbeat."""
        self._contacts[broker_id] = _Contact(broker_epoch, now_ms)
        self._presumed_dead.pop(broker_id, None)
        self._replayed[broker_id] = metadata_offset

    def contact_lost(self, broker_id: int, broker_epoch: int) -> None:
        """The connection that this incarnation used for its heartbeats was lost."""
        contact = self._contact(BrokerSession(broker_id, broker_epoch))
        if contact is not None:
            contact.is_suspect = True

    @property
    def suspects(self) -> list[BrokerSession]:
        """The sessions that the watcher must examine."""
        sessions = [BrokerSession(broker_id, contact.broker_epoch) for broker_id, contact in self._contacts.items()]
        return [session for session in sessions if self.is_suspect(session)]

    def is_suspect(self, session: BrokerSession) -> bool:
        contact = self._contact(session)
        return contact is not None and contact.is_suspect and contact.dead_ms is None

    def process_gone(self, session: BrokerSession, now_ms: int) -> None:
        contact = self._contact(session)
        if contact is not None and self.is_suspect(session):
            contact.dead_ms, contact.is_proven = now_ms, True

    def refused(self, session: BrokerSession, now_ms: int) -> None:
        """A connection to the broker was refused."""
        contact = self._contact(session)
        if contact is None or not self.is_suspect(session):
            return
        if contact.refused_since_ms is None:
            contact.refused_since_ms = now_ms
        elif now_ms - contact.refused_since_ms >= self._refused_ms:
            contact.dead_ms = now_ms

    def not_refused(self, session: BrokerSession) -> None:
        """An attempt to connect had any other outcome, even a timeout."""
        contact = self._contact(session)
        if contact is not None:
            contact.refused_since_ms = None

    def _contact(self, session: BrokerSession) -> _Contact | None:
        """The contact of exactly this incarnation, while its session lasts."""
        contact = self._contacts.get(session.broker_id)
        if contact is None or contact.broker_epoch != session.broker_epoch or contact.is_over:
            return None
        return contact

    def session_alive(self, broker_id: int, now_ms: int) -> bool:
        """Whether a broker may be running, so that another one with the same id must be a mistake."""
        contact = self._contacts.get(broker_id)
        if contact is not None and not contact.is_over:
            return not contact.is_proven and now_ms < self._session_end_ms(contact)
        return now_ms < self._presumed_dead.get(broker_id, now_ms)

    def registers(self, broker_id: int) -> None:
        """A broker that was not fenced is about to be registered: it restarted before its session ended."""
        contact = self._contacts.get(broker_id)
        if contact is not None and not contact.is_over:
            self._awaited[broker_id] = self._session_end_ms(contact)

    def forget(self, broker_id: int) -> None:
        """Remove a broker whose registration is gone or was replaced."""
        self._contacts.pop(broker_id, None)
        self._presumed_dead.pop(broker_id, None)
        self._replayed.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)
        self.returning.discard(broker_id)

    def _session_end_ms(self, contact: _Contact) -> int:
        return contact.last_ms + self._session_timeout_ms

    def _deadline_ms(self, contact: _Contact) -> int:
        end_ms = self._session_end_ms(contact)
        return end_ms if contact.dead_ms is None else min(end_ms, contact.dead_ms)

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next broker becomes overdue, or is no longer awaited, if there are no heartbeats until then."""
        deadlines = [*map(self._deadline_ms, self._contacts.values()), *self._awaited.values()]
        return min(deadlines, default=None)

    def overdue(self, now_ms: int) -> list[BrokerSession]:
        """The sessions that have ended, the longest overdue first.

        Each is reported again after another session timeout, if the broker has not been fenced by then.
        """
        ended = []
        for broker_id, contact in self._contacts.items():
            deadline_ms, end_ms = self._deadline_ms(contact), self._session_end_ms(contact)
            if deadline_ms <= now_ms:
                ended.append((deadline_ms, BrokerSession(broker_id, contact.broker_epoch)))
                if now_ms < end_ms and not contact.is_over:
                    self._awaited[broker_id] = end_ms
                    if not contact.is_proven:
                        self._presumed_dead[broker_id] = end_ms
                contact.last_ms, contact.dead_ms, contact.is_over = now_ms, None, True
        return [session for _, session in sorted(ended)]

    @property
    def awaited(self) -> Collection[int]:
        """Brokers that an unclean election must not replace yet, as of the last `give_up_awaited`."""
        return self._awaited.keys()

    def give_up_awaited(self, now_ms: int) -> bool:
        """Drop awaited brokers whose time is over; returns whether there were any."""
        over = [broker_id for broker_id, until_ms in self._awaited.items() if until_ms <= now_ms]
        for broker_id in over:
            del self._awaited[broker_id]
        return bool(over)

    def fenced(self, broker_id: int) -> None:
        """Stop watching a broker until its next heartbeat."""
        self._contacts.pop(broker_id, None)

    # -- controlled shutdown -------------------------------------------------------------------------------------------

    def shutting_down(self, broker_id: int, offset: int) -> None:
        """Records up to `offset` move the leaderships of a broker."""
        self._shutdown_offsets[broker_id] = offset

    def is_shutting_down(self, broker_id: int) -> bool:
        return broker_id in self._shutdown_offsets

    def may_stop(self, broker_id: int, others: Iterable[int]) -> bool:
        """Whether `others`, the active brokers, know that this one no longer leads."""
        offset = self._shutdown_offsets.get(broker_id)
        return offset is not None and all(self._replayed.get(other, -1) >= offset for other in others)
