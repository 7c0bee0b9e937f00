"""What the active controller remembers of brokers from one heartbeat to the next.

None of it is written down: a controller that takes over starts every broker with a whole session, and the first
heartbeats tell it the rest. Time comes from outside, in milliseconds of any clock that only goes forward.

**Sessions.** A broker that is not heard of for `broker.session.timeout.ms` is overdue, and whoever watches fences it.
That time-out is long, so that a busy machine is not mistaken for a dead one. A process that dies does not need it: its
connection is reset at once, which `contact_lost` reports. The broker then has only a short grace to be heard of again,
enough to reconnect after a hiccup of the network. A controller that has just taken over has no connections to lose; it
has to ask after those it has not heard of (`unheard`).

**Controlled shutdown.** A broker may stop when the others know that it no longer leads: when every active broker has
replayed the metadata up to the last of the changes that took its leaderships away.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    # When the connection was lost that the broker was last heard of on.
    lost_ms: int | None = None
    # Whether it was told that the session is over; from `last_ms` on, then.
    is_over: bool = False


class Heartbeats:
    def __init__(self, session_timeout_ms: int, reconnect_grace_ms: int) -> None:
        self._session_timeout_ms = session_timeout_ms
        self._reconnect_grace_ms = reconnect_grace_ms
        self._contacts: dict[int, _Contact] = {}
        # How far each broker has replayed the metadata, as far as is known.
        self._replayed: dict[int, int] = {}
        # The offset that all others must have reached before a broker in controlled shutdown may stop.
        self._shutdown_offsets: dict[int, int] = {}
        # Brokers that are unfenced and have not got all that waits for them yet.
        self.returning: set[int] = set()

    def activate(self, brokers: Mapping[int, BrokerRegistration], now_ms: int) -> None:
        """This controller has just become the active one: what another one knew is unknown here."""
        self._contacts = {
            broker.broker_id: _Contact(broker.epoch, now_ms) for broker in brokers.values() if not broker.fenced
        }
        self._replayed = {}
        self._shutdown_offsets = {}
        self.returning = set()

    # -- sessions ------------------------------------------------------------------------------------------------------

    def heartbeat(self, broker_id: int, broker_epoch: int, metadata_offset: int, now_ms: int) -> None:
        """The registered incarnation of a broker was heard of."""
        self._contacts[broker_id] = _Contact(broker_epoch, now_ms)
        self._replayed[broker_id] = metadata_offset

    @property
    def unheard(self) -> list[BrokerSession]:
        """Brokers that ought to be there, of which nothing was heard since this controller became the active one."""
        return [
            BrokerSession(broker_id, contact.broker_epoch)
            for broker_id, contact in self._contacts.items()
            if broker_id not in self._replayed and not contact.is_over
        ]

    def contact_lost(self, broker_id: int, broker_epoch: int, now_ms: int) -> None:
        """The connection was lost that this incarnation of a broker sent its heartbeats on."""
        contact = self._contacts.get(broker_id)
        if (
            contact is not None
            and contact.broker_epoch == broker_epoch
            and contact.lost_ms is None
            and not contact.is_over
        ):
            contact.lost_ms = now_ms

    def session_alive(self, broker_id: int, now_ms: int) -> bool:
        """Whether a broker is thought to be running, so that another with the same id must be a mistake."""
        contact = self._contacts.get(broker_id)
        if contact is None or contact.is_over or contact.lost_ms is not None:
            return False
        return now_ms < self._deadline_ms(contact)

    def forget(self, broker_id: int) -> None:
        """Its registration is gone, or is another's from now on."""
        self._contacts.pop(broker_id, None)
        self._replayed.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)
        self.returning.discard(broker_id)

    def _deadline_ms(self, contact: _Contact) -> int:
        deadline_ms = contact.last_ms + self._session_timeout_ms
        if contact.lost_ms is not None:
            deadline_ms = min(deadline_ms, contact.lost_ms + self._reconnect_grace_ms)
        return deadline_ms

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next broker is overdue if nothing is heard until then."""
        return min(map(self._deadline_ms, self._contacts.values()), default=None)

    def overdue(self, now_ms: int) -> list[BrokerSession]:
        """The sessions that have ended, the longest overdue first.

        Each is told again after another session's time, should the broker not have been fenced by then.
        """
        ended = []
        for broker_id, contact in self._contacts.items():
            deadline_ms = self._deadline_ms(contact)
            if deadline_ms <= now_ms:
                ended.append((deadline_ms, BrokerSession(broker_id, contact.broker_epoch)))
                contact.last_ms, contact.lost_ms, contact.is_over = now_ms, None, True
        return [session for _, session in sorted(ended)]

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
