"""The leader's state of one partition: its in-sync replicas and its high watermark.

Laws:

- The high watermark never moves back while this leader leads.
- It is never beyond what every member of the *maximal* ISR has: the in-sync replicas that the controller has committed,
  plus those that a pending proposal would add. A removal counts only once it is committed. So whichever of the two the
  controller decides on, and whichever replica it elects then, that replica has every committed record.
- It waits for a follower that is caught up and may join: otherwise a follower that is always a little behind never
  could.
- It does not advance while fewer than `min.insync.replicas` (or all, if there are fewer) are in sync.
- The leader counts itself by its log end or, on a topic with `flush.messages=1`, by what it has flushed: readers and
  followers then see a record only when it is on disk. This is the only flush setting that delays acknowledgements. With
  `flush.messages=N` or `flush.ms` flushes happen in the background, because an acknowledgement that waits for N-1
  further messages might never come.
- A follower joins only after it has reached the high watermark and the start of this leader's epoch, and only under the
  registration it fetched with (KIP-903): a broker that returns with an empty disk has another one.
- There is one proposal at a time. An answer that does not say whether the proposal was applied leaves it pending until
  the metadata shows it.
- A record is acknowledged only when the high watermark has passed its offset.

Pure: offsets, times and metadata come in, verdicts and proposals come out. The callbacks that waited for an offset are
returned to the caller, who runs them.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterable
from typing import NamedTuple

from penstock.model.errors import ErrorCode, KafkaError
from penstock.model.ownership import owned_by_loop
from penstock.replication.progress import NEVER_MS, NO_BROKER_EPOCH, Follower

Waiter = Callable[[ErrorCode], None]
"""Called with NONE once the awaited condition is true, or with the error that prevents it."""

Registered = Callable[[int], int | None]
"""The epoch of a broker's registration; None for a broker that may not be in sync: unknown, fenced or shutting down."""

# The controller changed nothing, and had the same state as this leader.
_NOT_APPLIED = frozenset((ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED))
# Only the metadata can show whether the proposal was applied, before or after.
_WAIT_FOR_METADATA = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)


class Proposal(NamedTuple):
    """A set of in-sync replicas that the leader proposes to the controller."""

    leader_epoch: int
    partition_epoch: int
    isr: tuple[tuple[int, int], ...]
    """Brokers, each with the epoch of its registration (-1: unknown)."""
    added: frozenset[int]
    removed: frozenset[int]


@owned_by_loop()
class LeaderState:
    __slots__ = (
        "_flush_waiting", "_lag_max_ms", "_min_insync_replicas", "_registered", "_start_offset", "broker_id",
        "commits_at_once", "counts_flushed", "flushed", "followers", "has_enough_replicas", "high_watermark", "isr",
        "leader_epoch", "log_end", "maximal_isr", "partition_epoch", "pending", "waiting",
    )  # fmt: skip

    def __init__(
        self,
        *,
        broker_id: int,
        leader_epoch: int,
        partition_epoch: int,
        replicas: Iterable[int],
        isr: Iterable[int],
        log_end: int,
        flushed: int,
        counts_flushed: bool,
        high_watermark: int,
        min_insync_replicas: int,
        lag_max_ms: int,
        registered: Registered,
        now_ms: int,
    ) -> None:
        """`high_watermark` is what this replica knew before it led: everything below it is committed."""
        self.broker_id = broker_id
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch
        self.log_end = log_end
        self.flushed = flushed
        self.counts_flushed = counts_flushed
        self.high_watermark = min(high_watermark, log_end)
        self.isr = frozenset(isr)
        self.maximal_isr = self.isr
        self.pending: Proposal | None = None
        self.followers: dict[int, Follower] = {}
        self.waiting: list[tuple[int, Waiter]] = []  # by offset
        self._flush_waiting: list[tuple[int, Waiter]] = []
        self._start_offset = log_end
        self._min_insync_replicas = min_insync_replicas
        self._lag_max_ms = lag_max_ms
        self._registered = registered
        self._set_replicas(replicas, now_ms)
        self._advance(now_ms)

    # -- in-sync replicas -------------------------------------------------------------------------------------------

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas`, or the number of replicas if that is lower."""
        return min(self._min_insync_replicas, len(self.followers) + 1)

    @property
    def is_settled(self) -> bool:
        """Whether the high watermark is known to be at least what earlier leaders reported."""
        return self.high_watermark >= self._start_offset

    def update(self, *, partition_epoch: int, replicas: Iterable[int], isr: Iterable[int], now_ms: int) -> bool:
        """Apply changed metadata while this leader stays; true if the high watermark moved."""
        if partition_epoch < self.partition_epoch:
            return False  # the answer to a proposal came first
        if partition_epoch > self.partition_epoch:
            self.partition_epoch = partition_epoch
            self.pending = None  # applied by this change, or refused because of it
            self.isr = self.maximal_isr = frozenset(isr)
        self._set_replicas(replicas, now_ms)
        return self._advance(now_ms)

    def _set_replicas(self, replicas: Iterable[int], now_ms: int) -> None:
        # A follower that is not in sync must show that it is caught up before the high watermark waits for it.
        self.followers = {
            broker_id: self.followers.get(broker_id)
            or Follower(broker_id, now_ms if broker_id in self.isr else NEVER_MS)
            for broker_id in replicas
            if broker_id != self.broker_id
        }
        self._note_rules()

    def _note_rules(self) -> None:
        """Determine what every append asks: whether it may be committed, and whether it is by the time it returns."""
        self.has_enough_replicas = len(self.isr) >= self.min_isr
        self.commits_at_once = not self.counts_flushed and not self.followers

    def set_min_insync_replicas(self, count: int, now_ms: int) -> bool:
        self._min_insync_replicas = count
        self._note_rules()
        return self._advance(now_ms)

    def expand(self, broker_id: int) -> Proposal | None:
        """Propose to add a follower that just fetched, if it may join."""
        if broker_id in self.isr or self.pending is not None:
            return None
        follower = self.followers.get(broker_id)
        if (
            follower is None
            or follower.log_end < self.high_watermark
            or follower.log_end < self._start_offset
            or not self._may_join(follower)
        ):
            return None
        return self._propose(self.isr | {broker_id})

    def shrink(self, now_ms: int) -> Proposal | None:
        """Propose to remove followers that have not been caught up for too long, if there are any."""
        if self.pending is not None:
            return None
        in_sync = self._still_in_sync(now_ms)
        return None if in_sync == self.isr else self._propose(in_sync)

    def is_abandoned(self, now_ms: int) -> bool:
        """Whether no in-sync follower has been caught up for too long. They may follow another leader."""
        return len(self.isr) > 1 and self._still_in_sync(now_ms) <= {self.broker_id}

    def _still_in_sync(self, now_ms: int) -> frozenset[int]:
        return frozenset(
            broker_id
            for broker_id in self.isr
            if broker_id == self.broker_id
            or (
                (follower := self.followers.get(broker_id)) is not None
                and follower.is_caught_up(self.log_end, now_ms, self._lag_max_ms)
            )
        )

    def _propose(self, isr: frozenset[int]) -> Proposal:
        self.maximal_isr = self.isr | isr
        self.pending = Proposal(
            self.leader_epoch,
            self.partition_epoch,
            tuple((broker_id, self._epoch_of(broker_id)) for broker_id in sorted(isr)),
            isr - self.isr,
            self.isr - isr,
        )
        return self.pending

    def _epoch_of(self, broker_id: int) -> int:
        if broker_id == self.broker_id:
            epoch = self._registered(broker_id)
        else:
            # An in-sync follower that has not fetched yet is proposed without an epoch. That is safe: if it restarted,
            # the controller would remove it, and would refuse this proposal because of its old partition epoch.
            epoch = self.followers[broker_id].broker_epoch
        return NO_BROKER_EPOCH if epoch is None else epoch

    def _may_join(self, follower: Follower) -> bool:
        fetched_as = follower.broker_epoch
        if fetched_as is None:
            return False
        registered = self._registered(follower.broker_id)
        return registered is not None and fetched_as in (NO_BROKER_EPOCH, registered)

    def accepted(self, proposal: Proposal, isr: Iterable[int], partition_epoch: int, now_ms: int) -> bool:
        """The controller applied the proposal; true if the high watermark moved."""
        if self.pending is not proposal:
            return False  # the metadata has overtaken it
        self.pending = None
        self.isr = self.maximal_isr = frozenset(isr)
        self.partition_epoch = partition_epoch
        self._note_rules()
        return self._advance(now_ms)

    def refused(self, proposal: Proposal, code: ErrorCode) -> bool:
        """The controller refused the proposal; true if the leader should propose again."""
        if self.pending is not proposal:
            return False
        if code in _NOT_APPLIED:
            self.pending = None
            self.maximal_isr = self.isr
            return False
        return code not in _WAIT_FOR_METADATA

    # -- high watermark ---------------------------------------------------------------------------------------------

    def appended(self, log_end: int, now_ms: int) -> bool:
        """The log grew to `log_end`; true if the high watermark moved."""
        before = self.log_end
        self.log_end = log_end
        if self.commits_at_once:
            if log_end <= self.high_watermark:
                return False
            self.high_watermark = log_end
            return True
        for follower in self.followers.values():
            follower.left_behind(before, now_ms)
        if self.counts_flushed or len(self.maximal_isr) > 1:
            return False
        return self._advance(now_ms)

    def flushed_to(self, offset: int, now_ms: int) -> bool:
        if offset > self.flushed:
            self.flushed = offset
        return self._advance(now_ms)

    def count_flushed(self, counts_flushed: bool, now_ms: int) -> bool:
        """Apply the topic's flush setting; records that were already visible stay visible."""
        self.counts_flushed = counts_flushed
        self._note_rules()
        return self._advance(now_ms)

    def fetched(self, broker_id: int, offset: int, log_start: int, broker_epoch: int, now_ms: int) -> bool:
        """A follower fetches from `offset` on, so it has everything below. True if the high watermark moved."""
        follower = self.followers.get(broker_id)
        if follower is None:
            # The follower knows the epoch but is unknown here: one side has not seen a reassignment yet.
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        if broker_epoch != NO_BROKER_EPOCH:
            registered = self._registered(broker_id)
            if registered is not None and broker_epoch < registered:
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "the follower has registered again since")
        before = follower.log_end
        follower.fetched(offset, log_start, broker_epoch, self.log_end, now_ms)
        return offset != before and offset > self.high_watermark and self._advance(now_ms)

    def tick(self, now_ms: int) -> bool:
        """Time passed: the wait for a joining follower is limited. True if the high watermark moved."""
        return self._advance(now_ms)

    def _advance(self, now_ms: int) -> bool:
        if not self.has_enough_replicas:
            return False
        safe = self.flushed if self.counts_flushed else self.log_end
        for follower in self.followers.values():
            if follower.log_end < safe and self._waits_for(follower, now_ms):
                safe = follower.log_end
        if safe > self.high_watermark:
            self.high_watermark = safe
            return True
        return False

    def waits_for(self, broker_id: int, now_ms: int) -> bool:
        """Whether nothing is committed before this follower has it."""
        follower = self.followers.get(broker_id)
        return follower is not None and self._waits_for(follower, now_ms)

    def _waits_for(self, follower: Follower, now_ms: int) -> bool:
        return follower.broker_id in self.maximal_isr or (
            follower.is_caught_up(self.log_end, now_ms, self._lag_max_ms) and self._may_join(follower)
        )

    def low_watermark(self, log_start: int) -> int:
        """The lowest log start offset of all replicas that are up; `log_start` is the leader's own."""
        return min(
            (
                follower.log_start
                for broker_id, follower in self.followers.items()
                if follower.log_start < log_start and self._registered(broker_id) is not None
            ),
            default=log_start,
        )

    # -- waiters ----------------------------------------------------------------------------------------------------

    def wait_for(self, offset: int, waiter: Waiter) -> None:
        """Run `waiter` once everything below `offset` is committed."""
        _wait(self.waiting, offset, waiter)

    def wait_for_flush(self, offset: int, waiter: Waiter) -> None:
        """Run `waiter` once everything below `offset` is flushed here."""
        _wait(self._flush_waiting, offset, waiter)

    def take_satisfied(self) -> list[Waiter]:
        return _take(self.waiting, self.high_watermark)

    def take_flushed(self) -> list[Waiter]:
        return _take(self._flush_waiting, self.flushed)

    def take_unsafe(self) -> list[Waiter]:
        """Take the waiters for a commit while there are too few in-sync replicas for any: they fail at once."""
        return [] if self.has_enough_replicas else _take(self.waiting, 1 << 63)

    def take_all(self) -> list[Waiter]:
        """Take all waiters: leadership ends (or the topic is gone), and they must fail."""
        return _take(self.waiting, 1 << 63) + _take(self._flush_waiting, 1 << 63)

    def succeed(self, former: LeaderState) -> None:
        """Continue as the same leader in a new epoch: appended records stay valid, and so do their waiters."""
        self.waiting, former.waiting = former.waiting, []
        self._flush_waiting, former._flush_waiting = former._flush_waiting, []


def _wait(waiting: list[tuple[int, Waiter]], offset: int, waiter: Waiter) -> None:
    if waiting and offset < waiting[-1][0]:  # a producer retries an earlier batch
        insort(waiting, (offset, waiter), key=_offset)
    else:
        waiting.append((offset, waiter))


def _take(waiting: list[tuple[int, Waiter]], offset: int) -> list[Waiter]:
    if waiting and waiting[-1][0] <= offset:
        taken = [waiter for _, waiter in waiting]
        waiting.clear()
        return taken
    count = 0
    for wanted, _ in waiting:
        if wanted > offset:
            break
        count += 1
    taken = [waiter for _, waiter in waiting[:count]]
    del waiting[:count]
    return taken


def _offset(entry: tuple[int, Waiter]) -> int:
    return entry[0]
