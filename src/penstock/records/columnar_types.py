"""Compiles columnar kernels: for one signature each, so that an import finds them in numba's cache.

The first import on a machine compiles (some seconds); later ones load (some tenths of a second). Kernels release the
GIL, so other threads run meanwhile. Kernels pass pointers to each other, not arrays, because reference counts of arrays
cost more than the work (`pointer_to`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
from numba.core import types
from numba.extending import intrinsic

BYTES = numba.uint8[::1]
READ_BYTES = types.Array(types.uint8, 1, "C", readonly=True)  # accepts writable arrays, too
I32 = numba.int32[::1]
I64 = numba.int64[::1]
I64_TABLE = numba.int64[:, ::1]
OFFSET = numba.int64
BOOL = numba.boolean


def kernel(signature: Any) -> Callable[[Callable[..., Any]], Any]:
    compiled: Callable[[Callable[..., Any]], Any] = numba.njit(
        signature, cache=True, nogil=True, error_model="numpy", boundscheck=False
    )
    return compiled


def _pointer_to(_context, array):  # type: ignore[no-untyped-def]
    """The bytes of an array, without the array.

    Passing an array to another function costs an atomic increment and decrement; a pointer does not. The pointer is
    valid as long as the array, which the calling kernel holds.
    """

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        return context.make_array(signature.args[0])(context, builder, arguments[0]).data

    return _POINTER(array), generate


_POINTER: Any = types.CPointer(types.uint8)  # type: ignore[no-untyped-call]
pointer_to: Any = intrinsic(_pointer_to)
