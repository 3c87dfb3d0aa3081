"""What need not be done again: results kept over runs and threads."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from flowfn.cache.base import Cache
from flowfn.cache.keys import Why
from flowfn.cache.memory import InMemoryCache
from flowfn.errors import ConfigError

if TYPE_CHECKING:
    from flowfn.cache.disk import DiskCache

__all__ = ["Cache", "DiskCache", "InMemoryCache", "Why", "open_cache"]


def __getattr__(name: str) -> Any:
    if name == "DiskCache":
        from flowfn.cache.disk import DiskCache

        return DiskCache
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def open_cache(address: Cache | str | os.PathLike[str]) -> Cache:
    """The cache that is meant: one as it is, `memory://`, or the path of a folder.

    Raises:
        ConfigError: it is neither.
    """
    if isinstance(address, Cache):
        return address
    if not isinstance(address, str | os.PathLike):
        raise ConfigError(f"`cache` is a folder or a cache such as `InMemoryCache()`, not {address!r}.")
    kind, separator, _ = os.fspath(address).partition("://")
    if separator and kind == "memory":
        return InMemoryCache()
    if separator:
        raise ConfigError(f"`{address}` names no kind of cache. Give the path of a folder, or `memory://`.")
    from flowfn.cache.disk import DiskCache

    return DiskCache(Path(address))
