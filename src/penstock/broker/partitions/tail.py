"""The end of a leader's log in memory: the batches that followers are about to fetch.

In-sync followers fetch what was appended a moment ago, each of them. Those batches are kept until the high watermark
passes them: every in-sync follower then has them. Followers that are further behind read the file, and so does one that
asks for the same data again (see `Position.is_doubtful`).
"""

from __future__ import annotations

from typing import Final

from penstock.model.ownership import owned_by_loop

TAIL_BYTES_MAX: Final = 128 * 1024
TAILS_BYTES_MAX: Final = 8 * 1024 * 1024


@owned_by_loop()
class Tails:
    """What the tails of all partitions of a broker share: the limit on their memory."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0


@owned_by_loop()
class Tail:
    __slots__ = ("_batches", "_end", "_starts", "_tails", "size")

    def __init__(self, tails: Tails) -> None:
        self._tails = tails
        self._starts: list[int] = []
        self._batches: list[bytes] = []
        self._end = -1
        self.size = 0

    def append(self, start: int, end: int, batch: bytes) -> None:
        """The log grew from `start` to `end` by a batch, or by a run of them."""
        size = len(batch)
        if start != self._end or self.size + size > TAIL_BYTES_MAX or self._tails.size + size > TAILS_BYTES_MAX:
            self.clear()
            if size > TAIL_BYTES_MAX or self._tails.size + size > TAILS_BYTES_MAX:
                return
        self._starts.append(start)
        self._batches.append(batch)
        self._end = end
        self.size += size
        self._tails.size += size

    def read(self, offset: int, end: int, max_bytes: int) -> bytes | None:
        """Everything from `offset` to `end`; None if some of it is not here, or if it is more than `max_bytes`."""
        batches = self._batches
        if end != self._end or not batches:
            return None
        if offset == self._starts[0]:
            if self.size > max_bytes:
                return None
            return batches[0] if len(batches) == 1 else b"".join(batches)
        try:
            rest = batches[self._starts.index(offset) :]
        except ValueError:
            return None
        found = rest[0] if len(rest) == 1 else b"".join(rest)
        return found if len(found) <= max_bytes else None

    def committed(self, high_watermark: int) -> None:
        """Forget the batches below the high watermark."""
        if high_watermark >= self._end:
            self.clear()
            return
        starts = self._starts
        count = 0
        while count + 1 < len(starts) and starts[count + 1] <= high_watermark:
            count += 1
        if count:
            size = sum(len(batch) for batch in self._batches[:count])
            del starts[:count], self._batches[:count]
            self.size -= size
            self._tails.size -= size

    def clear(self) -> None:
        self._tails.size -= self.size
        self.size = 0
        self._end = -1
        self._starts.clear()
        self._batches.clear()
