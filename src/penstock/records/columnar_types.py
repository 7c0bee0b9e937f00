"""Compiles columnar kernels: for one signature each, at the first call, so that numba's cache has one entry for each.

The first call on a machine compiles (some tenths of a second to a second a kernel); in later processes it loads (some
hundredths). Where no cache can be written, every process compiles. A program pays only for the kernels that it uses. A
program that forks workers, or whose first batch must not wait, calls `compile_kernels`. Kernels release the GIL, so
other threads run meanwhile. Kernels use pointers, not arrays, and pass them to each other: an array's reference counts
cost more than the work, and its indexes, which may be negative, make the code several times larger, and its compilation
slower (`pointer_to`).
"""

from __future__ import annotations

import contextlib
import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import numba
from numba.core import cgutils, types
from numba.extending import intrinsic

BYTES = numba.uint8[::1]
READ_BYTES = types.Array(types.uint8, 1, "C", readonly=True)  # accepts writable arrays, too
I32 = numba.int32[::1]
I64 = numba.int64[::1]
I64_TABLE = numba.int64[:, ::1]
OFFSET = numba.int64
BOOL = numba.boolean

_kernels: list[Kernel] = []


@contextlib.contextmanager
def _without_collections() -> Iterator[None]:
    """numba makes a million objects that live until it has compiled: searching them takes a third of its time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class Kernel:
    """A function that is compiled for one signature when it is first called."""

    def __init__(self, function: Callable[..., Any], signature: Any) -> None:
        self.py_func = function
        self._signature = signature
        self._compiled: Callable[..., Any] | None = None
        self._lock = threading.Lock()

    def __call__(self, *arguments: Any) -> Any:
        return (self._compiled or self.compile())(*arguments)

    def compile(self) -> Callable[..., Any]:
        """Compile or load it, if that has not been done."""
        with self._lock:
            if self._compiled is None:
                with _without_collections():
                    try:
                        self._compiled = self._compile(cache=True)
                    except (OSError, RuntimeError):  # no directory for a cache is writable, or its disk is full
                        self._compiled = self._compile(cache=False)
            return self._compiled

    def _compile(self, *, cache: bool) -> Callable[..., Any]:
        compiled: Callable[..., Any] = numba.njit(
            self._signature, cache=cache, nogil=True, error_model="numpy", boundscheck=False
        )(self.py_func)
        return compiled


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Kernel]:
    def declare(function: Callable[..., Any]) -> Kernel:
        _kernels.append(Kernel(function, signature))
        return _kernels[-1]

    return declare


def compile_kernels() -> None:
    """Compile or load the kernels of all modules that are imported."""
    for each in _kernels:
        each.compile()


def _pointer_to(_context, array):  # type: ignore[no-untyped-def]
    """The numbers of an array, without the array.

    Passing an array to another function costs an atomic increment and decrement; a pointer does not. The pointer is
    valid as long as the array, which the calling kernel holds.
    """
    return types.CPointer(array.dtype)(array), _address  # type: ignore[no-untyped-call]


def _pointer_as(_context, array, number):  # type: ignore[no-untyped-def]
    """The same memory as numbers of another type."""
    return types.CPointer(number.dtype)(array, number), _address  # type: ignore[no-untyped-call]


def _address(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
    address = context.make_array(signature.args[0])(context, builder, arguments[0]).data
    return builder.bitcast(address, context.get_value_type(signature.return_type))


def _copy_bytes(_context, target, to, source, position, size):  # type: ignore[no-untyped-def]
    """memcpy between two pointers to bytes. Like a loop, it checks nothing; unlike one, it need not be compiled."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        target, to, source, position, size = arguments
        copy: Any = cgutils.raw_memcpy
        copy(builder, builder.gep(target, [to]), builder.gep(source, [position]), size, 1)
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


pointer_to: Any = intrinsic(_pointer_to)
pointer_as: Any = intrinsic(_pointer_as)
copy_bytes: Any = intrinsic(_copy_bytes)
