"""What the active controller remembers of brokers from one heartbeat to the next.

None of it is written down: a controller that takes over starts every broker with a whole session, and the first
heartbeats tell it the rest. Time comes from outside, in milliseconds of any clock that only goes forward.

**Sessions.** A broker that is not heard of for `broker.session.timeout.ms` is overdue, and whoever watches fences it.
That time-out is long, so that a busy machine is not mistaken for a dead one. A lost connection proves nothing: networks
reset connections of brokers that live. It makes the broker a suspect, as a controller that has just taken over has
suspects in all it has not heard of, and somebody looks after suspects. What they find may end a session early:

    found                                                         what follows
    ------------------------------------------------------------  ------------------------------------------------------
    the process is gone (`process_gone`): a proof                 fenced at once, and its successor may register at once
    connections refused for `refused_ms`, and nothing else        fenced, by clean elections only; a second process with
    (`refused`): a presumption                                    its id waits for the end of the session
    anything else                                                 nothing: the session decides

**Unclean elections** lose records for good, and a broker that has died may be back in a moment. So they are not held
where a replica is `awaited`: until the session would have ended, however early its broker was fenced, or registered
anew before it was.

**Controlled shutdown.** A broker may stop when the others know that it no longer leads: when every active broker has
replayed the metadata up to the last of the changes that took its leaderships away.
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
    # Whether the connection was lost that the broker was last heard of on, or none is known yet.
    is_suspect: bool = False
    # Since when all attempts to connect to it were refused.
    refused_since_ms: int | None = None
    # When it was found to be dead, or was presumed to be, and which of the two.
    dead_ms: int | None = None
    is_proven: bool = False
    # Whether it was told that the session is over; from `last_ms` on, then.
    is_over: bool = False


class Heartbeats:
    def __init__(self, session_timeout_ms: int, refused_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._refused_ms = refused_ms
        self._contacts: dict[int, _Contact] = {}
        # Brokers that were fenced on a presumption, and when the sessions end that they would have had.
        self._presumed_dead: dict[int, int] = {}
        # Brokers whose replicas are waited for, and until when.
        self._awaited: dict[int, int] = {}
        # How far each broker has replayed the metadata, as far as is known.
        self._replayed: dict[int, int] = {}
        # The offset that all others must have reached before a broker in controlled shutdown may stop.
        self._shutdown_offsets: dict[int, int] = {}
        # Brokers that are unfenced and have not got all that waits for them yet.
        self.returning: set[int] = set()

    def activate(self, brokers: Mapping[int, BrokerRegistration], now_ms: int) -> None:
        """This controller has just become the active one: what another one knew is unknown here."""
        self._contacts = {
            broker.broker_id: _Contact(broker.epoch, now_ms, is_suspect=True)
            for broker in brokers.values()
            if not broker.fenced
        }
        self._presumed_dead = {}
        # How long ago the others were fenced nobody knows.
        until_ms = now_ms + self._session_timeout_ms
        self._awaited = {broker.broker_id: until_ms for broker in brokers.values() if broker.fenced}
        self._replayed = {}
        self._shutdown_offsets = {}
        self.returning = set()

    # -- sessions ------------------------------------------------------------------------------------------------------

    def heartbeat(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        """The registered incarnation of a broker was heard of."""
        self._contacts[broker_id] = _Contact(broker_epoch, now_ms)
        self._presumed_dead.pop(broker_id, None)
        self._replayed[broker_id] = metadata_offset

    def contact_lost(self, broker_id: int, broker_epoch: int) -> None:
        """The connection was lost that this incarnation of a broker sent its heartbeats on."""
        contact = self._contact(BrokerSession(broker_id, broker_epoch))
        if contact is not None:
            contact.is_suspect = True

    @property
    def suspects(self) -> list[BrokerSession]:
        """Those to look after."""
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
        """Nobody listens where the broker did."""
        contact = self._contact(session)
        if contact is None or not self.is_suspect(session):
            return
        if contact.refused_since_ms is None:
            contact.refused_since_ms = now_ms
        elif now_ms - contact.refused_since_ms >= self._refused_ms:
            contact.dead_ms = now_ms

    def not_refused(self, session: BrokerSession) -> None:
        """An attempt to connect to it came to something else, were it nothing at all."""
        contact = self._contact(session)
        if contact is not None:
            contact.refused_since_ms = None

    def _contact(self, session: BrokerSession) -> _Contact | None:
        """Of this very incarnation, while its session lasts."""
        contact = self._contacts.get(session.broker_id)
        if contact is None or contact.broker_epoch != session.broker_epoch or contact.is_over:
            return None
        return contact

    def session_alive(self, broker_id: int, now_ms: int) -> bool:
        """Whether a broker may be running, so that another with the same id must be a mistake."""
        contact = self._contacts.get(broker_id)
        if contact is not None and not contact.is_over:
            return not contact.is_proven and now_ms < self._session_end_ms(contact)
        return now_ms < self._presumed_dead.get(broker_id, now_ms)

    def registers(self, broker_id: int) -> None:
        """A broker that was not fenced is about to be registered: it restarted before anybody noticed."""
        contact = self._contacts.get(broker_id)
        if contact is not None and not contact.is_over:
            self._awaited[broker_id] = self._session_end_ms(contact)

    def forget(self, broker_id: int) -> None:
        """Its registration is gone, or is another's from now on."""
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
        """When the next broker is overdue, or no longer awaited, if nothing is heard until then."""
        deadlines = [*map(self._deadline_ms, self._contacts.values()), *self._awaited.values()]
        return min(deadlines, default=None)

    def overdue(self, now_ms: int) -> list[BrokerSession]:
        """The sessions that have ended, the longest overdue first.

        Each is told again after another session's time, should the broker not have been fenced by then.
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
        """Brokers that are not to be replaced by an unclean election yet, as of the last `give_up_awaited`."""
        return self._awaited.keys()

    def give_up_awaited(self, now_ms: int) -> bool:
        """Whether there are some whose time is over."""
        over = [broker_id for broker_id, until_ms in self._awaited.items() if until_ms <= now_ms]
        for broker_id in over:
            del self._awaited[broker_id]
        return bool(over)

    def fenced(self, broker_id: int) -> None:
        """It is not watched any more, until it is heard of."""
        self._contacts.pop(broker_id, None)

    # -- controlled shutdown -------------------------------------------------------------------------------------------

    def shutting_down(self, broker_id: int, offset: int) -> None:
        """The leaderships of a broker are taken away by records up to `offset`."""
        self._shutdown_offsets[broker_id] = offset

    def is_shutting_down(self, broker_id: int) -> bool:
        return broker_id in self._shutdown_offsets

    def may_stop(self, broker_id: int, others: Iterable[int]) -> bool:
        """Whether `others`, the active brokers, know that this one no longer leads."""
        offset = self._shutdown_offsets.get(broker_id)
        return offset is not None and all(self._replayed.get(other, -1) >= offset for other in others)
