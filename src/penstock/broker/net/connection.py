"""A client connection: splits the received bytes into frames and sends replies in the order of the requests.

Theory of operation:

- All connections of a process that have no partial frame receive into one shared buffer. A connection with a partial
  frame gets its own buffer until the frame is complete. If the frame was large, the connection keeps this buffer for
  the next one, as long as the kept buffers of all connections stay below a limit. Thousands of idle connections
  therefore cost next to nothing, and a 1 MiB produce request is received in place. The price: a handler must not keep a
  view of its request after the call. Data that must outlive the call is copied (as in `Produce._rewrite`).
- A buffer has room for its frame from the start, as far as the announced length is trusted. When the connections' own
  buffers take much together, no length is trusted any more, and further ones grow as bytes arrive.
- Frames are handled synchronously as they are found. All replies to one read leave in one `writelines`. Small replies
  leave only after all connections that the event loop found readable have been read: waking the client is the most
  expensive part of a reply, so the first reply wakes it and the others find it awake.
- A request that cannot be answered yet parks a `PendingReply`, which keeps its place in the queue. Later replies wait
  behind it, because Kafka answers each connection in order. Fetch and rewritten Produce requests also mute the
  connection: no later frame is handled until they are answered. Produce with acks=all on a flushed topic does not mute,
  so that a pipelining producer keeps the disk busy. A connection with too many parked replies, or whose peer does not
  read, is not read from: this is the back-pressure, and TCP carries it to the client. Nor is that of a client that has
  exceeded a quota (`throttle`).
- Long fetch replies contain ranges of files, which leave by `sendfile` (`FileSender`) if the connection is plain TCP.
- A listener with SASL gives each connection a gate, which gets the frames until the client is authenticated. Until then
  frames are limited to `sasl.server.max.receive.size`, and a buffer grows only as bytes arrive.
- Only Produce requests may be large. A decoded message without records can take fifty times the memory of its bytes, so
  all other requests are limited to `penstock.max.small.request.bytes`.
"""

from __future__ import annotations

import asyncio
import logging
import math
import struct
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol, cast

from penstock.broker.net.file_sender import FileSender
from penstock.broker.net.latency import Latency, now_ns
from penstock.io.files import Buffer
from penstock.model.file_range import RANGE_BYTES_MIN, FileRange, RangeIsGone
from penstock.model.ownership import owned_by_loop
from penstock.protocol.codec import join
from penstock.protocol.primitives import Part
from penstock.security.principal import ANONYMOUS, Principal

if TYPE_CHECKING:
    from penstock.broker.net.server import Listener
    from penstock.broker.net.throttling import MeteredClient

logger = logging.getLogger("penstock.connection")

RECEIVE_BUFFER_SIZE = 512 * 1024
OWN_BUFFER_SIZE = 64 * 1024
TRUSTED_LENGTH = 4 * 1024 * 1024  # buffers up to this size are allocated at once; larger ones grow as bytes arrive
TRUSTED_TOTAL = 256 * 1024 * 1024  # the same for the buffers of all connections together
UNTRUSTED_LENGTH = 1024  # buffers up to this size are allocated at once above it, and before authentication
SMALLEST_REQUEST = 8  # api key, api version, correlation id
JOIN_BELOW = 4096  # copying this much is cheaper than a longer writev
SEND_AT_ONCE_ABOVE = 64 * 1024
FLUSH_ABOVE = 256 * 1024  # replies to one read leave together up to this size, so that memory stays bounded
PRODUCE = 0
TIMER_SLACK_S = 0.001  # timers may fire this early

# Why a connection handles no further frame now: the bits of `Connection._held`. They are plain numbers because an
# enum.Flag would be slow here, where each frame looks at them.
BUSY = 1  # it is handling frames: one after the other, even if a handler completes replies
MUTED = 2  # the next request must wait until one is answered
CROWDED = 4  # too many requests are parked
UNREAD = 8  # the peer does not read its replies
THROTTLED = 16  # the client has exceeded a quota
ENDING = 32  # it is being closed; replies that are ready are still sent
CLOSED = 64  # lost or aborted: nothing is sent any more
SENDING = 128  # a range of a file is on its way, and what follows it waits
QUIET = 256  # like MUTED, but reading is paused only if something arrives

_read_length = struct.Struct(">i").unpack_from
_read_api_key = struct.Struct(">h").unpack_from


class Gate(Protocol):
    """Handles the frames of a connection whose client is not authenticated, or whose session will end."""

    @property
    def request_bytes_max(self) -> int: ...

    def handle(self, connection: Connection, view: memoryview, start: int, end: int, /) -> None: ...

    def handle_run(self, connection: Connection, view: memoryview, start: int, end: int, /) -> int: ...


class PendingReply:
    """Keeps the place of an unanswered request, or of several that are answered together, in its connection's queue of
    replies."""

    __slots__ = ("_connection", "deadline", "latency", "on_lost", "parts", "requests", "since")

    def __init__(self, connection: Connection, requests: int = 1) -> None:
        self._connection = connection
        self.requests = requests
        self.latency, connection.latency = connection.latency, None
        self.since = connection.since
        self.deadline = math.inf
        self.parts: Sequence[Part] | None = None
        self.on_lost: Callable[[], None] | None = None  # called if the client disconnects before it is answered

    @property
    def is_wanted(self) -> bool:
        """False once the client has disconnected."""
        return not self._connection.is_closed

    def complete(self, parts: Sequence[Part]) -> None:
        """Send the answer. An empty list sends nothing (acks=0) and frees the place in the queue."""
        self.parts = parts
        self._connection.reply_completed(self)

    def expire(self) -> None:
        """The deadline has passed; see `Connection.park_until`."""
        raise NotImplementedError


@owned_by_loop()
class Connection(asyncio.BufferedProtocol):
    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.transport: asyncio.Transport | None = None
        self.sends_files = False  # whether replies may contain ranges of files
        self._files: FileSender | None = None
        self.principal = ANONYMOUS
        self.is_token_authenticated = False  # by a delegation token
        self.peer_host = ""
        self.local_host = ""
        self.client_software = ""  # name and version, from the ApiVersions request
        # `since`: start of the read that brought the current request. `latency`: the counter of the time it takes. The
        # code that answers or parks the request takes ownership of `latency`.
        self.since = 0
        self.latency: Latency | None = None
        self.is_of_follower = False
        self._handle = listener.handle
        self._handle_run = listener.handle_run
        self._frame_max = listener.request_bytes_max
        self._small_frame_max = min(listener.small_request_bytes_max, listener.request_bytes_max)
        self._is_guarded = False
        if listener.new_gate is not None:
            self.guard(listener.new_gate(self))
        self._parked_max = listener.parked_max
        self._held = 0  # the reasons to hold frames back; outside `_process`, reading is paused while there is one
        self._own: bytearray | None = None  # a partial frame, or frames that are held back
        self._filled = 0
        self._out: list[Part] = []
        self._out_size = 0
        self._parked: deque[PendingReply] = deque()
        self._muted_by: PendingReply | None = None
        # The target of the last plain produce request, and while there is one, recent ones by the beginning of their
        # requests. Only their handler knows the type.
        self.produce_target: object = None
        self.produce_targets: dict[bytes, object] = {}
        self.metered: MeteredClient | None = None  # while quotas are set: the client, and its limits
        self.on_closed: Callable[[Connection], None] | None = None  # called if this connection has share sessions
        self._throttled: asyncio.Handle | None = None
        self._throttled_until = 0.0
        self._timer: asyncio.Handle | None = None  # for the parked replies with deadlines
        self._timer_at = math.inf

    @property
    def is_closed(self) -> bool:
        """True once nothing can be sent any more."""
        return bool(self._held & CLOSED)

    # -- callbacks of asyncio -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)  # uvloop's has the same methods but another base class
        self.sends_files = _is_plain_tcp(transport)
        self.peer_host = _host(transport.get_extra_info("peername"))
        self.local_host = _host(transport.get_extra_info("sockname"))
        self.listener.connection_opened(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._held |= CLOSED
        self.listener.limits.parked -= len(self._parked)
        for reply in self._parked:
            if reply.on_lost is not None and reply.parts is None:
                reply.on_lost()
        self._parked.clear()
        for timer in (self._throttled, self._timer):
            if timer is not None:
                timer.cancel()
        self._drop()
        if self._files is not None:
            self._files.close()
        self.listener.connection_closed(self)
        if self.on_closed is not None:
            self.on_closed(self)

    def get_buffer(self, sizehint: int) -> bytearray | memoryview:
        if self._own is None:
            return self.listener.receive_buffer
        return memoryview(self._own)[self._filled :]

    def buffer_updated(self, nbytes: int) -> None:
        self.since = now_ns()
        own = self._own
        if own is None:
            self._process(self.listener.receive_view, nbytes)
        else:
            self._filled += nbytes
            self._process(memoryview(own), self._filled)
        held = self._held
        if held and (held != QUIET or self._filled):
            self._pause_reading()

    def eof_received(self) -> bool:
        self.flush()
        if self._held & SENDING:
            self._held |= ENDING
            return True  # close when it is sent
        return False  # close; replies in the transport's buffer are still sent

    def pause_writing(self) -> None:
        self._hold(UNREAD)

    def resume_writing(self) -> None:
        self._release(UNREAD)

    # -- authentication -------------------------------------------------------------------------------------------

    def guard(self, gate: Gate) -> None:
        """Let the gate handle the frames until `let_in`. A frame is then a request or a bare token of any length."""
        self._is_guarded = True
        self._handle, self._handle_run = gate.handle, gate.handle_run
        self._frame_max = gate.request_bytes_max
        self._small_frame_max = -1  # no frame is usual

    @property
    def peer_port(self) -> int | None:
        peername = None if self.transport is None else self.transport.get_extra_info("peername")
        return peername[1] if isinstance(peername, tuple) else None

    @property
    def is_guarded(self) -> bool:
        """Whether the client has yet to authenticate."""
        return self._is_guarded

    def authenticated(self, principal: Principal, *, by_token: bool = False) -> None:
        """The client has proved who it is. Whatever was decided for this connection before no longer holds."""
        self.principal = principal
        self.is_token_authenticated = by_token
        self.produce_target = self.metered = None

    def let_in(self, gate: Gate | None) -> None:
        """The client may send requests. `gate`: still handles the frames, because the session will end."""
        listener = self.listener
        self._is_guarded = False
        self._handle = listener.handle if gate is None else gate.handle
        self._handle_run = listener.handle_run if gate is None else gate.handle_run
        self._frame_max = listener.request_bytes_max
        self._small_frame_max = min(listener.small_request_bytes_max, listener.request_bytes_max)

    def end_with(self, place: PendingReply, parts: Sequence[Part]) -> None:
        """Answer a request that was parked, and close."""
        self._held |= ENDING
        place.complete(parts)
        self.close()

    # -- frames ---------------------------------------------------------------------------------------------------

    def _process(self, view: memoryview, end: int) -> None:
        """Handle the complete frames in view[:end], keep the remaining bytes, send the replies."""
        position = 0
        self._held |= BUSY
        while end - position >= 4 and self._held == BUSY:
            (length,) = _read_length(view, position)
            is_usual = SMALLEST_REQUEST <= length <= self._small_frame_max
            if not is_usual and not self._accepts(view, position, end, length):
                break
            frame_end = position + 4 + length
            if frame_end > end:
                break
            if frame_end < end and self.produce_target is not None:
                run_end = self._handle_run(self, view, position, end)
                if run_end > position:
                    position = run_end
                    continue
            self._handle(self, view, position + 4, frame_end)
            position = frame_end
            if self._out_size > FLUSH_ABOVE:
                self.flush()
        if self._held & CLOSED:
            return
        self._held ^= BUSY
        if position != end:
            self._keep(view, position, end)
        elif self._own is not None:
            self._empty(self._own)
        if self._out_size > SEND_AT_ONCE_ABOVE:
            self.flush()
        self.listener.flush_soon(self)

    def _hold(self, reason: int) -> None:
        """Handle no further frame until `_release`."""
        if not self._held & ~QUIET:
            self._pause_reading()
        self._held |= reason

    def _release(self, reasons: int) -> None:
        """If no other reason is left, handle the bytes received meanwhile, and read on."""
        held = self._held
        self._held &= ~reasons
        if held and not self._held:
            self._read_on()

    def _read_on(self) -> None:
        if self._own is not None and self._filled:
            self.since = now_ns()
            self._process(memoryview(self._own), self._filled)
        if not self._held and self.transport is not None and not self.transport.is_closing():
            self.transport.resume_reading()

    def _pause_reading(self) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.pause_reading()

    def _keep(self, view: memoryview, position: int, end: int) -> None:
        """Keep view[position:end]: a partial frame, or frames that are held back."""
        left = end - position
        needed = left
        if left >= 4:
            (length,) = _read_length(view, position)
            if SMALLEST_REQUEST <= length <= self._frame_max:
                needed = max(left, 4 + length)
        enough = room = needed
        trusted, least = TRUSTED_LENGTH, OWN_BUFFER_SIZE
        if self._is_guarded or self.listener.limits.buffered > TRUSTED_TOTAL:
            trusted = least = UNTRUSTED_LENGTH
        if needed > trusted:  # a few bytes must not be able to claim a hundred megabytes
            enough = min(needed, max(trusted, left + 1))
            room = min(needed, max(trusted, 2 * left))
        own = self._own
        if own is None or not enough <= len(own) <= max(2 * needed, least):
            own = self._buffer(max(room, least))
            own[:left] = view[position:end]
        elif position:
            view[:left] = view[position:end]  # in place: the view is of this buffer, and memoryview handles overlaps
        self._filled = left

    def _empty(self, own: bytearray) -> None:
        """All frames in the connection's own buffer are handled."""
        self._filled = 0
        if RECEIVE_BUFFER_SIZE < len(own) <= TRUSTED_LENGTH:
            self.listener.keep_buffer(self, len(own))
        else:
            self._drop()

    def _buffer(self, size: int) -> bytearray:
        """A new buffer of its own. The view of the former one may still be in use."""
        self._drop()
        self.listener.limits.buffered += size
        self._own = own = bytearray(size)
        return own

    def _drop(self) -> None:
        if self._own is not None:
            self.listener.limits.buffered -= len(self._own)
            self._own = None

    def drop_buffer(self) -> None:
        """Release the buffer kept for the next large frame, unless that frame is already arriving."""
        if not self._filled:
            self._drop()

    def _accepts(self, view: memoryview, position: int, end: int, length: int) -> bool:
        """Whether a frame of unusual length may be received; if not, abort the connection.

        A decoded message without records takes many times the memory of its bytes, so only Produce may be large.
        """
        if self._is_guarded:
            return self._accepts_unauthenticated(length)
        limit, setting = self._frame_max, "socket.request.max.bytes"
        if end - position >= 6 and _read_api_key(view, position + 4) != (PRODUCE,):
            limit, setting = self._small_frame_max, "penstock.max.small.request.bytes"
        if SMALLEST_REQUEST <= length <= limit:
            return True
        self.listener.complaints.log(
            logging.WARNING,
            "closing %s: a request of %d bytes is not within %d to %d (%s)",
            self.peer_host,
            length,
            SMALLEST_REQUEST,
            limit,
            setting,
        )
        self.abort()
        return False

    def _accepts_unauthenticated(self, length: int) -> bool:
        if 0 <= length <= self._frame_max:
            return True
        self.listener.complaints.log(
            logging.WARNING,
            "closing %s: %d bytes before authentication are more than %d (sasl.server.max.receive.size)",
            self.peer_host,
            length,
            self._frame_max,
        )
        self.abort()
        return False

    # -- quotas ---------------------------------------------------------------------------------------------------

    @property
    def is_throttled(self) -> bool:
        return bool(self._held & THROTTLED)

    def throttle(self, throttle_ms: int) -> None:
        """Handle no further request for this long; replies still leave."""
        if self._held & CLOSED:
            return
        loop = self.listener.loop
        until = loop.time() + throttle_ms / 1000
        if self._throttled is not None:
            if self._throttled_until >= until:
                return
            self._throttled.cancel()
        self._throttled = loop.call_at(until, self._end_throttling)
        self._throttled_until = until
        self._hold(THROTTLED)

    def _end_throttling(self) -> None:
        self._throttled = None
        self._release(THROTTLED)

    # -- replies --------------------------------------------------------------------------------------------------

    def send(self, parts: Sequence[Part]) -> None:
        """Send the reply to the current request, which did not have to wait."""
        if self._parked:
            reply = PendingReply(self)
            reply.parts = parts
            self._enqueue(reply)
        else:
            self._out += parts
            for part in parts:
                self._out_size += len(part)
            latency = self.latency
            if latency is not None:
                self.latency = None
                elapsed = now_ns() - self.since
                latency.counts[elapsed.bit_length()] += 1
                latency.total_ns += elapsed

    def answer_plainly(self, reply: bytes, requests: int = 1) -> None:
        """Like `send`, for plain produce requests.

        They are counted together when all replies of this turn of the loop leave. That is when they are answered, and
        it costs next to nothing.
        """
        listener = self.listener
        if self._parked:
            self.latency = listener.plain_latency
            waiting = PendingReply(self, requests)
            waiting.parts = [reply]
            self._enqueue(waiting)
        else:
            self._out.append(reply)
            self._out_size += len(reply)
            if not listener.plain_requests:
                listener.plain_since = self.since
            listener.plain_requests += requests

    def park(self, *, mute: bool = False) -> PendingReply:
        """Reserve the place of the current request; `PendingReply.complete` answers it."""
        reply = PendingReply(self)
        self._enqueue(reply)
        if mute:
            self._muted_by = reply
            self._hold(MUTED)
        return reply

    def park_quiet(self) -> PendingReply:
        """Like `park(mute=True)`, for a peer that sends nothing more before it is answered."""
        reply = PendingReply(self)
        self._enqueue(reply)
        self._muted_by = reply
        self._held |= QUIET
        return reply

    def park_until(self, reply: PendingReply, deadline: float) -> None:
        """Reserve a place for a reply that expires if it is not completed by then, in the loop's time.

        The replies of a connection share one timer, which is nearly always set already.
        """
        reply.deadline = deadline
        self._enqueue(reply)
        self._watch(deadline)

    def _watch(self, deadline: float) -> None:
        if deadline < self._timer_at:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self.listener.loop.call_at(deadline, self._expire)
            self._timer_at = deadline

    def _expire(self) -> None:
        now = self.listener.loop.time() + TIMER_SLACK_S
        self._timer = None
        self._timer_at = math.inf
        for reply in [each for each in self._parked if each.parts is None and each.deadline <= now]:
            reply.expire()
        following = min((reply.deadline for reply in self._parked if reply.parts is None), default=math.inf)
        if following < math.inf:
            self._watch(following)

    def _enqueue(self, reply: PendingReply) -> None:
        self._parked.append(reply)
        self.listener.limits.parked += 1
        if len(self._parked) >= self._parked_max:
            self._hold(CROWDED)

    def reply_completed(self, reply: PendingReply) -> None:
        if self._held & CLOSED:
            return
        released = 0
        if self._muted_by is reply:
            self._muted_by = None
            released = MUTED | QUIET
        parked = self._parked
        is_first = not self._out  # otherwise they leave soon anyway
        while parked and (parts := parked[0].parts) is not None:
            answered = parked.popleft()
            self.listener.limits.parked -= 1
            self._out += parts
            for part in parts:
                self._out_size += len(part)
            if answered.latency is not None:
                answered.latency.add(now_ns() - answered.since, answered.requests)
        if len(parked) < self._parked_max:
            released |= CROWDED
        if not self._held & BUSY:
            if self._out_size > SEND_AT_ONCE_ABOVE:
                self.flush()
            elif is_first and self._out:
                self.listener.flush_soon(self)
        self._release(released)

    def flush(self) -> None:
        """Send the replies that are ready."""
        out = self._out
        transport = self.transport
        if not out or transport is None or self._held & (CLOSED | SENDING):
            return
        self._out = []
        size, self._out_size = self._out_size, 0
        if size > RANGE_BYTES_MIN and self.sends_files and any(isinstance(part, FileRange) for part in out):
            self._send_files(out, transport)
            return
        buffers = cast(list[Buffer], out)
        if len(out) == 1:
            transport.write(buffers[0])
        elif size <= JOIN_BELOW:
            transport.write(b"".join(buffers))
        else:
            transport.writelines(buffers)

    def _send_files(self, parts: list[Part], transport: asyncio.Transport) -> None:
        try:
            if transport.get_write_buffer_size():  # these bytes go first, and this connection is slow anyway
                transport.write(join(parts))
                return
            if self._files is None:
                descriptor = transport.get_extra_info("socket").fileno()
                self._files = FileSender(self.listener.loop, descriptor, on_sent=self._files_sent, on_failed=self.abort)
        except (OSError, RangeIsGone) as error:
            logger.warning("closing %s: a range of a file cannot be sent: %s", self.peer_host, error)
            self.abort()
            return
        if not self._files.send(parts) and not self._held & CLOSED:
            self._hold(SENDING)

    def _files_sent(self) -> None:
        self._held &= ~SENDING
        self.flush()  # what was answered meanwhile
        if self._held & (ENDING | SENDING) == ENDING:
            self.close()
        elif not self._held:
            self._read_on()

    def rewritten(self) -> None:
        """Records that this connection may have sent from a file were changed: a reader must not get a mixture."""
        if self._files is not None and self._files.has_unread:
            logger.warning("closing %s: records that it has not received were changed", self.peer_host)
            self.abort()

    @property
    def waiting(self) -> list[str]:
        """The parked requests, by the names they are counted under."""
        return [reply.latency.name for reply in self._parked if reply.latency is not None]

    # -- closing --------------------------------------------------------------------------------------------------

    def close_if_idle(self) -> bool:
        """Close a connection that has been silent for long, unless it waits for an answer."""
        if self._parked:
            return False
        if self._held & (UNREAD | SENDING):
            self.abort()  # it does not read its replies either
        else:
            self.close()
        return True

    def ignore(self) -> None:
        """Handle nothing and read nothing until it is closed; for a connection that is being made."""
        self._held |= ENDING
        # Not now: uvloop begins to read after `connection_made`, whatever happened there.
        self.listener.loop.call_soon(self._pause_reading)

    def close(self) -> None:
        """Close. Handle no more requests, not even those already received; replies that are ready are still sent."""
        self._held |= ENDING
        self.flush()
        if self.transport is not None and not self._held & SENDING:
            self.transport.close()

    def abort(self) -> None:
        """Close at once and discard unsent replies."""
        self._held |= CLOSED
        self._out.clear()
        if self.transport is not None:
            self.transport.abort()


def _is_plain_tcp(transport: asyncio.BaseTransport) -> bool:
    """Whether bytes written to the transport's socket are those that the peer reads."""
    its_socket = transport.get_extra_info("socket")
    return its_socket is not None and its_socket.fileno() >= 0 and transport.get_extra_info("ssl_object") is None


def _host(address: object) -> str:
    return str(address[0]) if isinstance(address, tuple) and address else ""
