"""What a member says about the records of a partition, collected until the next request to their leader."""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from penstock.model.ids import Uuid
from penstock.protocol.messages import share_acknowledge, share_fetch


class Verdict(IntEnum):
    """What becomes of a record, numbered as in the protocol."""

    # There is no record at this offset: it was compacted away, or it is a marker of a transaction.
    GAP = 0
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4


class Place(NamedTuple):
    """A partition of a topic."""

    topic_id: Uuid
    partition: int


class Range(NamedTuple):
    first: int
    last: int
    verdict: Verdict


class Acknowledgements:
    def __init__(self) -> None:
        self._verdicts: dict[Place, dict[int, Verdict]] = {}

    def __bool__(self) -> bool:
        return bool(self._verdicts)

    def __len__(self) -> int:
        return sum(map(len, self._verdicts.values()))

    def add(self, place: Place, offset: int, verdict: Verdict) -> None:
        self._verdicts.setdefault(place, {})[offset] = verdict

    def take(self) -> dict[Place, list[Range]]:
        """Return everything as ranges, in order, and begin anew."""
        verdicts, self._verdicts = self._verdicts, {}
        return {place: _ranges(offsets) for place, offsets in verdicts.items()}


def _ranges(verdicts: dict[int, Verdict]) -> list[Range]:
    ranges: list[Range] = []
    for offset in sorted(verdicts):
        if ranges and ranges[-1].last + 1 == offset and ranges[-1].verdict is verdicts[offset]:
            ranges[-1] = ranges[-1]._replace(last=offset)
        else:
            ranges.append(Range(offset, offset, verdicts[offset]))
    return ranges


def count(ranges: list[Range]) -> int:
    """The number of offsets."""
    return sum(each.last - each.first + 1 for each in ranges)


def fetch_batches(ranges: list[Range]) -> list[share_fetch.AcknowledgementBatch]:
    return [
        share_fetch.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[verdict])
        for first, last, verdict in ranges
    ]


def acknowledge_batches(ranges: list[Range]) -> list[share_acknowledge.AcknowledgementBatch]:
    return [
        share_acknowledge.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=[verdict])
        for first, last, verdict in ranges
    ]
