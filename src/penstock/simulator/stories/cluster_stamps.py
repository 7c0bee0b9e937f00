"""Checks LogAppendTime: producers and readers get the time of the leader's clock at the append.

- `AppendTime`: a batch has the time that its leader's clock showed at the append. So within an epoch times go back only
  if that clock does. The producer gets the same time, also if its batch had been appended before. On topics with the
  producer's own timestamps it gets none.
"""

from __future__ import annotations

from penstock.protocol.messages.produce import PartitionProduceResponse
from penstock.simulator.stories.cluster_checkers import Law, Promises, Seen
from penstock.simulator.stories.cluster_world import ClusterWorld, Machine
from penstock.simulator.stories.replica_content import Batch
from penstock.simulator.story import Violation

NO_TIME = -1


class AppendTimes(Law):
    def __init__(self, world: ClusterWorld) -> None:
        self._world = world
        self._before: dict[str, int] = {}  # what clocks showed at the last look, as of now
        self._stamps: dict[tuple[int, int], set[int]] = {}

    def look(self) -> None:
        """A clock may be set at the moment of an append: before it, or after it."""
        elapsed_ms = int(self._world.loop.time() * 1000)
        for machine in self._world.brokers:
            self._before[machine.name] = machine.clock.now_ms() - elapsed_ms

    def first_seen(self, machine: Machine, promises: Promises, seen: Seen, batch: Batch) -> None:
        self._stamps.setdefault((promises.index, batch.base_offset), set()).add(batch.stamp)
        if seen.state.leader_epoch != batch.epoch:
            return  # its leader crashed at the moment of the append
        now_ms = machine.clock.now_ms()
        before_ms = self._before.get(machine.name)
        earlier_ms = now_ms if before_ms is None else before_ms + int(self._world.loop.time() * 1000)
        if batch.stamp not in (now_ms, earlier_ms):
            raise Violation(
                "AppendTime", f"partition {promises.index}: {batch} was appended by {machine.name} at {now_ms}"
            )

    def check_answer(self, promises: Promises, answer: PartitionProduceResponse) -> None:
        known = self._stamps.get((promises.index, answer.base_offset), set())
        if answer.log_append_time_ms not in known:
            raise Violation(
                "AppendTime",
                f"partition {promises.index}: a producer got {answer.log_append_time_ms} for {answer.base_offset}, "
                f"the log has {sorted(known)}",
            )


def check_no_time(promises: Promises, answer: PartitionProduceResponse) -> None:
    """For topics with the producer's own timestamps."""
    if answer.log_append_time_ms != NO_TIME:
        raise Violation("AppendTime", f"partition {promises.index}: a producer got {answer.log_append_time_ms}")
