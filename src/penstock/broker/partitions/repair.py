"""Batches that have rotted on this broker's disk are replaced by what other replicas have.

Whoever reads a batch that is not what was written (`Log.on_corruption`) has its partition noted here. One partition
after the other, the damage is looked for in a thread, the batches that belong there are fetched from another in-sync
replica, the leader first, and written in their place. The broker asks as a consumer does: it gets what is committed,
fenced by the leader epoch; and it takes that only if it has the offsets, the leader epochs and, to the byte, the size
of what it is to replace. So what is written was there before, and if the broker dies half-way the same damage is found
again. Compacted replicas may have fewer records than others at the same offsets; there the segment is made again with
what the other replica has, and swapped in as after a compaction.

Where nobody else has the batch (there is one replica, or nobody else is in sync) it stays as it is: readers are told
CORRUPT_MESSAGE, nothing is cut, and it is tried again from time to time. If it is a leader's own last batch that nobody
has yet, the broker ends: its followers cannot copy on, but they can lead, and lose nothing that was committed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable

from penstock.broker.metadata.brokers import Brokers
from penstock.broker.net.peers import PeerFailed
from penstock.broker.partitions.fetch_sessions import FINAL_EPOCH
from penstock.broker.partitions.flusher import Flusher
from penstock.broker.partitions.replica import Replica, Wakeups
from penstock.io.files import FileSystem
from penstock.log.cleaner import Cleaner
from penstock.log.damage import Damage, rebuild, replacement
from penstock.log.segment import Segment
from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.protocol.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from penstock.records.batch import iterate_headers
from penstock.settings.live import LiveSettings

logger = logging.getLogger("penstock.repair")

CHANNEL = "repair"
RETRY_S = 2.0
RETRY_SECONDS_MAX = 60.0
GIVE_UP_AFTER = 2
BYTES_MAX = 256 * 1024 * 1024  # of one damage: it is held in memory


@owned_by_loop(anywhere=("want",))
class Repairs:
    def __init__(
        self,
        *,
        settings: LiveSettings,
        loop: asyncio.AbstractEventLoop,
        files: FileSystem,
        brokers: Brokers,
        flusher: Flusher,
        cleaner: Cleaner,
        wakeups: Wakeups,
        fail: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._loop = loop
        self._files = files
        self._brokers = brokers
        self._flusher = flusher
        self._cleaner = cleaner
        self._wakeups = wakeups
        self._fail = fail
        self._wanted: dict[Replica, int] = {}  # and how often it was tried
        self._is_wanted = asyncio.Event()
        self.repaired = 0

    def want(self, replica: Replica) -> None:
        """A reader has found damage; on any thread."""
        self._loop.call_soon_threadsafe(self._note, replica)

    def _note(self, replica: Replica) -> None:
        if replica not in self._wanted:
            self._wanted[replica] = 0
            self._is_wanted.set()

    async def run(self) -> None:
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            for replica in list(self._wanted):
                if await self._repair(replica):
                    del self._wanted[replica]
                else:
                    self._wanted[replica] += 1
            if self._wanted:
                seconds = RETRY_S * 2 ** min(self._wanted.values())
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(self._is_wanted.wait(), min(seconds, RETRY_SECONDS_MAX))
                self._is_wanted.set()

    async def _repair(self, replica: Replica) -> bool:
        """True if there is nothing left to repair, or nothing left at all."""
        log = replica.log
        try:
            for segment in log.segments:
                while segment.is_suspect and segment in log.segments and not replica.is_offline:
                    epoch = replica.leader_epoch  # before the log is read: what it lacks depends on it
                    damage = await self._loop.run_in_executor(None, log.find_damage(segment))
                    if damage is None:
                        segment.is_suspect = False
                    elif not await self._replace(replica, epoch, segment, damage):
                        return False
        except (OSError, KafkaError) as error:
            logger.error("%s cannot be repaired now: %s", replica.topic_partition, error)
            return replica.is_offline
        replica.repaired()
        self._wakeups.run()
        return True

    async def _replace(self, replica: Replica, epoch: int, segment: Segment, damage: Damage) -> bool:
        logger.error(
            "%s is damaged, offsets %d to %d: %s",
            replica.topic_partition,
            damage.first_offset,
            damage.next_offset,
            damage.why,
        )
        for broker_id in self._sources(replica):
            data = await self._fetch(replica, epoch, broker_id, damage)
            if data is None:
                continue
            if replica.leader_epoch != epoch or not await self._put(replica, segment, damage, data):
                return False  # look again
            self.repaired += 1
            logger.warning("%s: %d bytes repaired with those of broker %d", segment.path, len(data), broker_id)
            return True
        logger.error(
            "%s: nobody else has offsets %d to %d, as far as can be asked now; they cannot be read",
            replica.topic_partition,
            damage.first_offset,
            damage.next_offset,
        )
        leader = replica.leader
        is_uncommitted = leader is not None and leader.followers and damage.next_offset > leader.high_watermark
        if is_uncommitted and self._wanted[replica] >= GIVE_UP_AFTER:
            # Followers do not get past it, so nothing will be committed any more.
            self._fail(f"{replica.topic_partition} is damaged before others have copied it; one of them must lead")
        return False

    async def _put(self, replica: Replica, segment: Segment, damage: Damage, data: bytes) -> bool:
        log = replica.log
        if len(data) != damage.size:
            if not log.is_still_there(segment, damage):
                return False
            files = self._files
            return await self._cleaner.replace(log, segment, lambda: rebuild(files, segment, damage, data))
        is_written = log.restore(segment, damage, data)
        await self._flusher.flush(replica)
        return is_written

    def _sources(self, replica: Replica) -> list[int]:
        """Those that have what is committed, the leader first."""
        partition = replica.partition
        if partition is None:
            return []
        others = sorted(partition.isr, key=lambda broker_id: broker_id != partition.leader)
        return [broker_id for broker_id in others if broker_id != self._settings.now.node_id]

    async def _fetch(self, replica: Replica, epoch: int, broker_id: int, damage: Damage) -> bytes | None:
        """What belongs where the damage is; None if that broker does not have it."""
        fetched = b""
        offset = max(damage.first_offset, replica.log.log_start_offset)
        while offset < damage.next_offset and len(fetched) <= BYTES_MAX:
            some = await self._ask(replica, epoch, broker_id, offset, damage.size)
            headers = list(iterate_headers(some))
            if not headers:
                return None
            position, last = headers[-1]
            fetched += some[: position + last.size]  # the answer may end in the middle of another one
            offset = last.next_offset
        if offset < damage.next_offset:
            return None
        data = replacement(damage, fetched)
        log = replica.log
        fits = len(data) == damage.size or "compact" in log.settings.cleanup_policy
        if not fits or any(
            header.leader_epoch != log.epochs.epoch_for_offset(header.base_offset)
            for _, header in iterate_headers(data)
        ):
            logger.warning("%s: broker %d has nothing that fits", replica.topic_partition, broker_id)
            return None
        return data

    async def _ask(self, replica: Replica, epoch: int, broker_id: int, offset: int, max_bytes: int) -> bytes:
        """Batches from `offset` on, as a consumer gets them; none if there are none to be had."""
        peer = self._brokers.peer(broker_id, CHANNEL)
        if peer is None:
            return b""
        wanted = FetchPartition(
            partition=replica.topic_partition.partition,
            current_leader_epoch=epoch,
            fetch_offset=offset,
            partition_max_bytes=max_bytes,
        )
        request = FetchRequest(
            replica_state=ReplicaState(replica_id=-1, replica_epoch=-1),
            max_bytes=max_bytes,
            session_epoch=FINAL_EPOCH,
            topics=[FetchTopic(topic_id=replica.topic_id, partitions=[wanted])],
        )
        answered: asyncio.Future[bytes] = self._loop.create_future()

        def done(answer: FetchResponse | PeerFailed) -> None:
            if not answered.done():
                answered.set_result(_records_in(answer))

        peer.send(request, done, timeout=self._settings.now.replica_socket_timeout_ms / 1000)
        return await answered


def _records_in(answer: FetchResponse | PeerFailed) -> bytes:
    """A copy: what is answered lies in the connection's buffer."""
    if isinstance(answer, PeerFailed) or answer.error_code:
        return b""
    return b"".join(
        bytes(partition.records or b"")  # type: ignore[arg-type]
        for topic in answer.responses
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
    )
