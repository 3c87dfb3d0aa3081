"""Waiting for some of several futures: `as_completed` and `wait`, in an order that is the same on every replay."""

from __future__ import annotations

import asyncio
import concurrent.futures
import time
from collections.abc import AsyncIterator, Generator, Iterable, Iterator, Sequence
from concurrent.futures import ALL_COMPLETED, FIRST_COMPLETED, FIRST_EXCEPTION
from typing import Any, Generic, TypeVar

from flowfn.futures import TaskFuture

R = TypeVar("R")


class as_completed(Generic[R]):
    """The futures, each as it gets its outcome; stored outcomes first, in the order in which they were stored.

    Iterate plainly in a function, `async for` in a coroutine. The order is the same on every replay.
    """

    def __init__(self, futures: Iterable[TaskFuture[R]], timeout: float | None = None) -> None:
        self._pending = list(dict.fromkeys(futures))
        self._timeout = timeout

    def _take_done(self) -> TaskFuture[R] | None:
        done = [f for f in self._pending if f.done() and not f.cancelled()] or [f for f in self._pending if f.done()]
        if not done:
            return None
        first = min(done, key=lambda f: f._call.order())
        self._pending.remove(first)
        return first

    def __iter__(self) -> Iterator[TaskFuture[R]]:
        while self._pending:
            first = self._take_done()
            if first is None:
                concurrent.futures.wait(self._pending, self._timeout, FIRST_COMPLETED)
                first = self._take_done()
                if first is None:
                    raise TimeoutError(f"{len(self._pending)} tasks had not finished in time")
            yield first

    async def __aiter__(self) -> AsyncIterator[TaskFuture[R]]:
        while self._pending:
            first = self._take_done()
            if first is None:
                await _any_of(self._pending, self._timeout)
                first = self._take_done()
                if first is None:
                    raise TimeoutError(f"{len(self._pending)} tasks had not finished in time")
            yield first


class wait(Generic[R]):
    """Wait for futures: `done, not_done = wait(futures)` in a function, `await wait(futures)` in a coroutine.

    Args:
        futures: of task calls.
        timeout: seconds; None for ever.
        return_when: FIRST_COMPLETED, FIRST_EXCEPTION or ALL_COMPLETED. With FIRST_COMPLETED exactly one future is done,
            the one whose outcome was stored first, so that a replay sees the same.
    Returns:
        Two lists, in the order stored and in the order given.
    """

    def __init__(
        self, futures: Iterable[TaskFuture[R]], timeout: float | None = None, return_when: str = ALL_COMPLETED
    ) -> None:
        self._futures = list(dict.fromkeys(futures))
        self._timeout, self._when = timeout, return_when
        if asyncio._get_running_loop() is None:
            self._wait()  # also for who does not look at what it gives

    def _wait(self) -> None:
        if not self._enough():
            concurrent.futures.wait(self._futures, self._timeout, self._when)

    def _split(self) -> tuple[list[TaskFuture[R]], list[TaskFuture[R]]]:
        done = sorted((f for f in self._futures if f.done()), key=lambda f: f._call.order())
        if self._when == FIRST_COMPLETED:
            done = done[:1]
        elif self._when == FIRST_EXCEPTION:
            failed = next((i for i, f in enumerate(done) if f._call.failure_is_set() is not None), None)
            done = done if failed is None else done[: failed + 1]
        chosen = set(map(id, done))
        return done, [f for f in self._futures if id(f) not in chosen]

    def _enough(self) -> bool:
        done = [f for f in self._futures if f.done()]
        if self._when == FIRST_COMPLETED and done:
            return True
        if self._when == FIRST_EXCEPTION and any(f._call.failure_is_set() is not None for f in done):
            return True
        return len(done) == len(self._futures)

    def __iter__(self) -> Iterator[list[TaskFuture[R]]]:
        if asyncio._get_running_loop() is not None:
            self._wait()
        return iter(self._split())

    def __await__(self) -> Generator[Any, None, tuple[list[TaskFuture[R]], list[TaskFuture[R]]]]:
        return self._awaited().__await__()

    async def _awaited(self) -> tuple[list[TaskFuture[R]], list[TaskFuture[R]]]:
        give_up = None if self._timeout is None else time.monotonic() + self._timeout
        while not self._enough():
            left = None if give_up is None else give_up - time.monotonic()
            if left is not None and left <= 0:
                break
            await _any_of([future for future in self._futures if not future.done()], left)
        return self._split()


async def _any_of(futures: Sequence[TaskFuture[Any]], timeout: float | None) -> None:
    """Wait in the loop until one of the futures is done, without looking at its outcome."""
    await futures[0]._call.wait_for_any([future._call for future in futures], timeout)
