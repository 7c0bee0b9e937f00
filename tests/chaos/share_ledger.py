"""What the workers of a share group told, and the laws that it has to keep.

- Every record is handled.
- No record is handled more often than the delivery count limit allows, but for one time with each change of leader:
  that a record is acquired is not persisted.
- A record whose acceptance was confirmed is not delivered another time: no later delivery has a higher count.
- Where nothing dies, every record is handled once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping

from chaos.programs import Event, Program

Place = tuple[int, int]
"""Partition and offset."""


class ShareLedger:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.handled: Counter[Place] = Counter()
        self._accepted: dict[Place, int] = {}  # with the delivery count
        self._handled_up_to: Counter[int] = Counter()  # every offset below was handled
        self.working: set[Program] = set()
        self.counts: Counter[str] = Counter()
        self.reasons: Counter[str] = Counter()
        self.violations: list[str] = []

    def heard(self, member: Program, event: Event) -> None:
        with self._lock:
            kind = event["event"]
            self.counts[kind] += 1
            if kind == "handled":
                self.working.add(member)
                for partition, offset, delivery_count in event["records"]:
                    self._was_handled((partition, offset), delivery_count)
            elif kind == "accepted":
                for partition, offset, delivery_count in event["records"]:
                    self._accepted.setdefault((partition, offset), delivery_count)
            elif kind in ("refused", "failed"):
                self.reasons[event["reason"][:160]] += 1

    def _was_handled(self, place: Place, delivery_count: int) -> None:
        accepted = self._accepted.get(place)
        if accepted is not None and delivery_count > accepted:
            self.violations.append(f"{place} was accepted at delivery {accepted}, and came again as {delivery_count}")
        self.handled[place] += 1
        partition = place[0]
        while self.handled[partition, self._handled_up_to[partition]]:
            self._handled_up_to[partition] += 1

    def has_handled(self, ends: Mapping[int, int]) -> bool:
        with self._lock:
            return all(self._handled_up_to[partition] >= end for partition, end in ends.items())

    def progress(self) -> dict[int, int]:
        with self._lock:
            return dict(self._handled_up_to)

    def check(self, limits: Mapping[int, int]) -> None:
        """`limits`: how often a record of each partition may have been handled."""
        with self._lock:
            assert not self.violations, self.violations[:5]
            often = {place: count for place, count in self.handled.items() if count > limits[place[0]]}
            assert not often, f"handled more often than {limits}: {list(often.items())[:5]}"

    def check_once(self, starts: Mapping[int, int], ends: Mapping[int, int]) -> int:
        """Records between these offsets were handled once each; their number."""
        with self._lock:
            places = [(partition, offset) for partition in ends for offset in range(starts[partition], ends[partition])]
            other = {place: self.handled[place] for place in places if self.handled[place] != 1}
            assert not other, f"handled not once, although nothing died: {list(other.items())[:5]}; {self.reasons}"
            return len(places)
