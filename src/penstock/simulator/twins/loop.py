"""An asyncio event loop on virtual time.

Time stands still while callbacks run, and jumps to the next timer when none is ready. So hours pass in milliseconds,
and a run depends only on the seed. Handles, futures, tasks and TaskGroups are asyncio's own. The queue of ready
callbacks and timers is not: it asks no kernel, and compares timers without calling Python, because simulations do
little else. `run_in_executor` calls the function at once after a random delay, when a thread would have finished; or,
if the loop `interleaves`, on a thread that pauses between file operations (`threads`). Either way the code runs as a
worker. If it touches state that the loop owns, the law `LoopOwnsState` ends the run. Sockets are those of `network`.

Several machines live on one loop. The machine that code runs on is part of its context (`contextvars`), inherited by
every task, timer and transport it creates; `start` begins a process on a host, and its `create_server` binds there.
`kill` ends a process as the kernel does, from one instruction to the next: its callbacks and timers are dropped, its
tasks never run again, not even their `finally` blocks, and its sockets close. Still give such a process a `Mount` of
its disk: what the interpreter unwinds at the very end must not write.

Objects that asyncio keeps in sets (tasks, futures) are hashed by a counter here and not by address: a TaskGroup cancels
its tasks in the order of a set, and that order must be the same in every run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import inspect
import random
from asyncio import base_events
from collections import deque
from collections.abc import Callable, Coroutine
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakKeyDictionary

from penstock.io.threads import as_worker, violations
from penstock.simulator.twins.network import LOOPBACK, Network
from penstock.simulator.twins.threads import SimulatedThread
from penstock.simulator.twins.trace import Trace
from penstock.simulator.twins.transport import SimulatedServer, SimulatedTransport

T = TypeVar("T")

PAUSE_RATE = 0.3
_START_S = 1_000.0
"""Not zero: a deadline that is mistaken for "none" should be noticed."""
_CANCELLED_MAX = 100
"""Cancelled timers are kept until there are this many, and they are the majority."""


class Deadlock(RuntimeError):
    """Nothing is ready and no timer is set, so what is awaited will never happen."""


class Process:
    """A program on a host, from `start` to `kill`."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.alive = True
        self.tasks: dict[SimulatedTask[Any], None] = {}
        self.threads: dict[SimulatedThread, None] = {}


UVLOOP_RESOLUTION_S = 0.001

_process: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class SimulatedFuture(asyncio.Future[T]):
    def __init__(self, *, loop: SimulatedLoop) -> None:
        super().__init__(loop=loop)
        self._number = loop.next_number()

    def __hash__(self) -> int:
        return self._number


class SimulatedTask(asyncio.Task[T]):
    def __init__(self, coroutine: Coroutine[Any, Any, T], *, loop: SimulatedLoop, **options: Any) -> None:
        self._number = loop.next_number()
        self.context = options.pop("context", None) or contextvars.copy_context()
        process = self.context.get(_process)
        if process is not None:
            process.tasks[self] = None
        super().__init__(coroutine, loop=loop, context=self.context, **options)
        if process is not None:
            self.add_done_callback(process.tasks.pop, context=contextvars.Context())

    def __hash__(self) -> int:
        return self._number


class DueTimer(asyncio.TimerHandle):
    """As of uvloop, which knows no time of a timer that is due at once."""

    def when(self) -> float:
        raise AttributeError("uvloop's handle of a time that has come has no 'when'")


class SimulatedLoop(base_events.BaseEventLoop):
    if TYPE_CHECKING:  # of BaseEventLoop, and the same in every version since 3.4
        _ready: deque[asyncio.Handle]
        _stopping: bool
        _timer_cancelled_count: int

        def _check_closed(self) -> None: ...

    def __init__(self, seed: int | str = 0) -> None:
        super().__init__()
        self.seed = seed
        self.trace = Trace(self.time)
        self.network = Network(self, random.Random(f"{seed}/network"))
        self.watcher: Callable[[], None] | None = None
        """Called whenever everything that can happen at a moment has happened: it sees the world at rest."""
        self.touched: dict[str, None] = {}
        """The hosts whose code has run since the watcher was last called: nothing has changed on the others."""
        self.executor_delay: Callable[[], float] = self._ordinary_executor_delay
        """Seconds that a function given to `run_in_executor` takes; replace it for slow disks."""
        self.interleaves = False
        """Whether threads pause while others continue."""
        self.pauses = 0
        self._now = _START_S
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []  # a heap: those of one moment in their order
        self._timers_made = 0
        self._numbers = 0
        self._threads = random.Random(f"{seed}/threads")
        self._busy_until: WeakKeyDictionary[object, float] = WeakKeyDictionary()
        self._processes: dict[str, Process] = {}
        self._dead: list[SimulatedTask[Any]] = []

    # Time.

    def time(self) -> float:
        return self._now

    def advance(self, seconds: float) -> None:
        """The code that runs now takes this long."""
        self._now += seconds
        self.trace.moments += 1

    def _run_once(self) -> None:
        """One round of ready callbacks; if there are none, time first advances to the next timer."""
        timers, ready = self._timers, self._ready
        if self._timer_cancelled_count > _CANCELLED_MAX and 2 * self._timer_cancelled_count > len(timers):
            self._forget_cancelled()
        if not ready and not self._stopping:
            self._pass_time()
        while timers and timers[0][0] <= self._now:
            timer = heapq.heappop(timers)[2]
            timer._scheduled = False  # type: ignore[attr-defined]
            if timer._cancelled:
                self._timer_cancelled_count -= 1
            else:
                ready.append(timer)
        touched = self.touched
        for _ in range(len(ready)):
            handle: Any = ready.popleft()
            if not handle._cancelled:
                process = handle._context.get(_process)
                if process is not None:
                    touched[process.host] = None
                handle._run()

    def _pass_time(self) -> None:
        timers = self._timers
        while timers and timers[0][2]._cancelled:
            heapq.heappop(timers)
            self._timer_cancelled_count -= 1
        if not timers:
            raise Deadlock("nothing is ready and no timer is set: what is waited for will never happen")
        when = timers[0][0]
        if when > self._now:
            if violations:
                raise violations.pop()
            if self.watcher is not None:
                self.watcher()
                if self._ready:
                    return  # code that waited for what the watcher has seen acts before anything else happens
            self.touched.clear()
            self._now = when
            self.trace.moments += 1

    def _forget_cancelled(self) -> None:
        self._timers[:] = [entry for entry in self._timers if not entry[2]._cancelled]
        heapq.heapify(self._timers)
        self._timer_cancelled_count = 0

    def _write_to_self(self) -> None:
        """The loop never sleeps, so nothing must wake it."""

    def next_number(self) -> int:
        self._numbers += 1
        return self._numbers

    # Tasks and futures.

    def create_future(self) -> asyncio.Future[Any]:
        return SimulatedFuture(loop=self)

    def create_task(  # type: ignore[override]
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: contextvars.Context | None = None
    ) -> asyncio.Task[T]:
        self._check_closed()
        # Python numbers unnamed tasks per interpreter, so two runs in one interpreter would differ.
        return SimulatedTask(coro, loop=self, name=name or f"task-{self._numbers + 1}", context=context)

    def call_soon(  # type: ignore[override]
        self, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.Handle:
        self._check_closed()
        handle: Any = asyncio.Handle(callback, args, self, context)
        process = handle._context.get(_process)
        if process is None or process.alive:
            self._ready.append(handle)
        else:
            handle.cancel()
        return handle  # type: ignore[no-any-return]

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: contextvars.Context | None = None
    ) -> asyncio.TimerHandle:
        self._check_closed()
        kind = DueTimer if when - self.time() < UVLOOP_RESOLUTION_S / 2 else asyncio.TimerHandle
        timer: Any = kind(when, callback, args, self, context)
        process = timer._context.get(_process)
        if process is None or process.alive:
            self._timers_made += 1
            heapq.heappush(self._timers, (when, self._timers_made, timer))
            timer._scheduled = True
        else:
            timer.cancel()
        return timer  # type: ignore[no-any-return]

    # Hosts and processes.

    @property
    def process(self) -> Process | None:
        """The process of the calling code."""
        return _process.get()

    @property
    def host(self) -> str:
        """The host of the calling code."""
        process = _process.get()
        return process.host if process is not None else "localhost"

    def start(self, host: str, program: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Run a program on a host; one at a time on each."""
        previous = self._processes.get(host)
        if previous is not None and previous.alive and previous.tasks:
            program.close()
            raise RuntimeError(f"{host} already runs a program")
        process = self._processes[host] = Process(host)
        self.network.add_host(host)
        context = contextvars.copy_context()
        context.run(_process.set, process)
        return self.create_task(program, name=host, context=context)

    def kill(self, host: str) -> None:
        """kill -9. Peers see its connections end."""
        self._end(host)
        self.network.kill(host)

    def power_off(self, host: str) -> None:
        """Peers see nothing at all. Call `network.power_on` before the host is started again."""
        self._end(host)
        self.network.power_off(host)

    def _end(self, host: str) -> None:
        self.trace.add("end", host)
        process = self._processes.get(host)
        if process is None:
            return
        process.alive = False
        for task in process.tasks:
            task._log_destroy_pending = False  # type: ignore[attr-defined]
            asyncio.tasks._unregister_task(task)  # otherwise the end of the simulation would wait for it
        for thread in list(process.threads):
            if not thread.is_current:  # the current thread ends itself
                thread.kill()
        process.threads.clear()
        self._dead.extend(process.tasks)  # kept: a coroutine that is collected runs its finally blocks
        for handle in (*self._ready, *(entry[2] for entry in self._timers)):
            if handle._context.get(_process) is process:  # type: ignore[attr-defined]
                handle.cancel()

    def close(self) -> None:
        if self.is_closed():
            return
        dead, self._dead = self._dead, []
        for task in dead:
            _unwind(task)
        for process in self._processes.values():
            for thread in list(process.threads):
                thread.kill()
        self._timers.clear()
        super().close()

    # Threads.

    def run_in_executor(  # type: ignore[override]
        self, executor: Any, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        """Calls `func` once, later. An executor with a single worker keeps the order of its work."""
        self._check_closed()
        future: asyncio.Future[T] = self.create_future()
        when = self._now + self.executor_delay()
        if getattr(executor, "_max_workers", None) == 1:
            when = max(when, self._busy_until.get(executor, 0.0) + 1e-6)
            self._busy_until[executor] = when
        elif self.interleaves and _process.get() is not None and not getattr(executor, "in_one_go", False):
            self.call_at(when, self._begin_thread, future, func, args)
            return future
        self.call_at(when, self._run_in_thread, future, func, args)
        return future

    def _begin_thread(self, future: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
        if future.cancelled() and self._threads.random() < 0.5:
            return
        process = _process.get()
        assert process is not None
        self.trace.add("thread", getattr(func, "__qualname__", type(func).__qualname__))
        thread = SimulatedThread(lambda: func(*args), contextvars.copy_context(), self._pauses_now)
        process.threads[thread] = None
        self._run_on(thread, process, future)

    def _run_on(self, thread: SimulatedThread, process: Process, future: asyncio.Future[T]) -> None:
        if not thread.run():
            self.pauses += 1
            delay = self._threads.choice((0.000_01, 0.001, 0.001, 0.05)) * self._threads.random()
            self.call_at(self._now + delay, self._run_on, thread, process, future)
            return
        process.threads.pop(thread, None)
        error = thread.error
        if isinstance(error, SystemExit | KeyboardInterrupt):
            raise error
        if future.cancelled() or not process.alive:
            return
        if error is not None:
            future.set_exception(error)
        else:
            future.set_result(thread.outcome)

    def _pauses_now(self) -> bool:
        return self._threads.random() < PAUSE_RATE

    def _run_in_thread(self, future: asyncio.Future[T], func: Callable[..., T], args: tuple[Any, ...]) -> None:
        # Work whose future was cancelled continues if a thread had already started it.
        if future.cancelled() and self._threads.random() < 0.5:
            return
        self.trace.add("thread", getattr(func, "__qualname__", type(func).__qualname__))
        try:
            with as_worker():
                result = func(*args)
        except (SystemExit, KeyboardInterrupt):
            raise
        except BaseException as error:  # noqa: BLE001 - the coroutine that awaits the future gets it
            if not future.cancelled():
                future.set_exception(error)
        else:
            if not future.cancelled():
                future.set_result(result)

    def at_work(self, host: str) -> list[str]:
        """What the threads of a host are doing, by the names of the functions."""
        found = [
            timer._args[1]
            for _, _, timer in self._timers
            if not timer._cancelled
            and timer._callback in (self._run_in_thread, self._begin_thread)  # type: ignore[attr-defined]
            and (process := timer._context.get(_process)) is not None  # type: ignore[attr-defined]
            and process.host == host
        ]
        return [getattr(function, "__qualname__", type(function).__qualname__) for function in found]

    def _ordinary_executor_delay(self) -> float:
        return self._threads.uniform(0.000_1, 0.005)

    # Sockets.

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | list[str] | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        start_serving: bool = True,
        **options: object,
    ) -> SimulatedServer:
        """Binds on the caller's host, whatever address it names; loopback stays loopback."""
        _refuse_tls_and_sockets(ssl, sock)
        self.network.add_host(self.host)
        names = [host] if isinstance(host, str) else host or [""]
        server = SimulatedServer(
            self, protocol_factory, self.host, loopback_only=all(name in LOOPBACK for name in names)
        )
        server.bind(port or 0)
        if start_serving:
            await server.start_serving()
        return server

    async def create_connection(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        host: str | None = None,
        port: int | None = None,
        *,
        ssl: object = None,
        sock: object = None,
        **options: object,
    ) -> tuple[asyncio.Transport, asyncio.BaseProtocol]:
        _refuse_tls_and_sockets(ssl, sock)
        if host is None or port is None:
            raise ValueError("host and port are needed to connect")
        endpoint = await self.network.connect(self.host, host, port)
        protocol = protocol_factory()
        waiter = self.create_future()
        transport = SimulatedTransport(self, endpoint, protocol, waiter=waiter)
        try:
            await waiter
        except BaseException:
            transport.close()
            raise
        return transport, protocol


def _unwind(task: SimulatedTask[Any]) -> None:
    """Run the coroutine of a dead task to its end, silently: everything that its clean-up uses is gone."""
    coroutine = task.get_coro()
    assert inspect.iscoroutine(coroutine)
    for _ in range(100):  # clean-up that awaits (a TaskGroup's) must be cancelled more than once
        if inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED:
            return
        with contextlib.suppress(BaseException):
            task.context.run(coroutine.close)


def _refuse_tls_and_sockets(ssl: object, sock: object) -> None:
    if ssl or sock is not None:
        raise ValueError("the simulated network has neither TLS nor sockets made elsewhere")


def simulate(program: Callable[[SimulatedLoop], Coroutine[Any, Any, T]], seed: int | str = 0) -> T:
    """Run a program on a new loop from beginning to end."""
    with asyncio.Runner(loop_factory=lambda: SimulatedLoop(seed)) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SimulatedLoop)
        return runner.run(program(loop))
