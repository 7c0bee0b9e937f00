"""The supervisor keeps the processes of a local cluster running: nodes, the registry, the console.

One loop waits for events: a node ends, a back-off is over, a stop is requested. Signals only write to a pipe that the
loop waits on, so nothing is decided inside a signal handler.

A node that dies is restarted after a pause that doubles with every death, and is short again once the node has stayed
up for a while. Brokers are stopped before controllers: a broker needs a controller to hand over its leaderships.

SIGHUP restarts the nodes one after the other, if the caller says how to see that one is `in_sync`: the next one stops
when the last one has caught up, so that partitions keep their replicas but one. Nodes that die meanwhile are restarted
as always, and the next one waits for them, too.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from penstock.local.node import LocalNode
from penstock.local.process import LocalProcess, NodeFailed

BACKOFF_FIRST_S = 0.2
BACKOFF_LONGEST_S = 10.0
STABLE_S = 10.0
GRACE_S = 30.0
_POLL_S = 0.02
_ROLL_POLL_S = 0.2
START_S = 600.0  # recovering a large log takes time


def stop_in_order(nodes: Sequence[LocalProcess], grace_seconds: float) -> None:
    """Stop what uses brokers, then brokers, then controllers; those of a kind in parallel.

    Controllers that were stopped (SIGSTOP) continue first: brokers wait for them during their shutdown.
    """
    for node in nodes:
        node.signal(signal.SIGCONT)
    for place in sorted({node.stops_after for node in nodes}):
        kind = [node for node in nodes if node.stops_after == place]
        for node in kind:
            node.begin_stop()
        deadline = time.monotonic() + grace_seconds
        for node in kind:
            node.stop(grace_seconds=max(0.1, deadline - time.monotonic()))


@dataclass(slots=True)
class _Watched:
    node: LocalProcess
    started: float
    backoff: float = BACKOFF_FIRST_S
    restart_at: float | None = None  # None while it runs, and after it was given up
    is_rolled: bool = False  # it is being restarted on purpose


class Supervisor:
    def __init__(
        self,
        nodes: Sequence[LocalNode],
        *,
        restart: bool,
        log: Callable[[str], None],
        followers: Sequence[LocalProcess] = (),
        in_sync: Callable[[LocalNode], bool] | None = None,
        reload: Callable[[], None] = lambda: None,
    ) -> None:
        """`followers` (a registry, a console) use the brokers: they start when these are ready.

        `in_sync`: whether a node has caught up with the cluster; with it, SIGHUP restarts the nodes one by one.
        `reload` is called before: it may change their settings, or raise NodeFailed, and then they are not restarted.
        """
        self._nodes = nodes
        self._in_sync = in_sync
        self._reload = reload
        self._roll_requested = False
        self._followers = followers
        self._restart = restart
        self._log = log
        self._stop_requested = False

    def run(self, ready: Callable[[], None], *, prepare: Callable[[], None] = lambda: None) -> bool:
        """Start all, call `ready` when clients can connect, watch until a stop is requested or no node is left.

        `prepare` is called when the brokers are ready, before followers start. True for a requested stop. In any case,
        no node runs when this returns.
        """
        with self._signals() as wakeup:
            try:
                for node in self._nodes:
                    node.start()
                self._wait_ready()
                if not self._stop_requested:
                    prepare()
                    for follower in self._followers:
                        follower.start()
                        follower.wait_ready(START_S, cancelled=lambda: self._stop_requested)
                if not self._stop_requested:
                    ready()
                    self._watch(wakeup)
            finally:
                self._stop_all()
        return self._stop_requested

    def _wait_ready(self) -> None:
        """Wait until each broker is ready, and until each reports all of them."""
        for node in self._nodes:
            node.wait_ready(START_S, cancelled=lambda: self._stop_requested)
        brokers = {node.node_id: node for node in self._nodes if node.is_broker}
        while not self._stop_requested and not all(node.known_brokers() >= brokers.keys() for node in brokers.values()):
            for node in self._nodes:
                if not node.running:
                    raise NodeFailed(f"{node.title} ended: {node.last_words()}")
            time.sleep(_POLL_S)

    def _watch(self, wakeup: int) -> None:
        watched = [_Watched(node, time.monotonic()) for node in (*self._nodes, *self._followers)]
        rolling: Iterator[None] | None = None
        while not self._stop_requested:
            for each in watched:
                if each.is_rolled:
                    continue
                if each.restart_at is None and not each.node.running:
                    self._died(each)
                elif each.restart_at is not None and each.restart_at <= time.monotonic():
                    each.node.start()
                    each.started, each.restart_at = time.monotonic(), None
            if not self._restart and not any(each.node.running for each in watched if each.node.is_broker):
                return
            if rolling is None and self._roll_requested:
                self._roll_requested = False
                rolling = self._roll(watched)
            if rolling is not None and next(rolling, self) is self:
                rolling = None
            due = min((each.restart_at for each in watched if each.restart_at is not None), default=None)
            if rolling is not None:
                due = min(due or time.monotonic() + _ROLL_POLL_S, time.monotonic() + _ROLL_POLL_S)
            readable, _, _ = select.select([wakeup], [], [], None if due is None else max(0, due - time.monotonic()))
            if readable:
                os.read(wakeup, 4096)

    def _roll(self, watched: Sequence[_Watched]) -> Iterator[None]:
        """Restart one node after the other; a step of it at each `next`."""
        in_sync = self._in_sync
        if in_sync is None:
            return
        try:
            self._reload()
        except NodeFailed as error:
            self._log(f"nothing is restarted: {error}")
            return
        self._log("restarting all nodes, one after the other")
        nodes = [(each, each.node) for each in watched if isinstance(each.node, LocalNode)]
        for each, node in sorted(nodes, key=lambda pair: pair[1].stops_after):
            while not all(other.running and in_sync(other) for _, other in nodes):
                yield
            each.is_rolled = True
            node.begin_stop()
            deadline = time.monotonic() + GRACE_S
            while node.running:
                if time.monotonic() > deadline:
                    node.kill()
                yield
            node.stop()
            node.start()
            each.started, each.restart_at, each.is_rolled = time.monotonic(), None, False
            while not in_sync(node):
                yield
            self._log(f"{node.title} is restarted, and in sync")
        self._log("all nodes are restarted")

    def _died(self, each: _Watched) -> None:
        node = each.node
        if node.process is None:
            return  # already reported
        status = node.stop()
        if status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        else:
            how = f"ended with status {status} ({node.last_words()})"
        if not self._restart:
            self._log(f"{node.title} {how}")
            return
        now = time.monotonic()
        if now - each.started > STABLE_S:
            each.backoff = BACKOFF_FIRST_S
        each.restart_at = now + each.backoff
        self._log(f"{node.title} {how}, starting it again in {each.backoff:g} s")
        each.backoff = min(each.backoff * 2, BACKOFF_LONGEST_S)

    def _stop_all(self) -> None:
        stop_in_order([*self._nodes, *self._followers], GRACE_S)

    @contextlib.contextmanager
    def _signals(self) -> Iterator[int]:
        """Handle SIGINT and SIGTERM as a request to stop, SIGHUP as one to restart, SIGCHLD as a wake-up; return a file
        descriptor to wait on."""
        wakeup, writer = os.pipe()
        os.set_blocking(writer, False)

        def request_stop(number: int, frame: object) -> None:
            self._stop_requested = True

        previous_fd = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
        previous = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}

        def request_roll(number: int, frame: object) -> None:
            self._roll_requested = True

        if self._in_sync is not None:
            previous[signal.SIGHUP] = signal.signal(signal.SIGHUP, request_roll)
        previous[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, lambda number, frame: None)
        try:
            yield wakeup
        finally:
            for number, handler in previous.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(previous_fd)
            os.close(wakeup)
            os.close(writer)
