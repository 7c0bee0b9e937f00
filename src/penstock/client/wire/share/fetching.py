"""The share sessions of a member with the leaders of its partitions: records in, acknowledgements out.

Each leader has at most one request under way. A fetch takes along what was acknowledged since the last one. If a leader
moves, dies or forgets the session, the records that were acquired there are released by the broker: what was to be said
about them is void, and they are delivered again, to this member or another.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from penstock.client.errors import ClientError, UnknownTopic, raise_for
from penstock.client.wire.leaders import STALE, Leaders
from penstock.client.wire.share.acknowledgements import Acknowledgements, Place, Range, Verdict, count
from penstock.client.wire.share.session import ShareSession
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ids import TopicPartition
from penstock.protocol.messages import share_fetch
from penstock.protocol.messages.share_acknowledge import ShareAcknowledgeResponse
from penstock.protocol.messages.share_fetch import ShareFetchResponse
from penstock.records.batch import check_crc, iterate_headers
from penstock.records.record import Record, iterate_records

MAX_WAIT_MS: Final = 500
MAX_BYTES: Final = 50 * 1024 * 1024
_BATCH_BYTES_MAX: Final = 128 * 1024 * 1024
_RETRY_S: Final = 0.1


class Acquired(NamedTuple):
    """A record that this member has for the duration of its lock."""

    place: Place
    topic: str
    record: Record
    delivery_count: int


class Refusal(NamedTuple):
    """Acknowledgements that had no effect: the records are delivered again."""

    place: Place
    ranges: list[Range]
    code: ErrorCode


@dataclass(slots=True, eq=False)
class _Leader:
    session: ShareSession
    acknowledgements: Acknowledgements = field(default_factory=Acknowledgements)
    # What the request under way acknowledges.
    sent: dict[Place, list[Range]] = field(default_factory=dict)
    is_busy: bool = False


class ShareFetching:
    def __init__(
        self,
        bootstrap: str,
        group: str,
        member_id: str,
        *,
        timeout: float,
        max_records: int,
        acquire_mode: int,
        options: Mapping[str, str] | None = None,
    ) -> None:
        self._leaders = Leaders(bootstrap, timeout=timeout, options=options)
        self._group = group
        self._member_id = member_id
        self._timeout = timeout
        self._max_records = max_records
        self._acquire_mode = acquire_mode
        self._brokers: dict[int, _Leader] = {}
        # The session that each acquired record belongs to.
        self._acquired_from: dict[tuple[Place, int], tuple[int, int]] = {}
        self._generation = 0
        self._generations: dict[int, int] = {}
        self._retry_at = 0.0
        self.refusals: list[Refusal] = []
        # For how long records are locked, as the brokers say; 0 if they have not said yet.
        self.lock_ms = 0

    def find(self, topics: Sequence[str]) -> None:
        """Query the topics; UnknownTopic if one does not exist."""
        self._leaders.find(topics)

    # -- acknowledging -------------------------------------------------------------------------------------------------

    def acknowledge(self, place: Place, offset: int, verdict: Verdict) -> None:
        """Say what becomes of an acquired record, with the next request to its leader."""
        broker_id, generation = self._acquired_from.get((place, offset), (-1, -1))
        if verdict is not Verdict.RENEW:
            self._acquired_from.pop((place, offset), None)
        if self._generations.get(broker_id) == generation:
            self._brokers[broker_id].acknowledgements.add(place, offset, verdict)
        else:
            self._refused({place: [Range(offset, offset, verdict)]}, ErrorCode.INVALID_RECORD_STATE)

    @property
    def has_pending(self) -> bool:
        return any(leader.acknowledgements or leader.sent for leader in self._brokers.values())

    def send_acknowledgements(self) -> None:
        """Send what was acknowledged, without waiting, to the leaders that have no request under way."""
        for broker_id, leader in list(self._brokers.items()):
            if leader.acknowledgements and not leader.is_busy:
                self._send_acknowledge(broker_id, leader)

    def flush(self, timeout: float) -> list[Acquired]:
        """Send what was acknowledged, and wait for the answers. Records may come meanwhile."""
        found: list[Acquired] = []
        deadline = time.monotonic() + timeout
        while self.has_pending and time.monotonic() < deadline:
            self.send_acknowledgements()
            found += self._wait(min(deadline - time.monotonic(), _RETRY_S))
        return found

    def renew(self, place: Place, offset: int, timeout: float) -> list[Acquired]:
        """Lock a record for another period; what is said about other records goes first."""
        found = self.flush(timeout)
        self.acknowledge(place, offset, Verdict.RENEW)
        return found + self.flush(timeout)

    def _send_acknowledge(self, broker_id: int, leader: _Leader, *, closes: bool = False) -> None:
        ranges = leader.acknowledgements.take()
        renews = any(each.verdict is Verdict.RENEW for place in ranges for each in ranges[place])
        self._send(broker_id, leader, leader.session.acknowledge(ranges, renews=renews, closes=closes), ranges)

    # -- fetching ------------------------------------------------------------------------------------------------------

    def fetch(self, assignment: frozenset[Place], seconds: float) -> list[Acquired]:
        """Return the first records that come, or nothing after `seconds`."""
        deadline = time.monotonic() + seconds
        while True:
            self._send_fetches(assignment)
            found = self._wait(max(0.0, min(deadline - time.monotonic(), _RETRY_S)))
            if found or time.monotonic() >= deadline:
                return found

    def _send_fetches(self, assignment: frozenset[Place]) -> None:
        if time.monotonic() < self._retry_at:
            return
        by_leader: dict[int, set[Place]] = {broker_id: set() for broker_id in self._brokers}
        for place in assignment:
            name = self._leaders.names.get(place.topic_id)
            leader = None if name is None else self._leaders.leader_of(TopicPartition(name, place.partition))
            if leader is None:
                self._refresh()
                return
            by_leader.setdefault(leader.broker_id, set()).add(place)
        for broker_id, places in by_leader.items():
            known = self._brokers.get(broker_id)
            if known is None:
                known = self._brokers[broker_id] = _Leader(ShareSession(self._group, self._member_id))
                self._begin(broker_id)
            if not known.is_busy and (places or known.acknowledgements):
                self._send_fetch(broker_id, known, places)

    def _send_fetch(self, broker_id: int, leader: _Leader, places: set[Place]) -> None:
        ranges = leader.acknowledgements.take()
        if ranges and not leader.session.is_open:
            self._refused(ranges, ErrorCode.SHARE_SESSION_NOT_FOUND)
            ranges = {}
        request = leader.session.fetch(
            places,
            ranges,
            max_wait_ms=MAX_WAIT_MS,
            max_bytes=MAX_BYTES,
            max_records=self._max_records,
            acquire_mode=self._acquire_mode,
        )
        self._send(broker_id, leader, request, ranges)

    def _send(self, broker_id: int, leader: _Leader, request: object, ranges: dict[Place, list[Range]]) -> None:
        leader.sent = ranges
        leader.is_busy = True
        try:
            self._leaders.channel(broker_id).send(request, None)  # type: ignore[arg-type]
        except ClientError:
            self._lost(broker_id)
            self._refresh()

    def _wait(self, seconds: float) -> list[Acquired]:
        found: list[Acquired] = []
        started = time.monotonic()
        events = self._leaders.wait(seconds)
        for event in events:
            leader = self._brokers[event.broker_id]
            if event.error is not None:
                self._lost(event.broker_id)
                self._refresh()
            for answer in event.answers:
                leader.is_busy = False
                found += self._answered(event.broker_id, leader, answer.response)
        # With nothing to wait for, the poller returns at once.
        if not events and not any(leader.is_busy for leader in self._brokers.values()):
            time.sleep(max(0.0, seconds - (time.monotonic() - started)))
        return found

    def _answered(
        self, broker_id: int, leader: _Leader, response: ShareFetchResponse | ShareAcknowledgeResponse
    ) -> list[Acquired]:
        sent, leader.sent = leader.sent, {}
        self.lock_ms = response.acquisition_lock_timeout_ms or self.lock_ms
        leader.session.answered(response.error_code)
        if response.error_code:
            self._begin(broker_id)
            self._refused(sent, ErrorCode(response.error_code))
            if not ShareSession.is_lost(response.error_code):
                self._retry_at = time.monotonic() + _RETRY_S
                if response.error_code != ErrorCode.SHARE_SESSION_LIMIT_REACHED:
                    raise_for(response.error_code, response.error_message, f"group {self._group!r}")
            return []
        if isinstance(response, ShareAcknowledgeResponse):
            for acknowledged in response.responses:
                for each in acknowledged.partitions:
                    self._checked(Place(acknowledged.topic_id, each.partition_index), each.error_code, sent)
            return []
        return list(self._records(broker_id, leader, response, sent))

    def _checked(self, place: Place, code: int, sent: dict[Place, list[Range]]) -> None:
        if code and place in sent:
            self._refused({place: sent[place]}, ErrorCode(code))

    def _records(
        self, broker_id: int, leader: _Leader, response: ShareFetchResponse, sent: dict[Place, list[Range]]
    ) -> Iterator[Acquired]:
        generation = self._generations[broker_id]
        for topic in response.responses:
            name = self._leaders.names.get(topic.topic_id, "")
            for part in topic.partitions:
                place = Place(topic.topic_id, part.partition_index)
                self._checked(place, part.acknowledge_error_code, sent)
                if part.error_code:
                    if part.error_code not in STALE:
                        raise_for(part.error_code, part.error_message, f"{name}-{part.partition_index}")
                    self._refresh()
                    continue
                for offset, delivery_count, record in _acquired(part):
                    self._acquired_from[place, offset] = (broker_id, generation)
                    if record is None:
                        self.acknowledge(place, offset, Verdict.GAP)
                    else:
                        yield Acquired(place, name, record, delivery_count)

    # -- failures ------------------------------------------------------------------------------------------------------

    def _begin(self, broker_id: int) -> None:
        """Another session with a broker begins: what was acquired in the last one is void."""
        self._generation += 1
        self._generations[broker_id] = self._generation

    def _lost(self, broker_id: int) -> None:
        """The connection is gone, and the session with it."""
        self._leaders.drop(broker_id)
        leader = self._brokers[broker_id]
        leader.session.reset()
        leader.is_busy = False
        for ranges in (leader.sent, leader.acknowledgements.take()):
            self._refused(ranges, ErrorCode.NETWORK_EXCEPTION)
        leader.sent = {}
        self._begin(broker_id)

    def _refused(self, ranges: Mapping[Place, list[Range]], code: ErrorCode) -> None:
        self.refusals += [Refusal(place, each, code) for place, each in ranges.items() if each]

    def take_refusals(self) -> tuple[int, str]:
        """Return how many acknowledgements had no effect since the last call, and why."""
        refusals, self.refusals = self.refusals, []
        reasons = sorted({refusal.code.name for refusal in refusals})
        return sum(count(refusal.ranges) for refusal in refusals), ", ".join(reasons)

    def _refresh(self) -> None:
        self._retry_at = time.monotonic() + _RETRY_S
        names = list(self._leaders.topics)
        if self._leaders.refresh() is not None:
            # A topic may have been deleted, and perhaps created again.
            self._leaders.forget(names)
            for name in names:
                try:
                    self._leaders.find([name], patience=0.0)
                except (UnknownTopic, ClientError, KafkaError):
                    continue

    # -- the end -------------------------------------------------------------------------------------------------------

    def close(self) -> None:
        """End all sessions: what was acknowledged is sent, everything else is released."""
        deadline = time.monotonic() + self._timeout
        try:
            for broker_id, leader in list(self._brokers.items()):
                while leader.is_busy and time.monotonic() < deadline:
                    self._wait(_RETRY_S)
                if leader.session.is_open and not leader.is_busy:
                    self._send_acknowledge(broker_id, leader, closes=True)
            while any(leader.is_busy for leader in self._brokers.values()) and time.monotonic() < deadline:
                self._wait(_RETRY_S)
        finally:
            self._leaders.close()


def _acquired(part: share_fetch.PartitionResult) -> Iterator[tuple[int, int, Record | None]]:
    """Return the acquired offsets with their delivery counts and records; None where there is no record."""
    found: dict[int, Record] = {}
    data = part.records if isinstance(part.records, memoryview) else memoryview(b"")
    wanted = part.acquired_records
    for position, header in iterate_headers(data):
        if header.is_control or not any(
            each.first_offset <= header.last_offset and header.base_offset <= each.last_offset for each in wanted
        ):
            continue
        check_crc(data, position, header)
        for record in iterate_records(data, position, header, max_size=_BATCH_BYTES_MAX):
            found[record.offset] = record
    for each in wanted:
        for offset in range(each.first_offset, each.last_offset + 1):
            yield offset, each.delivery_count, found.get(offset)
