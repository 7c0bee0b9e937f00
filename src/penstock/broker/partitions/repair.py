"""Repairs damaged batches on this broker's disk in place, with the bytes of other replicas.

Detection. A read that finds a batch whose bytes have changed reports its partition here (`Log.on_corruption`).
Followers check everything they receive. A leader checks data that it found on its disk at the start, data that does not
come from the page cache, and data that a follower requests a second time. Compaction checks what it reads. There is no
scrubbing: unread data needs no repair yet, and the reader that matters, a follower that catches up, reads everything.
The CRC does not cover offsets; they are checked by their order, which a single batch does not show. The metadata log
has its own rules (`broker/metadata/recovery.py`).

Repair, one partition at a time. A thread locates the damage (`log/damage.py`). The broker fetches the missing batches
from another in-sync replica, the leader first, and writes them in place. It fetches as a consumer does: it gets
committed data, fenced by the leader epoch. It accepts the data only if the offsets, the leader epochs and, to the byte,
the size match the damaged range. So only data that was there before is written, and after a crash half-way the same
damage is found again. Compacted replicas may have fewer records than others at the same offsets. In that case the
segment is rebuilt with the records of the other replica and swapped in as after a compaction.

Why not truncate the log and copy it again, which would be simpler? An in-sync replica vouches for all its records, and
the other replicas may die meanwhile. For the same reason recovery truncates only above the recovery point: a bad batch
below it was once written correctly.

If no other replica has the batch (there is one replica, or no other is in sync), it stays as it is: readers get
CORRUPT_MESSAGE, the rest of the log stays, and the repair is retried from time to time. If it is a leader's last,
uncommitted batch, the broker stops: its followers cannot copy past it, but they can lead, and no committed record is
lost.
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
from penstock.broker.partitions.replica import Replica
from penstock.broker.partitions.wakeups import Wakeups
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
BYTES_MAX = 256 * 1024 * 1024  # size limit of one damaged range, which is held in memory


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
        self._wanted: dict[Replica, int] = {}  # with the number of attempts so far
        self._is_wanted = asyncio.Event()
        self.repaired = 0

    def want(self, replica: Replica) -> None:
        """A reader has found damage. May be called on any thread."""
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
        """True if nothing is left to repair, or the replica is offline."""
        log = replica.log
        try:
            for segment in log.segments:
                while segment.is_suspect and segment in log.segments and not replica.is_offline:
                    epoch = replica.leader_epoch  # taken before the log is read: the damage found depends on it
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
                return False  # look for the damage again later
            self.repaired += 1
            logger.warning("%s: %d bytes repaired with those of broker %d", segment.path, len(data), broker_id)
            return True
        logger.error(
            "%s: no replica that can be reached has offsets %d to %d; they cannot be read",
            replica.topic_partition,
            damage.first_offset,
            damage.next_offset,
        )
        leader = replica.leader
        is_uncommitted = leader is not None and leader.followers and damage.next_offset > leader.high_watermark
        if is_uncommitted and self._wanted[replica] >= GIVE_UP_AFTER:
            # Followers cannot copy past it, so nothing more will be committed.
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
        """The other in-sync replicas, which have all committed records; the leader first."""
        partition = replica.partition
        if partition is None:
            return []
        others = sorted(partition.isr, key=lambda broker_id: broker_id != partition.leader)
        return [broker_id for broker_id in others if broker_id != self._settings.now.node_id]

    async def _fetch(self, replica: Replica, epoch: int, broker_id: int, damage: Damage) -> bytes | None:
        """The bytes for the damaged range; None if that broker does not have them."""
        fetched = b""
        offset = max(damage.first_offset, replica.log.log_start_offset)
        while offset < damage.next_offset and len(fetched) <= BYTES_MAX:
            some = await self._ask(replica, epoch, broker_id, offset, damage.size)
            headers = list(iterate_headers(some))
            if not headers:
                return None
            position, last = headers[-1]
            fetched += some[: position + last.size]  # the answer may end in the middle of a batch
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
        """Batches from `offset` on, as a consumer gets them; empty if the broker returns none."""
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
    """A copy of the records, because the answer is in the connection's buffer."""
    if isinstance(answer, PeerFailed) or answer.error_code:
        return b""
    return b"".join(
        bytes(partition.records or b"")  # type: ignore[arg-type]
        for topic in answer.responses
        for partition in topic.partitions
        if partition.error_code == ErrorCode.NONE
    )
