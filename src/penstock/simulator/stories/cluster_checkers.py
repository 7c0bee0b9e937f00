"""The laws of a cluster of real brokers, which hold whatever happens to it; each has a name.

The checkers see all nodes at once, as no node can. They run whenever everything that can happen at a moment has
happened. They read the leaders and the high watermarks from the brokers' memory, and the logs from the disks. They
check only what has changed, and only nodes whose code has run.

- `OneLeaderPerEpoch`: of a partition, and of the quorum.
- `MonotonicHighWatermark`: of a leader; and no node's metadata goes back.
- `LogMatching`: batches with the same offset and leader epoch are the same batch, and follow the same batch.
- `CommittedPrefix`: replicas never disagree about what they know to be committed.
- `CommittedIsInSync`: what a leader considers committed is on every replica that could be elected next.
- `CommittedIsOnDisks`: and, on topics that flush with every message, it would survive if all of these lost power.
- `VotePersisted`: a node of the quorum that has acted on an election would still know of it after a power loss.
- `Durability`: a leader has everything promised, to producers by an acknowledgement, to consumers by a read.
- `LastInSyncStays`: without eligible leader replicas, at least one replica is always in sync.
- `MetadataImagesEqual`: nodes that have replayed the metadata up to the same offset have the same image.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple

from penstock.broker.metadata.quorum import MetadataQuorum
from penstock.broker.metadata.store import METADATA_PARTITION
from penstock.broker.node import Node
from penstock.broker.partitions.replica import Replica
from penstock.metadata.image import MetadataImage
from penstock.metadata.partition import Partition
from penstock.raft.quorum_state import QUORUM_STATE_FILE, decode_quorum_state
from penstock.raft.roles import Leader, Role
from penstock.raft.voters import ReplicaKey
from penstock.simulator.stories.cluster_world import DATA, ClusterWorld, Machine
from penstock.simulator.stories.replica_content import Batch, ReplicaContent
from penstock.simulator.story import Violation

NOT_LEADING = -1


class Promises:
    """The promises made for one partition, and the producers of its records."""

    note: Callable[[int, int, bytes], None] | None = None
    """Called with every record that is found in a log."""

    def __init__(self, index: int) -> None:
        self.index = index
        self.told: dict[int, bytes] = {}
        self.sent: set[bytes] = set()

    def settle(self, epoch: int, content: ReplicaContent) -> None:
        """A replica leads in a new epoch, with this log."""

    def is_given_up(self, batch: Batch) -> bool:
        """Whether a batch belongs to a history that an unclean election has ended."""
        return False

    def tell(self, offset: int, value: bytes) -> None:
        known = self.told.setdefault(offset, value)
        if known != value:
            raise Violation("Durability", f"partition {self.index}: {offset} was {known!r} and is {value!r}")

    def check(self, content: dict[int, bytes], where: str, log_start: int) -> None:
        for offset, value in self.told.items():
            if content.get(offset) != value and offset >= log_start:
                raise Violation(
                    "Durability",
                    f"partition {self.index}: {where} has {content.get(offset)!r} at {offset}, promised was {value!r}",
                )


class State(NamedTuple):
    """What is read every time."""

    leader_epoch: int
    high_watermark: int
    log_start: int
    log_end: int


class Seen:
    """One replica during one life of its broker."""

    def __init__(self, machine: Machine, replica: Replica) -> None:
        self.replica = replica
        self.content = ReplicaContent(machine, replica.log)
        self.state = State(NOT_LEADING, 0, 0, 0)
        self.committed = 0  # how many batches were compared with what others know to be committed


class Law:
    """A law for some worlds, in addition to those for all."""

    def look(self) -> None:
        """Called whenever everything that can happen at a moment has happened."""

    def partition_changed(self, promises: Promises, new: Partition, old: Partition) -> None:
        """In the newest metadata that any node has."""

    def replica_changed(self, machine: Machine, promises: Promises, seen: Seen, before: State) -> None: ...

    def first_seen(self, machine: Machine, promises: Promises, seen: Seen, batch: Batch) -> None:
        """No replica had this batch before."""


class LastInSyncStays(Law):
    """Without eligible leader replicas one is always in sync, dead or not: the only one that may lead next."""

    def partition_changed(self, promises: Promises, new: Partition, old: Partition) -> None:
        if not new.isr or new.elr:
            raise Violation("LastInSyncStays", f"partition {promises.index}: {new}")


class ClusterWatch:
    def __init__(self, world: ClusterWorld, topic: str, promises: Collection[Promises], events: Counter[str]) -> None:
        self.laws: list[Law] = []
        self.followers_begin_with_leader = True
        """False if every replica deletes by itself what retention does not keep."""
        self._world = world
        self._topic = topic
        self._promises = promises
        self._events = events
        self._doubtful: set[tuple[str, int]] = set()
        self._to_check: list[tuple[Machine, Promises, int, Partition]] = []
        self._seen: dict[tuple[str, int], Seen] = {}
        self._images: dict[str, tuple[Node, MetadataImage]] = {}
        self._first_images: dict[int, tuple[str, MetadataImage]] = {}
        self._newest: MetadataImage | None = None
        self._leaders: dict[tuple[int, int], str] = {}
        self._controllers: dict[int, str] = {}
        self._elections: dict[str, tuple[Role, ReplicaKey | None]] = {}
        self._batches: dict[tuple[int, int, int], tuple[Batch, Batch | None]] = {}
        self._committed: dict[tuple[int, int], Batch] = {}

    def doubt(self, machine: Machine) -> None:
        """The machine may have lost data: it does not count until it has been out of sync once. A replica that is in
        sync after that got there with the data it has now."""
        self._doubtful.update((machine.name, promises.index) for promises in self._promises)

    def trust_all(self) -> None:
        """All replicas are in sync again."""
        self._doubtful.clear()

    def look(self) -> None:
        for machine in self._world.touched():
            node = machine.node
            quorum = getattr(node, "quorum", None)  # missing while a node starts
            if node is None or quorum is None:
                continue
            known = self._images.get(machine.name)
            if known is None or known[0] is not node:  # a starting node begins with what was on its disk
                self._image_changed(machine, None, quorum.image)
                self._images[machine.name] = node, quorum.image
            elif known[1] is not quorum.image:
                self._image_changed(machine, known[1], quorum.image)
                self._images[machine.name] = node, quorum.image
            if machine.is_controller:
                self._check_role(machine, quorum)
                continue
            for promises in self._promises:
                replica = machine.replicas.get(self._topic, promises.index)
                if replica is not None:
                    self._look_at(machine, promises, replica)
        if self._to_check:
            leaders, self._to_check = self._to_check, []
            for leader in leaders:
                self._check_in_sync(*leader)
        for law in self.laws:
            law.look()

    @property
    def newest(self) -> MetadataImage | None:
        return self._newest

    # -- metadata ---------------------------------------------------------------------------------------------------

    def _check_leads_alone(self, machine: Machine, epoch: int) -> None:
        if epoch not in self._controllers:
            self._events["controller elections"] += 1
        former = self._controllers.setdefault(epoch, machine.name)
        if former != machine.name:
            raise Violation("OneLeaderPerEpoch", f"{former} and {machine.name} lead the quorum in {epoch}")

    def _check_role(self, machine: Machine, quorum: MetadataQuorum) -> None:
        driver = quorum.driver
        if driver.is_busy or driver.is_failed:
            return  # it is about to be written
        role = driver.raft.role
        seen = (role, getattr(role, "voted", None))
        known = self._elections.get(machine.name)
        if known is not None and known[0] is seen[0] and known[1] is seen[1]:
            return
        election = driver.raft.election
        durable = machine.disk.durable(f"{DATA}/{METADATA_PARTITION}/{QUORUM_STATE_FILE}")
        if not durable or decode_quorum_state(durable) != election:
            raise Violation("VotePersisted", f"{machine.name} acts on {election}, its disk says {durable!r}")
        if isinstance(role, Leader):
            self._check_leads_alone(machine, role.epoch)
        self._elections[machine.name] = seen

    def _image_changed(self, machine: Machine, before: MetadataImage | None, image: MetadataImage) -> None:
        if before is not None and image.offset < before.offset:
            raise Violation(
                "MonotonicHighWatermark", f"{machine.name}: metadata from {before.offset} to {image.offset}"
            )
        where, first = self._first_images.setdefault(image.offset, (machine.name, image))
        if first is not image and not image.same_content(first):
            raise Violation("MetadataImagesEqual", f"{machine.name} and {where} differ at {image.offset}")
        if self._newest is None or image.offset > self._newest.offset:
            self._count_changes(image)
            self._newest = image

    def _count_changes(self, image: MetadataImage) -> None:
        for promises in self._promises:
            new, old = self._partition(image, promises), self._partition(self._newest, promises)
            if new is not None and old is not None:
                self._events["ISR changes"] += new.isr != old.isr
                self._events["elections"] += new.leader != old.leader and new.leader >= 0
                if new is not old:
                    for law in self.laws:
                        law.partition_changed(promises, new, old)
            if new is not None:
                in_sync = {f"broker-{broker_id}" for broker_id in (*new.isr, *new.elr)}
                self._doubtful -= {
                    each for each in self._doubtful if each[1] == promises.index and each[0] not in in_sync
                }

    def _partition(self, image: MetadataImage | None, promises: Promises) -> Partition | None:
        return None if image is None else image.topics.partition(self._topic, promises.index)

    # -- replicas ---------------------------------------------------------------------------------------------------

    def _look_at(self, machine: Machine, promises: Promises, replica: Replica) -> None:
        key = (machine.name, promises.index)
        seen = self._seen.get(key)
        if seen is None or seen.replica is not replica:
            seen = self._seen[key] = Seen(machine, replica)
            seen.content.note = promises.note
        leader, log = replica.leader, replica.log
        state = State(
            NOT_LEADING if leader is None else leader.leader_epoch,
            replica.high_watermark,
            log.log_start_offset,
            log.log_end_offset,
        )
        before = seen.state
        if state == before:
            return
        seen.state = state
        if state.log_end < before.log_end:
            self._events["truncations"] += 1
        seen.committed = min(seen.committed, seen.content.keep(state.log_start, state.log_end))
        self._match(machine, promises, seen)
        for law in self.laws:
            law.replica_changed(machine, promises, seen, before)
        self._compare_committed(machine, promises, seen)
        if state.leader_epoch != NOT_LEADING:
            self._check_leader(machine, promises, seen, before)

    def _match(self, machine: Machine, promises: Promises, seen: Seen) -> None:
        for previous, batch in seen.content.read_on():
            key = (promises.index, batch.base_offset, batch.epoch)
            if self.laws and key not in self._batches:
                for law in self.laws:
                    law.first_seen(machine, promises, seen, batch)
            known, known_previous = self._batches.setdefault(key, (batch, previous))
            if known != batch or (previous is not None and known_previous not in (None, previous)):
                raise Violation(
                    "LogMatching",
                    f"partition {promises.index}: {batch} after {previous}, elsewhere {known} after {known_previous}",
                )

    def _compare_committed(self, machine: Machine, promises: Promises, seen: Seen) -> None:
        batches = seen.content.batches
        while seen.committed < len(batches) and batches[seen.committed].next_offset <= seen.state.high_watermark:
            batch = batches[seen.committed]
            if promises.is_given_up(batch):
                seen.committed += 1
                continue
            key = (promises.index, batch.base_offset)
            known = self._committed.setdefault(key, batch)
            if known != batch and promises.is_given_up(known):
                self._committed[key] = known = batch
            if known != batch:
                raise Violation(
                    "CommittedPrefix",
                    f"partition {promises.index}: {machine.name} takes {batch} for committed, elsewhere it was {known}",
                )
            seen.committed += 1

    def _check_leader(self, machine: Machine, promises: Promises, seen: Seen, before: State) -> None:
        state = seen.state
        key = (promises.index, state.leader_epoch)
        former = self._leaders.setdefault(key, machine.name)
        if former != machine.name:
            raise Violation(
                "OneLeaderPerEpoch", f"partition {key[0]}: {former} and {machine.name} in epoch {state.leader_epoch}"
            )
        if state.leader_epoch == before.leader_epoch and state.high_watermark < before.high_watermark:
            raise Violation(
                "MonotonicHighWatermark",
                f"partition {key[0]}: {machine.name} from {before.high_watermark} to {state.high_watermark}",
            )
        partition = self._partition(self._newest, promises)
        if partition is None or partition.leader_epoch != state.leader_epoch:
            return  # another leader has replaced it, and it does not know
        if state.leader_epoch != before.leader_epoch and not seen.content.is_damaged:
            promises.settle(state.leader_epoch, seen.content)
            where = f"{machine.name}, the leader of epoch {state.leader_epoch},"
            promises.check(seen.content.values(), where, state.log_start)
        self._to_check.append((machine, promises, state.high_watermark, partition))

    def _check_in_sync(self, leader: Machine, promises: Promises, high_watermark: int, partition: Partition) -> None:
        for broker_id in (*partition.isr, *partition.elr):
            member = self._world.machines[f"broker-{broker_id}"]
            key = (member.name, promises.index)
            seen = self._seen.get(key)
            if member.node is None or key in self._doubtful or seen is None:
                continue
            replica = member.replicas.get(self._topic, promises.index)
            if replica is not seen.replica:
                continue
            who = f"{member.name}, of {partition.isr} and {partition.elr},"
            what = f"partition {promises.index}: {leader.name} takes {high_watermark} for committed, {who}"
            if seen.state.log_end < high_watermark:
                raise Violation("CommittedIsInSync", f"{what} ends at {seen.state.log_end}")
            begins_later = seen.state.log_start > self._seen[leader.name, promises.index].state.log_start
            if begins_later and self.followers_begin_with_leader:
                raise Violation("CommittedIsInSync", f"{what} begins at {seen.state.log_start}")
            if replica.log.settings.flush_messages == 1 and not seen.content.is_on_disk(high_watermark):
                raise Violation("CommittedIsOnDisks", f"{what} has not synced it")
