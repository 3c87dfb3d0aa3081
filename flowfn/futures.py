"""`TaskFuture`: what a task call gives back, read by `.result()` in a function or by `await` in a coroutine.

A future is the caller's handle of a call; how to work, wait and settle is the runtime's business, and reaches this
module as the `Source` a future holds. It is a `concurrent.futures.Future` to the standard library: `wait`,
`as_completed`, `asyncio.wait` and `asyncio.gather` take it.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Generator, Iterator, Sequence
from contextvars import copy_context
from typing import Any, Generic, NoReturn, Protocol, TypeVar, cast

from flowfn.errors import FutureUsedAsValueError

logger = logging.getLogger("flowfn")

R = TypeVar("R")
R_co = TypeVar("R_co", covariant=True)


class Source(Protocol):
    """What a future asks of the call behind it."""

    @property
    def name(self) -> str: ...
    @property
    def key(self) -> bytes:
        """Names the call, see `identity`."""
        ...

    @property
    def condition(self) -> threading.Condition:
        """For the standard library alone."""
        ...

    def is_done(self) -> bool:
        """Whether an outcome is stored."""
        ...

    def is_running(self) -> bool: ...
    def is_cancelled(self) -> bool: ...

    def cancel(self) -> bool:
        """End the call without an outcome; False when it has one."""
        ...

    def result(self, timeout: float | None) -> Any:
        """The value once it is stored, by working or by waiting; raises what the call raised, the stop that reached
        it, or `TimeoutError`. The caller has looked from here on."""
        ...

    def failure(self, timeout: float | None) -> BaseException | None:
        """What `result` would raise as an ordinary failure; raises stops."""
        ...

    def wait_in_loop(self) -> Generator[Any, None, None]:
        """Wait in the running event loop until the outcome is stored."""
        ...

    def deliver(self) -> Any:
        """The `result` of a call that is done."""
        ...

    def failure_is_set(self) -> BaseException | None:
        """The failure of a call that is done, without anybody having looked at it."""
        ...

    def order(self) -> int:
        """Place among the outcomes stored so far; only for one that is done."""
        ...

    def when_done(self, told: Callable[[], object], future: TaskFuture[Any]) -> None:
        """Call `told` once the outcome is stored, at once when it is."""
        ...

    def hand_over(self, job: Callable[[], object]) -> None:
        """Run a job on a worker of its own."""
        ...

    def forget_callback(self, fn: Callable[[Any], object]) -> int:
        """Forget what `when_done` was told for this callback; gives how many there were."""
        ...

    def wait_for_event(self, event: threading.Event, timeout: float | None) -> bool:
        """Wait for an event of the standard library's, the calling frame's place being free meanwhile."""
        ...

    def wait_for_any(self, calls: Sequence[Any], timeout: float | None) -> Coroutine[Any, Any, None]:
        """Wait in the running event loop until one of the calls, all of one run, is done, or the time is over."""
        ...

    def lend(self) -> Callable[[], None]:
        """The calling frame waits by means of its own: give its place to another; gives what takes it back."""
        ...


class _Event:
    """The event of a waiter of the standard library; whoever waits for it gives its place to another meanwhile."""

    def __init__(self, event: threading.Event, call: Source) -> None:
        self._event, self._call = event, call
        self.set, self.clear, self.is_set = event.set, event.clear, event.is_set

    def wait(self, timeout: float | None = None) -> bool:
        return self._call.wait_for_event(self._event, timeout)


class _Watchers(list[Any]):
    """The list into which `concurrent.futures.wait` and `as_completed` put their waiters."""

    def __init__(self, future: TaskFuture[Any]) -> None:
        super().__init__()
        self._future = future

    def append(self, waiter: Any) -> None:
        future = self._future
        if not isinstance(waiter.event, _Event):
            waiter.event = _Event(waiter.event, future._call)
        super().append(waiter)
        # A waiter counts as arrived what it has seen done; it must be told of what was done only after it looked.
        if not future.__dict__.get("_was_seen_done"):
            future._call.when_done(lambda: self._tell(waiter), future)

    def _tell(self, waiter: Any) -> None:
        future = self._future
        with future._condition:
            if any(known is waiter for known in self):
                if future._call.is_cancelled() or future._call.failure_is_set():
                    waiter.add_exception(future)
                else:
                    waiter.add_result(future)


class TaskFuture(concurrent.futures.Future[R], Generic[R]):
    """The outcome of a task call that may still be under way.

    Never passes for its value: truth, iteration, length, indexing and formatting raise an error that says `.result()`.
    """

    def __init__(self, call: Source) -> None:
        # The base class is not initialised: the call holds the state.
        self._call = call

    @property
    def later(self) -> R:
        """This same future, typed as its value, to be given to another task as an argument."""
        return cast(R, self)

    def result(self, timeout: float | None = None) -> R:
        """The value, once it is stored.

        Args:
            timeout: seconds to wait; None for ever. The task goes on when the time is over.
        Raises:
            TimeoutError: the time is over.
            UnfinishedInCoroutineError: called in a coroutine before the task has finished.
            BaseException: what the task raised.
        """
        return cast(R, self._call.result(timeout))

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """What the task raised, or None; stops, such as an open question, are raised, not returned."""
        return self._call.failure(timeout)

    def done(self) -> bool:
        return self._call.is_done()

    def running(self) -> bool:
        return self._call.is_running()

    def cancelled(self) -> bool:
        return self._call.is_cancelled()

    def cancel(self) -> bool:
        """End the task without a result, unless it has one; it runs again at the next resume that calls it."""
        return self._call.cancel()

    def add_done_callback(self, fn: Callable[[Any], object], *, context: Any = None) -> None:
        """Call `fn(future)` once the outcome is stored: in this event loop when there is one, else in any worker."""
        loop = asyncio._get_running_loop()
        regain = self._call.lend()
        inside = context or copy_context()
        was_done = self.done()

        def told() -> None:
            regain()
            if loop is None and was_done:
                inside.run(_called_back, fn, self)
            elif loop is None:
                # Not here, where others are still to be told, and where what the callback waits for may be committed.
                self._call.hand_over(lambda: inside.run(_called_back, fn, self))
            elif not loop.is_closed():
                loop.call_soon_threadsafe(fn, self, context=inside)

        told.callback, told.regain = fn, regain  # type: ignore[attr-defined]
        self._call.when_done(told, self)

    def remove_done_callback(self, fn: Callable[[Any], object]) -> int:
        """Forget a callback, as `asyncio.wait` does after its time is over; gives how many there were."""
        return self._call.forget_callback(fn)

    def __await__(self) -> Generator[Any, None, R]:
        call = self._call
        if not call.is_done():
            yield from call.wait_in_loop()
        return cast(R, call.deliver())

    async def coroutine(self) -> R:
        """The same as a coroutine, for `asyncio.TaskGroup.create_task` and others that take nothing else."""
        return await self

    # --- what the standard library's `wait` and `as_completed` look at

    @property
    def _condition(self) -> Any:  # type: ignore[override]
        return self._call.condition

    @property
    def _state(self) -> str:  # type: ignore[override]
        is_done = self._call.is_done()
        self.__dict__["_was_seen_done"] = is_done
        if not is_done:
            return "RUNNING" if self._call.is_running() else "PENDING"
        return "CANCELLED_AND_NOTIFIED" if self._call.is_cancelled() else "FINISHED"

    @property
    def _waiters(self) -> Any:  # type: ignore[override]
        watchers = self.__dict__.get("_watchers")
        if watchers is None:
            watchers = self.__dict__.setdefault("_watchers", _Watchers(self))
        return watchers

    @property
    def _exception(self) -> BaseException | None:  # type: ignore[override]
        return self._call.failure_is_set()

    # --- never passes for its value

    def _used(self, how: str) -> NoReturn:
        raise FutureUsedAsValueError(self._call.name, how)

    def __bool__(self) -> bool:
        self._used("tested for truth")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, TaskFuture):
            self._used("compared")
        return self is other

    __hash__ = object.__hash__

    def _computed(self, other: Any = None) -> Any:
        self._used("computed with")

    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _computed
    __lt__ = __le__ = __gt__ = __ge__ = __int__ = __float__ = __index__ = _computed

    def __iter__(self) -> Iterator[Any]:
        self._used("iterated over")

    def __len__(self) -> int:
        self._used("asked for its length")

    def __getitem__(self, key: Any) -> Any:
        self._used("indexed")

    def __contains__(self, item: Any) -> bool:
        self._used("searched")

    def __format__(self, spec: str) -> str:
        self._used("formatted")

    def __str__(self) -> str:
        self._used("formatted")

    def __repr__(self) -> str:
        state = self._state.lower().replace("_and_notified", "")
        return f"<TaskFuture of `{self._call.name}`: {state}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError(
            f"The future of task `{self._call.name}` lives in its run; take its value, `.result()` or `await`."
        )

    def __copy__(self) -> TaskFuture[R]:
        return self

    def __deepcopy__(self, memo: Any) -> TaskFuture[R]:
        return self


class MapFuture(Generic[R]):
    """The outcomes of one task over many items, in their order.

    `.result()` and `await` give the list; iterating, plainly or with `async for`, gives each as it comes, in order.
    """

    def __init__(self, futures: list[TaskFuture[R]], collect: bool, more: Callable[[], bool] = lambda: False) -> None:
        self._futures, self._collect, self._more = futures, collect, more
        self._has_begun_all = False

    def _of(self, future: TaskFuture[R], timeout: float | None = None) -> R:
        if not self._collect:
            return future.result(timeout)
        failure = future.exception(timeout)
        return future.result() if failure is None else cast(R, failure)

    def _start_next(self) -> bool:
        if not self._has_begun_all:
            self._has_begun_all = not self._more()
        return not self._has_begun_all

    @property
    def later(self) -> list[R]:
        """All futures as a list typed as their values, to be given to another task as an argument."""
        while self._start_next():
            pass
        return cast("list[R]", list(self._futures))

    @property
    def futures(self) -> list[TaskFuture[R]]:
        """One future an item, of those begun so far."""
        return list(self._futures)

    def __iter__(self) -> Iterator[R]:
        i = 0
        while i < len(self._futures) or self._start_next():
            value = self._of(self._futures[i])
            self._start_next()
            yield value
            i += 1

    async def __aiter__(self) -> AsyncIterator[R]:
        i = 0
        while i < len(self._futures) or self._start_next():
            future = self._futures[i]
            if not future.done():
                await _settled(future)
            value = self._of(future)
            self._start_next()
            yield value
            i += 1

    def result(self, timeout: float | None = None) -> list[R]:
        """The values in the order of the items; failures in their places with `on_error="collect"`."""
        give_up = None if timeout is None else time.monotonic() + timeout
        values: list[R] = []
        while len(values) < len(self._futures) or self._start_next():
            left = None if give_up is None else max(0.0, give_up - time.monotonic())
            values.append(self._of(self._futures[len(values)], left))
            self._start_next()
        return values

    def done(self) -> bool:
        return self._has_begun_all and all(f.done() for f in self._futures)

    def __await__(self) -> Generator[Any, None, list[R]]:
        return self._gathered().__await__()

    async def _gathered(self) -> list[R]:
        return [value async for value in self]


async def _settled(future: TaskFuture[Any]) -> None:
    """Wait in the loop until the future is done, without looking at its outcome."""

    class Settling:
        def __await__(self) -> Generator[Any, None, None]:
            yield from future._call.wait_in_loop()

    await Settling()


def _called_back(fn: Callable[[Any], object], future: TaskFuture[Any]) -> None:
    """Call a callback; what it raises is logged, since it has no caller."""
    try:
        fn(future)
    except BaseException:
        logger.exception("A callback of %r failed", future)


def futures_in(value: Any) -> Collection[TaskFuture[Any]]:
    """The futures in an argument: itself, or inside lists, tuples and dict values, in order."""
    found: dict[int, TaskFuture[Any]] = {}

    def look(v: Any) -> None:
        if isinstance(v, TaskFuture):
            found[id(v)] = v
        elif type(v) is MapFuture:
            for future in v.later:
                look(future)
        elif type(v) in (list, tuple):
            for item in v:
                look(item)
        elif type(v) is dict:
            for item in v.values():
                look(item)

    look(value)
    return found.values()


def with_values(value: Any, of: Callable[[TaskFuture[Any]], Any]) -> Any:
    """The argument with `of(future)` in the place of each future; containers without one stay the same objects."""
    if isinstance(value, TaskFuture):
        return of(value)
    if type(value) is MapFuture:
        return [of(future) for future in value.futures]
    if type(value) in (list, tuple):
        items = [with_values(v, of) for v in value]
        return value if all(a is b for a, b in zip(items, value, strict=True)) else type(value)(items)
    if type(value) is dict:
        pairs = {k: with_values(v, of) for k, v in value.items()}
        return value if all(pairs[k] is v for k, v in value.items()) else pairs
    return value
