"""Appends several plain produce requests for one partition, which arrived together, with one write.

A client with many requests in flight fills the receive buffer with them. The work for each request (its frame, the
checks of its batch, its reply) is small compared to the work that they can share: finding the partition, the write, the
high watermark. As in `produce_plain`, other code handles everything from the first request that is not plain. The
requests of an idempotent producer are not plain here: each must be counted before the next can be checked.
"""

from __future__ import annotations

import struct

from penstock.broker.apis.produce_acks import Answered
from penstock.broker.apis.produce_plain import FLEXIBLE_SINCE, PlainProduce, Target, must_wait, records_span
from penstock.broker.net.connection import Connection
from penstock.io.clock import Clock
from penstock.model.errors import KafkaError
from penstock.records.batch import BatchHeader, read_header, set_base_offset
from penstock.records.validation import validate_produce

REQUESTS_MAX = 64
REQUEST_BYTES_MAX = 64 * 1024  # no gain with larger ones
PREFIX_AT = 12  # after length, API key and version, correlation id

_frame_start = struct.Struct(">iii").unpack_from  # length; API key (0) and version as one number; correlation id


class ProduceRun:
    def __init__(self, plain: PlainProduce, clock: Clock) -> None:
        self._plain = plain
        self._now_ms = clock.now_ms

    def handle(self, connection: Connection, view: memoryview, position: int, received: int) -> int:
        """Handle the requests from `position` on, for as long as they continue what the connection sent last. Returns
        where they end: `position` itself if there are fewer than two such requests."""
        target: Target | None = connection.produce_target  # type: ignore[assignment]  # set by `produce_plain` alone
        metered = connection.metered
        # Each request of a client with quotas is counted by itself.
        is_limited = metered is not None and metered.limits.is_limited
        if target is None or is_limited or not self._plain.may_append(target):
            return position
        version, prefix, prefix_end, replica = target.version, target.prefix, target.prefix_end, target.replica
        leader, settings = replica.leader, replica.log.settings
        now_ms = self._now_ms()
        is_flexible = version >= FLEXIBLE_SINCE
        batches: list[tuple[memoryview, BatchHeader]] = []
        correlation_ids = []
        start = position
        try:
            while len(batches) < REQUESTS_MAX:
                length, api, correlation_id = _frame_start(view, position)
                frame_start = position + 4
                end = frame_start + length
                if (
                    end > received
                    or api != version
                    or not prefix_end < length <= REQUEST_BYTES_MAX
                    or view[position + PREFIX_AT : frame_start + prefix_end] != prefix
                ):
                    break
                batch_start, batch_end = records_span(view, frame_start + prefix_end, end, is_flexible)
                batch = view[batch_start:batch_end]
                header = read_header(batch)
                if (
                    header.producer_id >= 0
                    or validate_produce(batch, header, settings, now_ms, api_version=version) is None
                ):
                    break
                batches.append((batch, header))
                correlation_ids.append(correlation_id)
                position = end
        except (struct.error, IndexError, KafkaError):
            pass  # the run ends before this request, which other code answers
        if len(batches) < 2:
            return start
        try:
            offset = replica.append_run(batches, now_ms)
        except KafkaError:
            offset = None
        if offset is None:
            for batch, header in batches:
                set_base_offset(batch, 0, header.base_offset, header.leader_epoch)
            return start
        assert leader is not None
        log_start_offset = replica.log.log_start_offset
        answered: list[Answered] = []
        for correlation_id, (_, header) in zip(correlation_ids, batches, strict=True):
            following = offset + header.last_offset_delta + 1
            answered.append((correlation_id, following, target.reply(correlation_id, offset, log_start_offset)))
            offset = following
        if leader.commits_at_once or not must_wait(target, leader, offset):
            connection.answer_plainly(b"".join([reply for _, _, reply in answered]), len(answered))
        else:
            self._plain.acknowledge_later(connection, target, leader, answered, log_start_offset)
        return position
