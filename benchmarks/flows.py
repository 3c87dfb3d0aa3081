"""The flows that are measured. Each takes the number of units and is written once, for whichever library is given."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from benchmarks.harness import cpu
from benchmarks.libraries import Library

MakeFlow = Callable[[Library, Any], Any]
"""Given a library and its saver, the flow."""
THOUSAND = 1_000


class Mishap(Exception):
    """What a flow raises when its trial wants it to be run again."""


def no_task(library: Library, saver: Any) -> Any:
    @library.entrypoint(checkpointer=saver)
    def flow(n: int) -> int:
        return n

    return flow


def in_turn(library: Library, saver: Any) -> Any:
    @library.task
    def add_one(x: int) -> int:
        return x + 1

    @library.entrypoint(checkpointer=saver)
    def flow(n: int) -> int:
        x = 0
        for _ in range(n):
            x = add_one(x).result()
        return x

    return flow


def in_turn_awaited(library: Library, saver: Any) -> Any:
    @library.task
    async def add_one(x: int) -> int:
        return x + 1

    @library.entrypoint(checkpointer=saver)
    async def flow(n: int) -> int:
        x = 0
        for _ in range(n):
            x = await add_one(x)
        return x

    return flow


def fan_out(library: Library, saver: Any) -> Any:
    @library.task
    def add_one(x: int) -> int:
        return x + 1

    @library.entrypoint(checkpointer=saver)
    def flow(n: int) -> int:
        return sum(future.result() for future in [add_one(i) for i in range(n)])

    return flow


def fan_out_awaited(library: Library, saver: Any) -> Any:
    @library.task
    async def add_one(x: int) -> int:
        return x + 1

    @library.entrypoint(checkpointer=saver)
    async def flow(n: int) -> int:
        return sum(await asyncio.gather(*[add_one(i) for i in range(n)]))

    return flow


def fan_out_of_callers(library: Library, saver: Any) -> Any:
    @library.task
    def add_one(x: int) -> int:
        return x + 1

    @library.task
    def caller(x: int) -> int:
        result: int = add_one(x).result()
        return result

    @library.entrypoint(checkpointer=saver)
    def flow(n: int) -> int:
        return sum(future.result() for future in [caller(i) for i in range(n)])

    return flow


def fan_out_of_callers_awaited(library: Library, saver: Any) -> Any:
    @library.task
    async def add_one(x: int) -> int:
        return x + 1

    @library.task
    async def caller(x: int) -> int:
        result: int = await add_one(x)
        return result

    @library.entrypoint(checkpointer=saver)
    async def flow(n: int) -> int:
        return sum(await asyncio.gather(*[caller(i) for i in range(n)]))

    return flow


def fails_once(library: Library, saver: Any) -> Any:
    """Its first run raises when all its calls are finished, and so the next one replays them."""
    runs = []

    @library.task
    def add_one(x: int) -> int:
        return x + 1

    @library.entrypoint(checkpointer=saver)
    def flow(n: int) -> int:
        runs.append(n)
        x = 0
        for _ in range(n):
            x = add_one(x).result()
        if len(runs) == 1:
            raise Mishap
        return x

    return flow


def timed(library: Library, saver: Any) -> Any:
    """Returns the microseconds of CPU per call, of the first thousand and of the last."""

    @library.task
    def add_one(x: int) -> int:
        return x + 1

    @library.entrypoint(checkpointer=saver)
    def flow(n: int) -> tuple[float, float]:
        part = min(n, THOUSAND)
        at = {}
        for i in range(n):
            if i in (0, part, n - part):
                at[i] = cpu()
            add_one(i).result()
        at[n] = cpu()
        return (at[part] - at[0]) / part * 1e6, (at[n] - at[n - part]) / part * 1e6

    return flow


def asks(library: Library, saver: Any) -> Any:
    """A task and a question, one after another."""

    @library.task
    def add_one(x: int) -> int:
        return x + 1

    @library.entrypoint(checkpointer=saver)
    def flow(n: int) -> int:
        x = 0
        for _ in range(n):
            x = add_one(x).result() + library.interrupt("go on?")
        return x

    return flow


def returns(value: Any) -> MakeFlow:
    """A flow whose task returns that value."""

    def make(library: Library, saver: Any) -> Any:
        @library.task
        def produce(i: int) -> Any:
            return value

        @library.entrypoint(checkpointer=saver)
        def flow(n: int) -> int:
            return sum(len(produce(i).result()) for i in range(n))

        return flow

    return make
