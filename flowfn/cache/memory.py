"""A cache that lives as long as its process."""

from __future__ import annotations

import threading
import time

from flowfn.cache.base import Cache
from flowfn.serde.base import Serializer


class InMemoryCache(Cache):
    """Keeps results in this process."""

    def __init__(self, serde: Serializer | None = None) -> None:
        super().__init__(serde)
        self._tasks: dict[str, dict[bytes, tuple[bytes, float | None]]] = {}
        self._lock = threading.Lock()

    def get(self, task: str, key: bytes) -> bytes | None:
        with self._lock:
            entries = self._tasks.get(task, {})
            found = entries.get(key)
            if found is None:
                return None
            blob, until = found
            if until is not None and time.time() >= until:
                del entries[key]
                return None
            return blob

    def set(self, task: str, key: bytes, blob: bytes, ttl: float | None) -> None:
        until = None if ttl is None else time.time() + ttl
        with self._lock:
            self._tasks.setdefault(task, {})[key] = (blob, until)

    def clear(self, task: str | None = None) -> None:
        with self._lock:
            if task is None:
                self._tasks.clear()
            else:
                self._tasks.pop(task, None)
