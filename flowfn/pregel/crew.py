"""Who runs the calls that are due. Whoever waits, works.

A call is put where a worker can take it; a caller that waits for one nobody has started runs it itself, so a sequential
flow runs in one thread, without a hand-over, and nested calls cannot exhaust anything. One crew serves a run and the
runs nested in it. Its lock is the runs' own lock: all their state changes under it, and it is never held over a wait.

`max_concurrency` bounds the attempts that run: each holds a **place**, gives it back while it waits, and takes it again
to go on. A flow's own body holds none.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Generator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from threading import get_ident
from typing import TYPE_CHECKING, Any

from flowfn.context import CURRENT
from flowfn.executors import threads
from flowfn.pregel.attempt import attempt, execute, start_coroutine
from flowfn.pregel.calls import BLOCKED, CRASHED, DONE, DUE, RESTING, RUNNING, SAVING, Call
from flowfn.pregel.frame import CallFrame

if TYPE_CHECKING:
    from flowfn.pregel.run import Run

MOST_HELPERS = 32
"""How many workers a run uses at once when no `max_concurrency` is given."""

PATIENCE = 3
"""After so many milliseconds in which each helper took no more than one call, twice as many are hired. Shorter tasks
are done faster by few."""

DEEPEST = 50
"""How many attempts may lie on one stack; the next one gets a worker of its own."""


class Crew:
    """The due calls of a run, and the workers that help with them.

    Attributes:
        alone: namespaces of inner programs that run and must not be called a second time meanwhile.

    Args:
        limit: how many attempts may run at once; None for any number of coroutines and MOST_HELPERS workers.
        loop: where coroutines run; None for the background loop.
    """

    def __init__(self, limit: int | None, loop: asyncio.AbstractEventLoop | None) -> None:
        self.lock = threading.Lock()
        self.loop = loop
        self.alone: set[str] = set()
        self._limit = limit
        self._most_helpers = limit or MOST_HELPERS
        self._due: deque[Call] = deque()
        self._unclaimed = 0
        self._coroutines: deque[Call] = deque()
        self._helpers = 0
        self._running = 0
        self._returning: deque[Callable[[], object]] = deque()
        self._claims = self._claims_at_tick = self._slow_ticks = 0
        self._condition: threading.Condition | None = None

    @property
    def condition(self) -> threading.Condition:
        """One condition for all futures, for the standard library alone."""
        if self._condition is None:
            self._condition = threading.Condition(threading.RLock())
        return self._condition

    # --- calls become due

    def put(self, call: Call) -> Callable[[], object] | None:
        """A call is due. The lock is held; gives what is to be done once it is not."""
        if call.callee.is_async:
            if self._take_place():
                return lambda: start_coroutine(call, self.home)
            self._coroutines.append(call)
            return None
        self._due.append(call)
        self._unclaimed += 1
        # Nobody is woken here: two workers that fight for the interpreter cost more than the ticker's millisecond.
        if self not in threads.ticker.watched:
            return lambda: threads.ticker.watch(self)
        return None

    def start_body(self, call: Call) -> None:
        """Start a flow's body, which needs no place, on the loop or on a worker."""
        if call.callee.is_async:
            start_coroutine(call, self.home)
        else:
            call.state = RUNNING
            threads.workers.submit(lambda: attempt(call, depth=1, is_helper=False))

    def claim_node(self, call: Call) -> None:
        """The thread that drives a run is about to run this node itself."""
        with self.lock:
            call.worker = get_ident()
            call.state = RUNNING
            if not call.run.is_body(call):
                self._running += self._limit is not None

    @property
    def home(self) -> asyncio.AbstractEventLoop:
        """The loop that coroutines run on."""
        return self.loop or threads.background.get()

    def is_home(self, loop: asyncio.AbstractEventLoop | None) -> bool:
        """Whether coroutines run on that loop, so that nothing may wait for them in its thread."""
        return loop is not None and loop is self.home

    def tick(self) -> bool:
        """Once a millisecond: call a helper if calls lie unclaimed, and more while all are busy with long ones."""
        with self.lock:
            taken, self._claims_at_tick = self._claims - self._claims_at_tick, self._claims
            is_slow = self._unclaimed > 0 and taken <= self._helpers
            self._slow_ticks = self._slow_ticks + 1 if is_slow else 0
            hired = 0
            if is_slow and (self._helpers == 0 or self._slow_ticks >= PATIENCE):
                self._slow_ticks = 0
                for _ in range(min(self._unclaimed, max(1, self._helpers))):
                    hired += self._hire()
        for _ in range(hired):
            threads.workers.submit(self._help)
        return self._unclaimed > 0

    def hire(self) -> None:
        """See to it that a helper takes due calls, now that somebody waits; the ticker calls more."""
        with self.lock:
            hires = self._unclaimed > 0 and self._helpers == 0 and self._hire()
        if hires:
            threads.workers.submit(self._help)

    # --- helpers

    def _hire(self) -> bool:
        if self._helpers >= self._most_helpers or (self._limit is not None and self._running >= self._limit):
            return False
        self._helpers += 1
        return True

    def _help(self) -> None:
        has_place, lock = False, self.lock
        while True:
            if lock.locked():
                threads.let_pass(lock)
            with lock:
                after = self._pass_on(hires=False) if has_place else None
                call = self._next()
                if call is None:
                    self._helpers -= 1
            if after is not None:
                after()
            if call is None:
                return
            frame = attempt(call, depth=1, is_helper=True)
            if frame.is_left_behind:
                return
            has_place = True

    def _next(self) -> Call | None:
        """The due call that has waited longest, now claimed, or None. The lock is held."""
        while self._due:
            if self._due[0].state != DUE:
                self._due.popleft()
                continue
            if not self._take_place():
                return None
            call = self._due.popleft()
            self._mark_claimed(call)
            return call
        return None

    def _mark_claimed(self, call: Call) -> None:
        call.worker = get_ident()
        call.state = RUNNING
        self._unclaimed -= 1
        self._claims += 1

    def drop(self, call: Call) -> bool:
        """Take a due call out before anybody starts it; False when somebody has. The lock is held."""
        if call.state == DUE and not call.callee.is_async:
            self._mark_claimed(call)
            return True
        if call.state not in (BLOCKED, DUE, RESTING):
            return False
        if call in self._coroutines:
            self._coroutines.remove(call)
        call.state = RUNNING  # whoever was about to start it finds it taken
        return True

    # --- places

    def _take_place(self) -> bool:
        if self._limit is None:
            return True
        if self._running >= self._limit:
            return False
        self._running += 1
        return True

    def leave_place(self) -> None:
        """An attempt has ended, or waits: someone else may run."""
        if self._limit is not None:
            self._then(self._pass_on)

    def give_up(self, frame: CallFrame) -> Callable[[], object] | None:
        """An attempt that goes on is no longer waited for: its worker counts as gone. The lock is held."""
        if not frame.has_place:
            return None
        frame.has_place = False
        if frame.is_helper:
            self._helpers -= 1
        return self._pass_on()

    def disband(self) -> None:
        """Nothing more is begun, so nobody has to wait for a place."""
        with self.lock:
            self._limit, returning = None, list(self._returning)
            self._returning.clear()
        for told in returning:
            told()

    def _then(self, change: Callable[[], Callable[[], object] | None]) -> None:
        with self.lock:
            after = change()
        if after is not None:
            after()

    def _pass_on(self, hires: bool = True) -> Callable[[], object] | None:
        """Give a place that has become free to whoever has a right to it. The lock is held."""
        if self._limit is None:
            return None
        if self._returning:
            return self._returning.popleft()
        if self._coroutines:
            call = self._coroutines.popleft()
            return lambda: start_coroutine(call, self.home)
        self._running -= 1
        if hires and self._unclaimed and self._hire():
            return lambda: threads.workers.submit(self._help)
        return None

    def _lend(self, frame: CallFrame | None) -> Callable[[], object] | None:
        """The frame begins to wait for one more thing. The lock is held."""
        if frame is None:
            return None
        frame.waits += 1
        if not frame.has_place:
            return None
        frame.has_place = False
        if frame.is_helper:
            self._helpers -= 1
        after = self._pass_on()
        if after is None and self._unclaimed and self._hire():
            return lambda: threads.workers.submit(self._help)
        return after

    def _regain(self, frame: CallFrame | None, told: Callable[[], object] | None) -> bool:
        """The frame waits for one thing less. False when it has to wait for `told` before it goes on; with None it
        never has to. The lock is held."""
        if frame is None:
            return True
        frame.waits -= 1
        if frame.is_left_behind:
            return True
        if frame.waits or not frame.holds_place or frame.has_place:
            return True
        frame.has_place = True
        if frame.is_helper:
            self._helpers += 1
        if told is None:
            self._running += self._limit is not None
            return True
        if self._take_place():
            return True
        self._returning.append(told)
        return False

    def lend_for(self, call: Call, frame: Any) -> Callable[[], None]:
        """A frame waits by means of its own, such as `concurrent.futures.wait`; gives what says that it goes on."""
        if frame is None or call.state == DONE or frame.run.crew is not self or not frame.is_async:
            return lambda: None
        self._then(lambda: self._lend(frame))
        self.hire()
        left = [True]

        def regain() -> None:
            with self.lock:
                if left:
                    left.clear()
                    self._regain(frame, None)

        return regain

    # --- waiting

    def wait(self, call: Call, frame: CallFrame | None, timeout: float | None) -> None:
        """Return when the call is done: by running it, by running what it waits for, or by waiting."""
        callee = call.callee
        may_work = (
            timeout is None
            and frame is not None
            and not callee.is_async
            and callee.inline
            and callee.timeout is None
            and frame.depth < DEEPEST
            and frame.run.crew is self
            and asyncio._get_running_loop() is None
        )
        while call.state != DONE:
            if may_work and frame is not None:
                if self._claim(call, frame):
                    context = call.surroundings() if callee.retry else call.context
                    assert context is not None
                    context.run(execute, CallFrame(call.run, call, frame.depth + 1, frame.is_helper))
                    if not frame.holds_place:
                        self.leave_place()
                    continue
                if call.state == BLOCKED:
                    for needed in call.needs:
                        self.wait(needed, frame, None)
                    continue
            if not self._park(call, frame, timeout):
                raise TimeoutError(f"task `{call.name}` had not finished after {timeout} s; it goes on")

    def _claim(self, call: Call, frame: CallFrame) -> bool:
        """Take a due call for the frame that waits for it; False when it is not there to be taken."""
        due, lock = self._due, self.lock
        if lock.locked():
            threads.let_pass(lock)
        with lock:
            if call.state != DUE or not (frame.holds_place or self._take_place()):
                return False
            self._mark_claimed(call)
            while due and due[0].state != DUE:
                due.popleft()
            return True

    def _park(self, call: Call, frame: CallFrame | None, timeout: float | None) -> bool:
        """Wait in this thread; False when the time is over."""
        gate = threading.Lock()
        gate.acquire()
        after = None
        with self.lock:
            if call.state == DONE:
                return True
            _add_waiter(call, gate.release)
            if call.state == DUE and not call.callee.is_async:
                self._due.appendleft(call)  # somebody wants it now; where it stands twice, the second is passed over
            # Whoever waits for a commit alone keeps its place: the wait is short, and nothing of it is work to do.
            lender = frame if call.state != SAVING else None
            after = self._lend(lender)
        if after is not None:
            after()
        self.hire()
        arrived = False
        try:
            arrived = gate.acquire(timeout=-1 if timeout is None else max(0.0, timeout))
        finally:
            back = threading.Lock()
            back.acquire()
            with self.lock:
                if not arrived and call.waiters is not None and gate.release in call.waiters:
                    call.waiters.remove(gate.release)
                goes_on = self._regain(lender, back.release if arrived else None)
            if not goes_on:
                back.acquire()
        return arrived

    def wait_in_loop(self, call: Call, frame: CallFrame | None) -> Generator[Any, None, None]:
        """The awaited twin of `_park`."""
        loop = asyncio.get_running_loop()
        arrival: asyncio.Future[None] = loop.create_future()
        told = _teller(loop, arrival)
        with self.lock:
            if call.state == DONE:
                return
            _add_waiter(call, told)
            after = self._lend(frame)
        if after is not None:
            after()
        if not call.callee.is_async:
            self.hire()
        try:
            yield from arrival
        except asyncio.CancelledError:
            call.cancel()
            with self.lock:
                self._regain(frame, None)
            raise
        back: asyncio.Future[None] = loop.create_future()
        with self.lock:
            goes_on = self._regain(frame, _teller(loop, back))
        if not goes_on:
            yield from back

    @contextmanager
    def away(self, frame: CallFrame | None) -> Iterator[None]:
        """The frame's code waits for something else in this thread: its place is free meanwhile."""
        with self.lock:
            after = self._lend(frame)
        if after is not None:
            after()
        self.hire()
        try:
            yield
        finally:
            back = threading.Lock()
            back.acquire()
            with self.lock:
                goes_on = self._regain(frame, back.release)
            if not goes_on:
                back.acquire()

    @asynccontextmanager
    async def aaway(self, frame: CallFrame | None) -> AsyncIterator[None]:
        """The awaited twin of `away`."""
        loop = asyncio.get_running_loop()
        with self.lock:
            after = self._lend(frame)
        if after is not None:
            after()
        self.hire()
        try:
            yield
        finally:
            back: asyncio.Future[None] = loop.create_future()
            with self.lock:
                goes_on = self._regain(frame, _teller(loop, back))
            if not goes_on:
                await back

    def wait_for_event(self, event: threading.Event, timeout: float | None) -> bool:
        """Wait for an event in this thread, the frame's place being free meanwhile."""
        with self.away(self._frame_here()):
            return event.wait(timeout)

    async def wait_for_any(self, calls: Sequence[Call], timeout: float | None) -> None:
        """Wait in this loop until one of the calls is done, or the time is over."""
        loop = asyncio.get_running_loop()
        arrival: asyncio.Future[None] = loop.create_future()
        told = _teller(loop, arrival)
        with self.lock:
            if any(call.state == DONE for call in calls):
                return
            for call in calls:
                _add_waiter(call, told)
        async with self.aaway(self._frame_here()):
            try:
                await asyncio.wait([arrival], timeout=timeout)
            finally:
                with self.lock:
                    for call in calls:
                        if call.waiters is not None and told in call.waiters:
                            call.waiters.remove(told)

    def _frame_here(self) -> CallFrame | None:
        """The frame of this crew whose code is calling."""
        spot = CURRENT.get()
        frame: Any = spot.frame if spot is not None else None
        return frame if frame is not None and frame.run.crew is self else None

    def wait_for_calls(self, frame: CallFrame) -> None:
        """Return when every call that the frame has made is done."""
        for call in self.calls_of(frame):
            self.wait(call, frame, None)

    async def await_calls(self, frame: CallFrame) -> None:
        """The awaited twin of `wait_for_calls`."""
        for call in self.calls_of(frame):
            await _Awaiting(self.wait_in_loop(call, frame))

    def calls_of(self, frame: CallFrame) -> list[Call]:
        with self.lock:
            return [call for call in frame.run.calls.values() if call.frame is frame]

    def tell_when_done(self, call: Call, told: Callable[[], object]) -> bool:
        """Register a callback; False when the call is done already."""
        with self.lock:
            if call.state == DONE:
                return False
            _add_waiter(call, told)
            return True

    def forget(self, call: Call, fn: Callable[[Any], object]) -> int:
        with self.lock:
            mine = [w for w in call.waiters or () if getattr(w, "callback", None) is fn]
            for waiter in mine:
                assert call.waiters is not None
                call.waiters.remove(waiter)
        for waiter in mine:
            waiter.regain()  # type: ignore[attr-defined]
        return len(mine)

    # --- the end of a run

    def work_off(self, run: Run, grace: float | None = None) -> None:
        """Run, or wait for, everything that the run still has open, in this thread; with `grace`, that many seconds at
        most, and nothing is begun."""
        give_up = None if grace is None else time.monotonic() + grace
        while give_up is None or time.monotonic() < give_up:
            gate = threading.Lock()
            gate.acquire()
            with self.lock:
                if not run.open_calls:
                    return
                call = self._next() if grace is None and self._may_work_here() else None
                if call is None:
                    run.quiet.append(gate.release)
            if call is None:
                self.hire()
                gate.acquire(timeout=-1 if grace is None else grace)
            else:
                attempt(call, depth=1, is_helper=False)
                self.leave_place()
                if call.outcome == CRASHED:
                    assert call.error is not None
                    raise call.error

    def _may_work_here(self) -> bool:
        """Whether the call that has waited longest may run in a thread that is waited for. The lock is held."""
        is_timed = bool(self._due) and self._due[0].callee.timeout is not None
        return not is_timed and asyncio._get_running_loop() is None

    async def awork_off(self, run: Run) -> None:
        """The awaited twin of `work_off`: workers run what is left."""
        loop = asyncio.get_running_loop()
        while True:
            arrival: asyncio.Future[None] = loop.create_future()
            with self.lock:
                if not run.open_calls:
                    return
                run.quiet.append(_teller(loop, arrival))
            self.hire()
            await arrival


class _Awaiting:
    """A generator of waits as something to await."""

    def __init__(self, steps: Generator[Any, None, None]) -> None:
        self._steps = steps

    def __await__(self) -> Generator[Any, None, None]:
        return self._steps


def _teller(loop: asyncio.AbstractEventLoop, arrival: asyncio.Future[None]) -> Callable[[], object]:
    """What sets a future of that loop, from whatever thread."""

    def told() -> None:
        if asyncio._get_running_loop() is loop:
            _set(arrival)
        elif not loop.is_closed():
            loop.call_soon_threadsafe(_set, arrival)

    return told


def _set(arrival: asyncio.Future[None]) -> None:
    if not arrival.done():
        arrival.set_result(None)


def _add_waiter(call: Call, told: Callable[[], object]) -> None:
    if call.waiters is None:
        call.waiters = []
    call.waiters.append(told)
