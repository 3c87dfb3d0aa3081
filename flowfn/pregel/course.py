"""Code that has functions called for it: a generator that says which, so that one text serves both ways of running."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar

from flowfn.executors import threads

T = TypeVar("T")


class Invoke(NamedTuple):
    """Call this function; await what it gives, if that is to be awaited."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any] = {}

    def result(self) -> Any:
        """What it gives, in this thread."""
        given = self.function(*self.args, **self.kwargs)
        return _finished(given) if hasattr(given, "__await__") else given

    async def aresult(self) -> Any:
        """What it gives, on this event loop."""
        given = self.function(*self.args, **self.kwargs)
        return await given if hasattr(given, "__await__") else given


Course: TypeAlias = Generator[Invoke, Any, T]


def plainly(course: Course[T]) -> T:
    """Run a course in this thread."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            invoke = course.send(answer) if error is None else course.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = error = None
        try:
            answer = invoke.result()
        except Exception as failure:
            error = failure


async def awaited(course: Course[T]) -> T:
    """Run a course on this event loop."""
    answer: Any = None
    error: Exception | None = None
    while True:
        try:
            invoke = course.send(answer) if error is None else course.throw(error)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = error = None
        try:
            answer = await invoke.aresult()
        except Exception as failure:
            error = failure


def _finished(awaitable: Any) -> Any:
    """What an awaitable gives, in a thread that may have a running event loop."""

    async def whole() -> Any:
        return await awaitable

    if asyncio._get_running_loop() is None:
        return asyncio.run(whole())
    return threads.on_worker(lambda: asyncio.run(whole()))
