"""Workers of this process: threads that take jobs, a ticker that notices waiting work, a loop for coroutines.

All are shared by every run of the process, started when first needed, daemons, and forgotten by a forked child.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import threading
from collections.abc import Callable
from queue import SimpleQueue
from time import sleep as _give_way
from typing import Any, Protocol, TypeVar

R = TypeVar("R")

IDLE_SECONDS = 10.0
"""How long a worker without a job stays."""

TICK_SECONDS = 0.001
QUIET_TICKS = 25
"""After so many ticks that found nothing to do, the ticker stops watching a crew."""

forks = 0
"""How often this process has been forked off; tells a child from the parent it came from."""


def let_pass(lock: threading.Lock) -> None:
    """Give way until a lock that is never held for long is free: on busy paths, before `with lock:`.

    A thread that blocks for a lock is handed it before it has the interpreter, so the one that runs finds it taken at
    its next step, blocks in its turn, and the two change places at every lock from then on. Who waits until it is free
    has the interpreter when it takes it, and no such convoy forms.
    """
    while lock.locked():
        _give_way(0)


class _Worker(threading.Thread):
    def __init__(self, job: Callable[[], object], idle: list[_Worker], lock: threading.Lock) -> None:
        super().__init__(name="flowfn-worker", daemon=True)
        self.job: Callable[[], object] | None = job
        self.wake = threading.Lock()
        self.wake.acquire()
        self._idle, self._lock = idle, lock

    def run(self) -> None:
        while self.job is not None:
            job, self.job = self.job, None
            job()
            del job
            with self._lock:
                self._idle.append(self)
            if not self.wake.acquire(timeout=IDLE_SECONDS):
                with self._lock:
                    if self in self._idle:
                        self._idle.remove(self)
                        return
                self.wake.acquire()  # a job was being handed over at that very moment


class Workers:
    """Threads without a limit of their own; whoever submits bounds how many it uses."""

    def __init__(self) -> None:
        self._idle: list[_Worker] = []
        self._lock = threading.Lock()

    def submit(self, job: Callable[[], object]) -> None:
        """Run `job` on a worker that is idle, the one used last first, or on a new one. A job must not raise."""
        with self._lock:
            worker = self._idle.pop() if self._idle else None
            if worker is not None:
                worker.job = job
        if worker is None:
            _Worker(job, self._idle, self._lock).start()
        else:
            worker.wake.release()


class Ticking(Protocol):
    """What the ticker watches."""

    def tick(self) -> bool:
        """Called every millisecond; False when there was nothing to do."""
        ...


class Ticker:
    """Looks every millisecond after the crews that have unclaimed calls, so that no call has to wake anybody."""

    def __init__(self) -> None:
        self.watched: dict[Ticking, int] = {}
        """Each crew with the number of ticks that found it quiet."""
        self._lock = threading.Lock()
        self._some: SimpleQueue[None] = SimpleQueue()  # an Event's lock might stay taken by a Ctrl-C
        self._pause = threading.Event()
        self._thread: threading.Thread | None = None

    def watch(self, crew: Ticking) -> None:
        """Look after the crew until it has been quiet for some ticks."""
        with self._lock:
            is_watched = crew in self.watched
            self.watched[crew] = 0
            if is_watched:
                return
            if self._thread is None:
                self._thread = threading.Thread(target=self._run, name="flowfn-ticker", daemon=True)
                self._thread.start()
        self._some.put(None)

    def _run(self) -> None:
        while True:
            self._some.get()
            while self.watched:
                self._pause.wait(TICK_SECONDS)
                self._look_after_all()

    def _look_after_all(self) -> None:
        with self._lock:
            crews = list(self.watched)
        for crew in crews:
            busy = crew.tick()
            with self._lock:
                quiet = 0 if busy else self.watched.get(crew, 0) + 1
                self.watched[crew] = quiet
                if quiet > QUIET_TICKS:
                    del self.watched[crew]
            if quiet > QUIET_TICKS and crew.tick():  # a call came after the tick, and saw the crew still watched
                self.watch(crew)


class BackgroundLoop:
    """One event loop in a thread of its own, for coroutines of flows that run without one."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None

    def get(self) -> asyncio.AbstractEventLoop:
        with self._lock:
            if self._loop is None:
                self._loop = asyncio.new_event_loop()
                threading.Thread(target=self._loop.run_forever, name="flowfn-loop", daemon=True).start()
            return self._loop


def on_worker(job: Callable[[], R]) -> R:
    """Run `job` on a worker, wait for it here, and give or raise what it gives or raises."""
    return _started(job).result()


def _started(job: Callable[[], R]) -> concurrent.futures.Future[R]:
    result: concurrent.futures.Future[R] = concurrent.futures.Future()

    def run() -> None:
        try:
            result.set_result(job())
        except BaseException as error:
            result.set_exception(error)

    workers.submit(run)
    return result


def later(seconds: float, job: Callable[[], object]) -> None:
    """Run a short job, which must not wait, in so many seconds, on the background loop."""
    loop = background.get()
    loop.call_soon_threadsafe(loop.call_later, seconds, job)


async def aon_worker(job: Callable[[], R]) -> R:
    """The awaited twin of `on_worker`."""
    return await asyncio.wrap_future(_started(job))


workers = Workers()
ticker = Ticker()
background = BackgroundLoop()


def _in_child() -> None:
    global workers, ticker, background, forks
    workers, ticker, background = Workers(), Ticker(), BackgroundLoop()
    forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_in_child)

__all__: list[Any] = [
    "Ticking",
    "aon_worker",
    "background",
    "forks",
    "later",
    "let_pass",
    "on_worker",
    "ticker",
    "workers",
]
