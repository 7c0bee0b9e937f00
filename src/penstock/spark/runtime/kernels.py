"""Compiles the kernels of `penstock.arrow` before the first batch needs them.

numba compiles them once per machine and stores the result beside the sources. By default this would happen in a Spark
task, in every Python worker at once, and the first batch would wait for it: seconds on two cores. So a session starts a
background process that compiles while Java starts. A stamp in the cache directory records that this Python compiled
these sources; without the stamp, checking would cost every start a second.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import subprocess
import sys
import threading

from penstock import records
from penstock.spark.runtime.cache import cache_directory

_COMPILE_S = 300.0
_MODULES = ("penstock.arrow", "penstock.arrow.avro_kernel")
_AVRO_KERNEL = os.path.join(os.path.dirname(os.path.dirname(records.__file__)), "arrow", "avro_kernel.py")
_COMMAND = [sys.executable, "-c", "from penstock.spark.runtime.kernels import main; main()"]


def kernels_are_compiled() -> bool:
    return os.path.exists(_stamp())


def compile_kernels() -> None:
    """Compile the kernels that are not compiled yet; when it returns, every process of this machine can load them."""
    subprocess.run(_COMMAND, check=True, stdin=subprocess.DEVNULL, timeout=_COMPILE_S)


def compile_kernels_behind() -> None:
    """The same, in the background. Nothing waits for it, and its failure has no effect: a task that runs earlier
    compiles the kernels itself, as it would have to anyway, and reports what is wrong."""
    if not kernels_are_compiled():
        threading.Thread(target=_compile_quietly, name="kernels", daemon=True).start()


def _compile_quietly() -> None:
    subprocess.run(
        _COMMAND,
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,  # Ctrl-C is meant for the driver
    )


def _stamp() -> str:
    digest = hashlib.sha256(f"{sys.version} {importlib.metadata.version('numba')}".encode())
    digest.update(os.environ.get("NUMBA_CACHE_DIR", "").encode())
    directory = os.path.dirname(records.__file__)
    names = [name for name in sorted(os.listdir(directory)) if name.startswith("columnar")]
    for path in (*(os.path.join(directory, name) for name in names), _AVRO_KERNEL):
        status = os.stat(path)
        digest.update(f"{path} {status.st_size} {status.st_mtime_ns}".encode())
    return os.path.join(cache_directory(), f"kernels-{digest.hexdigest()[:16]}")


def main() -> None:
    """Compile them in this process, if necessary, and load them."""
    stamp = _stamp()
    for name in _MODULES:
        importlib.import_module(name)
    importlib.import_module("penstock.records.columnar_types").compile_kernels()
    with open(stamp, "w", encoding="ascii"):
        pass
