"""Several runs at once: how many, and what becomes of those that fail."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from typing import Any, TypeAlias, TypeVar

from flowfn.errors import ConfigError

R = TypeVar("R")

Config: TypeAlias = Mapping[str, Any] | None

MOST = 32
"""How many runs of a batch there are at once where nobody says."""


def each_config(inputs: Sequence[Any], config: Config | Sequence[Config]) -> Sequence[Config]:
    """The config of each input.

    Raises:
        ConfigError: not as many configs as inputs.
    """
    if config is None or isinstance(config, Mapping):
        return [config] * len(inputs)
    if len(config) != len(inputs):
        raise ConfigError(
            f"A batch of {len(inputs)} inputs was given {len(config)} configs. Give one, or one for each."
        )
    return config


def most_at_once(configs: Sequence[Config]) -> int:
    """How many runs there may be at once."""
    return next((config["max_concurrency"] for config in configs if config and config.get("max_concurrency")), MOST)


def together(runs: Sequence[Callable[[], R]], most: int, return_exceptions: bool) -> list[Any]:
    """Run all, `most` at once; gives the results in their order, or raises the first failure once all have ended."""
    if not runs:
        return []
    with ThreadPoolExecutor(min(most, len(runs)), thread_name_prefix="flowfn-batch") as pool:
        futures = [pool.submit(copy_context().run, run) for run in runs]
    return _results([future.exception() or future.result for future in futures], return_exceptions)


async def atogether(runs: Sequence[Callable[[], Awaitable[R]]], most: int, return_exceptions: bool) -> list[Any]:
    """The awaited twin of `together`."""
    places = asyncio.Semaphore(most)

    async def one(run: Callable[[], Awaitable[R]]) -> Any:
        async with places:
            return await run()

    tasks = [asyncio.ensure_future(one(run)) for run in runs]
    if tasks:
        await asyncio.wait(tasks)
    return _results([task.exception() or task.result for task in tasks], return_exceptions)


def _results(ends: Sequence[BaseException | Callable[[], Any]], return_exceptions: bool) -> list[Any]:
    failed = next((end for end in ends if isinstance(end, BaseException)), None)
    if failed is not None and not (return_exceptions and isinstance(failed, Exception)):
        raise failed
    return [end if isinstance(end, BaseException) else end() for end in ends]
