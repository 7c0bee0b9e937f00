"""The partition changes that follow when a broker leaves or returns, found through the index.

Each function is a generator of changes, and is consumed only as far as one batch goes. Once a change is replayed, the
function no longer finds it, so calling it again continues where it stopped.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import chain, islice

from penstock.controller.elections import Election, Wanted
from penstock.controller.result import MAX_CHANGES_PER_BATCH
from penstock.controller.view import ClusterView
from penstock.metadata.index import PartitionKey
from penstock.metadata.partition import is_reserved_directory
from penstock.model.ids import Uuid
from penstock.protocol.declaration import Message
from penstock.protocol.messages.metadata_records import PartitionChangeRecord

Changes = Iterator[PartitionChangeRecord]


def batch_of(changes: Changes) -> tuple[list[Message], bool]:
    """Take as many changes as fit into one batch; also returns whether those were all."""
    records: list[Message] = list(islice(changes, MAX_CHANGES_PER_BATCH))
    return records, len(records) < MAX_CHANGES_PER_BATCH


def when_gone(view: ClusterView, broker_id: int, keys: Collection[PartitionKey] | None = None) -> Changes:
    """A broker is fenced or shuts down. `keys`: only these of the partitions in whose ISR it is."""
    usable = view.usable_but(broker_id)
    for topic_id, partition_id in view.index.in_sync(broker_id) if keys is None else keys:
        topic = view.image.topics.ids[topic_id]
        partition = topic.partitions[partition_id]
        if not view.elr and len(partition.isr) == 1 and partition.leader != broker_id:
            continue  # the last in-sync replica stays in the ISR, and there is already no leader
        isr = tuple(member for member in partition.isr if member != broker_id)
        change = view.change_and_elect(topic, partition_id, Wanted(isr=isr), usable)
        if change is not None:
            yield change


def when_directories_lost(view: ClusterView, broker_id: int, lost: Collection[Uuid]) -> Changes:
    """A broker continues without some of its directories."""
    keys = [key for key in view.index.in_sync(broker_id) if view.find(key)[1].directory_of(broker_id) in lost]
    return when_gone(view, broker_id, keys)


def when_replaced(view: ClusterView, broker_id: int, *, clean: bool, directories: Sequence[Uuid]) -> Changes:
    """The last incarnation of a broker ended, cleanly or not, and the next one has these directories.

    After a crash the broker may have lost its last writes, so other replicas are preferred even if all its data is
    there. A replica whose directory is missing cannot lead, but keeps its trust: the directory may return. If the
    directory of a replica was never reported, and one is missing, the replica may have been in that one. The broker may
    then recreate it elsewhere unnoticed, so it is not trusted at all.
    """
    usable = view.usable_but(broker_id)
    existing = view.image.brokers.get(broker_id)
    all_there = existing is not None and set(existing.directories) <= set(directories)
    keys: Iterable[PartitionKey] = view.index.in_sync(broker_id)
    if not clean or not all_there:
        keys = chain(keys, view.index.eligible(broker_id))
    if not all_there:
        keys = chain(keys, _led_last(view, broker_id))
    for key in keys:
        topic, partition = view.find(key)
        doubtful = not all_there and is_reserved_directory(partition.directory_of(broker_id))
        wanted = Wanted(
            isr=tuple(member for member in partition.isr if member != broker_id),
            crashed=() if clean else (broker_id,),
            emptied=(broker_id,) if doubtful else (),
        )
        change = view.change_and_elect(topic, key[1], wanted, usable)
        if change is not None:
            yield change


def _led_last(view: ClusterView, broker_id: int) -> Iterator[PartitionKey]:
    """Partitions whose last leader is this broker, and in which it is neither in sync nor eligible."""
    for key in view.index.leaderless:
        _, partition = view.find(key)
        if broker_id in partition.last_known_elr and broker_id not in (*partition.isr, *partition.elr):
            yield key


def when_unregistered(view: ClusterView, broker_id: int) -> Changes:
    """A broker was unregistered: no election waits for it, unless only it may have all committed records."""
    usable = view.usable_but(broker_id)
    keys = chain(view.index.in_sync(broker_id), view.index.eligible(broker_id), _led_last(view, broker_id))
    for topic_id, partition_id in keys:
        topic = view.image.topics.ids[topic_id]
        partition = topic.partitions[partition_id]
        isr = tuple(member for member in partition.isr if member != broker_id)
        wanted = Wanted(isr=isr, crashed=(broker_id,))
        change = view.change_and_elect(topic, partition_id, wanted, usable, gone=(broker_id,))
        if change is not None:
            yield change


def when_back(view: ClusterView, broker_id: int) -> Changes:
    """A broker is unfenced: elect it in leaderless partitions that wait for it."""
    if view.image.brokers[broker_id].in_controlled_shutdown:
        return
    usable = view.usable_and(broker_id)
    for key in view.index.leaderless:
        topic, partition = view.find(key)
        if broker_id in partition.replicas:
            change = view.change_and_elect(topic, key[1], Wanted(), usable)
            if change is not None:
                yield change


def online(view: ClusterView) -> Changes:
    """Elect leaders for partitions that have none but could: an earlier controller left them undone."""
    for key in view.index.leaderless:
        topic, _ = view.find(key)
        change = view.change_and_elect(topic, key[1], Wanted())
        if change is not None:
            yield change


def preferred(view: ClusterView) -> Changes:
    """Move leadership back to the first replica wherever it is in sync again."""
    wanted = Wanted(Election.PREFERRED)
    for key in view.index.not_preferred:
        topic, partition = view.find(key)
        first = partition.replicas[0]
        if first in partition.isr and view.usable(first, partition.directories[0]):
            change = view.change(topic, key[1], wanted)
            if change is not None:
                yield change


def unclean(view: ClusterView) -> Changes:
    """Elect any available leader for partitions without one, if the topic allows it."""
    wanted = Wanted(Election.UNCLEAN)
    for key in view.index.leaderless:
        topic, partition = view.find(key)
        if view.election(topic, partition) is Election.UNCLEAN:
            change = view.change(topic, key[1], wanted)
            if change is not None:
                yield change
