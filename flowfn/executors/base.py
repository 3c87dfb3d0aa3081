"""Where attempts run: on threads of this process, in processes of its own, or wherever an object with `submit` has it.

Threads apart they are all one thing: bytes go out, a future brings bytes back. What goes wrong on the way, a worker
that dies or a pool that breaks, is no outcome of the task; the attempt starts again elsewhere, a few times. So an
attempt may run more than once. Its outcome arrives once.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import BrokenExecutor, Future
from typing import Any, NamedTuple, Protocol, TypeAlias

from flowfn.errors import PolicyError, UnfitWorkerError, WorkerDiedError
from flowfn.executors.payload import Kind, Outcome, outcome_in
from flowfn.executors.processes import Processes, shared
from flowfn.executors.remote import run_payload
from flowfn.serde.base import Serializer

logger = logging.getLogger("flowfn")

MOST_STARTS = 3
"""How often an attempt is begun that loses its worker each time."""

MOST_UNFIT = 2
"""How often an attempt is sent to workers that cannot run it."""

HAVE_TRIED = {"distributed.scheduler.KilledWorker"}
"""Errors of executors that start again what they have lost by themselves, and have given up."""


class Executor(Protocol):
    """What `concurrent.futures.Executor`, Dask's `client.get_executor()` and many others are."""

    def submit(self, fn: Callable[[bytes], bytes], data: bytes, /) -> Any:
        """Have `fn(data)` called somewhere; gives a future with `result`, `cancel` and `add_done_callback`."""
        ...


class Threads:
    """Stands for the threads of this process, where attempts run unless something else is said."""


THREADS = Threads()

Where: TypeAlias = Executor | Threads
"""Where attempts run."""

ExecutorName: TypeAlias = str | Executor | Callable[[], Executor]
"""What `executor=` takes, see `executor_named`."""


def executor_named(given: ExecutorName) -> Where:
    """The executor that `executor=` stands for.

    Args:
        given: `"threads"`; `"processes"`, one process for each core, shared by all flows; an object with `submit`; or a
            function without parameters that makes one, and makes a new one when that breaks.
    Raises:
        PolicyError: none of these.
    """
    if isinstance(given, str):
        if given in _NAMED:
            return _NAMED[given]
    elif not isinstance(given, type) and callable(getattr(given, "submit", None)):
        return given  # type: ignore[return-value]
    elif callable(given):
        return Renewed(given)
    expected = '"threads", "processes", an object with `submit`, or a function that makes one'
    raise PolicyError("executor", given, expected)


_NAMED: dict[str, Executor | Threads] = {"threads": THREADS, "processes": shared}


class Renewed:
    """An executor that is made when it is needed, and made anew when it takes no more: once for all who use it."""

    def __init__(self, make: Callable[[], Executor]) -> None:
        self._make = make
        self._lock = threading.Lock()
        self._executor: Executor | None = None
        self._line: deque[_InLine] = deque()

    def submit(self, fn: Callable[[bytes], bytes], data: bytes, /) -> Any:
        executor = self._other_than(None)
        try:
            return executor.submit(fn, data)
        except Exception:
            return self._other_than(executor).submit(fn, data)

    def submit_in_line(self, fn: Callable[[bytes], bytes], data: bytes) -> Future[bytes]:
        """The same, but not before what was submitted so earlier is done.

        When a pool breaks, nobody knows whose work broke it. One after another, the guilty one takes no other along.
        """
        place = _InLine(fn, data, Future())
        with self._lock:
            self._line.append(place)
            is_first = len(self._line) == 1
        if is_first:
            self._begin(place)
        return place.future

    def _begin(self, place: _InLine) -> None:
        """Submit what is first in the line, unless nobody wants it any more."""
        if not place.future.set_running_or_notify_cancel():
            self._leave()
            return
        try:
            future = self.submit(place.fn, place.data)
        except Exception as error:
            future = Future()
            future.set_exception(error)
        future.add_done_callback(self._done)

    def _done(self, future: Any) -> None:
        """What is first in the line is done."""
        first = self._leave()
        try:
            reply = future.result()
        except BaseException as error:
            first.future.set_exception(error)
        else:
            first.future.set_result(reply)

    def _leave(self) -> _InLine:
        """The first leaves the line, and the next one begins."""
        with self._lock:
            first = self._line.popleft()
            following = self._line[0] if self._line else None
        if following is not None:
            self._begin(following)
        return first

    def _other_than(self, broken: Executor | None) -> Executor:
        with self._lock:
            if self._executor is None or self._executor is broken:
                self._executor = self._make()
            return self._executor


class _InLine(NamedTuple):
    fn: Callable[[bytes], bytes]
    data: bytes
    future: Future[bytes]


class Sent:
    """An attempt that was sent to an executor.

    Args:
        payload: see `payload.Errand`.
        task: its name, for messages.
        told: called once with the outcome, on whatever thread it arrives; never after `kill`.
        begun: called whenever a worker begins with it, as far as the executor lets one know: else when it is sent.
        signed: called whenever its code gives a heartbeat, as far as the executor lets one know.
        may_repeat: whether it starts again when its worker is lost after it has begun; else that is its failure.
    """

    def __init__(
        self,
        executor: Executor,
        payload: bytes,
        task: str,
        told: Callable[[Outcome], object],
        begun: Callable[[], object] = lambda: None,
        signed: Callable[[], object] = lambda: None,
        may_repeat: bool = True,
    ) -> None:
        self._executor, self._payload, self._task = executor, payload, task
        self._told, self._on_begin, self._signed, self._may_repeat = told, begun, signed, may_repeat
        self._lost = self._unfit = 0
        self._has_begun = False
        self._lock = threading.Lock()
        self._future: Any = None
        self._is_over = False
        self._start()

    def kill(self) -> None:
        """End it. A process of `"processes"` is killed; other executors are asked to cancel it, and if they do not, run
        it to an end that nobody hears of."""
        with self._lock:
            self._is_over, future = True, self._future
        if future is not None:
            getattr(future, "kill", future.cancel)()

    def _start(self, is_suspect: bool = False) -> None:
        """Send it.

        Args:
            is_suspect: whether it may be what has broken the executor.
        """
        executor = self._executor
        try:
            if isinstance(executor, Processes):
                future: Any = executor.submit(run_payload, self._payload, self._begin, self._signed)
            elif isinstance(executor, Renewed) and is_suspect:
                future = executor.submit_in_line(run_payload, self._payload)
                self._begin()
            else:
                future = executor.submit(run_payload, self._payload)
                self._begin()
        except Exception as error:
            self._start_again(error)
            return
        with self._lock:
            self._future, is_over = future, self._is_over
        if is_over:
            self.kill()
        future.add_done_callback(self._arrived)

    def _begin(self) -> None:
        self._has_begun = True
        self._on_begin()

    def _arrived(self, future: Any) -> None:
        if self._is_over:
            return
        try:
            outcome = outcome_in(future.result())
        except UnfitWorkerError as error:
            self._end(_failure(error))
        except BaseException as error:
            self._start_again(error)
        else:
            if outcome.kind == "unfit":
                self._start_elsewhere(outcome)
            else:
                self._end(outcome)

    def _start_again(self, error: BaseException) -> None:
        """The worker is lost, and nobody knows how far the attempt has come."""
        self._lost += 1
        how = _said(error)
        is_given_up = f"{type(error).__module__}.{type(error).__qualname__}" in HAVE_TRIED
        if self._lost >= MOST_STARTS or is_given_up or (self._has_begun and not self._may_repeat):
            if isinstance(error, BrokenExecutor) and not isinstance(self._executor, Renewed):
                how = f"{how}; give `executor=` a function that makes the executor, and a broken one is replaced"
            self._end(_failure(WorkerDiedError(how, self._task, self._lost)))
            return
        logger.warning("An attempt at task `%s` was lost with its worker and starts again: %s", self._task, how)
        self._start(is_suspect=isinstance(error, BrokenExecutor))

    def _start_elsewhere(self, outcome: Outcome) -> None:
        """The worker could not begin it. Processes of this pool may have imported what has changed since."""
        self._unfit += 1
        if self._unfit >= MOST_UNFIT:
            self._end(outcome._replace(kind="failure"))
            return
        if isinstance(self._executor, Processes):
            self._executor.end()
        self._start()

    def _end(self, outcome: Outcome) -> None:
        with self._lock:
            was_over, self._is_over = self._is_over, True
        if not was_over:
            self._told(outcome)


def _said(error: BaseException) -> str:
    """What an executor failed with, in one line."""
    if isinstance(error, WorkerDiedError):
        return error.how
    first = str(error).partition("\n")[0].rstrip(".")
    return f"{type(error).__name__}: {first}" if first else type(error).__name__


def _failure(error: Exception) -> Outcome:
    kind: Kind = "failure"
    return Outcome((), kind, Serializer().dumps(error), (), 0.0, 0.0, "")
