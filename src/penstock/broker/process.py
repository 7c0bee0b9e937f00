"""Runs a node as a process: signals, logging, memory allocator, file limit.

If the start fails, or the node has to stop because of a failure, `run` raises a KafkaError with the reason in one line.

By default glibc maps and unmaps every large buffer, which makes 1 MiB fetches four times as slow. `tune_memory` tells
it (`mallopt`) to keep them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import logging
import os
import resource
import signal
import stat
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor

from penstock import __version__
from penstock.broker import node_log
from penstock.broker.metadata.formatting import metadata_log_directory
from penstock.broker.node import Node
from penstock.io import threads
from penstock.io.clock import RealClock, RealRandomness
from penstock.io.environment import Environment
from penstock.io.files import FileSystem, RealFileSystem
from penstock.io.locks import DirectoryLock
from penstock.io.neighbours import RealNeighbours
from penstock.io.processes import RealProcesses
from penstock.model.errors import ErrorCode, KafkaError
from penstock.settings.node import NodeSettings

logger = logging.getLogger("penstock.node")

WORKER_THREADS = 8


def run(settings: NodeSettings) -> None:
    """Run one node in this process until SIGTERM or SIGINT; raises KafkaError if it cannot start or has to give up."""
    import uvloop

    node_log.configure(settings.penstock_log_format, settings.node_id)
    if threads.is_asked_for():
        threads.enforce()
        threads.end_process_on_violation()
    tune_memory()
    raise_file_limit()
    files = RealFileSystem()
    with contextlib.ExitStack() as locks:
        unusable = _lock_directories(settings, files, locks)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            reason = runner.run(_serve(settings, files, unusable))
    if reason is not None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)


def _lock_directories(settings: NodeSettings, files: FileSystem, locks: contextlib.ExitStack) -> dict[str, str]:
    """Lock the directories. Returns the unusable ones with the reason; raises if the metadata log's is unusable."""
    unusable: dict[str, str] = {}
    for path in sorted({*settings.log_directories, settings.metadata_directory}):
        try:
            files.make_directories(path)
            locks.enter_context(DirectoryLock(path))
        except OSError as error:
            if path == settings.metadata_directory:
                raise
            unusable[path] = str(error)
    keep_from_others(metadata_log_directory(settings))
    return unusable


def keep_from_others(directory: str) -> None:
    """Take the permissions of other users from a directory, if it exists.

    New ones are made without. The metadata log and its snapshots have the salted passwords of SCRAM users, and what
    delegation tokens are made from.
    """
    with contextlib.suppress(FileNotFoundError):
        mode = stat.S_IMODE(os.stat(directory).st_mode)
        if mode & stat.S_IRWXO:
            os.chmod(directory, mode & ~stat.S_IRWXO)


async def _serve(settings: NodeSettings, files: FileSystem, unusable_directories: Mapping[str, str]) -> str | None:
    """Run the node. Returns None after a clean stop, else the reason for which the node gave up."""
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(WORKER_THREADS, "penstock-worker", threads.begin_worker))
    environment = Environment(
        loop=loop,
        files=files,
        clock=RealClock(),
        randomness=RealRandomness(),
        processes=RealProcesses(),
        neighbours=RealNeighbours(),
    )
    node = Node(settings, environment)
    asked_to_stop: asyncio.Future[None] = loop.create_future()

    def stop() -> None:
        if not asked_to_stop.done():
            asked_to_stop.set_result(None)

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    starting = loop.create_task(node.start(unusable_directories))
    ends: list[asyncio.Future[None] | asyncio.Future[str]] = [asked_to_stop, node.failure]
    await asyncio.wait([starting, *ends], return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():
        # The node has served no client yet, so there is nothing to finish; and it may be waiting for the quorum.
        starting.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await starting
        await node.abandon()
        return node.failure.result() if node.failure.done() else None
    await starting
    gc.collect()
    gc.freeze()  # objects that have lived this long stay: the collector need not scan them again
    logger.info("penstock %s, node %d of cluster %s, is ready", __version__, settings.node_id, node.identity.cluster_id)
    await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
    if node.failure.done():
        await node.abandon()
        return node.failure.result()
    logger.info("stopping")
    await node.stop()
    logger.info("stopped")
    return None


def raise_file_limit() -> None:
    """Raise the limit of open files to the maximum: each client, and each partition that is written to, needs one."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(ValueError, OSError):
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def tune_memory() -> None:
    """Let glibc keep large buffers instead of mapping and unmapping each: four times faster on 1 MiB fetches."""
    with contextlib.suppress(OSError, AttributeError):
        mallopt = ctypes.CDLL(None).mallopt
        trim_threshold, mmap_threshold = -1, -3
        mallopt(mmap_threshold, 32 << 20)
        mallopt(trim_threshold, 128 << 20)
