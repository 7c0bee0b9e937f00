"""Plans a stream: where it begins, how far each batch goes, and what its tasks read.

**An idle query waits at the broker.** Between two calls of Spark a fetch is parked at the end of each partition,
without a thread (`log_watch`). Only a call that repeats the last one at once may wait for it: if another batch ran in
between, for a timer or for another source, a wait would delay the next one.

**The first batch of a stream from "latest" is empty.** A checkpoint contains the ends of batches, and not the beginning
of the first one. If that is "latest" or a time, it would be another offset after a crash. So the first batch is empty,
and its end is where the stream begins.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from pyspark.sql.datasource import InputPartition

from penstock.client.errors import ClientError
from penstock.model.errors import KafkaError
from penstock.spark.source.errors import ForeignCheckpoint, lost, report_losses
from penstock.spark.source.group_offsets import GroupProgress
from penstock.spark.source.log_bounds import starting_offsets
from penstock.spark.source.log_watch import LogWatch
from penstock.spark.source.offsets import Bound, Offsets, TopicIds
from penstock.spark.source.options import SourceOptions
from penstock.spark.source.partitions import input_partitions
from penstock.spark.source.planning import Admission, plan
from penstock.spark.source.topic_logs import TopicLogs

logger = logging.getLogger(__name__)

_IDLE_GAP_S = 0.05
_IDLE_WAIT_S = 0.1
CATCH_UP_S = 2.0
_COMMIT_S = 3.0
_COMMIT_AGAIN_S = 3.0


class StreamPlanner:
    """Decides where a stream begins, and how far each batch goes."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._logs = TopicLogs(options)
        self._watch = LogWatch(self._logs.leaders, options.kafka.isolation)
        self._group = SourceGroup(options)
        self._admission = Admission(options.limits)
        self._initial: Offsets | None = None
        self._settled = not options.start.moves  # whether the checkpoint need not contain where the stream began
        self._target: Offsets | None = None
        self._idle_at: Offsets | None = None  # the argument of the last call, if that found nothing new
        self._idle_since = 0.0
        self.known: Offsets = {}  # where the partitions ended at the last look

    def close(self) -> None:
        self._logs.leaders.close()
        self._group.close()

    @property
    def topic_ids(self) -> TopicIds:
        """Of the topics as they were at the last look."""
        return self._logs.topic_ids

    def initial(self) -> Offsets:
        """Spark asks for it more than once before the first batch, and the answer must not change in between."""
        if self._initial is None:
            logs = self._logs
            logs.look()
            self._initial = starting_offsets(self.options, logs, logs.begins(), logs.ends())
        return self._initial

    def stop_at_present(self) -> None:
        """Read what exists now, or up to where the options say, and no more."""
        self._logs.look()
        ends = self._logs.ends()
        until = self.options.until
        if until is not None:
            Bound("untilOffsets", until).check_names(ends)
            ends = {each: min(end, until[each]) for each, end in ends.items()}
        self._target = ends

    def latest(self, start: Offsets, *, everything: bool, ids: TopicIds | None = None) -> Offsets:
        """The end of the next batch, or `start` if there is none. `ids`: the topics that `start` belongs to.

        Spark passes the end of the batch before: that batch is finished, and its offsets are committed to the group. If
        Spark passes the same offsets again at once, the query is idle, and the answer may wait for new records.
        """
        self._check_origin(start)
        idle = self._idle_at == start and time.monotonic() - self._idle_since < _IDLE_GAP_S
        partitions = self._logs.partitions
        self._logs.look_if_old()
        asked = start
        start = self._still_valid(start, ids or {})
        self._group.reached(start)
        if asked == self._initial and not self._settled:
            self._settled = True
            return dict(start)
        if self._target is not None:
            self.known = self._not_behind(start, dict(self._target))
            self._check_kept(start)
            return self._admitted(start, everything, minimum=False)
        if not idle or partitions != self._logs.partitions or self._watch.wait(self.known, _IDLE_WAIT_S):
            self.known = self._not_behind(start, self._logs.ends())
            self._check_kept(start)
        end = self._admitted(start, everything)
        self._idle_at, self._idle_since = (dict(asked), time.monotonic()) if end == asked else (None, 0.0)
        return end

    def pieces(
        self, start: Offsets, end: Offsets, start_ids: TopicIds | None = None, end_ids: TopicIds | None = None
    ) -> Sequence[InputPartition]:
        """What the tasks of a batch read."""
        self._check_origin(start)
        self._logs.look_if_old()
        if start == self._initial and self.options.start.moves:
            start = {each: min(offset, end.get(each, offset)) for each, offset in start.items()}
        start = self._still_valid(start, start_ids or {})
        if end_ids:
            # A batch that was planned in a topic that is gone reads nothing of it. The next one reads its successor.
            valid = self._still_valid(end, end_ids)
            start = {each: offset for each, offset in start.items() if each in valid or each not in end}
            end = valid
        planned = plan(start, end, self._begins_of_new(start, end))
        gone = [piece for piece in planned.pieces if piece.partition.topic not in self._logs.topic_ids]
        losses = planned.losses + [lost(*piece, "the topic was deleted") for piece in gone]
        report_losses(losses, fail=self.options.fail_on_data_loss)
        here = [piece for piece in planned.pieces if piece not in gone]
        return input_partitions(here, self.options, self._logs.topic_ids)

    def _admitted(self, start: Offsets, everything: bool, *, minimum: bool = True) -> Offsets:
        if everything:
            return dict(self.known)
        begins = self._begins_of_new(start, self.known) | start
        return self._admission.admit(begins, self.known, time.monotonic(), minimum=minimum)

    def _still_valid(self, offsets: Offsets, ids: TopicIds) -> Offsets:
        """`offsets` without those of deleted topics whose name another topic has now: that is read from its
        beginning."""
        outdated = {topic for topic in {each.topic for each in offsets} if self._logs.is_another(topic, ids)}
        losses = [
            f"{each}: the checkpoint is at offset {offset} of a topic that was deleted and created again"
            for each, offset in offsets.items()
            if each.topic in outdated
        ]
        report_losses(losses, fail=self.options.fail_on_data_loss)
        return {each: offset for each, offset in offsets.items() if each.topic not in outdated}

    def _begins_of_new(self, start: Offsets, end: Offsets) -> Offsets:
        """Partitions that were added since are read from their beginning."""
        if start.keys() >= end.keys():
            return {}
        begins = self._logs.begins()
        return {partition: begins.get(partition, 0) for partition in end if partition not in start}

    def _not_behind(self, start: Offsets, ends: Offsets) -> Offsets:
        """Where the partitions end. A partition that ends before the start of the batch has lost records, unless its
        new leader is still catching up, or the query has switched to read_committed."""
        deadline = time.monotonic() + CATCH_UP_S
        while behind := [each for each, end in ends.items() if end < start.get(each, 0)]:
            log_ends = self._logs.log_ends()
            ends |= {each: start[each] for each in behind if log_ends.get(each, 0) >= start[each]}
            if time.monotonic() > deadline:
                break
            time.sleep(self.options.offset_retry_interval)
        return ends

    def _check_kept(self, start: Offsets) -> None:
        """Before Spark stores the end of a batch: it would repeat a batch that has lost records for ever, also when the
        topic, or the leader that has them, is back."""
        if self.options.fail_on_data_loss:
            known = {each: end for each, end in self.known.items() if each in start}
            report_losses(plan(start, known, {}).losses, fail=True)

    def _check_origin(self, start: Offsets) -> None:
        subscription = self.options.subscription
        foreign = sorted(each for each in start if not subscription.takes(each))
        if foreign and self.options.fail_on_data_loss:
            found = foreign[0] if subscription.takes_topic(foreign[0].topic) else f"topic {foreign[0].topic!r}"
            raise ForeignCheckpoint(
                f"the checkpoint holds offsets of {found}, which {subscription.option}={subscription} "
                f"does not read: if it is another query's, give this one a checkpointLocation of its own; if it "
                f'is to be left out from here on, option("failOnDataLoss", "false")'
            )


class SourceGroup:
    """Commits the query's offsets to the group that the user named. A failure to commit does not stop the query."""

    def __init__(self, options: SourceOptions) -> None:
        self._group = options.kafka.group_id
        self._progress = GroupProgress(options.kafka.bootstrap, timeout=_COMMIT_S)
        self._reached: Offsets = {}
        self._not_before = 0.0

    def reached(self, offsets: Offsets) -> None:
        """Commits offsets once, not repeatedly while the query is idle."""
        if self._group is None or offsets == self._reached or time.monotonic() < self._not_before:
            return
        try:
            self._progress.commit(self._group, offsets)
            self._reached = dict(offsets)
        except (ClientError, KafkaError) as error:
            logger.warning("progress is not committed to group %r: %s", self._group, error)
            self._not_before = time.monotonic() + _COMMIT_AGAIN_S

    def close(self) -> None:
        self._progress.close()
