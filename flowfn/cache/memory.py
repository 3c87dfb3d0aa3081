"""A cache that lives as long as its process."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Iterable
from typing import Literal, NamedTuple

from flowfn.amounts import whole
from flowfn.cache.base import Cache, Described, Row
from flowfn.cache.flights import Claim
from flowfn.serde.base import Serializer

SIZE_LIMIT = 1 << 28
"""Bytes: 256 MiB."""

_OVERHEAD = 300
"""Bytes that an entry takes beside its own."""


class _Kept(NamedTuple):
    task: str
    row: Row
    stored: float
    until: float | None

    @property
    def size(self) -> int:
        return len(self.row.blob) + len(self.row.about) + _OVERHEAD


class InMemoryCache(Cache):
    """Keeps results in this process, encoded.

    Args:
        serde: encodes values.
        size_limit: bytes; beyond it the entries go that were not used for longest.
    """

    is_instant = True

    def __init__(self, serde: Serializer | None = None, *, size_limit: int = SIZE_LIMIT) -> None:
        super().__init__(serde or Serializer())
        self.size_limit = whole(size_limit, "size_limit")
        self._lock = threading.Lock()
        self._entries: OrderedDict[bytes, _Kept] = OrderedDict()
        self._size = 0
        self._code: dict[bytes, bytes] = {}

    def _read(self, place: bytes) -> bytes | None:
        found = self._entries.get(place)
        if found is None or _is_over(found):
            return None
        try:
            self._entries.move_to_end(place)
        except KeyError:  # another thread has just taken it out
            pass
        return found.row.blob

    def _write(self, claim: Claim, row: Row, ttl: float | None) -> bool:
        now = time.time()
        kept = _Kept(claim.task, row._replace(functions=b""), now, None if ttl is None else now + ttl)
        if kept.size > self.size_limit:
            self._say("A result of task `%s` is larger than its cache may be, and is not kept", claim.task)
            return False
        with self._lock:
            if not claim.is_open:
                return False
            if row.functions:
                self._code[row.code] = row.functions
            self._take_out(claim.key)
            self._entries[claim.key] = kept
            self._size += kept.size
            evicted = self._evict()
        if evicted:
            self._say(
                "A cache in memory has grown beyond its limit of %d bytes; what was not used for longest makes room",
                self.size_limit,
            )
        return True

    def _evict(self) -> int:
        count = 0
        while self._size > self.size_limit:
            self._take_out(next(iter(self._entries)))
            count += 1
        return count

    def _take_out(self, place: bytes) -> None:
        old = self._entries.pop(place, None)
        if old is not None:
            self._size -= old.size

    def _claimed(self, claim: Claim, *, may_replace: bool) -> Literal[True] | None:
        found = self._entries.get(claim.key)
        return None if may_replace or found is None or _is_over(found) else True

    def _described(self, task: str, limit: int) -> Iterable[Described]:
        with self._lock:
            found = [kept for kept in self._entries.values() if kept.task == task and kept.row.about]
        found.sort(key=lambda kept: -kept.stored)
        return [Described(kept.row.about, kept.stored, kept.until) for kept in found[:limit]]

    def _functions(self, code: bytes) -> bytes | None:
        return self._code.get(code)

    def _clear(self, task: str | None) -> None:
        with self._lock:
            for place in [place for place, kept in self._entries.items() if task is None or kept.task == task]:
                self._take_out(place)


def _is_over(kept: _Kept) -> bool:
    return kept.until is not None and kept.until <= time.time()
