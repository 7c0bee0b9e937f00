"""Appends several plain produce requests for one partition, which arrived together, with one write.

A client with many requests in flight fills the receive buffer with them. The work for each request (its frame, the
checks of its batch, its reply) is small compared to the work that they can share: finding the partition, the write, the
high watermark. As in `produce_plain`, other code handles everything from the first request that is not plain. The
requests of an idempotent producer are not plain here: each must be counted before the next can be checked.
"""

from __future__ import annotations

import struct

from penstock.broker.apis.produce_plain import FLEXIBLE_SINCE, LOG_START_SINCE, PlainProduce, Target, records_span
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
        self._may_append = plain.may_append
        self._now_ms = clock.now_ms

    def handle(self, connection: Connection, view: memoryview, position: int, received: int) -> int:
        """Handle the requests from `position` on, for as long as they continue what the connection sent last. Returns
        where they end: `position` itself if there are fewer than two such requests."""
        target: Target | None = connection.produce_target  # type: ignore[assignment]  # set by `produce_plain` alone
        metered = connection.metered
        # Each request of a client with quotas is counted by itself.
        is_limited = metered is not None and metered.limits.is_limited
        if target is None or is_limited or not self._may_append(target):
            return position
        version, prefix, prefix_end, replica, pack_reply, reply_length, middle, last, _ = target
        settings = replica.log.settings
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
        log_start_offset = replica.log.log_start_offset
        replies = []
        for correlation_id, (_, header) in zip(correlation_ids, batches, strict=True):
            if version >= LOG_START_SINCE:
                replies.append(pack_reply(reply_length, correlation_id, middle, offset, -1, log_start_offset, last))
            else:
                replies.append(pack_reply(reply_length, correlation_id, middle, offset, -1, last))
            offset += header.last_offset_delta + 1
        connection.answer_plainly(b"".join(replies), len(replies))
        return position
