"""Decides what a disk holds of one file after a power loss.

The page cache writes whole sectors, in no guaranteed order. So each sector that was written since the last sync holds,
independently of the others, what it held at *some* moment since that sync: nothing new, everything, or an intermediate
state; and the sector being written at the power loss may be half old and half new. The size of the file is stored
elsewhere (in the inode) and is likewise that of some moment: if it is ahead of the data, the bytes in between read as
zeros, or, on some file systems, as what was on those blocks before.

Two laws follow, and the tests check the model against them: a byte that was synced and not written again is always
there, and a byte of the result was either in the file at some moment since the last sync, or lies past the synced end.

If every sector were scattered independently, nearly always the very first unsynced write would be torn, and recovery
would have little to decide. So the fate of a file is drawn first: all lost, all kept, kept up to a moment, or
scattered.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Final

SECTOR = 512

Change = tuple[int, bytes | None]
"""(position, bytes) for a write, (size, None) for a truncation."""

_GARBAGE: Final = (b"\x00", b"\xff", b"\xa5")


def apply(content: bytearray, change: Change) -> None:
    position, data = change
    if data is None:
        if position < len(content):
            del content[position:]
        else:
            content.extend(bytes(position - len(content)))
        return
    if position > len(content):
        content.extend(bytes(position - len(content)))
    content[position : position + len(data)] = data


def after_power_loss(durable: bytearray, changes: Sequence[Change], chance: random.Random) -> bytearray:
    """The new content of the file. `durable` is not changed."""
    if not changes:
        return bytearray(durable)
    fate = chance.random()
    if fate < 0.15:
        return bytearray(durable)
    if fate < 0.3:
        return _replayed(durable, changes)
    if fate < 0.6:
        return _cut_at_a_moment(durable, changes, chance)
    return _scattered(durable, changes, chance)


def _replayed(durable: bytearray, changes: Sequence[Change]) -> bytearray:
    content = bytearray(durable)
    for change in changes:
        apply(content, change)
    return content


def _cut_at_a_moment(durable: bytearray, changes: Sequence[Change], chance: random.Random) -> bytearray:
    """Everything in order up to a moment in the middle of one write, of which a prefix is there."""
    moment = chance.randrange(len(changes))
    content = _replayed(durable, changes[:moment])
    position, data = changes[moment]
    if data:
        prefix = chance.randrange(len(data))
        if chance.random() < 0.5:
            prefix -= (position + prefix) % SECTOR  # a tear between sectors is more likely
        if prefix > 0:
            apply(content, (position, data[:prefix]))
        if chance.random() < 0.3:  # the inode was ahead of the data
            _extend(content, position + len(data), chance)
    return content


def _scattered(durable: bytearray, changes: Sequence[Change], chance: random.Random) -> bytearray:
    size = _surviving_size(len(durable), changes, chance)
    content = bytearray(durable[:size])
    _extend(content, size, chance)
    for sector, touching in _changes_by_sector(len(durable), changes).items():
        start = sector * SECTOR
        if start >= size:
            continue
        kept = chance.randint(0, len(touching))
        if not kept:
            continue
        old = _sector(durable, start, touching[: kept - 1])
        new = _sector(durable, start, touching[:kept])
        if chance.random() < 0.1:  # torn within the sector: the first part is new
            tear = chance.randrange(SECTOR)
            new = new[:tear] + old[tear:]
        content[start : start + SECTOR] = new[: size - start]
    return content


def _surviving_size(size: int, changes: Sequence[Change], chance: random.Random) -> int:
    sizes = [size]
    for position, data in changes:
        sizes.append(position if data is None else max(sizes[-1], position + len(data)))
    moment = chance.choice((0, len(changes), chance.randint(0, len(changes))))
    before, after = sizes[max(0, moment - 1)], sizes[moment]
    if after > before and chance.random() < 0.25:  # the inode was written in the middle of the write
        return chance.randint(before, after)
    return after


def _extend(content: bytearray, size: int, chance: random.Random) -> None:
    missing = size - len(content)
    if missing > 0:
        content.extend(chance.choice(_GARBAGE) * missing if chance.random() < 0.5 else bytes(missing))


def _changes_by_sector(size: int, changes: Sequence[Change]) -> dict[int, list[Change]]:
    touching: dict[int, list[Change]] = {}
    for change in changes:
        position, data = change
        if data is None:
            first, end, size = position, size, position  # what is cut off; growing touches no sector
        elif data:
            first, end = position, position + len(data)
            if position > size:
                first = size  # the gap becomes zeros
            size = max(size, end)
        else:
            continue
        if first < end:
            for sector in range(first // SECTOR, (end - 1) // SECTOR + 1):
                touching.setdefault(sector, []).append(change)
    return touching


def _sector(durable: bytearray, start: int, changes: Sequence[Change]) -> bytes:
    content = bytearray(durable[start : start + SECTOR])
    content.extend(bytes(SECTOR - len(content)))
    for position, data in changes:
        if data is None:
            cut = max(0, position - start)
            if cut < SECTOR:
                content[cut:] = bytes(SECTOR - cut)
            continue
        source = max(0, start - position)
        target = max(0, position - start)
        piece = data[source : source + SECTOR - target]
        content[target : target + len(piece)] = piece
    return bytes(content)
