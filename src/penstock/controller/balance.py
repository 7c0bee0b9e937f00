"""Plans the balance of a cluster: which replicas move, so that brokers carry similar loads. Pure: a snapshot in, moves
out.

What a plan does, in this order:

1. Replicas leave the brokers that are being drained.
2. Replicas of a partition that share a host or a rack without need are set apart.
3. Replicas move from loaded brokers to others. The load of a broker is its number of replicas and their bytes, the
   latter as a share of its disks if those are known.
4. Preferred leaders are spread evenly. That copies nothing: it changes the order of replicas.

Laws (the property tests have them):

- a partition keeps its number of replicas, and no broker has two of them;
- no move makes a partition's spread over racks and hosts worse, except to empty a broker;
- a drained broker keeps nothing; if there are too few others, the plan is refused;
- a planned state needs no further move: the plan of a balanced cluster is empty.

The last one follows from how steps 2 to 4 work: each lowers a sum of squares (of the replicas per host, of the loads of
brokers, of their leaders) until no single move lowers it. A move of data must be worth it, too: it is made only between
brokers whose loads differ by more than the tolerance.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

# Loads that differ by less than this part of the mean are left alone.
TOLERANCE: Final = 0.1
# A disk is not filled above this part of it.
DISK_PART_MAX: Final = 0.9

Replicas = tuple[int, ...]
Spread = tuple[int, int]
Key = tuple[str, int]


class CannotBalance(Exception):
    """The plan cannot be made; the message is one line."""


@dataclass(frozen=True, slots=True)
class BrokerState:
    broker_id: int
    rack: str | None = None
    host: str | None = None
    takes_replicas: bool = True
    """False for a broker that is down, or that is being emptied."""
    disk_bytes: int | None = None
    """The size of its disks; None if it is not known."""
    free_bytes: int | None = None


@dataclass(frozen=True, slots=True)
class PartitionState:
    topic: str
    partition: int
    replicas: Replicas
    """The preferred leader first."""
    size: int = 0


class Move(NamedTuple):
    topic: str
    partition: int
    before: Replicas
    after: Replicas
    size: int

    @property
    def adding(self) -> Replicas:
        return tuple(replica for replica in self.after if replica not in self.before)

    @property
    def copied_bytes(self) -> int:
        return self.size * len(self.adding)


def plan_balance(
    brokers: Iterable[BrokerState],
    partitions: Iterable[PartitionState],
    *,
    drained: Collection[int] = (),
    leaders_only: bool = False,
    tolerance: float = TOLERANCE,
) -> list[Move]:
    """The moves in the order in which to make them. `drained`: brokers to empty; then nothing else is copied.
    `leaders_only`: nothing is copied."""
    planning = _Planning(brokers, partitions, drained, tolerance)
    if drained:
        planning.drain()
    elif not leaders_only:
        planning.set_apart()
        while planning.even_out():
            planning.set_apart()
    planning.spread_leaders()
    return planning.moves()


class _Planning:
    def __init__(
        self,
        brokers: Iterable[BrokerState],
        partitions: Iterable[PartitionState],
        drained: Collection[int],
        tolerance: float,
    ) -> None:
        self.brokers = {broker.broker_id: broker for broker in brokers}
        self.partitions = {(each.topic, each.partition): each for each in partitions}
        self.replicas = {key: self.partitions[key].replicas for key in sorted(self.partitions)}
        self.drained = set(drained)
        self.tolerance = tolerance
        # Replicas of other brokers stay where they are: a broker that is down may come back.
        self.targets = sorted(
            broker.broker_id
            for broker in self.brokers.values()
            if broker.takes_replicas and broker.broker_id not in self.drained
        )
        self.loads = _Loads([self.brokers[broker_id] for broker_id in self.targets], self.partitions.values())
        self.on_broker: dict[int, set[Key]] = {broker_id: set() for broker_id in self.brokers}
        for key, replicas in self.replicas.items():
            for replica in replicas:
                self.on_broker.setdefault(replica, set()).add(key)

    def moves(self) -> list[Move]:
        """Those that only change the order first, as they cost nothing; then by topic and partition."""
        moves = [
            Move(each.topic, each.partition, each.replicas, self.replicas[key], each.size)
            for key, each in sorted(self.partitions.items())
            if self.replicas[key] != each.replicas
        ]
        return sorted(moves, key=lambda move: bool(move.adding))

    def drain(self) -> None:
        for key, replicas in self.replicas.items():
            for replica in replicas:
                if replica in self.drained:
                    candidates = [each for each in self.targets if each not in self.replicas[key]]
                    if not candidates:
                        topic, partition = key
                        raise CannotBalance(
                            f"{topic}-{partition} has {len(replicas)} replicas, and only {len(self.targets)} brokers "
                            "are left for them; add a broker, or lower the replication factor"
                        )
                    size = self.partitions[key].size
                    roomy = [each for each in candidates if self.loads.has_room(each, size)]
                    self._replace(
                        key, replica, min(roomy or candidates, key=lambda each: self._rank(key, replica, each))
                    )

    def _rank(self, key: Key, replica: int, candidate: int) -> tuple[Spread, float, int]:
        after = _replaced(self.replicas[key], replica, candidate)
        return self._spread(after), self.loads.of(candidate), candidate

    def set_apart(self) -> None:
        for key in self.replicas:
            while True:
                now = self._spread(self.replicas[key])
                racks = self._racks(self.replicas[key])
                size = self.partitions[key].size
                options = [
                    (self._spread(after), self.loads.of(target), target, replica)
                    for replica in self.replicas[key]
                    for target in self.targets
                    if replica in self.targets
                    and target not in self.replicas[key]
                    and self.loads.has_room(target, size)
                    if self._racks(after := _replaced(self.replicas[key], replica, target)) >= racks
                ]
                if not options or min(options)[0] >= now:
                    break
                _, _, target, replica = min(options)
                self._replace(key, replica, target)

    def even_out(self) -> bool:
        """Whether anything moved."""
        moved = False
        while self._even_out_once():
            moved = True
        return moved

    def _even_out_once(self) -> bool:
        """Make the best move between the most and the least loaded brokers that have one."""
        by_load = sorted(self.targets, key=lambda each: (self.loads.of(each), each))
        for source in reversed(by_load):
            for target in by_load:
                if not self.loads.differ(source, target, self.tolerance):
                    continue
                options = [
                    (gain, key)
                    for key in self.on_broker[source]
                    if target not in self.replicas[key] and (gain := self._gain(key, source, target)) > 0
                ]
                # The largest gain, which means few moves; a tie goes to the first name.
                for _, key in sorted(options, key=lambda option: (-option[0], option[1])):
                    after = _replaced(self.replicas[key], source, target)
                    if self._is_as_spread(after, self.replicas[key]):
                        self._replace(key, source, target)
                        return True
        return False

    def _gain(self, key: Key, source: int, target: int) -> float:
        size = self.partitions[key].size
        if not self.loads.has_room(target, size):
            return 0
        return self.loads.gain(size, source, target)

    def spread_leaders(self) -> None:
        """Pass leaderships on, through others if it must be, from a broker that has more to one that has at least two
        fewer."""
        leaders = Counter(dict.fromkeys(self.targets, 0))
        leaders.update(replicas[0] for replicas in self.replicas.values() if replicas[0] in leaders)
        while True:
            for source in sorted(leaders, key=lambda each: (-leaders[each], each)):
                path = self._path_to_fewer(source, leaders)
                if path:
                    break
            else:
                return
            leaders[source] -= 1
            leaders[path[-1][1]] += 1
            for key, successor in path:
                replicas = self.replicas[key]
                position = replicas.index(successor)
                self.replicas[key] = (successor, *replicas[1:position], replicas[0], *replicas[position + 1 :])

    def _path_to_fewer(self, source: int, leaders: Mapping[int, int]) -> list[tuple[Key, int]]:
        """Which partitions pass to whom, so that `source` leads one less; the fewest that do it."""
        came: dict[int, list[tuple[Key, int]]] = {source: []}
        waiting = deque([source])
        while waiting:
            broker_id = waiting.popleft()
            for key in sorted(self.on_broker[broker_id]):
                replicas = self.replicas[key]
                if replicas[0] != broker_id:
                    continue
                for follower in sorted(replicas[1:]):
                    if follower in leaders and follower not in came:
                        came[follower] = [*came[broker_id], (key, follower)]
                        if leaders[follower] <= leaders[source] - 2:
                            return came[follower]
                        waiting.append(follower)
        return []

    def _replace(self, key: Key, replica: int, target: int) -> None:
        self.replicas[key] = _replaced(self.replicas[key], replica, target)
        self.on_broker[replica].discard(key)
        self.on_broker[target].add(key)
        self.loads.move(self.partitions[key].size, replica, target)

    def _spread(self, replicas: Sequence[int]) -> Spread:
        """Lower is better: replicas that share a host count most, then those that share a rack."""
        return self._shared_hosts(replicas), self._shared_racks(replicas)

    def _is_as_spread(self, after: Sequence[int], before: Sequence[int]) -> bool:
        return (
            self._shared_hosts(after) <= self._shared_hosts(before)
            and self._shared_racks(after) <= self._shared_racks(before)
            and self._racks(after) >= self._racks(before)
        )

    def _shared_hosts(self, replicas: Sequence[int]) -> int:
        return _squares(self._host(each) for each in replicas)

    def _shared_racks(self, replicas: Sequence[int]) -> int:
        return _squares(self._rack(each) for each in replicas)

    def _racks(self, replicas: Sequence[int]) -> int:
        return len({self._rack(each) for each in replicas})

    def _host(self, broker_id: int) -> str | int:
        broker = self.brokers.get(broker_id)
        return broker_id if broker is None or broker.host is None else broker.host

    def _rack(self, broker_id: int) -> str | None:
        broker = self.brokers.get(broker_id)
        return None if broker is None else broker.rack


class _Loads:
    """What the brokers that take replicas carry: replicas, and bytes as a share of the disk."""

    def __init__(self, brokers: Sequence[BrokerState], partitions: Iterable[PartitionState]) -> None:
        self._counts = {broker.broker_id: 0.0 for broker in brokers}
        self._bytes = {broker.broker_id: 0.0 for broker in brokers}
        for partition in partitions:
            for replica in partition.replicas:
                if replica in self._counts:
                    self._counts[replica] += 1
                    self._bytes[replica] += partition.size
        weighed = all(broker.disk_bytes for broker in brokers)
        disks = {broker.broker_id: float(broker.disk_bytes or 1) if weighed else 1.0 for broker in brokers}
        # With these units a load of 1 is the mean.
        replicas, size, disk = sum(self._counts.values()), sum(self._bytes.values()), sum(disks.values())
        self._one = (len(brokers) / replicas if replicas else 0.0) if brokers else 0.0
        self._byte = {each: disk / disks[each] / size if size else 0.0 for each in disks}
        self._room = {
            broker.broker_id: broker.free_bytes - (1 - DISK_PART_MAX) * broker.disk_bytes
            for broker in brokers
            if broker.free_bytes is not None and broker.disk_bytes is not None
        }

    def has_room(self, broker_id: int, size: int) -> bool:
        return self._room.get(broker_id, size) >= size

    def of(self, broker_id: int) -> float:
        return self._replica_load(broker_id) + self._byte_load(broker_id)

    def differ(self, source: int, target: int, tolerance: float) -> bool:
        return (
            self._replica_load(source) - self._replica_load(target) > tolerance
            or self._byte_load(source) - self._byte_load(target) > tolerance
        )

    def gain(self, size: int, source: int, target: int) -> float:
        """By how much the sum of the squared loads of both falls."""
        one, out, into = self._one, size * self._byte[source], size * self._byte[target]
        replicas = one * (self._replica_load(source) - self._replica_load(target) - one)
        source_load, target_load = self._byte_load(source), self._byte_load(target)
        before = source_load**2 + target_load**2
        after = (source_load - out) ** 2 + (target_load + into) ** 2
        gain = 2 * replicas + before - after
        return gain if gain > 1e-9 else 0.0  # sums of floats never fall for ever

    def move(self, size: int, source: int, target: int) -> None:
        for broker_id, sign in ((source, -1), (target, 1)):
            if broker_id in self._counts:
                self._counts[broker_id] += sign
                self._bytes[broker_id] += sign * size
            if broker_id in self._room and sign > 0:
                self._room[broker_id] -= size

    def _replica_load(self, broker_id: int) -> float:
        return self._counts[broker_id] * self._one

    def _byte_load(self, broker_id: int) -> float:
        return self._bytes[broker_id] * self._byte[broker_id]


def _replaced(replicas: Replicas, replica: int, target: int) -> Replicas:
    return tuple(target if each == replica else each for each in replicas)


def _squares(places: Iterable[object]) -> int:
    return sum(count * count for count in Counter(places).values())
