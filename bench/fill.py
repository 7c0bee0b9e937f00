"""A partition filled with copies of one batch, as fast as one connection allows."""

from __future__ import annotations

import socket
from collections.abc import Callable

from bench.frames import BadReply, produce_error_position, produce_reply_size, produce_ring
from bench.subjects import Kafka

_BYTES_IN_FLIGHT = 512 * 1024
_MAX_DEPTH = 256
_TIMEOUT_S = 60.0


def fill(kafka: Kafka, topic: str, batch: bytes, count: int, advanced: Callable[[int], object] | None = None) -> None:
    """Append `batch` to partition 0 `count` times, some in flight at once; `advanced` is called after each group."""
    depth = max(1, min(_MAX_DEPTH, _BYTES_IN_FLIGHT // len(batch)))
    ring = produce_ring(topic, 0, batch, depth)
    reply_size = produce_reply_size(topic)
    error = produce_error_position(topic)
    frames = memoryview(ring.frames)
    replies = bytearray(reply_size * depth)
    with socket.create_connection((kafka.host, kafka.port), timeout=_TIMEOUT_S) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for start in range(0, count, depth):
            group = min(depth, count - start)
            connection.sendall(frames[: group * ring.frame_size])
            view = memoryview(replies)[: group * reply_size]
            while view:
                received = connection.recv_into(view)
                if not received:
                    raise BadReply(f"the broker closed the connection while {topic} was filled")
                view = view[received:]
            end = group * reply_size
            if any(replies[error:end:reply_size]) or any(replies[error + 1 : end : reply_size]):
                raise BadReply(f"an error code in the replies while {topic} was filled")
            if advanced is not None:
                advanced(group)
