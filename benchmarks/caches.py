"""Entrants for hits: a flow that calls one cached task again and again, beside other caches."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any

import diskcache
import langgraph.cache.memory
import langgraph.cache.sqlite
import langgraph.func
import langgraph.types

import flowfn
import flowfn.cache
from benchmarks.harness import Entrant, Trials

MakeCache = Callable[[str], Any]
"""A new cache, in a folder if it needs one."""


def of_flowfn(make: MakeCache) -> Entrant:
    return _entrant(make, lambda cache: _flow(flowfn.task, flowfn.entrypoint, flowfn.CachePolicy(), cache))


def of_langgraph(make: MakeCache) -> Entrant:
    task, entrypoint = langgraph.func.task, langgraph.func.entrypoint
    return _entrant(make, lambda cache: _flow(task, entrypoint, langgraph.types.CachePolicy(), cache))


def of_functools() -> Entrant:
    """The bare limit in memory: no flow, no threads, and the object itself."""

    def trials(n: int) -> Trials:
        while True:
            price = functools.lru_cache(_price)
            price(7)
            yield partial(_each, price, n)

    return Entrant(trials)


def of_diskcache() -> Entrant:
    """The bare limit on disk: the folder's cache without a flow around it."""

    def trials(n: int) -> Iterator[Callable[[], Any]]:
        with TemporaryDirectory() as folder, diskcache.Cache(folder) as cache:
            cache.set("7", b"x")
            while True:
                yield partial(_each, lambda _: cache.get("7"), n)

    return Entrant(trials)


MEMORY: tuple[MakeCache, MakeCache] = (
    lambda folder: flowfn.cache.InMemoryCache(),
    lambda folder: langgraph.cache.memory.InMemoryCache(),
)
DISK: tuple[MakeCache, MakeCache] = (
    lambda folder: flowfn.cache.DiskCache(folder),
    lambda folder: langgraph.cache.sqlite.SqliteCache(path=os.path.join(folder, "cache.db")),
)


def _price(x: int) -> int:
    return x


def _flow(task: Any, entrypoint: Any, policy: Any, cache: Any) -> Any:
    price = task(cache_policy=policy)(_price)

    @entrypoint(cache=cache)  # type: ignore[untyped-decorator]
    def flow(n: int) -> int:
        return sum(price(7).result() for _ in range(n))

    return flow


def _entrant(make: MakeCache, flow_on: Callable[[Any], Any]) -> Entrant:
    def trials(n: int) -> Trials:
        with ExitStack() as stack:
            folder = stack.enter_context(TemporaryDirectory(ignore_cleanup_errors=True))
            flow = flow_on(make(folder))
            flow.invoke(1)
            while True:
                yield partial(flow.invoke, n)

    return Entrant(trials)


def _each(ask: Callable[[int], Any], n: int) -> None:
    for _ in range(n):
        ask(7)
