"""Asks the kernel whether a part of a file is in the page cache (`cachestat`, since Linux 6.5)."""

from __future__ import annotations

import ctypes
import mmap
import sys
from typing import Final

_CACHESTAT: Final = 451  # the number of the system call, on every architecture


class _Range(ctypes.Structure):
    _fields_ = [("position", ctypes.c_uint64), ("size", ctypes.c_uint64)]


class _Counts(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")]


if sys.platform == "linux":
    _syscall = ctypes.CDLL(None).syscall
    _syscall.restype = ctypes.c_long
    _syscall.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint)

_range, _counts = _Range(), _Counts()
_range_address, _counts_address = ctypes.addressof(_range), ctypes.addressof(_counts)


def is_cached(descriptor: int, size: int, position: int) -> bool:
    """Whether all of it is; False if the kernel cannot tell. For one thread."""
    if sys.platform != "linux":
        return False
    _range.position, _range.size = position, size
    if _syscall(_CACHESTAT, descriptor, _range_address, _counts_address, 0):
        return False
    pages: int = (position + size - 1) // mmap.PAGESIZE - position // mmap.PAGESIZE + 1
    return bool(_counts.cached >= pages)
